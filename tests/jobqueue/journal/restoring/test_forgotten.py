"""What a failover forgot is told and healed: lost adds are put, lost ends end again, and what went on since stays."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
from sqlalchemy import select

from buckets.job import NewJob, State
from buckets.pool.pool import Pool
from buckets.redis.client import Redis
from jobqueue.journal import tables
from jobqueue.journal.reading.sql import Sql
from jobqueue.journal.reading.verdict import FORGOTTEN
from jobqueue.journal.restoring.forgotten import Forgotten
from jobqueue.journal.restoring.reading import Choice, NotBegun
from jobqueue.journal.restoring.runs import Run
from tests.buckets.books import check_books
from tests.buckets.jobs import add, delete, finish, get, pop, pop_one, state
from tests.jobqueue.journal.restoring.lost import World, contents, world_of
from tests.kit.redis_sentinels import SentinelSet
from tests.kit.redis_server import RedisServer
from tests.kit.waiting import until

HOUR = 3_600_000


@pytest.fixture
async def old_world(own_server: RedisServer, sqlite_url: str) -> AsyncIterator[World]:
    """A world whose Redis may go back to what it saved."""
    redis = Redis(own_server.url)
    pool = await Pool.open(redis)
    async with world_of(pool, own_server.url, sqlite_url) as world:
        yield world
    await pool.close()
    await redis.close()


async def save(world: World) -> None:
    await world.pool.redis.read("SAVE")


async def go_back(world: World, server: RedisServer) -> None:
    """As a failover does to a replica that was behind: Redis has what it had when it saved."""
    await world.drained()
    server.kill()
    server.start()
    await until(lambda: _is_noticed(world))
    await world.drained()


async def _is_noticed(world: World) -> bool:
    async with world.engine.connect() as connection:
        gaps = (await connection.execute(select(tables.gap.c.number).where(tables.gap.c.kind == FORGOTTEN))).all()
    return bool(gaps)


async def _is_ready(pool: Pool, job_id: str) -> bool:
    """Whether it is, after what a timer does."""
    for bucket in range(pool.buckets):
        await pool.due(0, bucket)
    return await state(pool, job_id) == "ready"


async def heal(world: World, *, applies: bool = True) -> dict[str, int]:
    run = await Run.begin(world.reading, world.pool, Choice(), "forgotten")
    sums = await Forgotten(world.reading, world.pool, run.actor if applies else "").carry_out()
    await run.end(sums)
    return {name: number for name, number in sums.counts.items() if number}


async def test_a_lost_add_is_put_and_a_lost_end_ends_the_job_again(old_world: World, own_server: RedisServer) -> None:
    pool = old_world.pool
    for name in ("finished", "deleted", "stays"):
        await add(pool, name)
    await save(old_world)
    first = await pop_one(pool)
    assert await finish(pool, first.id, first.lease) == first.id
    await delete(pool, "deleted")
    await add(pool, "added", delay_ms=HOUR)
    await add(pool, "added and ended")
    await delete(pool, "added and ended")
    lost = await old_world.records()
    await go_back(old_world, own_server)
    assert set(await old_world.records()) == {"finished", "deleted", "stays"}
    told = await heal(old_world, applies=False)
    assert set(await old_world.records()) == {"finished", "deleted", "stays"}
    assert told == await heal(old_world) == {"looked": 4, "ended_again": 2, "put": 2}
    there = await old_world.records()
    assert contents(there, ["added", "added and ended"]) == contents(lost, ["added", "added and ended"])
    assert [there[name].state.word for name in ("finished", "deleted", "stays")] == ["finished", "deleted", "ready"]
    assert [job.id for job in await pop(pool, count=4)] == ["stays"]
    await check_books(pool.redis, pool)
    assert await heal(old_world) == {}


async def test_a_walk_that_was_asked_for_since_leaves_a_failover_to_be_healed(
    old_world: World, own_server: RedisServer, sqlite_url: str
) -> None:
    pool = old_world.pool
    await save(old_world)
    await add(pool, "added", delay_ms=HOUR)
    await go_back(old_world, own_server)
    sql = Sql(sqlite_url)
    await sql.open()
    await sql.ask_for_walk("jq", 0, await pool.now_us())
    await sql.close()
    assert await heal(old_world) == {"looked": 1, "put": 1}


async def test_what_redis_has_done_since_stays(old_world: World, own_server: RedisServer) -> None:
    pool = old_world.pool
    await add(pool, "popped again", ttr_ms=HOUR)
    await add(pool, "added again", retention_ms=0)
    await save(old_world)
    first = await pop_one(pool)
    await finish(pool, first.id, first.lease)
    await add(pool, "new", body=b"1")
    await go_back(old_world, own_server)
    assert first.id == "popped again"
    again = await pop_one(pool)
    assert again.lease > first.lease
    await add(pool, "new", body=b"2")
    assert await heal(old_world) == {"looked": 2, "known": 1, "held": 1}
    assert (await get(pool, "new")).body == b"2"
    assert await finish(pool, again.id, again.lease) == "finished"
    await check_books(pool.redis, pool)


async def test_a_move_that_neither_added_nor_ended_a_job_is_told_and_left_as_redis_has_it(
    old_world: World, own_server: RedisServer
) -> None:
    pool = old_world.pool
    for name in ("changed", "buried", "popped", "due"):
        await add(pool, name, name, delay_ms=1 if name == "due" else 0)
    await save(old_world)
    await pool.update("changed", priority=1)
    held = await pop_one(pool, "buried")
    await pool.bury("buried", held.lease, "no")
    await pop_one(pool, "popped")
    await until(lambda: _is_ready(pool, "due"))
    await old_world.drained()
    before = await old_world.row("buried")
    await go_back(old_world, own_server)
    run = await Run.begin(old_world.reading, old_world.pool, Choice(), "forgotten")
    sums = await Forgotten(old_world.reading, pool, run.actor).carry_out()
    assert {name: number for name, number in sums.counts.items() if number} == {"looked": 4, "known": 1, "older": 3}
    assert sorted(sums.named["older"]) == ["buried", "changed", "popped"]
    assert before.state == State.DEAD and await state(pool, "buried") == "ready"
    assert await heal(old_world) == {}


async def test_a_job_that_was_delivered_again_and_given_back_ends(old_world: World, own_server: RedisServer) -> None:
    pool = old_world.pool
    await add(pool, "a")
    await save(old_world)
    first = await pop_one(pool)
    await finish(pool, "a", first.lease)
    await go_back(old_world, own_server)
    again = await pop_one(pool)
    await pool.release("a", again.lease)
    await old_world.drained()
    assert await heal(old_world) == {"looked": 1, "ended_again": 1}
    assert await state(pool, "a") == "finished"


async def test_a_life_that_redis_lost_takes_the_place_of_the_one_before(
    old_world: World, own_server: RedisServer
) -> None:
    pool = old_world.pool
    for name in ("replaced", "finished and added", "tombstone"):
        await add(pool, name, body=b"1")
    await delete(pool, "tombstone")
    await save(old_world)
    await add(pool, "replaced", body=b"2", delay_ms=HOUR, if_exists="replace")
    await finish(pool, (await pop_one(pool)).id)
    await add(pool, "finished and added", body=b"2", delay_ms=HOUR, if_exists="renew")
    await add(pool, "tombstone", body=b"2", delay_ms=HOUR, if_exists="renew")
    lost = await old_world.records()
    await go_back(old_world, own_server)
    assert await heal(old_world) == {"looked": 3, "ended_again": 3, "put": 3}
    assert contents(await old_world.records()) == contents(lost)
    await check_books(pool.redis, pool)


async def test_after_a_failover_no_drained_add_is_lost_and_no_drained_finish_runs_again(sqlite_url: str) -> None:
    async with SentinelSet() as servers:
        redis = Redis(servers.url, 20.0)
        pool = await Pool.open(redis)
        async with world_of(pool, servers.url, sqlite_url) as world:
            await pool.add([NewJob(f"old{n}", "t", b"1") for n in range(100)])
            await world.drained()
            await servers.settled()
            master, replicas = await servers.master(), await servers.replicas()
            for replica in replicas:
                replica.freeze()
            await master.ask("CLIENT", "KILL", "TYPE", "replica")  # from now on they hear nothing
            jobs = await pop(pool, count=50)
            await pool.finish([(job.id, job.lease) for job in jobs])
            await pool.add([NewJob(f"new{n}", "t", b"1") for n in range(100)])
            await world.drained()
            master.kill()
            for replica in replicas:
                replica.thaw()
            await servers.failed_over(master)
            await until(lambda: _is_noticed(world), 30.0)
            await world.drained()
            assert await heal(world) == {"looked": 150, "ended_again": 50, "put": 100}
            delivered = [job.id for job in await pop(pool, count=1_000)]
            assert sorted(delivered) == sorted([f"old{n}" for n in range(50, 100)] + [f"new{n}" for n in range(100)])
        await pool.close()
        await redis.close()


async def test_what_was_forgotten_is_not_told_where_no_events_are_kept(
    own_server: RedisServer, sqlite_url: str
) -> None:
    redis = Redis(own_server.url)
    pool = await Pool.open(redis)
    async with world_of(pool, own_server.url, sqlite_url, events="none") as world:
        await save(world)
        await add(pool, "lost", delay_ms=HOUR)
        await go_back(world, own_server)
        with pytest.raises(NotBegun, match="keeps no events from"):
            await heal(world)
    await pool.close()
    await redis.close()
