"""Gaps and returns: what the journal says when entries were cut off, or Redis went back."""

from __future__ import annotations

import asyncio

import pytest
from structlog.testing import capture_logs

from buckets.errors import Unfit
from buckets.events.switch import stream_key
from buckets.job import State, Verb
from buckets.pool.pool import Pool
from buckets.redis.client import Redis
from jobqueue.journal.reading import shard
from jobqueue.journal.reading.verdict import FORGOTTEN, LOST, UNKNOWN
from jobqueue.journal.store import Batch, Position
from jobqueue.journal.tables import event, minute
from tests.jobqueue.journal.reading.drained import SOURCE, Journal, opened, switched_on
from tests.jobqueue.journal.reading.test_shard import read_as_the_reader, told
from tests.kit.redis_server import RedisServer


class Stream:
    """The stream of the first shard, which a test may cut, keep a copy of, and bring back."""

    def __init__(self, pool: Pool) -> None:
        self._pool, self.key = pool, stream_key(pool, 0)

    async def copy(self) -> bytes:
        data: bytes = await self._pool.redis.read("DUMP", self.key)
        return data

    async def bring_back(self, data: bytes) -> None:
        await self._pool.redis.read("RESTORE", self.key, 0, data, "REPLACE")

    async def cut(self, left: int) -> None:
        await self._pool.redis.read("XTRIM", self.key, "MAXLEN", "=", left)


@pytest.fixture
def stream(live_pool: Pool) -> Stream:
    return Stream(live_pool)


def names(prefix: str, number: int) -> list[str]:
    return [f"{prefix}{n:03}" for n in range(number)]


async def test_the_entries_that_were_cut_off_unread_are_counted_exactly(
    journal: Journal, live_pool: Pool, stream: Stream
) -> None:
    await told(live_pool, *names("a", 5))
    await journal.drain()
    before = await journal.position()
    await told(live_pool, *names("b", 40))
    await stream.cut(7)
    with capture_logs() as logs:
        await journal.drain()
    [first, lost] = await journal.gaps()
    assert (first["kind"], lost["kind"], lost["entries"]) == (UNKNOWN, LOST, 33)
    assert before and (lost["from_ms"], lost["from_seq"]) == (before.ms, before.seq)
    assert lost["walked"] is not None
    [told_gap] = [each for each in logs if each["event"] == "journal.gap"]
    assert told_gap["entries"] == 33
    assert [row["id"] for row in await journal.events()] == names("a", 5) + names("b", 40)[33:]
    # The walk has filled it.
    jobs = await journal.jobs()
    assert sorted(jobs) == names("a", 5) + names("b", 40)
    assert {row["state"] for row in jobs.values()} == {State.READY}


async def test_entries_that_were_delivered_and_then_cut_off_are_lost(
    lite: Journal, live_pool: Pool, stream: Stream
) -> None:
    await lite.drain()
    await told(live_pool, *names("a", 10))
    await read_as_the_reader(live_pool.redis, stream.key, 6)
    await stream.cut(7)
    await lite.drain()
    assert [row["entries"] for row in await lite.gaps()] == [0, 3]
    assert [row["id"] for row in await lite.events()] == names("a", 10)[3:]
    assert (await live_pool.redis.read("XPENDING", stream.key, "journal"))[0] == 0


async def test_what_was_cut_off_before_the_journal_began_is_told(
    lite: Journal, live_pool: Pool, stream: Stream
) -> None:
    await told(live_pool, *names("a", 10))
    await stream.cut(4)
    await lite.drain()
    assert [(row["kind"], row["entries"]) for row in await lite.gaps()] == [(UNKNOWN, 0), (LOST, 6)]


async def test_what_another_journal_has_had_is_no_gap(lite: Journal, live_pool: Pool, stream: Stream) -> None:
    await told(live_pool, *names("a", 10))
    await read_as_the_reader(live_pool.redis, stream.key, 10)
    await stream.cut(0)
    await told(live_pool, "b")
    await lite.drain()
    assert [row["kind"] for row in await lite.gaps()] == [UNKNOWN]
    assert sorted(await lite.jobs()) == [*names("a", 10), "b"]  # by the walk


async def test_the_numbers_hold_through_acknowledgements_a_cut_and_restarts(
    lite: Journal, live_pool: Pool, stream: Stream
) -> None:
    await lite.drain()
    for round_ in range(4):
        await told(live_pool, *names(f"{round_}-", 20))
        if round_ == 2:
            await stream.cut(11)
        await lite.drain()
    assert [row["entries"] for row in await lite.gaps()] == [0, 9]
    position = await lite.position()
    assert position and position.entries == 80


