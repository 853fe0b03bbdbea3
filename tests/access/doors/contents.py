"""All that a Redis holds, to see that a refused request changed nothing."""

from __future__ import annotations

import re

from buckets.redis.client import Redis

_BY_THEMSELVES = re.compile(rb"\}:(lock:|roll$|cards$|w:|fence$|f:|figured$|op:)")
"""Keys that change though nobody asks for anything."""


async def contents(redis: Redis) -> dict[bytes, bytes]:
    """Each key with its value and its end."""
    found = {}
    for key in sorted(await redis.read("KEYS", "*")):
        if _BY_THEMSELVES.search(key):
            continue
        if key.endswith(b":tokens"):
            found[key] = await _records(redis, key)
        else:
            found[key] = b"%r %d" % (await redis.read("DUMP", key), await redis.read("PEXPIRETIME", key))
    return found


async def _records(redis: Redis, key: bytes) -> bytes:
    """The records of tokens, but not when each was used."""
    flat = await redis.read("HGETALL", key)
    pairs = sorted(zip(flat[::2], flat[1::2], strict=True))
    return b"\n".join(b"%b %b" % pair for pair in pairs if not pair[0].startswith(b"used:"))
