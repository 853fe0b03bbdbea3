"""The loop of a shard: every event once, in order, whatever happens between."""

from __future__ import annotations

import asyncio
import random
from contextlib import AsyncExitStack
from typing import Any

import pytest
from structlog.testing import capture_logs

from buckets.events.switch import switch_off
from buckets.job import NewJob, State, Verb
from buckets.pool.pool import Pool
from buckets.redis.client import Redis
from jobqueue.journal import keeping
from jobqueue.journal.keeping import Periods
from jobqueue.journal.reading import running
from jobqueue.journal.reading.entries import Writer
from jobqueue.journal.reading.running import Drain
from jobqueue.journal.reading.shard import Lock
from jobqueue.journal.reading.verdict import LOST
from jobqueue.journal.store import Batch, ContentRefused, Position, Store
from jobqueue.journal.tables import minute
from tests.jobqueue.journal.reading.drained import Journal, opened, switched_on
from tests.kit.redis_server import RedisServer
from tests.kit.waiting import until


async def told(pool: Pool, *ids: str, topic: str = "t", body: bytes = b"1") -> None:
    """Add jobs, each by a script of its own."""
    for job_id in ids:
        await pool.add([NewJob(job_id, topic, body)])


async def whole_life(pool: Pool, job_id: str) -> None:
    await told(pool, job_id, topic="lives")
    popped = (await pool.pop(["lives"], 1)).jobs
    await pool.finish([(job_id, popped[0].lease)])


def moves(events: list[dict[str, Any]]) -> list[tuple[str, int]]:
    return [(row["id"], row["verb"]) for row in events]


async def test_the_events_of_a_life_are_in_sql_in_their_order(journal: Journal, live_pool: Pool) -> None:
    await whole_life(live_pool, "a")
    await journal.drain()
    events = await journal.events()
    assert moves(events) == [("a", Verb.ADD), ("a", Verb.POP), ("a", Verb.FINISH)]
    assert [row["state_after"] for row in events] == [State.READY, State.RESERVED, State.FINISHED]
    assert (await journal.jobs())["a"]["state"] == State.FINISHED


async def test_what_is_in_sql_is_removed_from_redis(lite: Journal, live_pool: Pool) -> None:
    await told(live_pool, "a", "b")
    await lite.drain()
    assert await live_pool.redis.read("XLEN", live_pool.keys[0].events) == 0
    assert (await live_pool.redis.read("XPENDING", live_pool.keys[0].events, "journal"))[0] == 0


async def test_what_was_delivered_to_a_reader_that_died_is_drained_first(lite: Journal, live_pool: Pool) -> None:
    await told(live_pool, "a", "b")
    await read_as_the_reader(live_pool.redis, live_pool.keys[0].events, 2)
    await told(live_pool, "c")
    await lite.drain()
    assert [row["id"] for row in await lite.events()] == ["a", "b", "c"]


async def read_as_the_reader(redis: Redis, key: str, entries: int) -> None:
    await redis.ask(key, "XREADGROUP", "GROUP", "journal", "r", "COUNT", entries, "STREAMS", key, ">")


async def test_what_was_committed_and_not_acknowledged_is_not_written_again(journal: Journal, live_pool: Pool) -> None:
    await told(live_pool, "a", "b")
    key = live_pool.keys[0].events
    before = await live_pool.redis.read("DUMP", key)
    await journal.drain()
    await read_as_the_reader(live_pool.redis, key, 1)
    # As if the reader had died in front of its acknowledgement: delivered, and all still there.
    await live_pool.redis.read("RESTORE", key, 0, before, "REPLACE")
    await read_as_the_reader(live_pool.redis, key, 2)
    await told(live_pool, "c")
    await journal.drain()
    assert [row["id"] for row in await journal.events()] == ["a", "b", "c"]
    assert sum(row["events"] for row in await minutes(journal)) == 3
    assert await kinds(journal) == [3]


async def minutes(journal: Journal) -> list[dict[str, Any]]:
    return await journal.rows(minute)


async def kinds(journal: Journal) -> list[int]:
    return [row["kind"] for row in await journal.gaps()]


async def test_batches_of_one_event_are_as_good_as_large_ones(
    live_pool: Pool, sqlite_url: str, redis_server: RedisServer
) -> None:
    await switched_on(live_pool)
    async with opened(live_pool, sqlite_url, redis_server.url, batch=1) as journal:
        await live_pool.add([NewJob(f"a{n}", "t", b"1") for n in range(50)])
        await whole_life(live_pool, "b")
        await journal.drain()
        assert len(await journal.events()) == 53


