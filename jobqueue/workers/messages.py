"""The messages of a supervisor to its workers: the settings to start with, later other settings, the request to refuse
jobs, and questions whether the workers answer.

They are sent through a pipe, the worker's standard input, as JSON after its length (4 bytes). So no command line shows
a Redis URL with its password, and the end of the pipe shows the worker that its supervisor has ended. A question is an
empty message. The worker answers the messages in order, each with a line on its standard output once it has done what
the message says.

A process that has a supervisor obeys only the supervisor, ends with it, and answers its messages.
"""

from __future__ import annotations

import asyncio
import ctypes
import json
import os
import signal
import sys
from collections.abc import Callable
from typing import Literal

import msgspec

from jobqueue.settings import Loaded

_HEAD = 4
QUESTION = bytes(_HEAD)
"""The question whether the worker answers."""


def _framed(data: bytes) -> bytes:
    return len(data).to_bytes(_HEAD, "big") + data


REFUSE_JOBS = _framed(b'"refuse jobs"')
"""The worker must accept no more jobs over the protocols whose original servers have a drain mode."""


def encode(loaded: Loaded) -> bytes:
    """The bytes of a message: all settings and their sources, with the URL of the Redis and the number of the port in
    use."""
    return _framed(msgspec.json.encode(loaded))


class Inbox(asyncio.Protocol):
    """A worker's end of the pipe. `orphaned` is called when the pipe ends."""

    def __init__(self, orphaned: Callable[[], None]) -> None:
        self._orphaned = orphaned
        self._bytes = bytearray()
        self._messages: asyncio.Queue[bytes] = asyncio.Queue()

    def data_received(self, data: bytes) -> None:
        self._bytes += data
        while len(self._bytes) >= (end := _HEAD + int.from_bytes(self._bytes[:_HEAD], "big")):
            self._messages.put_nowait(bytes(self._bytes[_HEAD:end]))
            del self._bytes[:end]

    def connection_lost(self, error: Exception | None) -> None:
        self._orphaned()

    async def message(self) -> Loaded | Literal["refuse jobs"] | None:
        """Wait for the next message. Returns None for a question."""
        message = await self._messages.get()
        return msgspec.json.decode(message, type=Loaded | Literal["refuse jobs"]) if message else None


_PR_SET_PDEATHSIG = 1  # linux/prctl.h


def obey(supervisor: int) -> None:
    """Ignore the signals to which the supervisor reacts for all its processes, and have the kernel kill this process
    when the thread that started it, the supervisor's main thread, ends."""
    for ignored in (signal.SIGINT, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2):
        signal.signal(ignored, signal.SIG_IGN)
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != supervisor:  # the supervisor ended before the kernel was asked
        sys.exit(1)


def report(refusal: str) -> None:
    """Answer a message: with an empty string, or with the reason why this process cannot start."""
    print(json.dumps(refusal), flush=True)
