"""Schedules come back with their times: what they made is not made again, and what was missed follows catch_up."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence

import pytest
from sqlalchemy import select

from buckets.events.restoring import Asked, LostSchedule, Restoring
from buckets.job import State
from buckets.pool.pool import Pool
from buckets.redis.client import Redis
from buckets.schedules.record import Schedule, pack_schedule
from buckets.schedules.schedules import Schedules
from jobqueue.cli.journal.restoring import as_json, sentences
from jobqueue.journal import tables
from jobqueue.journal.reading.verdict import UNKNOWN
from jobqueue.journal.restoring import lost as module
from jobqueue.journal.restoring.reading import Sums
from tests.buckets.events.scheduled import content, there, undefine
from tests.buckets.jobs import add, finish, pop, pop_one, state
from tests.jobqueue.journal.restoring.lost import World, contents, world_of
from tests.jobqueue.journal.restoring.test_forgotten import go_back, heal, save
from tests.jobqueue.journal.scheduled import define, meet
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


async def lost(world: World) -> dict[str, Schedule]:
    """Lose Redis; returns the schedules that it had."""
    had = await there(world.pool)
    await world.drained()
    await world.lose()
    return content(had)


async def ids(world: World) -> set[str]:
    return set(await world.records())


async def test_schedules_come_back_as_they_were_and_go_on_at_their_times(each_world: World) -> None:
    pool = each_world.pool
    await define(pool, "hourly", in_ms=-HOUR // 2)
    await define(pool, "cron", "u", b'{"n":"\\u0000"}', cron="*/7 3 * * *", zone="Europe/Berlin", headers={"a": "é"})
    await define(pool, "paused", "A", paused=True)
    await define(pool, "removed")
    await meet(pool, "hourly")
    await undefine(pool, "removed")
    jobs = await each_world.records()
    before = await lost(each_world)
    assert (set(before), len(jobs)) == ({"hourly", "cron", "paused"}, 1)
    assert await each_world.counts() == {"looked": 4, "put": 4, "schedules": 3, "overdue": 1}
    assert content(await there(pool)) == before
    assert contents(await each_world.records()) == contents(jobs)
    for name, schedule in (await there(pool)).items():  # each timer has its own
        entry = await pool.redis.read("ZSCORE", pool.keys[0].bucket(schedule.bucket), f"~{name}")
        assert entry == (str(schedule.next).encode() if schedule.next else None)
    await meet(pool, "hourly")  # it is not its time
    assert await ids(each_world) == set(jobs)
    await each_world.drained()
    assert await each_world.counts() == {"looked": 4, "known": 4}
    [made] = jobs
    await finish(pool, (await pop_one(pool)).id)
    await each_world.drained()
    await each_world.lose()
    assert (await each_world.counts())["schedules"] == 3 and await state(pool, made) == "finished"


@pytest.mark.parametrize(("catch_up", "made"), [("none", 0), ("last", 1), ("all", 5)])
async def test_what_was_missed_follows_catch_up_and_nothing_is_made_again(
    world: World, catch_up: str, made: int
) -> None:
    """Of six times the first was made and finished, and forgotten by Redis."""
    now = await world.pool.now_ms()
    await define(world.pool, "s", in_ms=1, every=600.0, catch_up=catch_up, retention=0)
    [schedule] = (await there(world.pool)).values()
    first = now // 1000 * 1000 - 55 * 60_000
    shifted = LostSchedule(
        "s",
        pack_schedule(schedule._replace(start=first - 600_000, next=first + 600_000, last=first)),
        schedule.revision,
    )
    assert await Restoring(world.pool, "").put_schedules([shifted]) == [True]
    await lost(world)
    await world.restore()
    await meet(world.pool, "s")
    times = [first + turn * 600_000 for turn in range(1, 6)]
    assert await ids(world) == {f"s@{each}" for each in times[5 - made :]}
    [schedule] = (await there(world.pool)).values()
    assert schedule.next == first + 6 * 600_000


async def test_the_occurrences_of_a_schedule_that_came_back_are_counted_and_watched(world: World) -> None:
    pool = world.pool
    await define(pool, "s", in_ms=-1, overlap="skip")
    await add(pool, "s@other", delay_ms=HOUR)
    await meet(pool, "s")
    [schedule] = (await there(pool)).values()
    await lost(world)
    await world.restore()
    seen = await Schedules(pool).see("s")
    assert seen.schedule and seen.schedule.last == schedule.last
    assert await pool.redis.read("ZRANGE", pool.keys[0].occurrences("s"), 0, -1) == [str(schedule.last).encode()]
    assert await Schedules(pool).undefine(seen.schedule) == 1


async def test_a_walk_of_an_emptied_redis_leaves_its_schedules_to_be_restored(world: World) -> None:
    await define(world.pool, "s")
    await lost(world)

    async def is_walked_again() -> bool:
        async with world.engine.connect() as connection:
            query = select(tables.gap.c.walked).where(tables.gap.c.kind == UNKNOWN)
            walks = (await connection.execute(query)).scalars().all()
        return len(walks) == 2 and all(walks)

    await until(is_walked_again, 20.0)
    assert await world.counts() == {"looked": 1, "put": 1, "schedules": 1}


async def test_schedules_that_redis_knows_stay(world: World) -> None:
    await define(world.pool, "s", "old")
    await define(world.pool, "t")
    await lost(world)
    await define(world.pool, "s", "new")
    await world.drained()
    new = (await there(world.pool))["s"]
    assert await world.counts() == {"looked": 2, "known": 1, "put": 1, "schedules": 1}
    assert (await there(world.pool))["s"] == new


async def test_schedules_of_the_topics_that_were_asked_for_come_back_unless_states_were(world: World) -> None:
    for topic in ("A", "a", "ab"):
        await define(world.pool, f"of {topic}".replace(" ", "-"), topic)
    await lost(world)
    await world.restore(states=(State.DELAYED,))
    await world.restore(ids=("of-a",))
    assert await there(world.pool) == {}
    await world.restore(topics="a*")
    assert set(await there(world.pool)) == {"of-a", "of-ab"}
    await world.restore(states=(*range(1, 5),))
    assert set(await there(world.pool)) == {"of-A", "of-a", "of-ab"}


async def test_a_dry_run_tells_of_schedules_and_puts_none(world: World) -> None:
    await define(world.pool, "s")
    await lost(world)
    assert await world.counts(dry=True) == {"looked": 1, "put": 1, "schedules": 1}
    assert await there(world.pool) == {}


async def test_a_resumed_run_goes_on_among_the_schedules_and_counts_each_once(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "PAGE", 2)
    for number in range(5):
        await define(world.pool, f"s{number}")
    await add(world.pool, "j", delay_ms=HOUR)
    await lost(world)
    sums = await world.restore(cursor={"schedules": "s1"})
    assert sums.counts["put"] == 3 and set(await there(world.pool)) == {"s2", "s3", "s4"}
    assert await ids(world) == set()
    assert await world.counts() == {"looked": 6, "known": 3, "put": 3, "schedules": 2}


async def test_without_bodies_no_schedule_comes_back_and_each_is_named(
    live_pool: Pool, redis_server: RedisServer, sqlite_url: str
) -> None:
    async with world_of(live_pool, redis_server.url, sqlite_url, bodies=False) as world:
        await define(world.pool, "s")
        await lost(world)
        sums = await world.restore()
        assert sums.named == {"without_body": ["~s"]} and await there(world.pool) == {}
        assert "left: 1 without a body in the journal: ~s" in list(sentences(sums, applies=True))


async def test_a_schedule_whose_removal_the_journal_does_not_have_yet_does_not_come_back(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    await define(world.pool, "s")
    await world.drained()
    ask = Restoring.ask

    async def removed_before(self: Restoring, ids: Sequence[str]) -> list[Asked]:
        if ids:  # it is listed already
            await undefine(world.pool, "s")
        return await ask(self, ids)

    monkeypatch.setattr(Restoring, "ask", removed_before)
    assert await world.counts() == {"looked": 1, "ended": 1}
    assert await there(world.pool) == {}


def test_schedules_are_told_among_what_came_back() -> None:
    sums = Sums()
    sums.counts.update(looked=5, put=4, schedules=2, overdue=1, known=1)
    told = list(sentences(sums, applies=True))
    assert told == ["5 looked at, 4 came back (2 schedules, 1 overdue)", "1 known to Redis, which keeps what it has"]
    assert as_json(sums, 3, "")["counts"]["schedules"] == 2


async def test_what_a_failover_forgot_of_schedules_is_healed(old_world: World, own_server: RedisServer) -> None:
    pool = old_world.pool
    for name in ("removed", "changed", "stays"):
        await define(pool, name, "old")
    await define(pool, "occurs", in_ms=-1)
    await save(old_world)
    await define(pool, "new", in_ms=-1)
    await meet(pool, "new")
    await define(pool, "new and removed")
    await undefine(pool, "new and removed")
    await undefine(pool, "removed")
    await define(pool, "changed", "new")
    await meet(pool, "occurs")
    had = content(await there(pool))
    await go_back(old_world, own_server)
    assert set(await there(pool)) == {"removed", "changed", "stays", "occurs"}
    told = await heal(old_world, applies=False)
    assert set(await there(pool)) == {"removed", "changed", "stays", "occurs"}
    healed = await heal(old_world)
    assert told == healed and healed["schedules"] == 2 and healed["ended_again"] == 1
    after = content(await there(pool))
    assert set(after) == set(had) and after["new"] == had["new"] and after["changed"] == had["changed"]
    assert after["occurs"].next < had["occurs"].next  # its time comes again by itself
    assert await heal(old_world) == {}
    await meet(pool, "occurs")
    assert [each.id for each in await pop(pool, count=9)].count(f"occurs@{had['occurs'].last}") == 1


async def test_what_was_done_with_a_schedule_since_a_failover_stays(old_world: World, own_server: RedisServer) -> None:
    pool = old_world.pool
    await define(pool, "removed", "old")
    await save(old_world)
    await undefine(pool, "removed")
    await define(pool, "new", "old")
    await define(pool, "new and gone")
    await go_back(old_world, own_server)
    await define(pool, "removed", "again")
    await define(pool, "new", "again")
    await define(pool, "new and gone", "again")
    await undefine(pool, "new and gone")
    await old_world.drained()
    now = content(await there(pool))
    assert await heal(old_world) == {"looked": 3, "known": 2, "ended": 1}
    assert content(await there(pool)) == now


async def test_a_schedule_that_a_failover_revived_is_removed_again_though_its_time_came(
    old_world: World, own_server: RedisServer
) -> None:
    pool = old_world.pool
    await define(pool, "s", in_ms=-1)
    await save(old_world)
    await undefine(pool, "s")
    await go_back(old_world, own_server)
    await meet(pool, "s")
    await old_world.drained()
    assert (await heal(old_world))["ended_again"] == 1
    assert await there(pool) == {}
