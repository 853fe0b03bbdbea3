"""The runner: carries out the operations of a namespace, in the one process that holds the lock of its first timer.

Plans, searches and each kind of change have a lane, in which one operation is carried out at a time; the others wait.
Two processes at once do no harm: a change continues only from its stored position.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math

from buckets.errors import JobQueueError, TryLater
from buckets.operations.carrying_out import CarryingOut
from buckets.operations.store import ACTIVE, DONE, PLANNING, RUNNING, Halted, Operation, Operations
from buckets.waiting.notifier import Listener, Notifier

log = logging.getLogger(__name__)

_LOOK_S = 30.0  # after which the list is read again if it has active operations, in case a message was lost
_CHECK_S = 0.5  # after which the lock is checked again, without asking Redis
_AGAIN_S = 0.5  # before a retry, after Redis did not answer


class Runner:
    """The runner of one process. `held`: set while the process holds the lock."""

    def __init__(
        self, operations: Operations, notifier: Notifier, held: asyncio.Event, carrying_out: CarryingOut
    ) -> None:
        self._operations = operations
        self._held = held
        self._carrying_out = carrying_out
        self._woken = asyncio.Event()
        self._lanes: dict[str, asyncio.Task[None]] = {}
        notifier.register(Listener(operation=self._woken.set, subscribed=lambda shard: self._woken.set()))

    async def run(self) -> None:
        """Carry out operations while the lock is held, until cancelled."""
        while True:
            await self._held.wait()
            try:
                await self._while_held()
            except JobQueueError:  # Redis is away, which others log
                await asyncio.sleep(_AGAIN_S)
            except Exception:
                log.exception("operations.failed")
                await asyncio.sleep(_LOOK_S)
            finally:
                await self._halt()

    async def _while_held(self) -> None:
        loop = asyncio.get_running_loop()
        look_at = loop.time()
        while self._held.is_set():
            if self._woken.is_set() or loop.time() >= look_at:
                self._woken.clear()
                has_some = await self._begin_some()
                look_at = loop.time() + _LOOK_S if has_some else math.inf
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_CHECK_S):
                    await self._woken.wait()

    async def _begin_some(self) -> bool:
        """Begin the active operations whose lanes are free; those already running come first. Returns whether there are
        any active operations."""
        operations = await self._operations.page(ACTIVE)
        for operation in sorted(operations, key=lambda each: (each.state != RUNNING, each.started or each.planned)):
            lane = "plan" if operation.state == PLANNING else operation.asked.kind
            if lane not in self._lanes:
                task = asyncio.create_task(self._carry_out(operation), name=f"operation {operation.id}")
                self._lanes[lane] = task
                task.add_done_callback(lambda _, lane=lane: self._free(lane))  # type: ignore[misc]
        return bool(operations)

    def _free(self, lane: str) -> None:
        self._lanes.pop(lane, None)
        self._woken.set()

    async def _carry_out(self, operation: Operation) -> None:
        """Carry out an operation to its end, however often Redis is away meanwhile."""
        known: Operation | None = operation
        while True:
            try:
                known = await self._operations.get(operation.id)
                if known and known.state in ACTIVE:
                    await self._carrying_out.go_on(known)
                    _log_end(known)
                return None
            except Halted:
                return None
            except TryLater:
                await asyncio.sleep(_AGAIN_S)
            except JobQueueError as error:
                return await self._fail(known or operation, error.message)
            except Exception:
                log.exception("operation.failed", extra={"operation": operation.id})
                return await self._fail(known or operation, "an error of the service; its log has more")

    async def _fail(self, operation: Operation, error: str) -> None:
        with contextlib.suppress(JobQueueError):
            await self._carrying_out.fail(operation, error)

    async def _halt(self) -> None:
        """Stop carrying out operations; another instance continues them."""
        tasks = [*self._lanes.values()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def _log_end(operation: Operation) -> None:
    """Log how a change went; plans and searches change nothing."""
    if operation.state == DONE and operation.asked.kind != "find":
        numbers = {"count": operation.count, "done": operation.done, "skipped": operation.skipped}
        log.info("operation.done", extra={"operation": operation.id, "kind": operation.asked.kind, **numbers})
