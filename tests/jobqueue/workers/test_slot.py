"""A slot whose worker has just ended: its pipe is closed, and its exit code is yet to come."""

from __future__ import annotations

import asyncio
from asyncio.subprocess import PIPE
from collections import deque

from jobqueue.process import loop_factory
from jobqueue.workers.slot import Slot


def test_a_worker_that_has_just_ended_does_not_answer_and_breaks_nothing() -> None:
    """On the event loop of the service a write to its pipe would raise."""

    async def ask() -> bool:
        slot = object.__new__(Slot)  # one that keeps no process of its own
        slot._owed = deque()
        slot._process = process = await asyncio.create_subprocess_exec("sleep", "60", stdin=PIPE)
        assert process.stdin
        process.stdin.close()
        asking = asyncio.create_task(slot.answers())
        await asyncio.sleep(0)
        process.kill()
        await process.wait()
        slot._owe_nothing()
        return await asking

    with asyncio.Runner(loop_factory=loop_factory()) as runner:
        assert runner.run(ask()) is False