async def test_a_redis_that_went_back_is_a_new_epoch_and_what_it_forgot_is_a_range(
    journal: Journal, live_pool: Pool, stream: Stream
) -> None:
    await journal.drain()
    await told(live_pool, *names("a", 5))
    older = await stream.copy()  # none of it delivered
    await told(live_pool, *names("b", 5))
    await journal.drain()
    last = await journal.position()
    await stream.bring_back(older)
    await told(live_pool, *names("c", 3))
    with capture_logs() as logs:
        await journal.drain()
    position = await journal.position()
    assert last and position and (position.epoch, position.stream) == (1, last.stream)
    events = await journal.events()
    assert [row["id"] for row in events] == names("a", 5) + names("b", 5) + names("c", 3)
    assert {row["branch"] for row in events} == {0}
    [forgotten] = [row for row in await journal.gaps() if row["kind"] == FORGOTTEN]
    assert forgotten["epoch"] == 1
    assert (forgotten["from_ms"], forgotten["from_seq"]) == (events[4]["ms"], events[4]["seq"])
    assert (forgotten["to_ms"], forgotten["to_seq"]) == (last.ms, last.seq)
    assert [each["event"] for each in logs if "went_back" in each["event"]] == ["journal.went_back"]
    assert sum(row["events"] for row in await journal.rows(minute)) == 13


async def test_an_older_redis_that_has_nothing_new_is_noticed_by_its_last_id(
    lite: Journal, live_pool: Pool, stream: Stream
) -> None:
    await lite.drain()
    await told(live_pool, "a")
    await lite.drain()
    older = await stream.copy()
    await told(live_pool, "b")
    await lite.drain()
    await stream.bring_back(older)
    await lite.drain()
    [forgotten] = [row for row in await lite.gaps() if row["kind"] == FORGOTTEN]
    [_, b] = await lite.events()
    assert (forgotten["to_ms"], forgotten["to_seq"]) == (b["ms"], b["seq"])
    assert (await lite.jobs())["b"]["state"] == State.READY  # only forgotten: restore may bring it back


async def test_a_redis_that_only_forgot_that_it_delivered_has_not_gone_back(
    journal: Journal, live_pool: Pool, stream: Stream
) -> None:
    await journal.drain()
    await told(live_pool, *names("a", 5))
    older = await stream.copy()
    await journal.drain()
    await stream.bring_back(older)
    await told(live_pool, "b")
    await journal.drain()
    position = await journal.position()
    assert position and position.epoch == 0
    assert [row["id"] for row in await journal.events()] == [*names("a", 5), "b"]
    assert [row["kind"] for row in await journal.gaps()] == [UNKNOWN]


async def test_an_event_in_the_place_of_a_forgotten_one_gets_a_branch_of_its_own(
    journal: Journal, live_pool: Pool, stream: Stream
) -> None:
    await journal.drain()
    await told(live_pool, "a")
    older = await stream.copy()
    await told(live_pool, "b")
    [_, (second, fields)] = await live_pool.redis.read("XRANGE", stream.key, "-", "+")
    await journal.drain()
    await stream.bring_back(older)
    await live_pool.redis.read("XADD", stream.key, second, *fields[:2], "c", fields[3])
    for _ in range(2):  # the second time all is known
        await journal.drain()
        events = await journal.events()
        assert [(row["id"], row["branch"]) for row in events] == [("a", 0), ("b", 0), ("c", 1)]
        assert (events[1]["ms"], events[1]["seq"]) == (events[2]["ms"], events[2]["seq"])
        assert sum(row["events"] for row in await journal.rows(minute)) == 3


async def test_another_stream_means_that_everything_is_forgotten(
    journal: Journal, live_pool: Pool, stream: Stream
) -> None:
    await told(live_pool, *names("a", 3))
    await journal.drain()
    last = await journal.position()
    await live_pool.redis.read("FLUSHALL")
    await live_pool.ensure_meta(0)
    await told(live_pool, "b")
    await journal.drain()
    position = await journal.position()
    assert last and position and position.epoch == 1 and position.stream != last.stream
    [forgotten] = [row for row in await journal.gaps() if row["kind"] == FORGOTTEN]
    assert (forgotten["from_ms"], forgotten["from_seq"]) == (0, 0)
    assert (forgotten["to_ms"], forgotten["to_seq"]) == (last.ms, last.seq)
    assert [row["id"] for row in await journal.events()] == [*names("a", 3), "b"]
    # They have not vanished by themselves: restore is to find them.
    assert {row["state"] for row in (await journal.jobs()).values()} == {State.READY}
    assert Verb.VANISHED not in {row["verb"] for row in await journal.rows(event)}


