"""buckets.pool.numbers: no number names two jobs, and an alias names its job for a while."""

from __future__ import annotations

import asyncio

import pytest

from buckets.fsck.check import Fsck
from buckets.pool.numbers import BLOCK, LARGEST_NUMBER, Numbers
from buckets.pool.pool import Pool
from buckets.redis.client import Redis
from tests.buckets.jobs import add
from tests.kit.redis_server import RedisServer
from tests.kit.waiting import until

HOUR = 3_600_000
SEQ = "{jq:0}:seq"


async def scripts_run(redis: Redis) -> int:
    """How many scripts were run by now."""
    info = (await redis.read("INFO", "commandstats")).decode()
    line = next((each for each in info.splitlines() if each.startswith("cmdstat_evalsha:")), "calls=0,")
    return int(line.partition("calls=")[2].partition(",")[0])


async def test_the_first_numbers_are_1_2_3_and_the_last_is_0_before_them(pool: Pool) -> None:
    numbers = Numbers(pool)
    assert await numbers.last() == 0
    assert [await numbers.next() for _ in range(3)] == [1, 2, 3]
    assert await numbers.last() == BLOCK


async def test_two_processes_never_get_the_same_number(pool: Pool) -> None:
    one, other = Numbers(pool), Numbers(pool)
    found = await asyncio.gather(*(each.next() for _ in range(500) for each in (one, other)))
    assert len(set(found)) == 1000
    assert found[::2] == sorted(found[::2]) and found[1::2] == sorted(found[1::2])


async def test_concurrent_callers_share_a_script(live_pool: Pool, redis: Redis) -> None:
    numbers = Numbers(live_pool)
    await numbers.next()
    before = await scripts_run(redis)
    assert len(set(await asyncio.gather(*(numbers.next() for _ in range(BLOCK - 1 + 1000))))) == BLOCK - 1 + 1000
    assert await scripts_run(redis) - before <= 2


async def test_what_a_process_did_not_use_is_not_given_out_after_its_restart(pool: Pool) -> None:
    assert await Numbers(pool).next() == 1
    assert await Numbers(pool).next() == BLOCK + 1


async def test_behind_the_largest_number_comes_1(pool: Pool, redis: Redis) -> None:
    await redis.read("SET", SEQ, LARGEST_NUMBER - 2)
    numbers = Numbers(pool)
    assert [await numbers.next() for _ in range(4)] == [LARGEST_NUMBER - 1, LARGEST_NUMBER, 1, 2]
    assert await numbers.last() == BLOCK - 2
    await redis.read("SET", SEQ, LARGEST_NUMBER)
    assert await Numbers(pool).next() == 1


@pytest.mark.parametrize("last", [LARGEST_NUMBER - BLOCK, LARGEST_NUMBER - BLOCK + 1, LARGEST_NUMBER - 1])
async def test_no_block_holds_a_number_that_is_too_large(pool: Pool, redis: Redis, last: int) -> None:
    await redis.read("SET", SEQ, last)
    some = await Numbers(pool).some(BLOCK)
    assert (
        some == [(last + n) % LARGEST_NUMBER + 1 for n in range(BLOCK)]
        and max(some) <= LARGEST_NUMBER
        and min(some) >= 1
    )
    assert await Numbers(pool).next() == some[-1] % LARGEST_NUMBER + 1


async def test_a_caller_that_is_cancelled_costs_the_others_nothing(pool: Pool) -> None:
    numbers = Numbers(pool)
    callers = [asyncio.ensure_future(numbers.next()) for _ in range(5)]
    await asyncio.sleep(0)
    callers[0].cancel()
    callers[2].cancel()
    found = await asyncio.gather(*callers, return_exceptions=True)
    got = [each for each in found if isinstance(each, int)]
    assert len(set(got)) == 3 and got == sorted(got)


async def test_numbers_are_given_out_when_redis_is_full(own_server: RedisServer) -> None:
    redis = Redis(own_server.url)
    pool = await Pool.open(redis)
    numbers = Numbers(pool)
    await redis.read("CONFIG", "SET", "maxmemory", "1")
    assert await numbers.next() == 1
    assert await numbers.resolve(await numbers.alias("a", 0)) == "a"
    await pool.close()
    await redis.close()


@pytest.mark.parametrize("damage", [("RPUSH", "x"), ("SET", "x"), ("SET", "-5"), ("SET", "9" * 18), ("SADD", "x")])
async def test_a_counter_that_another_program_spoilt_begins_again(
    pool: Pool, redis: Redis, damage: tuple[str, str]
) -> None:
    await redis.read(damage[0], SEQ, damage[1])
    assert await Numbers(pool).last() in (0, 10**18 - 1)
    assert await Numbers(pool).next() == 1


@pytest.mark.parametrize("lost", [["DEL", SEQ], ["SET", SEQ, "3"], ["SET", SEQ, "x"]])
async def test_a_counter_that_lost_numbers_goes_on_behind_those_of_a_process(
    pool: Pool, redis: Redis, lost: list[str]
) -> None:
    numbers = Numbers(pool)
    before = await numbers.some(BLOCK)
    await redis.read(*lost)
    assert await numbers.next() == before[-1] + 1
    assert await Numbers(pool).next() == before[-1] + 1 + BLOCK


