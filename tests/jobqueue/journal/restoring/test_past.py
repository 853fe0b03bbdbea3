"""Jobs come back as they were at an earlier time, as far as that is known."""

from __future__ import annotations

import pytest
from sqlalchemy import delete as delete_from

from buckets.job import State
from jobqueue.journal import tables
from jobqueue.journal.restoring import candidates
from jobqueue.journal.restoring.reading import NotBegun
from tests.buckets.books import check_books
from tests.buckets.jobs import add, delete, finish, get, pop_one, state
from tests.jobqueue.journal.restoring.lost import World, content

HOUR = 3_600_000


async def test_jobs_come_back_as_they_were_then(each_world: World) -> None:
    pool = each_world.pool
    await add(pool, "moved on", backoff_ms=(5_000,))
    await pool.release("moved on", (await pop_one(pool)).lease, reason="not yet")
    await add(pool, "purged", delay_ms=HOUR, retention_ms=0)
    await add(pool, "finished since", priority=9, retention_ms=0)
    await add(pool, "other topic", "u", delay_ms=HOUR, retention_ms=0)
    then, was = await pool.now_us(), await get(pool, "moved on")
    assert (await pop_one(pool)).id == "finished since"
    await finish(pool, "finished since")
    await delete(pool, "purged")
    await pool.run("moved on")
    popped = await pop_one(pool)
    await pool.bury("moved on", popped.lease)
    await add(pool, "later", retention_ms=0)
    await each_world.drained()
    await each_world.lose()
    counts = await each_world.counts(as_of=then, topics="t")
    assert counts == {"looked": 3, "put": 2, "ended": 1}
    assert set(await each_world.records()) == {"moved on", "purged"}
    back = await get(pool, "moved on")
    assert content(back)[:4] == content(was)[:4] and (back.state, back.due, back.next, back.attempts) == (
        *(State.DELAYED, was.due, was.next, was.attempts),
    )
    assert (await get(pool, "purged")).body == b'"body"'
    await check_books(pool.redis, pool)


async def test_a_job_whose_body_is_another_one_since_stays_away_and_is_named(world: World) -> None:
    pool = world.pool
    await add(pool, "rewritten", delay_ms=HOUR)
    await add(pool, "another life", delay_ms=HOUR, retention_ms=0)
    await add(pool, "updated", delay_ms=HOUR)
    then, was = await pool.now_us(), await get(pool, "updated")
    await pool.update("rewritten", body=b"2")
    await delete(pool, "another life")
    await add(pool, "another life", delay_ms=HOUR)
    await pool.update("updated", delay_ms=2 * HOUR)
    await world.drained()
    await world.lose()
    sums = await world.restore(as_of=then)
    assert sums.named == {"changed": ["rewritten"], "without_body": ["another life"]}
    assert (await get(pool, "updated")).due == was.due
    assert await state(pool, "rewritten") == "unknown"


async def test_jobs_that_are_named_come_back_as_they_were_if_they_lived(world: World) -> None:
    pool = world.pool
    await add(pool, "a", delay_ms=HOUR, retention_ms=0)
    await add(pool, "ended before", retention_ms=0)
    await delete(pool, "ended before")
    then = await pool.now_us()
    await delete(pool, "a")
    await add(pool, "later", delay_ms=HOUR)
    await world.drained()
    await world.lose()
    sums = await world.restore(as_of=then, ids=("a", "ended before", "later", "nobody"))
    assert {name: number for name, number in sums.counts.items() if number} == {
        **{"looked": 4, "put": 1, "absent": 2, "unknown": 1},
    }
    assert set(await world.records()) == {"a"} and sums.named == {"unknown": ["nobody"]}


async def test_a_time_before_what_is_kept_is_refused_with_what_is(world: World) -> None:
    with pytest.raises(NotBegun, match="keeps no events"):
        await candidates.check(world.reading, await world.pool.now_us())
    before = await world.pool.now_us() - 3_600_000_000
    await add(world.pool, "a")
    await world.drained()
    await candidates.check(world.reading, await world.pool.now_us())
    with pytest.raises(NotBegun, match=r"events go back to 20.*, not to 20"):
        await candidates.check(world.reading, before)
    async with world.engine.begin() as connection:
        await connection.execute(delete_from(tables.event))
    with pytest.raises(NotBegun, match="keeps no events"):
        await candidates.check(world.reading, before)
