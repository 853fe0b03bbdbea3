"""jobqueue.commands: the commands of one request, in order."""

from __future__ import annotations

import asyncio
from functools import partialmethod
from typing import Any

import pytest
import structlog
from msgspec import Raw

from buckets import LOCAL, Durability, Durable, NewJob, Notifier, Pollers, Pool, Redis, Topics, Waiting, Walk
from jobqueue.access.grants import GRANT, OPEN
from jobqueue.commands.carrying_out import Commands
from jobqueue.engine.engine import Engine
from jobqueue.engine.new_jobs import Policies
from jobqueue.metrics.process import Metrics
from jobqueue.schema import params
from jobqueue.settings import Settings
from tests.kit.redis_server import RedisServer
from tests.kit.waiting import until


@pytest.fixture
def engine(live_pool: Pool) -> Engine:
    return engine_on(live_pool)


def engine_on(pool: Pool, durability: Durability = LOCAL) -> Engine:
    waiting = Waiting(pool, Notifier(pool))
    return Engine(
        pool,
        Topics(pool),
        Walk(pool),
        waiting,
        Pollers(pool, Notifier(pool), "ab"),
        Policies(Settings()),
        Durable(pool, 1, 0.01),
        durability,
    )


async def answers(engine: Engine, *commands: Any) -> list[dict[str, Any]]:
    GRANT.set(OPEN)
    return await Commands(engine, Metrics(), 5.0).answer(commands, [])


async def released(engine: Engine, pool: Pool, *ids: str) -> None:
    """Jobs that were delivered and are ready again: their finish still counts."""
    await pool.add([NewJob(job_id, "t", b"1") for job_id in ids])
    for job in (await pool.pop(["t"], len(ids))).jobs:
        await pool.release(job.id, job.lease)


@pytest.mark.parametrize("number", [1, 3, 250])
async def test_a_pop_behind_finishes_does_not_hand_out_what_they_finish(
    engine: Engine, live_pool: Pool, number: int
) -> None:
    ids = [f"{n:03}" for n in range(number)]
    await released(engine, live_pool, *ids)
    *finished, popped = await answers(engine, *(params.Finish(id=each) for each in ids), params.Pop(topic="t", count=5))
    assert [each["state"] for each in finished] == ["finished"] * number
    assert popped["jobs"] == []


async def test_a_purge_whose_client_hangs_up_is_logged_as_not_known(
    engine: Engine, live_pool: Pool, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun = asyncio.Event()

    async def endless(topic: str, *more: object) -> None:
        begun.set()
        await asyncio.Event().wait()

    monkeypatch.setattr(Walk, "purge", endless)
    with structlog.testing.capture_logs() as logged:
        asking = asyncio.create_task(answers(engine, params.Purge(topic="t")))
        await begun.wait()
        asking.cancel()
        await asyncio.gather(asking, return_exceptions=True)
    assert [(line["action"], line["topic"], line["code"]) for line in logged] == [("purge", "t", "not known")]
    ((entry,), _) = await engine.actions.page(None, 10)
    assert (entry.begun["action"], entry.outcome) == ("purge", None)


async def test_a_purge_of_very_many_is_done_in_pieces_and_spares_what_came_after_it_began(
    engine: Engine, live_pool: Pool, monkeypatch: pytest.MonkeyPatch
) -> None:
    await live_pool.add([NewJob(f"{n}", "t", b"1", delay_ms=60_000) for n in range(100)])
    monkeypatch.setattr(Walk, "purge", partialmethod(Walk.purge, seconds=0))
    (begun,) = await answers(engine, params.Purge(topic="t"))
    assert (begun["count"], begun["cursor"] is None) == (0, False)
    await asyncio.sleep(0.002)  # it deletes what was added in its millisecond
    await live_pool.add([NewJob("new", "t", b"1")])
    monkeypatch.undo()
    (purged,) = await answers(engine, params.Purge(topic="t", cursor=begun["cursor"]))
    assert (purged["count"], purged["cursor"]) == (100, None)
    assert await live_pool.get("new")


async def test_a_request_ends_when_its_time_is_over_and_says_what_was_not_done(engine: Engine) -> None:
    """Otherwise an array of a thousand purges could keep a service busy for a quarter of an hour."""
    GRANT.set(OPEN)
    commands: list[Any] = [params.Pop(topic="t", wait=0.2), params.Add(topic="t", id="a", body=Raw(b"1"))]
    popped, added = await Commands(engine, Metrics(), 0.1).answer(commands, [])
    assert popped["success"]
    assert (added["code"], added["retry_after"]) == ("UNAVAILABLE", 1)
    assert "was not carried out" in added["error"]


async def test_a_job_that_is_finished_twice_before_a_pop_is_not_handed_out(engine: Engine, live_pool: Pool) -> None:
    await released(engine, live_pool, "a", "b")
    finish, wait = params.Finish(id="a"), params.Pop(topic="t")
    assert [each.get("id") for each in await answers(engine, finish, finish, wait)] == ["a", "a", "b"]


async def test_the_answers_stand_in_the_order_of_their_commands(engine: Engine, live_pool: Pool) -> None:
    await released(engine, live_pool, "a", "b", "c")
    got = await answers(
        engine,
        params.Pop(topic="t"),
        params.Finish(id="b"),
        params.Finish(id="x"),
        params.Pop(topic="t"),
        params.Finish(id="a"),
        params.Pop(topic="t"),
    )
    assert [each.get("id") for each in got] == ["a", "b", "x", "c", "a", None]
    assert [each["success"] for each in got] == [True, True, False, True, True, True]


async def test_on_several_shards_the_id_of_a_job_with_a_key_leads_to_the_shard_of_its_key(redis: Redis) -> None:
    engine = engine_on(await Pool.open(redis, shards=4, buckets=1))
    adds = [params.Add(topic="t", id=each, body=Raw(b"1"), key="7") for each in ("7@a", "77@a", "a", None)]
    named, other, none, made = await answers(engine, *adds)
    assert named["success"] and made["id"].startswith("7@")
    assert [(each["code"], each["field"]) for each in (other, none)] == [("BAD_FIELD", "id")] * 2


async def test_a_pop_behind_finishes_that_wait_for_a_connection_waits_for_them(own_server: RedisServer) -> None:
    redis, operator = Redis(own_server.url), Redis(own_server.url)
    pool = await Pool.open(redis)
    await released(engine_on(pool), pool, "a", "b")
    link = await redis.link_to(pool.keys[0].meta)
    await operator.read("CLIENT", "KILL", "TYPE", "normal")
    await until(lambda: link.lost)
    finished, popped = await answers(engine_on(pool), params.Finish(id="a"), params.Pop(topic="t", count=5))
    assert finished["state"] == "finished"
    assert [job["id"] for job in popped["jobs"]] == ["b"]
    await pool.close()
    await redis.close()
    await operator.close()


async def test_a_pop_behind_finishes_that_find_no_redis_is_not_carried_out(own_server: RedisServer) -> None:
    redis = Redis(own_server.url, timeout_s=0.3)
    pool = await Pool.open(redis)
    link = await redis.link_to(pool.keys[0].meta)
    own_server.kill()
    await until(lambda: link.lost)
    finished, popped = await answers(engine_on(pool), params.Finish(id="a"), params.Pop(topic="t"))
    assert (finished["code"], popped["code"]) == ("UNAVAILABLE", "UNAVAILABLE")
    assert "was not carried out" in popped["error"]
    await pool.close()
    await redis.close()
