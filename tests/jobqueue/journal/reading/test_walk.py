"""The walk: what no event has told is read from the records, and what is gone has vanished."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from buckets.events.stream import Stream
from buckets.events.switch import stream_key, switch_off
from buckets.job import NewJob, State, Verb
from buckets.pool.pool import Pool
from jobqueue.journal.reading import walk
from jobqueue.journal.reading.verdict import LOST
from jobqueue.journal.tables import event, minute
from tests.jobqueue.journal.reading.drained import Journal, opened, switched_on
from tests.jobqueue.journal.reading.test_shard import Picky, told
from tests.kit.redis_server import RedisServer


async def untold(pool: Pool, work: Any) -> None:
    """Do something while events are off."""
    await switch_off(pool, 0)
    await work
    await switched_on(pool)


async def cut_all(pool: Pool) -> None:
    await pool.redis.read("XTRIM", stream_key(pool, 0), "MAXLEN", "=", 0)


async def walked(journal: Journal) -> dict[str, Verb]:
    return {row["id"]: Verb(row["verb"]) for row in await journal.rows(event) if row["branch"] < 0}


async def test_at_first_all_that_is_there_is_read(live_pool: Pool, journal_url: str, redis_server: RedisServer) -> None:
    await live_pool.add([NewJob("delayed", "t", b'{"a": [1]}', delay_ms=1_000_000, ttr_ms=5_000)])
    await live_pool.add([NewJob("large", "t", b'"' + b"x" * 100_000 + b'"')])
    await live_pool.add([NewJob("dead", "u", b"1")])
    [popped] = (await live_pool.pop(["u"], 1)).jobs
    await live_pool.bury("dead", popped.lease, "too bad")
    await live_pool.add([NewJob("gone", "u", b"1")])
    await live_pool.delete(["gone"])
    await switched_on(live_pool)
    async with opened(live_pool, journal_url, redis_server.url) as journal:
        await journal.drain()
        jobs = await journal.jobs()
        assert {job_id: row["state"] for job_id, row in jobs.items()} == {
            "delayed": State.DELAYED,
            "large": State.READY,
            "dead": State.DEAD,
            "gone": State.DELETED,
        }
        assert (jobs["delayed"]["body"], jobs["delayed"]["ttr"]) == ('{"a": [1]}', 5_000)
        assert len(jobs["large"]["body"]) == 100_002
        assert (jobs["dead"]["reason"], jobs["gone"]["body"], jobs["gone"]["body_kept"]) == ("too bad", None, 2)
        assert set((await walked(journal)).values()) == {Verb.WALK}
        assert await journal.rows(minute) == []
        assert all(row["walked"] for row in await journal.gaps())


async def test_a_walk_fills_a_gap(journal: Journal, live_pool: Pool) -> None:
    await told(live_pool, "stays", "ends", "moves")
    await journal.drain()
    await told(live_pool, "new")
    await live_pool.delete(["ends"])
    [popped] = (await live_pool.pop(["t"], 1)).jobs
    await cut_all(live_pool)
    await journal.drain()
    jobs = await journal.jobs()
    states = {job_id: State(row["state"]) for job_id, row in jobs.items()}
    expected = dict.fromkeys(("stays", "moves", "new"), State.READY) | {"ends": State.DELETED}
    assert states == expected | {popped.id: State.RESERVED}
    assert jobs[popped.id]["lease"] == popped.lease
    assert [row["entries"] for row in await journal.gaps() if row["kind"] == LOST] == [3]


async def test_what_lives_in_the_journal_and_is_unknown_to_redis_has_vanished(
    journal: Journal, live_pool: Pool
) -> None:
    await live_pool.add([NewJob(job_id, "t", b"1", retention_ms=0) for job_id in ("a", "b", "c")])
    await journal.drain()
    lived = (await journal.jobs())["b"]
    await live_pool.delete(["b"])
    await cut_all(live_pool)
    await journal.drain()
    jobs = await journal.jobs()
    assert {job_id: row["state"] for job_id, row in jobs.items()} == {"a": State.READY, "b": 0, "c": State.READY}
    assert (jobs["b"]["life"], jobs["b"]["body"]) == (lived["life"], "1")  # the rest of the row stays
    assert jobs["b"]["ended"] is not None
    [row] = [row for row in await journal.rows(event) if row["verb"] == Verb.VANISHED]
    assert (row["id"], row["life"], row["topic"], row["state_after"]) == ("b", lived["life"], "t", 0)


async def test_a_job_that_ends_while_it_is_looked_for_has_not_vanished(
    lite: Journal, live_pool: Pool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its end is told before the answer that Redis does not know it, so it is waited for."""
    await live_pool.add([NewJob("a", "t", b"1", retention_ms=0)])
    await lite.drain()
    # Not met, as if the scan had missed it, then deleted as soon as it is asked for once more.
    read = Stream.records

    async def records(self: Stream, ids: list[str]) -> Any:
        if ids:
            await live_pool.delete(["a"])
        return await read(self, ids)

    async def nothing(self: walk.Walk) -> Any:
        return
        yield

    monkeypatch.setattr(Stream, "records", records)
    monkeypatch.setattr(walk.Walk, "_scanned", nothing)
    await told(live_pool, "b")
    await cut_all(live_pool)
    await lite.drain()
    assert (await lite.jobs())["a"]["state"] == State.DELETED
    assert Verb.VANISHED not in {row["verb"] for row in await lite.rows(event)}


