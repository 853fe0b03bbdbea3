"""The ends of jobs: gathered while a request is out, and kept until they were answered."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from jobqueue_client.answers import Answer
from jobqueue_client.errors import JobQueueError, NotFound, NotReserved, Refused, StaleLease, Unavailable, Unreachable
from jobqueue_client.retry import is_final

_MOST = 999  # the protocol's bound of an array, but for the pop behind them
_MOST_BYTES = 1 << 20
_CHARACTER_BYTES = 6  # of a reason in JSON, at most: \u001f
_COMMAND_BYTES = 400  # the rest of a command, at most


@dataclass(slots=True, eq=False)
class End:
    """A command with a lease, and who waits for its answer."""

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
    """Finish, release and bury with their leases."""

    def __init__(self) -> None:
        self._waiting: deque[End] = deque()
        self._some = asyncio.Event()
        self.open = 0
        """How many were not answered yet."""

    async def send(self, command: dict[str, Any]) -> None:
        """Have a command sent, and wait for its answer, however long that takes. Raises Refused."""
        answered = asyncio.get_running_loop().create_future()
        self._waiting.append(End(command, answered))
        self.open += 1
        self._some.set()
        await answered

    async def take(self) -> list[End]:
        """What goes in one request; waits until there is something."""
        await self._some.wait()
        batch: list[End] = []
        size = 0
        while self._waiting and len(batch) < _MOST and size < _MOST_BYTES:
            end = self._waiting.popleft()
            batch.append(end)
            size += _COMMAND_BYTES + _CHARACTER_BYTES * len(end.command.get("reason") or "")
        if not self._waiting:
            self._some.clear()
        return batch

    def settle(self, batch: Sequence[End], results: Sequence[Answer | JobQueueError]) -> list[Answer | JobQueueError]:
        """Tell who waits. What must be sent again goes first then; what came of that."""
        again = [(end, result) for end, result in zip(batch, results, strict=True) if not end.settle(result)]
        self.open -= len(batch) - len(again)
        if again:
            self._waiting.extendleft(end for end, _ in reversed(again))
            self._some.set()
        return [result for _, result in again]
