"""buckets.pages: what stays is met, whatever is pushed and popped between two steps."""

from __future__ import annotations

import random

import pytest

from buckets.pages import Pages
from buckets.redis.client import Redis


@pytest.mark.parametrize("seed", range(8))
async def test_each_entry_that_stays_in_a_list_is_met(redis: Redis, seed: int) -> None:
    chance = random.Random(seed)
    await redis.read("RPUSH", "list", *range(5_000))
    met: set[int] = set()
    fresh = iter(range(5_000, 10**9))
    async for page in Pages(redis).entries(b"list"):
        met |= {int(entry) for entry in page}
        for _ in range(chance.randrange(3)):  # as pops, adds and unpops do
            await redis.read("LPOP", "list", chance.randrange(1, 200))
            await redis.read("RPUSH", "list", *(next(fresh) for _ in range(chance.randrange(1, 200))))
            await redis.read("LPUSH", "list", *(next(fresh) for _ in range(chance.randrange(1, 200))))
    left = {int(entry) for entry in await redis.read("LRANGE", "list", 0, -1)}
    assert {entry for entry in left if entry < 5_000} <= met


async def test_a_walk_through_a_list_ends_though_it_grows_all_the_time(redis: Redis) -> None:
    await redis.read("RPUSH", "list", *range(700))
    pages = 0
    async for _ in Pages(redis).entries(b"list"):
        pages += 1
        assert pages < 10
        await redis.read("RPUSH", "list", "new")
    assert pages == 2


async def test_a_hash_and_a_sorted_set_are_read_whole_and_keys_by_their_pattern(redis: Redis) -> None:
    await redis.read("HSET", "hash", *(f"{n}" for each in range(2_000) for n in (each, each + 1)))
    await redis.read("ZADD", "set", *(f"{each}" for each in range(2_000) for _ in "12"))
    pages = Pages(redis)
    assert await pages.fields(b"hash") == {b"%d" % each: b"%d" % (each + 1) for each in range(2_000)}
    assert {member async for page in pages.members(b"set") for member in page} == {
        b"%d" % each for each in range(2_000)
    }
    assert {key async for page in pages.keys("h*") for key in page} == {b"hash"}
