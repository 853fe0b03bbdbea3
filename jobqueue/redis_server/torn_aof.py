"""An append-only file that a power cut tore: what is left of it is rewritten.

A script's writes are between MULTI and EXEC. Where the file ends between the two, the server ignores them, as it
should; but most versions truncate the file only behind the last whole write. So the next start finds the MULTI, takes
what was written later for the rest of the script, and runs half of it. Tried with Redis 7.0.15; Valkey has fixed it
(valkey-io/valkey#4342).
"""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path
from typing import Any

from redis.asyncio import Redis as Client
from redis.exceptions import RedisError

log = logging.getLogger(__name__)

_LOOK_S = 0.02
_SHORT = "short read while loading the AOF file"  # in the server's log


def is_torn(log_text: str) -> bool:
    """Whether a server that has started logged that its file ended too early."""
    return _SHORT in log_text


async def rewrite(socket: Path) -> None:
    """Have the server on a Unix socket rewrite its file, and wait for it; a failure is logged."""
    log.warning("redis.torn", extra={"socket": str(socket)})
    try:
        async with Client(unix_socket_path=str(socket), socket_timeout=None, protocol=2) as client:
            await client.bgrewriteaof()
            while _is_rewriting(info := await client.info("persistence")):  # noqa: ASYNC110 - it announces nothing
                await asyncio.sleep(_LOOK_S)
            trouble = "" if info["aof_last_bgrewrite_status"] == "ok" else "its log says why"
    except RedisError as error:
        trouble = str(error)
    if trouble:
        log.error("redis.still_torn", extra={"socket": str(socket), "error": trouble})


def _is_rewriting(info: dict[str, Any]) -> bool:
    return bool(info["aof_rewrite_scheduled"] or info["aof_rewrite_in_progress"])
