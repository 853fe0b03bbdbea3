"""The outbox: the commands that end jobs, queued while a request is in flight and kept until they are answered."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from jobqueue_client.answers import Answer
from jobqueue_client.errors import (
    Internal,
    JobQueueError,
    NotFound,
    NotReserved,
    Refused,
    StaleLease,
    Unavailable,
    Unreachable,
)
from jobqueue_client.retry import is_final

_MOST_COMMANDS = 999  # the protocol's limit for a batch, minus one for the pop that follows
_MOST_BYTES = 1 << 20
_CHARACTER_BYTES = 6  # the longest JSON form of a character in a reason: \u001f
_COMMAND_BYTES = 400  # the greatest length of a command without its reason


@dataclass(slots=True, eq=False)
class End:
    """A finish, release or bury with its lease, and a future for its answer."""

    command: dict[str, Any]
    answered: asyncio.Future[str | None]
    """The job's state after the command, or None if the service did not report it."""
    maybe_done: bool = False
    """Whether an earlier attempt may have been executed, although its answer was lost."""

    def settle(self, result: Answer | JobQueueError) -> bool:
        """Resolve the future. Returns False if the error is temporary and the command must be sent again."""
        if self.answered.done():  # the caller was cancelled
            return True
        if not isinstance(result, JobQueueError):
            self.answered.set_result(result.get("state"))
        elif self._was_done(result):
            self.answered.set_result(getattr(result, "state", None))
        elif is_final(result) or isinstance(result, Internal):  # a defect of the service must not hold a slot for good
            self.answered.set_exception(result)
        else:
            unsure = isinstance(result, Unavailable) or (isinstance(result, Unreachable) and result.maybe_done)
            self.maybe_done = self.maybe_done or unsure
            return False
        return True

    def _was_done(self, error: JobQueueError) -> bool:
        """Whether the refusal only means that an earlier attempt was executed."""
        gone: tuple[type[Refused], ...] = (NotFound,)
        if self.command["command"] != "finish":  # a repeated finish succeeds for as long as the job is remembered
            gone = (NotFound, NotReserved, StaleLease)
        return self.maybe_done and isinstance(error, gone)


class Outbox:
    """The commands that end jobs and are not answered yet."""

    def __init__(self) -> None:
        self._waiting: deque[End] = deque()
        self._not_empty = asyncio.Event()
        self.open = 0
        """The number of ends that are not answered yet, including those in flight."""

    async def send(self, command: dict[str, Any]) -> str | None:
        """Queue a command and wait for its answer, however long that takes. Returns the job's state. Raises Refused."""
        answered: asyncio.Future[str | None] = asyncio.get_running_loop().create_future()
        self._waiting.append(End(command, answered))
        self.open += 1
        self._not_empty.set()
        return await answered

    async def take(self) -> list[End]:
        """The ends for the next request; waits until there is at least one."""
        await self._not_empty.wait()
        batch: list[End] = []
        size = 0
        while self._waiting and len(batch) < _MOST_COMMANDS and size < _MOST_BYTES:
            end = self._waiting.popleft()
            batch.append(end)
            size += _COMMAND_BYTES + _CHARACTER_BYTES * len(end.command.get("reason") or "")
        if not self._waiting:
            self._not_empty.clear()
        return batch

    def settle(self, batch: Sequence[End], results: Sequence[Answer | JobQueueError]) -> list[Answer | JobQueueError]:
        """Settle a batch. Ends that must be sent again go back to the front of the queue; returns the results of
        these."""
        again = [(end, result) for end, result in zip(batch, results, strict=True) if not end.settle(result)]
        self.open -= len(batch) - len(again)
        if again:
            self._waiting.extendleft(end for end, _ in reversed(again))
            self._not_empty.set()
        return [result for _, result in again]
