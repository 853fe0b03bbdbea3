"""jobqueue.metrics.history: what a process counted comes into the figures once, or is dropped; with nothing to add,
Redis is not asked."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from buckets import Figures, NewJob, Pool, Redis
from buckets.clock import HeldClock
from buckets.topics.figures import ALL
from jobqueue.errors import STATUS, group_of
from jobqueue.metrics import history as history_module
from jobqueue.metrics.history import History, numbers_of
from jobqueue.metrics.process import Metrics
from tests.buckets.jobs import add, finish, pop_one
from tests.buckets.topics.test_figures import keys, read
from tests.kit.redis_server import RedisServer
from tests.kit.service import Client, ServiceProcess
from tests.kit.waiting import tick_all, until


@pytest.fixture
async def metrics(redis: Redis) -> AsyncIterator[Metrics]:
    """The metrics of the pool's connection."""
    metrics = Metrics()
    before, redis.meter = redis.meter, metrics
    yield metrics
    redis.meter = before


async def a_life(pool: Pool, clock: HeldClock, job_id: str = "a", topic: str = "t") -> None:
    """A job is added, is late by 30 ms, is popped 3 s later, again after its lease, and is finished."""
    await add(pool, job_id, topic, delay_ms=1_000, ttr_ms=5_000, tries=9)
    clock.now_us += 1_030_000
    await tick_all(pool)
    clock.advance(3_000)
    await pop_one(pool, topic)
    clock.advance(6_000)
    await tick_all(pool)
    await finish(pool, (await pop_one(pool, topic)).id)


async def test_a_life_is_counted_by_topic_and_for_all_together(pool: Pool, clock: HeldClock, metrics: Metrics) -> None:
    await a_life(pool, clock)
    await a_life(pool, clock, "b", "u")
    numbers = numbers_of(metrics.take())
    # Late by 29 to 30 ms: in the bucket up to 50 ms. The lease ended up to a second before.
    one = {"adds": 1, "deliveries": 2, "finishes": 1}
    assert {name: numbers["t"][name] for name in one} == one
    assert {name: numbers[ALL][name] for name in one} == {name: 2 * number for name, number in one.items()}
    assert (numbers["t"]["r6"], numbers["t"]["d11"]) == (1, 1)
    assert sum(number for name, number in numbers["t"].items() if name.startswith("r")) == 2
    assert numbers_of(metrics.take()) == {}


async def test_deaths_are_counted_by_their_cause(pool: Pool, clock: HeldClock, metrics: Metrics) -> None:
    await add(pool, "buried", "a")
    await pool.bury((await pop_one(pool, "a")).id)
    await add(pool, "released", "b", tries=1)
    await pool.release((await pop_one(pool, "b")).id)
    await add(pool, "leased", "c", tries=1, ttr_ms=1_000)
    await pop_one(pool, "c")
    await add(pool, "late", "d", ttl_ms=1_000)
    clock.advance(2_000)
    await tick_all(pool)
    numbers = numbers_of(metrics.take())
    assert {name: number for name, number in numbers[ALL].items() if name.startswith("x:")} == {
        "x:buried": 1,
        "x:tries": 2,
        "x:ttl": 1,
    }
    assert [numbers[topic].get("x:tries") for topic in "abcd"] == [None, 1, 1, None]


def test_refusals_are_counted_by_the_kind_of_their_codes_for_all_together() -> None:
    metrics = Metrics()
    codes = ["BAD_FIELD", "BAD_JSON", "NOT_FOUND", "STALE_LEASE", "FORBIDDEN", "TOO_FAST", "NO_ROOM", "INTERNAL"]
    metrics.answered("add", [{"success": True}, *({"code": code} for code in codes)], 0.1, protocol="native")
    metrics.done("pop", 5, 0.1, protocol="native")
    assert numbers_of(metrics.take()) == {
        ALL: {
            "no:request": 2,
            "no:state": 2,
            "no:access": 1,
            "no:limit": 1,
            "no:unavailable": 1,
            "no:internal": 1,
        }
    }


def test_each_code_is_of_a_kind() -> None:
    assert {group_of(code) for code in STATUS} == {"request", "access", "state", "limit", "unavailable", "internal"}
    assert group_of("NO_SUCH_PATH") == group_of("A_LATER_CODE") == "request"


async def test_topics_without_a_name_of_their_own_count_for_all_together_only() -> None:
    metrics = Metrics(1)
    for topic in ("a", "b", "c"):
        metrics.added(topic, 2)
    assert numbers_of(metrics.take()) == {ALL: {"adds": 6}, "a": {"adds": 2}}


async def test_a_scrape_takes_nothing_away(pool: Pool, metrics: Metrics) -> None:
    await add(pool, "a")
    await pop_one(pool)
    metrics.pour(0)
    await finish(pool, "a")
    metrics.pour(0)
    numbers = numbers_of(metrics.take())["t"]
    assert (numbers["adds"], numbers["deliveries"], numbers["finishes"], numbers["d0"]) == (1, 1, 1, 1)


