"""An append-only file that a power cut tore: what is left of it is written anew.

A script's writes stand between MULTI and EXEC. Where the file ends between them the server leaves them out, as it
should; but most versions cut the file off behind the last of them that is whole, so that the next start finds them,
takes what was written later for the rest, and runs half of a script. Tried with Redis 7.0.15; Valkey has mended it
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


def is_torn(said: str) -> bool:
    """Whether a server that has started said that its file had no right end."""
    return _SHORT in said


async def write_anew(socket: Path) -> None:
    """Let the server on a Unix socket write its file anew, and wait for it; where it cannot, that is logged."""
    log.warning("redis.torn", extra={"socket": str(socket)})
    try:
        async with Client(unix_socket_path=str(socket), socket_timeout=None, protocol=2) as client:
            await client.bgrewriteaof()
            while _goes_on(told := await client.info("persistence")):  # noqa: ASYNC110 - it tells nobody
                await asyncio.sleep(_LOOK_S)
            trouble = "" if told["aof_last_bgrewrite_status"] == "ok" else "its log says why"
    except RedisError as error:
        trouble = str(error)
    if trouble:
        log.error("redis.still_torn", extra={"socket": str(socket), "error": trouble})


def _goes_on(told: dict[str, Any]) -> bool:
    return bool(told["aof_rewrite_scheduled"] or told["aof_rewrite_in_progress"])
