"""The Python client and worker of jobqueue, a delay-queue service."""

from importlib import import_module
from typing import TYPE_CHECKING

from jobqueue_client.client import Client
from jobqueue_client.errors import (
    AlreadyExists,
    BadField,
    BadHttp,
    BadJson,
    Forbidden,
    Internal,
    JobQueueError,
    MethodNotAllowed,
    Misdirected,
    NoRoom,
    NoSuchPath,
    NotFound,
    NotReserved,
    Refused,
    Reserved,
    ShuttingDown,
    StaleLease,
    TooFast,
    TooLarge,
    TooLate,
    TooMany,
    TopicFull,
    Unauthorized,
    Unavailable,
    UnknownCommand,
    UnknownField,
    Unreachable,
    WrongState,
)
from jobqueue_client.job import Job, Lost
from jobqueue_client.outbox import Outbox
from jobqueue_client.worker.outcome import Bury, Retry

if TYPE_CHECKING:
    from jobqueue_client.async_client import AsyncClient
    from jobqueue_client.worker.worker import Worker

__all__ = [
    "AlreadyExists",
    "AsyncClient",
    "BadField",
    "BadHttp",
    "BadJson",
    "Bury",
    "Client",
    "Forbidden",
    "Internal",
    "Job",
    "JobQueueError",
    "Lost",
    "MethodNotAllowed",
    "Misdirected",
    "NoRoom",
    "NoSuchPath",
    "NotFound",
    "NotReserved",
    "Outbox",
    "Refused",
    "Reserved",
    "Retry",
    "ShuttingDown",
    "StaleLease",
    "TooFast",
    "TooLarge",
    "TooLate",
    "TooMany",
    "TopicFull",
    "Unauthorized",
    "Unavailable",
    "UnknownCommand",
    "UnknownField",
    "Unreachable",
    "Worker",
    "WrongState",
]

_WITH_AIOHTTP = {"AsyncClient": "jobqueue_client.async_client", "Worker": "jobqueue_client.worker.worker"}
"""Names loaded on first use, so that a program that only uses Client need not load aiohttp."""


def __getattr__(name: str) -> object:
    if name not in _WITH_AIOHTTP:
        raise AttributeError(f"module 'jobqueue_client' has no attribute {name!r}")
    return getattr(import_module(_WITH_AIOHTTP[name]), name)
