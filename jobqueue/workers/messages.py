"""The messages of a supervisor to its workers: how to start, later other settings, that they are to refuse jobs, and
questions whether they answer.

They travel through a pipe, the worker's standard input, as JSON behind its length (4 bytes). So no command line shows a
Redis URL with its password, and the end of the pipe shows the worker that its supervisor is gone. A question is empty.
The worker answers each message, in their order, with a line on its standard output when it has done what the message
says.

A process that has a supervisor obeys that alone, ends with it, and answers its messages.
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
"""Whether the worker answers."""


def _framed(data: bytes) -> bytes:
    return len(data).to_bytes(_HEAD, "big") + data


REFUSE_JOBS = _framed(b'"refuse jobs"')
"""The worker is to take no more jobs over the protocols whose own servers can do that."""


def encode(loaded: Loaded) -> bytes:
    """The bytes of a message: all settings, with the URL of the Redis and the number of the port in use, and where they
    came from."""
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
        """Wait for the next message; None is a question."""
        message = await self._messages.get()
        return msgspec.json.decode(message, type=Loaded | Literal["refuse jobs"]) if message else None


_PR_SET_PDEATHSIG = 1  # linux/prctl.h


def obey(supervisor: int) -> None:
    """Take signals from the supervisor alone, which passes on what others mean, and have the kernel kill this process
    when the thread that started it ends: the supervisor's main thread."""
    for ignored in (signal.SIGINT, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2):
        signal.signal(ignored, signal.SIG_IGN)
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != supervisor:  # it ended before the kernel was asked
        sys.exit(1)


def report(refusal: str) -> None:
    """Answer a message: with nothing, or why this process cannot start."""
    print(json.dumps(refusal), flush=True)
