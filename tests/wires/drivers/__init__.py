"""A small client of each protocol, with one set of verbs. They know only what goes over the wire."""

from __future__ import annotations

import asyncio
import time
from abc import ABC, abstractmethod
from typing import Any, ClassVar, NamedTuple, Self

from tests.wires.drivers.stream import PATIENCE_S, Stream


class RefusedError(Exception):
    """The service said no, in the dialect's words."""


class Added(NamedTuple):
    name: Any
    """As the dialect calls the job."""
    due: float
    """Unix seconds; a delivery before is early."""


class Taken(NamedTuple):
    topic: str
    name: Any
    body: bytes
    lease: int = 0
    """The native protocol's."""
    at: float = 0.0
    """Unix seconds; when it had arrived."""


class Driver(ABC):
    """A client on one connection, with `async with`. It connects when first used, and again after `close`.

    `ttr_s`: the lease of its jobs, asked at the add or at the pop, where the protocol has it; 1 s is the least that all
    can have. `within_s`: how long an answer may take, besides the wait of a pop.
    """

    NAME: ClassVar[str]
    POPS: ClassVar[bool] = True
    WAITS: ClassVar[bool] = True
    """A pop may wait. A driver that cannot asks again and again."""
    HAS_IDS: ClassVar[bool] = False
    """The client may choose the names of jobs."""
    HOLDS: ClassVar[bool] = False
    """A closed connection gives its jobs back."""
    SETTLES: ClassVar[bool] = True
    """Who finishes late, finishes all the same: jobs have no leases there."""
    SECONDS: ClassVar[bool] = True
    """Delays are whole seconds."""

    def __init__(self, port: int, *, ttr_s: float = 60.0, within_s: float = PATIENCE_S) -> None:
        self.port = port
        self.ttr_s = ttr_s
        self._within_s = within_s
        self._stream = Stream(port)

    async def add(self, topic: str, body: bytes, *, delay_s: float = 0.0, name: str = "") -> Added:
        """Add a job. Raises RefusedError, OSError."""
        due = time.time() + delay_s
        async with asyncio.timeout(self._within_s):
            return await self._add(topic, body, delay_s, name, due)

    async def pop(self, topic: str, wait_s: float = 0.0) -> Taken | None:
        """Reserve a job."""
        async with asyncio.timeout(self._within_s + wait_s):
            found = await self._pop(topic, wait_s)
        return found and found._replace(at=time.time())

    async def finish(self, job: Taken) -> bool:
        """Whether the service says that it is done; systems without leases say so always."""
        async with asyncio.timeout(self._within_s):
            return await self._finish(job)

    async def cancel(self, topic: str, name: Any) -> bool:
        """Cancel a job that nobody has. Whether the service says that it did; some say so always."""
        async with asyncio.timeout(self._within_s):
            return await self._cancel(topic, name)

    async def is_there(self, topic: str, name: Any) -> bool:
        """Whether the job is pending; where one cannot ask for it, whether the topic has any."""
        async with asyncio.timeout(self._within_s):
            return await self._is_there(topic, name)

    @abstractmethod
    async def _add(self, topic: str, body: bytes, delay_s: float, name: str, due: float) -> Added: ...

    async def _pop(self, topic: str, wait_s: float) -> Taken | None:
        raise NotImplementedError

    @abstractmethod
    async def _finish(self, job: Taken) -> bool: ...

    @abstractmethod
    async def _cancel(self, topic: str, name: Any) -> bool: ...

    @abstractmethod
    async def _is_there(self, topic: str, name: Any) -> bool: ...

    @abstractmethod
    async def refusals(self, topic: str) -> None:
        """Send what must be refused, and check that it is."""

    async def close(self) -> None:
        await self._stream.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exception: object) -> None:
        await self.close()
