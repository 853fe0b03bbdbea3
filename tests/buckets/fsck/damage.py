"""Random damage: one key of a namespace is deleted, or altered in a way that its type allows."""

from __future__ import annotations

import random

from buckets.pool.pool import Pool
from buckets.redis.client import Redis

JUNK = b"\xff\x00junk"
REPLACEMENTS: list[tuple[str, *tuple[str | bytes, ...]]] = [
    ("SET", JUNK),
    ("RPUSH", JUNK),
    ("ZADD", "5", JUNK),
    ("HSET", JUNK, JUNK),
    ("SADD", JUNK),
]


class Damage:
    """One damage, which a seed determines."""

    def __init__(self, redis: Redis, pool: Pool, chance: random.Random) -> None:
        self._redis = redis
        self._pool = pool
        self._chance = chance
        self.key = b""
        self.how = ""

    def __str__(self) -> str:
        return f"{self.how} of {self.key!r}"

    @property
    def job(self) -> str | None:
        """The job whose record was damaged, if it was one."""
        _, separator, job_id = self.key.partition(b"}:j:")
        return job_id.decode() if separator else None

    async def do(self) -> Damage:
        keys = sorted(await self._redis.read("KEYS", f"{self._pool.keys[0].tag}*"))
        families = sorted({self._family(key) for key in keys})
        family = self._chance.choice(families)  # otherwise nearly all would be records
        self.key = self._chance.choice([key for key in keys if self._family(key) == family])
        kind = (await self._redis.read("TYPE", self.key)).decode()
        ways = {"string": self._string, "zset": self._zset, "list": self._list, "hash": self._hash}
        await self._chance.choice([self._delete, self._replace, ways[kind], ways[kind], ways[kind]])()
        return self

    def _family(self, key: bytes) -> bytes:
        return key.partition(b"}:")[2].partition(b":")[0]

    async def _delete(self) -> None:
        self.how = "deletion"
        await self._redis.read("DEL", self.key)

    async def _replace(self) -> None:
        await self._redis.read("DEL", self.key)
        command, *values = self._chance.choice(REPLACEMENTS)
        self.how = f"replacement by {command}"
        await self._redis.read(command, self.key, *values)

    def _flip(self, raw: bytes) -> bytes:
        if not raw:
            return JUNK
        at = self._chance.randrange(len(raw))
        return raw[:at] + bytes((raw[at] ^ 1 << self._chance.randrange(8),)) + raw[at + 1 :]

    def _altered(self, raw: bytes) -> bytes:
        self.how = self._chance.choice(["flip", "flip", "flip", "cut", "junk", "emptying"])
        cut = raw[: self._chance.randrange(len(raw) + 1)]
        return {"flip": self._flip(raw), "cut": cut, "junk": JUNK, "emptying": b""}[self.how]

    async def _string(self) -> None:
        value = self._altered(await self._redis.read("GET", self.key))
        keep = self._chance.choice([["KEEPTTL"], []])
        await self._redis.read("SET", self.key, value, *keep)

    async def _zset(self) -> None:
        members = await self._redis.read("ZRANGE", self.key, 0, -1)
        member = self._chance.choice(members)
        self.how = self._chance.choice(["ZREM", "ZADD", "move", "ahead"])
        if self.how == "ZREM":
            await self._redis.read("ZREM", self.key, member)
        else:
            scores = {"ZADD": "5", "move": str(self._chance.randrange(1 << 42)), "ahead": "inf"}
            await self._redis.read("ZADD", self.key, scores[self.how], JUNK if self.how == "ZADD" else member)

    async def _list(self) -> None:
        at = self._chance.randrange(await self._redis.read("LLEN", self.key))
        self.how = self._chance.choice(["LREM", "LSET", "RPUSH"])
        entry = (await self._redis.read("LRANGE", self.key, at, at))[0]
        values: dict[str, tuple[int | bytes, ...]] = {
            "LREM": (1, entry),
            "LSET": (at, self._flip(entry)),
            "RPUSH": (self._flip(entry),),
        }
        await self._redis.read(self.how, self.key, *values[self.how])

    async def _hash(self) -> None:
        flat = await self._redis.read("HGETALL", self.key)
        name = self._chance.choice(flat[::2])
        value = flat[flat.index(name) + 1]
        self.how = self._chance.choice(["HDEL", "HSET", "new field"])
        if self.how == "HDEL":
            await self._redis.read("HDEL", self.key, name)
        elif self.how == "HSET":
            await self._redis.read("HSET", self.key, name, self._altered(value))
        else:
            await self._redis.read("HSET", self.key, JUNK, JUNK)
        self.how += f" {name!r}"
