"""What all loops of a worker have in common."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from jobqueue_client.errors import Refused
from jobqueue_client.events import log

_AFTER_A_DEFECT_S = 1.0


async def survive(tick: Callable[[], Awaitable[None]]) -> None:
    """One turn of a loop. What nobody expected is logged, and the loop goes on. Raises Refused."""
    try:
        await tick()
    except Refused:
        raise
    except Exception:
        log.exception("a defect of jobqueue_client; the worker goes on")
        await asyncio.sleep(_AFTER_A_DEFECT_S)
