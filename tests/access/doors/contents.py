"""All that a Redis holds, to see that a refused request changed nothing."""

from __future__ import annotations

import re

from buckets.redis.client import Redis
from tests.kit.everything import everything

_BY_THEMSELVES = re.compile(rb"\}:(lock:|roll$|cards$|w:|fence$|f:|figured$|op:)")
"""Keys that change though nobody asks for anything."""


async def contents(redis: Redis) -> dict[bytes, bytes]:
    """Each key with its value and its end."""
    found = {}
    for key, stored in (await everything(redis)).items():
        if _BY_THEMSELVES.search(key):
            continue
        if key.endswith(b":tokens"):
            found[key] = _records(stored.value)
        else:
            found[key] = b"%r %d" % (stored.dump, stored.ends_at_ms)
    return found


def _records(flat: list[bytes]) -> bytes:
    """The records of tokens, but not when each was used."""
    pairs = sorted(zip(flat[::2], flat[1::2], strict=True))
    return b"\n".join(b"%b %b" % pair for pair in pairs if not pair[0].startswith(b"used:"))