async def test_a_large_body_is_fetched_from_the_record(journal: Journal, live_pool: Pool) -> None:
    large = b'"' + b"x" * 200_000 + b'"'
    await told(live_pool, "large", body=large)
    await told(live_pool, "small", body=b'"y"')
    await journal.drain()
    jobs = await journal.jobs()
    assert (jobs["large"]["body"], jobs["large"]["body_kept"]) == (large.decode(), 1)
    assert (jobs["small"]["body"], jobs["small"]["body_kept"]) == ('"y"', 1)


async def test_a_large_body_that_is_gone_by_then_is_missed(journal: Journal, live_pool: Pool) -> None:
    await told(live_pool, "a", body=b'"' + b"x" * 5_000 + b'"')
    await live_pool.delete(["a"])
    await journal.drain()
    job = (await journal.jobs())["a"]
    assert (job["body"], job["body_kept"], job["state"]) == (None, 2, State.DELETED)


async def test_a_large_body_in_whose_place_another_program_has_a_key_stops_nobody(
    lite: Journal, live_pool: Pool
) -> None:
    await told(live_pool, "a", body=b'"' + b"x" * 5_000 + b'"')
    key = live_pool.keys[0].job("a")
    await live_pool.redis.read("DEL", key)
    await live_pool.redis.read("RPUSH", key, "theirs")
    await told(live_pool, "b")
    await lite.drain()
    assert [row["id"] for row in await lite.events()] == ["a", "b"]


async def test_the_large_body_of_a_later_life_is_not_taken_for_that_of_an_earlier_one(
    lite: Journal, live_pool: Pool
) -> None:
    await lite.drain()  # what was there before is walked
    await told(live_pool, "a", body=b'"' + b"x" * 5_000 + b'"')
    key = live_pool.keys[0].events
    first = await live_pool.redis.read("DUMP", key)
    await live_pool.delete(["a"])
    await live_pool.add([NewJob("a", "t", b'"' + b"y" * 5_000 + b'"', if_exists="replace")])
    await live_pool.redis.read("RESTORE", key, 0, first, "REPLACE")  # only the first life was told
    await lite.drain()
    assert (await lite.jobs())["a"]["body_kept"] == 2


async def test_without_bodies_none_is_kept(live_pool: Pool, sqlite_url: str, redis_server: RedisServer) -> None:
    await switched_on(live_pool)
    async with opened(live_pool, sqlite_url, redis_server.url, bodies=False) as journal:
        await told(live_pool, "a")
        await told(live_pool, "b", body=b'"' + b"x" * 5_000 + b'"')
        await journal.drain()
        assert {(row["body"], row["body_kept"]) for row in (await journal.jobs()).values()} == {(None, 0)}


@pytest.mark.parametrize(("kept", "verbs"), [("ends", [Verb.ADD, Verb.FINISH]), ("none", [])])
async def test_fewer_events_are_kept_and_all_are_counted(
    live_pool: Pool, sqlite_url: str, redis_server: RedisServer, kept: str, verbs: list[Verb]
) -> None:
    await switched_on(live_pool)
    async with opened(live_pool, sqlite_url, redis_server.url, events=kept) as journal:
        await whole_life(live_pool, "a")
        await journal.drain()
        assert [row["verb"] for row in await journal.events()] == verbs
        assert sum(row["events"] for row in await minutes(journal)) == 3


@pytest.mark.parametrize(
    "fields",
    [
        ("x", "y"),
        ("m", b"\x09" + bytes(9)),  # of another version
        ("m", b"\x01"),
        ("m", b"\x01\xf0" + bytes(8)),  # a verb that is not known
    ],
    ids=["another field", "another version", "short", "another verb"],
)
async def test_an_entry_that_cannot_be_read_is_set_aside_and_stops_nobody(
    lite: Journal, live_pool: Pool, fields: tuple[str, Any]
) -> None:
    await told(live_pool, "a")
    await live_pool.redis.read("XADD", live_pool.keys[0].events, "*", *fields)
    await told(live_pool, "b")
    with capture_logs() as logs:
        await lite.drain()
    assert [row["id"] for row in await lite.events()] == ["a", "b"]
    [refused] = await lite.refused()
    name, value = fields
    assert refused["n"] == -1
    assert refused["raw"] == name.encode() + b"\0" + (value if isinstance(value, bytes) else value.encode())
    assert [each["event"] for each in logs if each["event"] == "journal.refused"] == ["journal.refused"]


