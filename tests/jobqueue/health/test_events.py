"""`jobqueue check`: what it says about events."""

from __future__ import annotations

import pytest

from buckets.events.switch import GROUP, stream_key, switch_off, switch_on
from buckets.namespace import Switch
from buckets.pool.pool import Pool
from buckets.redis.client import Redis
from jobqueue.health.journal import check_events
from tests.kit.redis_server import RedisServer

ON = Switch(1_000)


async def told(pool: Pool, most_mb: int = 256) -> list[tuple[str, str]]:
    findings = [finding async for finding in check_events(pool, most_mb)]
    assert {finding.subject for finding in findings} == {"events"}
    return [(finding.level, finding.sentence) for finding in findings]


async def tell(pool: Pool, entries: int, size: int = 1) -> None:
    for _ in range(entries):
        await pool.redis.read("XADD", stream_key(pool, 0), "*", "m", "x" * size)


@pytest.fixture
async def halves(redis: Redis) -> Pool:
    """A pool of two shards."""
    return await Pool.open(redis, shards=2)


async def test_whether_events_are_on_is_told(halves: Pool) -> None:
    assert await told(halves) == [("ok", "off")]
    await switch_on(halves, 0, ON)
    assert await told(halves) == [("warn", "on, but not in these shards: 1: jobqueue journal on")]
    await switch_on(halves, 1, ON)
    assert await told(halves) == [("ok", "on; nothing is waiting for the journal")]


async def test_how_many_there_are_and_how_far_a_journal_is_behind_is_told(halves: Pool) -> None:
    for shard in range(2):
        await switch_on(halves, shard, ON)
    await tell(halves, 5)
    await halves.redis.read("XREADGROUP", "GROUP", GROUP, "r", "COUNT", 2, "STREAMS", stream_key(halves, 0), ">")
    ((level, sentence),) = await told(halves)
    assert level == "ok"
    assert sentence.startswith("on; entries: 5, of 0.0 MB; not yet read: 3, being written: 2")
    await switch_off(halves, 0)
    await switch_off(halves, 1)
    ((level, sentence),) = await told(halves)
    assert (level, sentence.partition(",")[0]) == ("ok", "off; entries: 5")


async def test_a_stream_that_is_nearly_full_of_unread_entries_is_warned_of(halves: Pool) -> None:
    for shard in range(2):
        await switch_on(halves, shard, ON)
    await tell(halves, 899)
    assert len(await told(halves)) == 1
    await tell(halves, 1)
    (_, (level, sentence)) = await told(halves)
    assert level == "warn"
    assert "the stream of shard 0 is nearly full: at most 1,000 entries and 256 MB" in sentence
    await halves.redis.read("XREADGROUP", "GROUP", GROUP, "r", "STREAMS", stream_key(halves, 0), ">")
    assert len(await told(halves)) == 1  # a reader is at it


async def test_bytes_that_are_nearly_too_many_are_warned_of(halves: Pool) -> None:
    for shard in range(2):
        await switch_on(halves, shard, ON)
    await tell(halves, 10, 100_000)
    (_, (level, sentence)) = await told(halves, most_mb=1)
    assert (level, "the stream of shard 0 is nearly full" in sentence) == ("warn", True)


async def test_a_redis_without_the_memory_for_full_streams_is_warned_of(own_server: RedisServer) -> None:
    redis = Redis(own_server.url)
    try:
        pool = await Pool.open(redis, shards=4)
        await redis.read("CONFIG", "SET", "maxmemory", 200 << 20)
        assert await told(pool, 50) == [("ok", "off")]  # nothing is kept
        for shard in range(4):
            await switch_on(pool, shard, ON)
        assert [level for level, _ in await told(pool, 45)] == ["ok"]
        (_, (level, sentence)) = await told(pool, 50)
        assert level == "warn"
        assert "and they may take 200 MB while no journal runs (events_max_mb 50 in each shard)" in sentence
        await redis.read("CONFIG", "SET", "maxmemory", 0)
        assert [level for level, _ in await told(pool, 50)] == ["ok"]
    finally:
        await redis.close()


async def test_settings_that_are_gone_are_the_business_of_fsck(halves: Pool) -> None:
    await switch_on(halves, 0, ON)
    await halves.redis.read("DEL", halves.keys[1].meta)
    assert await told(halves) == [("warn", "on, but not in these shards: 1: jobqueue journal on")]