async def scripts(redis: Redis) -> int:
    """How many scripts Redis has run."""
    flat = await redis.read("INFO", "commandstats")
    lines = [line for line in flat.decode().splitlines() if line.startswith("cmdstat_evalsha:")]
    return sum(int(line.partition("calls=")[2].partition(",")[0]) for line in lines)


async def test_a_process_that_worked_asks_redis_once_and_an_idle_one_never(live_pool: Pool, metrics: Metrics) -> None:
    redis = live_pool.redis
    figures = Figures(live_pool, 48, 100)
    history = History(metrics, figures)
    for topic in ("t", "u", "v"):
        await add(live_pool, f"in-{topic}", topic)
        await finish(live_pool, (await pop_one(live_pool, topic)).id)
    before = await scripts(redis)
    await history.tick()
    assert await scripts(redis) == before + 1
    for _ in range(5):
        await history.tick()
    assert await scripts(redis) == before + 1
    (found,) = await read(figures, minutes=1) or await read(figures, minutes=2)
    assert (found["adds"], found["finishes"]) == (3, 3)


async def test_a_full_redis_drops_figures_says_so_once_and_loses_no_job(
    own_server: RedisServer, capsys: pytest.CaptureFixture[str]
) -> None:
    metrics = Metrics()
    redis = Redis(own_server.url, meter=metrics)
    pool = await Pool.open(redis)
    figures = Figures(pool, 48, 100)
    history = History(metrics, figures)
    await pool.add([NewJob(f"j{number}", "t", b"1") for number in range(3)])
    await redis.read("CONFIG", "SET", "maxmemory-policy", "noeviction", "maxmemory", "1")
    for _ in range(2):
        assert await finish(pool, (await pop_one(pool)).id) == "finished"
        await history.tick()
    assert capsys.readouterr().out.count("figures.dropped") == 1
    assert await keys(redis) == []
    await redis.read("CONFIG", "SET", "maxmemory", "0")
    await finish(pool, (await pop_one(pool)).id)
    await history.tick()
    (found,) = await read(figures, minutes=2)
    assert (found["finishes"], found.get("adds")) == (1, None)
    await redis.close()


async def test_what_is_left_at_the_end_is_added(
    live_pool: Pool, metrics: Metrics, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(history_module, "EVERY_S", 0.01)
    figures = Figures(live_pool, 48, 100)
    running = asyncio.create_task(History(metrics, figures).run())
    metrics.added("t", 1)

    async def is_there() -> bool:
        return sum([each["adds"] for each in await read(figures, minutes=2)]) == 1

    await until(is_there)
    monkeypatch.setattr(history_module, "EVERY_S", 60)
    await asyncio.sleep(0.05)  # now it sleeps for long
    metrics.added("t", 2)
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    assert sum([each["adds"] for each in await read(figures, minutes=2)]) == 3


async def work(client: Client, number: int, topic: str = "t") -> None:
    for job in range(number):
        await client.ask("add", topic=topic, id=f"{topic}{job}", body=1, if_exists="renew", retention=0)
        await client.ask("finish", id=(await client.ask("pop", topic=topic))["id"])
        await client.ask("get", id="nobody")


async def test_services_add_up_and_a_restart_keeps_what_was(redis_server: RedisServer, redis: Redis) -> None:
    flags = ("--redis", redis_server.url)
    async with ServiceProcess(*flags) as one, ServiceProcess(*flags, workers=2) as other:
        for service, number in ((one, 3), (other, 5)):
            async with Client(service.url) as client:
                await work(client, number)
    async with ServiceProcess(*flags) as later, Client(later.url) as client:
        answer = await client.ask("figures")
        total = answer["total"]
        assert (total["adds"], total["deliveries"], total["finishes"], total["refusals"]) == (8, 8, 8, {"state": 8})
        assert sum(total["due_to_delivered"]["counts"]) == 8
        assert len(total["due_to_delivered"]["counts"]) == len(answer["bounds"]) + 1
        of_topic = await client.ask("figures", topic="t")
        assert (of_topic["total"]["adds"], "refusals" in of_topic["total"]) == (8, False)


async def test_a_process_that_is_killed_takes_ten_seconds_of_figures_with_it_at_most(
    redis_server: RedisServer, redis: Redis
) -> None:
    flags = ("--redis", redis_server.url)
    async with ServiceProcess(*flags) as service, Client(service.url) as client:
        await work(client, 4)

        async def is_told() -> bool:
            return bool((await client.ask("figures"))["total"]["finishes"] == 4)

        await until(is_told, within_s=15)
        await service.kill()
    async with ServiceProcess(*flags) as later, Client(later.url) as client:
        assert (await client.ask("figures", topic="t"))["total"]["finishes"] == 4