async def test_an_emptied_redis_without_a_new_event_still_tells_until_when_all_is_here(
    lite: Journal, live_pool: Pool
) -> None:
    await told(live_pool, "a")
    await lite.drain()
    await live_pool.redis.read("FLUSHALL")
    await live_pool.ensure_meta(0)
    await lite.drain()
    position = await lite.position()
    assert position and position.epoch == 1


async def test_a_stream_that_was_deleted_while_it_is_read_is_made_again(
    lite: Journal, live_pool: Pool, stream: Stream
) -> None:
    async with lite.draining():
        await told(live_pool, "a")
        await lite.until_drained()
        await live_pool.redis.read("DEL", stream.key)
        await lite.until_drained()
        await told(live_pool, "b")
        await lite.until_drained()
    assert [row["id"] for row in await lite.events()] == ["a", "b"]


async def test_a_group_that_was_deleted_is_made_again_and_nothing_counts_as_forgotten(
    lite: Journal, live_pool: Pool, stream: Stream
) -> None:
    async with lite.draining():
        await told(live_pool, "a")
        await lite.until_drained()
        await live_pool.redis.ask(stream.key, "XGROUP", "DESTROY", stream.key, "journal")
        await told(live_pool, "b")
        await lite.until_drained()
    assert [row["id"] for row in await lite.events()] == ["a", "b"]
    assert [row["kind"] for row in await lite.gaps()] == [UNKNOWN]


async def test_a_second_living_reader_of_another_redis_is_refused(
    lite: Journal, live_pool: Pool, sqlite_url: str, own_server: RedisServer
) -> None:
    other_redis = Redis(own_server.url)
    other = await Pool.open(other_redis)
    await switched_on(other)
    await told(other, "other")
    try:
        async with lite.draining(), opened(other, sqlite_url, own_server.url) as second:
            await told(live_pool, "a")
            await lite.until_drained()
            with pytest.raises(Unfit, match="--source"):
                await second.new_drain().run(asyncio.Event())
            await lite.until_drained()
        assert [row["id"] for row in await lite.events()] == ["a"]
        assert [row["kind"] for row in await lite.gaps()] == [UNKNOWN]
    finally:
        await other_redis.close()


async def test_the_last_batch_of_a_reader_that_stalled_is_no_other_living_one(
    lite: Journal, live_pool: Pool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shard, "_LIVING_S", 1.0)
    await told(live_pool, "a")
    await lite.drain()
    await live_pool.redis.read("FLUSHALL")
    await live_pool.ensure_meta(0)
    await switched_on(live_pool)
    before = await lite.position()
    assert before
    asked = asyncio.Event()
    position_of = lite.sql.position

    async def watched(source: str, number: int) -> Position | None:
        found = await position_of(source, number)
        asked.set()
        return found

    async with lite.draining():
        monkeypatch.setattr(lite.sql, "position", watched)
        await asked.wait()
        late = before._replace(time=before.time + 1)
        await lite.sql.write(Batch(SOURCE, 0, before, late))
        await told(live_pool, "b")
        await lite.until_drained()
    assert [row["id"] for row in await lite.events()] == ["a", "b"]


async def test_a_stream_without_a_reader_stays_within_its_bound_and_the_gap_is_exact(
    lite: Journal, live_pool: Pool, stream: Stream
) -> None:
    bound, adds = 1_000, 3_000
    await switched_on(live_pool, bound)
    await lite.drain()
    await told(live_pool, *(f"a{n}" for n in range(adds)))
    length = await live_pool.redis.read("XLEN", stream.key)
    assert bound <= length <= bound + 200  # a node of the stream has 100 entries
    assert await live_pool.redis.read("MEMORY", "USAGE", stream.key) < 2_000 * 150
    await lite.drain()
    added = (await lite.position()).entries  # type: ignore[union-attr]
    [_, lost] = await lite.gaps()
    assert lost["entries"] == added - length
    assert len(await lite.jobs()) == adds  # by the walk
