"""All that a Redis holds, read at once: key by key, tests would spend most of their time here."""

from __future__ import annotations

from typing import Any, NamedTuple

from buckets.redis.client import Redis

_SCRIPT = """
local READS = {
  string = {'GET'},
  list = {'LRANGE', 0, -1},
  hash = {'HGETALL'},
  zset = {'ZRANGE', 0, -1, 'WITHSCORES'},
  set = {'SMEMBERS'},
  stream = {'XRANGE', '-', '+'},
}
local found = {}
for _, key in ipairs(redis.call('KEYS', ARGV[1])) do
  local kind = redis.call('TYPE', key).ok
  local read = READS[kind]
  local value = read and redis.call(read[1], key, unpack(read, 2))
  if value then  -- else its time is over
    found[#found + 1] = {key, kind, value, redis.call('PTTL', key), redis.call('PEXPIRETIME', key),
      redis.call('DUMP', key)}
  end
end
return found
"""


class Stored(NamedTuple):
    """What a key holds."""

    kind: bytes
    """As TYPE answers."""
    value: Any
    """As GET, LRANGE, HGETALL, ZRANGE WITHSCORES, SMEMBERS or XRANGE answers."""
    ends_in_ms: int
    """-1: it does not end."""
    ends_at_ms: int
    """Unix time; -1: it does not end."""
    dump: bytes
    """As DUMP answers: equal only if all is equal, consumer groups too."""


async def everything(redis: Redis, pattern: str = "*") -> dict[bytes, Stored]:
    """All keys that match a pattern, and what they hold."""
    found = await redis.read("EVAL", _SCRIPT, 0, pattern)
    return {key: Stored(*stored) for key, *stored in sorted(found, key=lambda each: each[0])}
