"""buckets.topics.figures, add_figures.lua, read_figures.lua: figures add up by Redis's minute, end, and are bounded."""

from __future__ import annotations

import asyncio

import pytest

from buckets.clock import HeldClock
from buckets.errors import NoRoom
from buckets.pool.pool import Pool
from buckets.redis.client import Redis
from buckets.topics.figures import ALL, Figures
from tests.kit.redis_server import RedisServer

HOURS, MOST = 48, 100
MINUTE_MS = 60_000
# All numbers that a process may count; as in jobqueue/metrics/history.py.
NAMES = (
    *("adds", "deliveries", "finishes", "x:tries", "x:ttl", "x:buried"),
    *(f"no:{group}" for group in ("request", "access", "state", "limit", "unavailable", "internal")),
    *(f"{prefix}{bucket}" for prefix in "rd" for bucket in range(15)),
)


@pytest.fixture
def figures(pool: Pool) -> Figures:
    return Figures(pool, HOURS, MOST)


async def read(figures: Figures, topic: str = ALL, minutes: int = 1) -> list[dict[str, int]]:
    """What is found in the last minutes, up to the current one."""
    last = await figures.now_ms() // MINUTE_MS
    return [numbers async for _, numbers in figures.read(topic, last - minutes + 1, last)]


async def keys(redis: Redis) -> list[bytes]:
    return sorted(await redis.read("KEYS", "*}:f:*"))


async def test_what_several_processes_add_in_a_minute_adds_up(pool: Pool, redis: Redis) -> None:
    for number in (1, 20):
        await Figures(pool, HOURS, MOST).add({ALL: {"adds": number, "d3": 1}, "t": {"adds": number}})
    figures = Figures(pool, HOURS, MOST)
    assert await read(figures) == [{"adds": 21, "d3": 2}]
    assert await read(figures, "t") == [{"adds": 21}]
    assert await read(figures, "u") == []


async def test_the_time_of_the_scripts_decides_on_the_minute(figures: Figures, clock: HeldClock) -> None:
    clock.now_us = 1_800_000_059_999_999
    await figures.add({ALL: {"adds": 1}})
    clock.now_us += 1
    await figures.add({ALL: {"adds": 2}})
    first = 1_800_000_000 // 60
    found = [each async for each in figures.read(ALL, first - 100, first + 100)]
    assert found == [(first, {"adds": 1}), (first + 1, {"adds": 2})]


async def test_all_minutes_are_read_whatever_there_is_between_them(figures: Figures, clock: HeldClock) -> None:
    for number in range(1, 200):
        await figures.add({ALL: {"adds": number}})
        clock.advance(MINUTE_MS if number % 3 else 2 * MINUTE_MS)
    assert [each["adds"] for each in await read(figures, minutes=300)] == list(range(1, 200))


@pytest.mark.parametrize(("hours", "kept", "kept_by_topic"), [(48, 48, 2), (1, 1, 1)])
async def test_figures_end_by_themselves(
    live_pool: Pool, redis: Redis, hours: int, kept: int, kept_by_topic: int
) -> None:
    await Figures(live_pool, hours, MOST).add({ALL: {"adds": 1}, "t": {"adds": 1}})
    of_all, of_topic = await keys(redis)
    for key, until_h in ((of_all, kept), (of_topic, kept_by_topic), (live_pool.keys[0].figured, kept_by_topic)):
        end_ms = await redis.read("PTTL", key)
        assert until_h * 3_600_000 + MINUTE_MS < end_ms <= until_h * 3_600_000 + 2 * MINUTE_MS


async def test_with_a_clock_that_is_held_they_do_not_end_by_redis_clock(figures: Figures, redis: Redis) -> None:
    await figures.add({ALL: {"adds": 1}})
    (key,) = await keys(redis)
    assert await redis.read("PTTL", key) > 365 * 24 * 3_600_000