async def test_a_walk_beside_moves_never_takes_an_older_record_for_newer(
    lite: Journal, live_pool: Pool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(walk, "_OF_A_STEP", 20)
    ids = [f"a{n:03}" for n in range(300)]
    await live_pool.add([NewJob(job_id, "t", b"1") for job_id in ids])
    async with lite.draining():
        for _ in range(6):
            popped = (await live_pool.pop(["t"], 50)).jobs
            await live_pool.finish([(job.id, job.lease) for job in popped])
            await asyncio.sleep(0.02)
        await lite.until_drained()
    assert {row["state"] for row in (await lite.jobs()).values()} == {State.FINISHED}


async def test_a_walk_that_was_interrupted_is_done_again(
    lite: Journal, live_pool: Pool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(walk, "_OF_A_STEP", 1)
    await live_pool.add([NewJob(f"a{n}", "t", b"1") for n in range(5)])
    await cut_all(live_pool)
    async with lite.draining(), asyncio.timeout(10):
        while not await lite.jobs():  # noqa: ASYNC110 - in another connection
            await asyncio.sleep(0.001)
    monkeypatch.setattr(walk, "_OF_A_STEP", 1000)
    await lite.drain()
    assert len(await lite.jobs()) == 5
    assert all(row["walked"] for row in await lite.gaps())


async def test_a_second_walk_at_the_same_place_adds_nothing(journal: Journal, live_pool: Pool) -> None:
    await told(live_pool, "a", "b")
    await journal.drain()
    before = await journal.rows(event)
    await journal.sql.ask_for_walk("jq", 0, 1)
    await journal.drain()
    assert len(await journal.rows(event)) == len(before)


async def test_an_unreadable_record_is_set_aside_and_stops_nobody(journal: Journal, live_pool: Pool) -> None:
    await told(live_pool, "a")
    await live_pool.redis.read("SET", live_pool.keys[0].job("bad"), b"\x07x")
    await live_pool.redis.read("RPUSH", live_pool.keys[0].job("worse"), "x")
    await journal.drain()
    assert sorted(await journal.jobs()) == ["a"]
    assert [row["raw"] for row in await journal.refused()] == [b"bad\0\x07x"]


async def test_a_record_that_the_database_refuses_is_set_aside(lite: Journal, live_pool: Pool) -> None:
    await live_pool.add([NewJob(f"a{n}", "t", b"1") for n in range(9)])
    await cut_all(live_pool)
    assert lite.sql._store
    lite.sql._store = Picky(lite.sql._store, {"a3"})
    await lite.drain()
    assert sorted(await lite.jobs()) == [f"a{n}" for n in range(9) if n != 3]
    assert [row["raw"] for row in await lite.refused()] == [b"a3"]
