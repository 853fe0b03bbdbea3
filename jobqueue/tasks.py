"""Tasks that run beside the rest, as long as a block does."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Coroutine, Mapping
from typing import Any

import structlog

log = structlog.get_logger()


@contextlib.asynccontextmanager
async def running(name: str, work: Coroutine[Any, Any, None]) -> AsyncIterator[asyncio.Task[None]]:
    """A task that runs until the block is left; should it end by itself, that is logged."""
    task = asyncio.create_task(work, name=name)
    task.add_done_callback(_tell_of_end)
    try:
        yield task
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


@contextlib.asynccontextmanager
async def running_all(works: Mapping[str, Coroutine[Any, Any, None]]) -> AsyncIterator[list[asyncio.Task[None]]]:
    """As `running`, for several by name. They end together: none waits for the end of another."""
    tasks = [asyncio.create_task(work, name=name) for name, work in works.items()]
    for task in tasks:
        task.add_done_callback(_tell_of_end)
    try:
        yield tasks
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def _tell_of_end(task: asyncio.Task[None]) -> None:
    if not task.cancelled():
        log.error("task.ended", task=task.get_name(), exc_info=task.exception())