async def test_a_value_that_cannot_be_read_is_set_aside_and_the_rest_of_its_entry_is_not(
    journal: Journal, live_pool: Pool
) -> None:
    await told(live_pool, "a")
    [(_, fields)] = await live_pool.redis.read("XRANGE", live_pool.keys[0].events, "-", "+")
    await live_pool.redis.read("XADD", live_pool.keys[0].events, "*", *fields[:2], "bad", b"\x09", "c", fields[3])
    await journal.drain()
    assert [(row["id"], row["n"]) for row in await journal.events()] == [("a", 0), ("c", 1)]
    [refused] = await journal.refused()
    assert (refused["n"], refused["raw"]) == (0, b"bad\0\x09")


class Picky:
    """A store that refuses the events of some jobs, and counts its batches."""

    def __init__(self, store: Store, refused: set[str]) -> None:
        self._store, self._refused = store, refused
        self.position, self.close = store.position, store.close

    async def write(self, batch: Batch) -> None:
        if self._refused & {row[6] for row in batch.events}:
            raise ContentRefused("no such id here")
        await self._store.write(batch)


@pytest.mark.parametrize("together", [True, False], ids=["in one entry", "in an entry each"])
async def test_what_the_database_refuses_is_set_aside_alone(lite: Journal, live_pool: Pool, together: bool) -> None:
    await lite.drain()  # what was there before is walked
    jobs = [NewJob(f"a{n:02}", "t", b"1") for n in range(40)]
    for some in [jobs] if together else [[job] for job in jobs]:
        await live_pool.add(some)
    assert lite.sql._store
    lite.sql._store = Picky(lite.sql._store, {"a07", "a23"})
    await lite.drain()
    assert [row["id"] for row in await lite.events()] == [job.id for job in jobs if job.id not in ("a07", "a23")]
    assert [row["raw"].partition(b"\0")[0] for row in await lite.refused()] == [b"a07", b"a23"]
    assert sum(row["events"] for row in await minutes(lite)) == 38


class Deaf(Picky):
    """A store that also refuses what was refused, if it has more than a few bytes."""

    async def write(self, batch: Batch) -> None:
        if any(len(row[-1]) > 2 for row in batch.refused):
            raise ContentRefused("too much")
        await super().write(batch)


async def test_what_cannot_even_be_set_aside_is_noted(lite: Journal, live_pool: Pool) -> None:
    await lite.drain()
    await told(live_pool, "a", "b")
    await live_pool.redis.read("XADD", live_pool.keys[0].events, "*", "other", "field")
    await told(live_pool, "c")
    assert lite.sql._store
    lite.sql._store = Deaf(lite.sql._store, {"b"})
    await lite.drain()
    assert [row["id"] for row in await lite.events()] == ["a", "c"]
    assert [(row["n"], row["raw"]) for row in await lite.refused()] == [(0, b""), (-1, b"")]


class Watched(Picky):
    """A store that notes the positions that were written."""

    positions: list[Position]

    async def write(self, batch: Batch) -> None:
        await super().write(batch)
        self.positions.append(batch.after)


async def test_the_time_of_a_batch_is_not_told_before_its_end(lite: Journal, live_pool: Pool) -> None:
    """A restore waits for it: what it says is here must be here."""
    await lite.drain()
    await told(live_pool, *(f"a{n}" for n in range(8)))
    before = await lite.position()
    assert lite.sql._store and before
    lite.sql._store = store = Watched(lite.sql._store, {"a5"})
    store.positions = []
    await lite.drain()
    events = {(row["ms"], row["seq"]): row["at"] for row in await lite.events()}
    for position in store.positions:
        later = [at for place, at in events.items() if place > (position.ms, position.seq)]
        assert all(at > position.time for at in later)


async def test_an_idle_shard_still_tells_until_when_all_is_here(lite: Journal, live_pool: Pool) -> None:
    await lite.drain()
    first = await lite.position()
    await lite.drain()
    second = await lite.position()
    assert first and second and first.time < second.time and first.since == second.since


async def test_one_reader_drains_and_the_next_takes_over(lite: Journal, live_pool: Pool) -> None:
    async with AsyncExitStack() as first_block, lite.draining() as second:
        await until(lambda: holders(second) == [True])
        first = await first_block.enter_async_context(lite.draining())
        await told(live_pool, "a")
        await lite.until_drained()
        assert holders(first, second) == [False, True]
    async with lite.draining() as second:
        async with lite.draining() as first:
            await until(lambda: any(holders(first, second)))
            assert holders(first, second).count(True) == 1
        await until(lambda: holders(second) == [True])
        await told(live_pool, "b")
        await lite.until_drained()
    assert [row["id"] for row in await lite.events()] == ["a", "b"]


