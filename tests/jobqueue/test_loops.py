"""Loops: what readiness asks of them, and how they end."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import structlog

from jobqueue.loops import Loop, checks, running
from tests.kit.waiting import until


async def for_ever() -> None:
    await asyncio.Event().wait()


async def broken() -> None:
    raise ValueError("a defect")


async def test_a_check_passes_while_all_its_loops_run_and_work() -> None:
    hears = True
    loops = [
        Loop("bell", for_ever, "bell", works=lambda: hears),
        Loop("timer 0", for_ever, "timers"),
        Loop("timer 1", for_ever, "timers"),
        Loop("metrics", for_ever),
    ]
    assert checks(loops) == {"bell": False, "timers": False}
    async with running(*loops):
        assert checks(loops) == {"bell": True, "timers": True}
        hears = False
        assert checks(loops) == {"bell": False, "timers": True}
    assert checks(loops) == {"bell": False, "timers": False}


async def test_a_loop_that_ends_by_itself_is_unhealthy_and_logged() -> None:
    loop = Loop("timer 0", broken, "timers")
    with structlog.testing.capture_logs() as logged:
        async with running(loop):
            await until(lambda: not loop.is_healthy)
    assert [(entry["event"], entry["task"]) for entry in logged] == [("task.ended", "timer 0")]
    assert isinstance(logged[0]["exc_info"], ValueError)


async def test_loops_that_run_together_are_all_cancelled_before_the_end_of_one_is_awaited() -> None:
    cancelled = asyncio.Event()

    def until_cancelled(at_end: Callable[[], Coroutine[Any, Any, object]]) -> Callable[[], Coroutine[Any, Any, None]]:
        async def run() -> None:
            try:
                await for_ever()
            finally:
                await at_end()

        return run

    async def tell() -> None:
        cancelled.set()

    with structlog.testing.capture_logs() as logged:
        async with (
            asyncio.timeout(5),
            running(Loop("first", until_cancelled(cancelled.wait)), Loop("second", until_cancelled(tell))),
        ):
            await asyncio.sleep(0)  # both have begun
    assert logged == []
