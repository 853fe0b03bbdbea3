"""buckets.events.stream: the stream of events stays within its bytes, in short steps, and gets back what it lost."""

from __future__ import annotations

import pytest

from buckets.events.stream import bound_events
from buckets.events.switch import read_events, stream_key, switch_off, switch_on
from buckets.namespace import Switch
from buckets.pool.pool import Pool
from buckets.redis.client import Redis

MIB = 1 << 20
EXACT = "return redis.call('MEMORY', 'USAGE', KEYS[1], 'SAMPLES', 0)"
FILL = """
for n = 1, tonumber(ARGV[1]) do redis.call('XADD', KEYS[1], '*', 'm', string.rep('x', tonumber(ARGV[2]))) end
"""


async def fill(pool: Pool, entries: int, size: int) -> None:
    for _ in range(0, entries, 10_000):
        await pool.redis.read("EVAL", FILL, 1, stream_key(pool, 0), min(entries, 10_000), size)


async def exact_bytes(pool: Pool) -> int:
    return int(await pool.redis.read("EVAL", EXACT, 1, stream_key(pool, 0)))


async def ids(pool: Pool) -> list[bytes]:
    return [entry[0] for entry in await pool.redis.read("XRANGE", stream_key(pool, 0), "-", "+")]


@pytest.mark.parametrize("size", [100, 3_000, 20_000])
async def test_a_stream_beyond_its_bytes_loses_its_oldest_entries_and_no_more_than_it_must(
    pool: Pool, size: int
) -> None:
    await switch_on(pool, 0, Switch(1_000_000))
    await fill(pool, 4 * MIB // size, size)
    before = await ids(pool)
    gone = await bound_events(pool, 0, MIB)
    after = await ids(pool)
    assert before[gone:] == after
    assert MIB - 3 * max(4096, size) < await exact_bytes(pool) <= MIB  # a node has 4 KiB, or one entry
    assert await bound_events(pool, 0, MIB) == 0


@pytest.mark.parametrize(("older", "newer"), [((100, 9_000), (20_000, 100)), ((20_000, 100), (100, 9_000))])
async def test_the_bytes_of_old_entries_say_nothing_about_those_of_new_ones(
    pool: Pool, older: tuple[int, int], newer: tuple[int, int]
) -> None:
    """A bound that believed so would keep twice as much, or cut off what there is room for."""
    await switch_on(pool, 0, Switch(1_000_000))
    for size, entries in (older, newer):
        await fill(pool, entries, size)
    await bound_events(pool, 0, 2 * MIB)
    assert 2 * MIB - 2_100_000 * (older[0] > newer[0]) - 50_000 < await exact_bytes(pool) <= 2 * MIB


async def test_what_is_cut_off_goes_in_short_steps(redis: Redis, pool: Pool) -> None:
    await switch_on(pool, 0, Switch(1_000_000))
    await fill(pool, 30_000, 100)
    await redis.read("CONFIG", "RESETSTAT")
    gone = await bound_events(pool, 0, MIB)
    calls = (await redis.read("INFO", "commandstats")).decode()
    trims = next(line for line in calls.splitlines() if line.startswith("cmdstat_xtrim:"))
    assert gone > 20_000 and int(trims.partition("calls=")[2].partition(",")[0]) >= gone / 2_000


async def test_a_small_stream_keeps_everything(pool: Pool) -> None:
    assert await bound_events(pool, 0, MIB) == 0
    await switch_on(pool, 0, Switch(1_000_000))
    assert await bound_events(pool, 0, MIB) == 0
    await fill(pool, 100, 100)
    assert await bound_events(pool, 0, MIB) == 0
    assert len(await ids(pool)) == 100


async def test_a_stream_that_is_left_of_events_that_are_off_is_bounded_too(redis: Redis, pool: Pool) -> None:
    await switch_on(pool, 0, Switch(1_000_000))
    await fill(pool, 10_000, 100)
    await switch_off(pool, 0)
    assert await bound_events(pool, 0, MIB // 2) > 0
    await redis.read("DEL", stream_key(pool, 0))
    assert await bound_events(pool, 0, MIB // 2) == 0
    assert await read_events(pool, 0) == (None, "", None)
    await redis.read("SET", stream_key(pool, 0), "of another program")
    assert await bound_events(pool, 0, 1) == 0
    assert await redis.read("GET", stream_key(pool, 0)) == b"of another program"


async def test_a_stream_that_was_deleted_is_made_again_and_is_another_one(redis: Redis, pool: Pool) -> None:
    word = await switch_on(pool, 0, Switch(5_000, touches=True))
    await redis.read("DEL", stream_key(pool, 0))
    await fill(pool, 1, 10)  # as scripts do
    assert await bound_events(pool, 0, MIB) == 0
    events = await read_events(pool, 0)
    assert events.switch == (5_000, True) and events.word != word
    assert events.stream and events.stream.behind == 1
    assert await switch_on(pool, 0, Switch(5_000)) == events.word
    again = await read_events(pool, 0)
    assert await bound_events(pool, 0, MIB) == 0
    assert await read_events(pool, 0) == again