async def test_a_counter_that_began_again_stays_there(pool: Pool, redis: Redis) -> None:
    await redis.read("SET", SEQ, LARGEST_NUMBER - BLOCK)
    late = Numbers(pool)
    assert (await late.some(BLOCK))[-1] == LARGEST_NUMBER
    assert await Numbers(pool).next() == 1
    assert await late.next() == BLOCK + 1


async def test_skipped_numbers_are_given_to_nobody(pool: Pool) -> None:
    numbers = Numbers(pool)
    assert await numbers.next() == 1
    await numbers.skip(1000)
    assert await numbers.next() == BLOCK + 1000 + 1
    assert await Numbers(pool).next() > BLOCK + 1000 + 1
    await numbers.skip(1 << 29)
    assert await numbers.next() > 1 << 29


async def test_an_alias_names_its_job_until_an_hour_after_its_lease(live_pool: Pool, redis: Redis) -> None:
    numbers = Numbers(live_pool)
    now = await live_pool.now_ms()
    leased, looked_at = await numbers.aliases([("order:1", now + 5000), ("order:2", 0)])
    assert (leased, looked_at) == (1, 2)
    assert [await numbers.resolve(n) for n in (1, 2, 3)] == ["order:1", "order:2", None]
    for number, span in ((1, HOUR + 5000), (2, HOUR)):
        assert span - 10_000 < await redis.read("PTTL", f"{{jq:0}}:alias:{number}") <= span


async def test_a_job_has_another_number_each_time(pool: Pool) -> None:
    numbers = Numbers(pool)
    first, second = await numbers.alias("a"), await numbers.alias("a")
    assert first != second
    assert await numbers.resolve(first) == await numbers.resolve(second) == "a"


async def test_a_key_of_another_program_is_no_alias_and_is_replaced(pool: Pool, redis: Redis) -> None:
    await redis.read("RPUSH", "{jq:0}:alias:1", "x")
    numbers = Numbers(pool)
    assert await numbers.resolve(1) is None
    assert await numbers.resolve(await numbers.alias("a")) == "a"


async def test_the_check_knows_the_counter_and_the_aliases(live_pool: Pool) -> None:
    await add(live_pool, "a")
    await Numbers(live_pool).alias("a")
    report = await (await Fsck.open(live_pool.redis, rest=0)).run()
    assert report.findings == {} and report.foreign.found == 0


@pytest.mark.parametrize(
    ("key", "damage"),
    [
        (SEQ, ("SET", "many")),
        (SEQ, ("RPUSH", "1")),
        ("{jq:0}:alias:7", ("SET", "a")),
        ("{jq:0}:alias:7", ("SADD", "a")),
    ],
)
async def test_the_check_sets_a_spoilt_counter_or_alias_aside(
    live_pool: Pool, key: str, damage: tuple[str, str]
) -> None:
    redis = live_pool.redis
    await redis.read(damage[0], key, damage[1])
    assert "spoilt" in (await (await Fsck.open(redis, rest=0)).run()).findings
    await (await Fsck.open(redis, rest=0, repair=True)).run()
    assert await redis.read("EXISTS", key) == 0
    assert (await (await Fsck.open(redis, rest=0)).run()).findings == {}


async def test_ready_numbers_follow_without_waiting_and_are_refilled_in_time(live_pool: Pool, redis: Redis) -> None:
    numbers = Numbers(live_pool)
    assert numbers.ready(1) is None
    assert await numbers.next() == 1
    found: list[int] = []
    while len(found) < 5000:
        some = numbers.ready(7)
        found += some or []
        await asyncio.sleep(0)
    assert found == list(range(2, 2 + len(found)))
    assert await scripts_run(redis) < 20


async def test_numbers_that_are_put_back_are_the_next_ones(pool: Pool) -> None:
    numbers = Numbers(pool)
    await numbers.next()
    some = numbers.ready(3)
    assert some == [2, 3, 4]
    numbers.put_back(some)
    assert numbers.ready(2) == [2, 3]
    assert await numbers.some(2) == [4, 5]


async def test_ready_numbers_and_those_that_are_waited_for_differ(live_pool: Pool) -> None:
    numbers = Numbers(live_pool)
    found: list[int] = []

    async def wait() -> None:
        found.extend(await numbers.some(50))

    async def grab() -> None:
        for _ in range(200):
            found.extend(numbers.ready(9) or [])
            await asyncio.sleep(0)

    await asyncio.gather(*(wait() for _ in range(40)), *(grab() for _ in range(5)))
    assert len(found) == len(set(found)) >= 2000


async def test_numbers_that_cannot_be_refilled_are_asked_for_again(own_server: RedisServer) -> None:
    redis = Redis(own_server.url, timeout_s=1.0)
    pool = await Pool.open(redis)
    numbers = Numbers(pool)
    await numbers.next()
    await asyncio.to_thread(own_server.kill)
    left = [numbers.ready(1) for _ in range(BLOCK - 1)]
    assert all(left) and numbers.ready(1) is None
    await asyncio.to_thread(own_server.start)
    await until(lambda: numbers.ready(1) is not None)
    await pool.close()
    await redis.close()
