"""The ends of jobs on their way to the service: gathered while a request is out, and repeated until answered."""

from __future__ import annotations

import asyncio
from collections import deque
from dataclasses import dataclass
from typing import Any

from jobqueue_client.answers import Answer
from jobqueue_client.async_client import AsyncClient
from jobqueue_client.errors import JobQueueError, NotFound, NotReserved, Refused, StaleLease, Unavailable, Unreachable
from jobqueue_client.loops import survive
from jobqueue_client.reach import Reach
from jobqueue_client.retry import is_final, longest_s, pause_s

_MOST = 1000  # the protocol's bound of an array
_MOST_BYTES = 1 << 20
_CHARACTER_BYTES = 6  # of a reason in JSON, at most: \u001f
_COMMAND_BYTES = 400  # the rest of a command, at most


@dataclass(slots=True, eq=False)
class _End:
    command: dict[str, Any]
    answered: asyncio.Future[None]
    perhaps_done: bool = False
    """Whether an attempt before may have done it, though its answer did not come."""

    def settle(self, result: Answer | JobQueueError) -> bool:
        """Tell who waits. False: no answer yet, it must be sent again."""
        if self.answered.done():  # nobody waits any more
            return True
        if not isinstance(result, JobQueueError) or self._was_done(result):
            self.answered.set_result(None)
        elif is_final(result):
            self.answered.set_exception(result)
        else:
            unsure = isinstance(result, Unavailable) or (isinstance(result, Unreachable) and result.maybe_done)
            self.perhaps_done = self.perhaps_done or unsure
            return False
        return True

    def _was_done(self, error: JobQueueError) -> bool:
        """Whether a refusal just means that the attempt before did it."""
        gone: tuple[type[Refused], ...] = (NotFound,)
        if self.command["command"] != "finish":  # a finish would succeed again while the job is remembered
            gone = (NotFound, NotReserved, StaleLease)
        return self.perhaps_done and isinstance(error, gone)


class Ends:
    """Sends finish, release and bury with their leases."""

    def __init__(self, client: AsyncClient, reach: Reach) -> None:
        self._client = client
        self._reach = reach
        self._waiting: deque[_End] = deque()
        self._some = asyncio.Event()
        self._failures = 0

    async def send(self, command: dict[str, Any]) -> None:
        """Send one command, and wait for its answer, however long that takes. Raises Refused."""
        answered = asyncio.get_running_loop().create_future()
        self._waiting.append(_End(command, answered))
        self._some.set()
        await answered

    async def run(self) -> None:
        """Send what comes, until cancelled."""
        while True:
            await survive(self.tick)

    async def tick(self) -> None:
        """One request with all that wait."""
        await self._some.wait()
        batch = self._take()
        results: list[Answer | JobQueueError]
        try:
            results = await self._client.batch([end.command for end in batch])
        except JobQueueError as error:
            results = [error] * len(batch)
        self._reach.told(results)
        open_ = [(end, result) for end, result in zip(batch, results, strict=True) if not end.settle(result)]
        self._failures = self._failures + 1 if open_ else 0
        if open_:
            self._waiting.extendleft(end for end, _ in reversed(open_))
            await asyncio.sleep(pause_s(self._failures, longest_s([result for _, result in open_])))
        elif not self._waiting:
            self._some.clear()

    def _take(self) -> list[_End]:
        batch: list[_End] = []
        size = 0
        while self._waiting and len(batch) < _MOST and size < _MOST_BYTES:
            end = self._waiting.popleft()
            batch.append(end)
            size += _COMMAND_BYTES + _CHARACTER_BYTES * len(end.command.get("reason") or "")
        return batch