async def test_only_so_many_topics_have_figures_at_a_time_and_all_count_for_all(pool: Pool, clock: HeldClock) -> None:
    figures = Figures(pool, HOURS, 2)
    for topic in ("a", "b", "c"):
        await figures.add({ALL: {"adds": 1}, topic: {"adds": 1}})
        clock.advance(1)
    await figures.add({ALL: {"adds": 1}, "a": {"adds": 1}})
    assert await read(figures) == [{"adds": 4}]
    assert [await read(figures, topic) for topic in ("a", "b", "c")] == [[{"adds": 2}], [{"adds": 1}], []]
    assert [await figures.leaves_out(topic) for topic in ("a", "b", "c")] == [False, False, True]
    clock.advance(2 * 3_600_000 + 3 * MINUTE_MS)
    await figures.add({ALL: {"adds": 1}, "c": {"adds": 5}})  # in the place of b, whose figures have ended
    assert await read(figures, "c") == [{"adds": 5}]
    assert [await figures.leaves_out(topic) for topic in ("b", "c")] == [True, False]


async def test_no_topic_has_figures_where_none_may(pool: Pool) -> None:
    figures = Figures(pool, HOURS, 0)
    await figures.add({ALL: {"adds": 1}, "t": {"adds": 1}})
    assert (await read(figures), await read(figures, "t")) == ([{"adds": 1}], [])
    assert await figures.leaves_out("t")


async def test_what_another_program_left_in_the_way_is_set_aside(figures: Figures, pool: Pool, redis: Redis) -> None:
    minute = await figures.now_ms() // MINUTE_MS
    tag = pool.keys[0].tag
    await redis.read("SET", f"{tag}f:{minute}", "a string")
    await redis.read("HSET", f"{tag}f:{minute}:t", "adds", "many", "finishes", "7")
    assert await read(figures) == []
    assert await read(figures, "t") == [{"finishes": 7}]
    await figures.add({ALL: {"adds": 1}, "t": {"adds": 1}})
    assert (await read(figures), await read(figures, "t")) == ([{"adds": 1}], [{"adds": 1}])
    assert await redis.read("HLEN", pool.keys[0].aside) == 2


async def test_very_many_numbers_take_several_scripts_and_none_is_long(live_pool: Pool, redis: Redis) -> None:
    counted = {topic: dict.fromkeys(NAMES, 1) for topic in (ALL, *(f"topic-{number}" for number in range(MOST)))}
    await redis.read("CONFIG", "RESETSTAT")
    figures = Figures(live_pool, HOURS, MOST)
    await figures.add(counted)
    assert sum([len(found) for topic in counted for found in await read(figures, topic, 2)]) == len(NAMES) * 101
    flat = await redis.read("INFO", "commandstats")
    (line,) = [line for line in flat.decode().splitlines() if line.startswith("cmdstat_evalsha:")]
    stats = dict(part.split("=") for part in line.partition(":")[2].split(","))
    assert float(stats["usec_per_call"]) < 5000


async def test_a_full_redis_takes_none(own_server: RedisServer) -> None:
    redis = Redis(own_server.url)
    figures = Figures(await Pool.open(redis), HOURS, MOST)
    await redis.read("CONFIG", "SET", "maxmemory-policy", "noeviction", "maxmemory", "1")
    with pytest.raises(NoRoom):
        await figures.add({ALL: {"adds": 1}})
    assert await keys(redis) == []
    await redis.close()


async def test_a_hundred_topics_at_full_work_take_less_than_8_mib(own_server: RedisServer, clock: HeldClock) -> None:
    redis = Redis(own_server.url)
    pool = await Pool.open(redis, clock=clock)
    figures = Figures(pool, HOURS, MOST)
    busy = {name: 10_000 * place for place, name in enumerate(NAMES, 1)}
    of_topic = {name: number // 100 for name, number in busy.items() if not name.startswith("no:")}
    counted = {ALL: busy} | {f"orders:close-unpaid-{number}": of_topic for number in range(MOST)}
    # Nothing ends while the clock is held: as many minutes of each as there are at a time where it is not.
    for left in reversed(range(HOURS * 60 + 2)):
        await figures.add(counted if left < 2 * 60 + 2 else {ALL: busy})
        clock.advance(MINUTE_MS)
    names = [*await keys(redis), pool.keys[0].figured.encode()]
    sizes = [size for at in range(0, len(names), 500) for size in await _sizes(redis, names[at : at + 500])]
    assert len(names) == HOURS * 60 + 2 + MOST * 122 + 1
    assert sum(sizes) < 8 << 20, f"{sum(sizes):,} bytes"
    await redis.close()


async def _sizes(redis: Redis, names: list[bytes]) -> list[int]:
    sizes: list[int] = await asyncio.gather(*(redis.read("MEMORY", "USAGE", name) for name in names))
    return sizes