def holders(*drains: Drain) -> list[bool]:
    return [drain.readers[0].lock.is_held for drain in drains]


async def test_two_readers_at_once_write_all_and_nothing_twice(
    lite: Journal, live_pool: Pool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The lock guards nothing: without it, the position does."""

    async def keep(lock: Lock) -> None:
        lock._until = float("inf")

    async def slow(writer: Writer, *arguments: Any) -> Any:
        await asyncio.sleep(random.random() / 20)
        return await write(writer, *arguments)

    write = Writer.write
    monkeypatch.setattr(Lock, "_renew", keep)
    monkeypatch.setattr(Writer, "write", slow)
    async with lite.draining() as first, lite.draining() as second:
        assert first.readers[0] is not second.readers[0]
        for n in range(100):
            await told(live_pool, f"a{n:02}")
            await asyncio.sleep(0.003)
        await lite.until_drained()
    assert [row["id"] for row in await lite.events()] == [f"a{n:02}" for n in range(100)]


async def test_events_that_are_switched_off_are_told_in_the_log_and_what_was_told_is_drained(
    lite: Journal, live_pool: Pool
) -> None:
    await told(live_pool, "a")
    await switch_off(live_pool, 0)
    with capture_logs() as logs:
        await lite.drain()
        await lite.drain()
    assert [row["id"] for row in await lite.events()] == ["a"]
    assert [each["event"] for each in logs].count("journal.off") == 2  # once by each
    async with lite.draining() as drain:
        with capture_logs() as logs:
            await until(lambda: not drain.readers[0]._is_on)
            await switched_on(live_pool)
            await until(lambda: "journal.on" in [each["event"] for each in logs])


async def test_a_reader_that_was_behind_tells_that_it_has_caught_up(lite: Journal) -> None:
    [reader] = lite.new_drain().readers
    with capture_logs() as logs:
        for seconds in (9.0, 11.0, 12.0, 0.0, 0.0):
            reader._tell_lag(seconds, 1)
    assert [each["event"] for each in logs] == ["journal.behind", "journal.caught_up"]


@pytest.mark.parametrize("drop", [False, True])
async def test_what_happened_while_events_were_off_is_a_gap_that_a_walk_fills_though_nobody_was_there(
    lite: Journal, live_pool: Pool, drop: bool
) -> None:
    await told(live_pool, "a")
    await lite.drain()
    await switch_off(live_pool, 0, drop=drop)
    await told(live_pool, "untold")
    await live_pool.delete(["a"])
    await switched_on(live_pool)
    await told(live_pool, "b")
    await lite.drain()
    await lite.drain()
    assert [row["id"] for row in await lite.events()] == ["a", "b"]
    assert {row["id"]: row["state"] for row in (await lite.jobs()).values()} == {
        "a": State.DELETED,
        "untold": State.READY,
        "b": State.READY,
    }
    [_, gap] = await lite.gaps()  # the first is what was before the journal
    assert (gap["kind"], gap["entries"], gap["from_ms"] < gap["to_ms"]) == (LOST, 0, True)


async def test_a_stream_that_never_was_is_waited_for(
    live_pool: Pool, sqlite_url: str, redis_server: RedisServer
) -> None:
    async with opened(live_pool, sqlite_url, redis_server.url) as journal, journal.draining():
        await asyncio.sleep(0.1)
        assert await journal.position() is None
        await switched_on(live_pool)
        await told(live_pool, "a")
        await journal.until_drained()
        assert [row["id"] for row in await journal.events()] == ["a"]


async def test_what_is_too_old_goes_without_a_pause_and_batches_go_between(
    lite: Journal, live_pool: Pool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(keeping, "STEP", 5)
    monkeypatch.setattr(running, "_KEEP_S", 3600.0)  # the pause after a step that found nothing more
    await told(live_pool, *(f"{number}" for number in range(100)))
    await lite.drain()
    assert len(await lite.events()) == 100
    lite.periods = Periods(events=0)
    async with lite.draining():
        await told(live_pool, "new")
        await lite.until_drained()

        async def are_gone() -> bool:
            return {event["id"] for event in await lite.events()} <= {"new"}

        await until(are_gone)
