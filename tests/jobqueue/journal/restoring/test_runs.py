"""A run is kept with how far it is, goes on where it was, and waits for what is away; what is not known stays away."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
from sqlalchemy import insert, select, update

from buckets.errors import Unavailable
from buckets.events.restoring import Restoring
from buckets.events.switch import switch_off
from buckets.job import NewJob
from jobqueue.journal import tables
from jobqueue.journal.reading.verdict import LOST
from jobqueue.journal.restoring import candidates
from jobqueue.journal.restoring.reading import Choice, NotBegun, Progress, Reading, Stopped
from jobqueue.journal.restoring.restore import Restore
from jobqueue.journal.restoring.runs import Run
from tests.buckets.jobs import add
from tests.jobqueue.journal.restoring.lost import SOURCE, World

HOUR = 3_600_000


async def lose_many(world: World, of_each: int = 500) -> set[str]:
    """Lose jobs of two topics and two states; returns their ids."""
    jobs = [NewJob(f"{topic}{n}", topic, b"1", delay_ms=n % 2 * HOUR) for topic in "tu" for n in range(of_each)]
    await world.pool.add(jobs)
    await world.drained()
    await world.lose()
    return {job.id for job in jobs}


class _Killed(Exception):
    """In place of a kill: it goes through everything."""


async def _killed_after(world: World, pages: int, cursor: Any = None, run: Run | None = None) -> Run:
    """A run that dies behind some of its pages."""
    left = iter(range(pages))

    def report(progress: Progress) -> None:
        if next(left, None) is None:
            raise _Killed

    run = run or await Run.begin(world.reading, world.pool, Choice())
    restore = Restore(world.reading, Restoring(world.pool, run.actor), Choice(), run, rate=100_000, report=report)
    with pytest.raises(_Killed):
        await restore.carry_out(cursor)
    return run


async def test_a_run_that_died_goes_on_where_it_was(each_world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(candidates, "_LISTED", 200)  # so that places are known behind few jobs
    names = await lose_many(each_world)
    await _killed_after(each_world, 2)
    there = set(await each_world.records())
    assert 0 < len(there) < len(names)
    run, found = await Run.last(each_world.reading, each_world.pool)
    assert (found.choice, found.sums.counts["put"]) == (Choice(), len(there))
    assert found.cursor and found.cursor["rank"] > 0
    restore = Restore(each_world.reading, Restoring(each_world.pool, run.actor), found.choice, run, rate=100_000)
    sums = await restore.carry_out(found.cursor, found.sums)
    assert set(await each_world.records()) == names
    assert (sums.counts["put"], sums.counts["known"], sums.counts["looked"]) == (1_000, 0, 1_000)
    with pytest.raises(NotBegun, match="has ended"):
        await Run.last(each_world.reading, each_world.pool)


async def test_a_run_that_goes_on_counts_each_job_once_and_names_all_that_it_left(each_world: World) -> None:
    jobs = [NewJob(f"t{n:03}", "t", b"1", delay_ms=HOUR) for n in range(500)]
    await each_world.pool.add(jobs)
    await each_world.drained()
    await each_world.lose()
    bodiless = [f"t{n:03}" for n in range(0, 500, 5)]
    async with each_world.engine.begin() as connection:
        await connection.execute(update(tables.job).where(tables.job.c.id.in_(bodiless)).values(body=None))
    await _killed_after(each_world, 2)  # in the midst of what is listed at once, and most of one time
    await each_world.drained()
    run, found = await Run.last(each_world.reading, each_world.pool)
    assert 0 < found.sums.counts["put"] == len(await each_world.records()) < 400
    assert found.cursor and found.cursor["reached"]
    restore = Restore(each_world.reading, Restoring(each_world.pool, run.actor), found.choice, run, rate=100_000)
    sums = await restore.carry_out(found.cursor, found.sums)
    assert {name: number for name, number in sums.counts.items() if number} == {
        **{"looked": 500, "put": 400, "without_body": 100}
    }
    assert sorted(sums.named["without_body"]) == bodiless


async def test_a_run_that_died_may_be_repeated(world: World) -> None:
    names = await lose_many(world)
    await _killed_after(world, 5)
    died = len(await world.records())
    assert await world.counts() == {
        **{"looked": 1_000, "known": died, "put": 1_000 - died},
        **({"overdue": 500 - died} if died < 500 else {}),
    }
    assert set(await world.records()) == names


async def test_without_a_run_there_is_nothing_to_resume(world: World) -> None:
    with pytest.raises(NotBegun, match="no run yet"):
        await Run.last(world.reading, world.pool)
    run = await Run.begin(world.reading, world.pool, Choice(), "forgotten")
    with pytest.raises(NotBegun, match="cannot be resumed"):
        await Run.last(world.reading, world.pool)
    assert run.number == 1


async def test_the_rate_bounds_how_many_jobs_come_back_a_second(world: World) -> None:
    await lose_many(world)
    run = await Run.begin(world.reading, world.pool, Choice())
    loop = asyncio.get_running_loop()
    times: list[tuple[float, int]] = []

    def report(progress: Progress) -> None:
        times.append((loop.time(), progress.sums.counts["put"]))
        assert progress.total == 1_000

    await Restore(world.reading, Restoring(world.pool, run.actor), Choice(), run, rate=1_500, report=report).carry_out()
    seconds, jobs = times[-1][0] - times[0][0], times[-1][1] - times[0][1]
    assert jobs == 900 and jobs / seconds <= 1_550


async def test_a_redis_that_is_full_or_away_is_waited_for(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    names = await lose_many(world, 50)
    restoring = Restoring(world.pool, "restore:1")
    ask, failures = restoring.ask, iter([Unavailable(), Unavailable()])

    async def failing(ids: Any) -> Any:
        if ids and (failure := next(failures, None)):
            raise failure
        return await ask(ids)

    monkeypatch.setattr(restoring, "ask", failing)
    await world.pool.redis.read("CONFIG", "SET", "maxmemory", "1")
    run = await Run.begin(world.reading, world.pool, Choice())
    running = asyncio.create_task(Restore(world.reading, restoring, Choice(), run, rate=100_000).carry_out())
    try:
        done, _ = await asyncio.wait({running}, timeout=1)
        assert not done and not await world.records()
    finally:
        await world.pool.redis.read("CONFIG", "SET", "maxmemory", "0")
    assert (await running).counts["put"] == 100
    assert set(await world.records()) == names


async def test_what_stays_away_for_too_long_stops_the_run_which_may_go_on_later(world: World) -> None:
    await lose_many(world, 50)
    reading = Reading(world.engine, SOURCE, 0.5)
    run = await Run.begin(reading, world.pool, Choice())
    await world.pool.redis.read("CONFIG", "SET", "maxmemory", "1")
    try:
        with pytest.raises(Stopped, match="Redis is full"):
            await Restore(reading, Restoring(world.pool, run.actor), Choice(), run).carry_out()
    finally:
        await world.pool.redis.read("CONFIG", "SET", "maxmemory", "0")
    _, found = await Run.last(reading, world.pool)
    assert (found.cursor, found.sums.counts) == (None, {})


async def test_a_redis_whose_events_are_off_gets_nothing_unless_it_is_asked_for(world: World) -> None:
    await lose_many(world, 50)
    await switch_off(world.pool, 0)
    reading = Reading(world.engine, SOURCE, 0.5)
    run = await Run.begin(reading, world.pool, Choice())
    with pytest.raises(NotBegun, match="events are off in shard 0"):
        await Restore(reading, Restoring(world.pool, run.actor), Choice(), run).carry_out()
    sums = await Restore(reading, Restoring(world.pool, run.actor), Choice(), run, rate=100_000, stale=True).carry_out()
    assert sums.counts["put"] == 100


async def test_a_journal_that_nobody_drains_lets_no_run_begin(world: World) -> None:
    await lose_many(world, 50)
    await world.pool.redis.read("DEL", f"{world.pool.keys[0].tag}lock:journal")
    await world.drained()
    async with world.engine.begin() as connection:  # as if of another Redis
        await connection.execute(tables.position.update().values(source="elsewhere"))
    run = await Run.begin(world.reading, world.pool, Choice())
    with pytest.raises(NotBegun, match="nothing of shard 0 is in the journal"):
        await Restore(Reading(world.engine, "nobody", 0.3), Restoring(world.pool, run.actor), Choice(), run).carry_out()


async def test_jobs_that_may_have_ended_in_a_gap_stay_away_and_are_named(world: World) -> None:
    for name in ("before", "behind"):
        await add(world.pool, name)
        await world.drained()
    await world.lose()
    await world.drained()
    place = await world.row("before")
    gap = {"source": SOURCE, "shard": 7, "epoch": 0, "kind": LOST, "from_ms": place.ms, "from_seq": place.seq}
    gap |= {"to_ms": place.ms, "to_seq": place.seq + 1, "entries": 1, "found": 1, "walked": None}
    async with world.engine.begin() as connection:
        await connection.execute(insert(tables.gap).values(gap))
        await connection.execute(tables.job.update().values(shard=7))  # of which no reader walks
    sums = await world.restore()
    assert (sums.named, sums.counts["put"]) == ({"unsure": ["before"]}, 1)
    assert set(await world.records()) == {"behind"}


async def test_a_run_is_kept_with_its_options_and_sums(world: World) -> None:
    await add(world.pool, "a")
    await world.drained()
    await world.lose()
    await world.restore(topics="t", spread_s=60.0)
    async with world.engine.connect() as connection:
        (run,) = (await connection.execute(select(tables.restore))).all()
    assert (run.source, run.number) == (SOURCE, 1) and run.ended >= run.begun
    assert json.loads(run.options)["topics"] == "t" and json.loads(run.options)["spread_s"] == 60
    assert json.loads(run.sums) == {"looked": 1, "put": 1, "known": 0, "overdue": 1}
