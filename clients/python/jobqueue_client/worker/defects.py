"""Defects: an unexpected exception in a loop of the worker is logged, and the loop continues."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from jobqueue_client.errors import Refused
from jobqueue_client.worker.report import Report

_PAUSE_S = 1.0


async def survive(tick: Callable[[], Awaitable[None]], report: Report) -> None:
    """Run one turn of a loop; an unexpected exception is logged and followed by a pause. Raises Refused."""
    try:
        await tick()
    except Refused:
        raise
    except Exception as error:
        report.defect(error)
        await asyncio.sleep(_PAUSE_S)
