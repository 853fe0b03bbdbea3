"""buckets.schedules.occurrences: each occurrence is made once, in its time or as `catch_up` says, whoever meets it."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from typing import Any

import pytest

from buckets.clock import HeldClock
from buckets.errors import JobQueueError
from buckets.events.restoring import LostSchedule, Restoring
from buckets.job import NewJob
from buckets.layout import SPAN
from buckets.pool.pool import Pool
from buckets.record import unpack
from buckets.redis.client import Redis
from buckets.schedules.occurrences import MOST_JOBS, Occurrences, Plan
from buckets.schedules.record import Schedule, pack_schedule
from buckets.schedules.schedules import Schedules
from tests.buckets.books import check_books
from tests.buckets.jobs import add, finish, get, pop, pop_one, popped_ids, state
from tests.buckets.schedules.scheduled import Scheduled, plan

HOUR = 3_600_000


async def made(scheduled: Scheduled, name: str = "s") -> list[str]:
    """The ids of a schedule's occurrences, as jobs or tombstones."""
    keys = await scheduled.pool.redis.read("KEYS", f"*:j:{name}@*")
    return sorted(key.partition(b":j:")[2].decode() for key in keys)


def events(caplog: pytest.LogCaptureFixture, name: str) -> list[logging.LogRecord]:
    return [record for record in caplog.records if record.getMessage() == name]


async def test_each_occurrence_is_a_job_that_is_due_at_its_time(redis: Redis, scheduled: Scheduled) -> None:
    await scheduled.define("s", 1_000, body="b", fields={"priority": 7, "ttr_ms": 5_000})
    start = scheduled.clock.now_us // 1000
    await scheduled.advance(1_000, 3)
    assert await made(scheduled) == [f"s@{start + ms}" for ms in (1_000, 2_000, 3_000)]
    job = await get(scheduled.pool, f"s@{start + 2_000}")
    assert (job.due, job.created, job.state.word, job.body) == (start + 2_000, start + 2_000, "ready", b"b")
    assert (job.kind.priority, job.kind.ttr) == (7, 5_000)
    record = await scheduled.record("s")
    assert (record.last, record.next) == (start + 3_000, start + 4_000)
    await check_books(redis, scheduled.pool)


async def test_a_jitter_makes_it_due_later_under_the_id_of_its_time(redis: Redis, scheduled: Scheduled) -> None:
    await scheduled.define("s", 10_000, jitter_ms=2_500)
    start = scheduled.clock.now_us // 1000
    await scheduled.advance(10_000)
    job = await get(scheduled.pool, f"s@{start + 10_000}")
    assert (job.due, job.state.word) == (start + 12_500, "delayed")
    await check_books(redis, scheduled.pool)
    await scheduled.advance(2_500)
    assert await popped_ids(scheduled.pool) == [job.id]


async def test_two_processes_that_meet_the_same_entry_make_one_occurrence(pool: Pool, clock: HeldClock) -> None:
    first, second = Scheduled(pool, clock), Scheduled(pool, clock)
    await first.define("s", 1_000)
    for _ in range(20):
        clock.advance(1_000)
        ((shard, bucket, name),) = await first.met()
        both = [each.occurrences.make(shard, bucket, [name]) for each in (first, second)]
        await asyncio.gather(*both)
    assert len(await popped_ids(pool)) == 20
    assert len(await first.times("s")) == 20


async def test_a_process_that_was_paused_between_reading_and_making_makes_nothing_twice(
    redis: Redis, pool: Pool, clock: HeldClock
) -> None:
    goes_on = asyncio.Event()

    async def slowly(schedule: Schedule, now_ms: int) -> Plan:
        planned = await plan(schedule, now_ms)
        await goes_on.wait()
        return planned

    scheduled = Scheduled(pool, clock)
    paused = Occurrences(Schedules(pool), slowly)
    await scheduled.define("s", 1_000)
    clock.advance(1_000)
    ((shard, bucket, name),) = await scheduled.met()
    paused.meet(shard, bucket, [name])
    await asyncio.sleep(0.05)
    await scheduled.advance(1_000, 3)
    before = await made(scheduled)
    goes_on.set()
    await paused.close()
    assert await made(scheduled) == before and len(before) == 3
    await check_books(redis, pool)


async def test_one_that_dies_before_it_made_anything_leaves_the_entry_for_the_next(scheduled: Scheduled) -> None:
    await scheduled.define("s", 1_000)
    scheduled.clock.advance(1_000)
    assert len(await scheduled.met()) == 1
    assert await scheduled.met() == []
    assert await scheduled.entry("s") == scheduled.clock.now_us // 1000 + 1_000
    await scheduled.advance(999)
    assert await made(scheduled) == []
    await scheduled.advance(1)
    assert len(await made(scheduled)) == 1


async def test_a_script_that_runs_twice_as_its_answer_was_lost_makes_nothing_twice(
    redis: Redis, scheduled: Scheduled
) -> None:
    for name, options in (("s", {}), ("full", {"topic": "full", "most": 1})):
        await scheduled.define(name, 1_000, **options)
    await add(scheduled.pool, "other", "full")
    sent: list[tuple[Any, ...]] = []
    call = scheduled.pool.call

    async def noted(script: str, shard: int, rest: Any = (), **arguments: Any) -> Any:
        if script == "occur":
            sent.append((script, shard, rest, arguments))
        return await call(script, shard, rest, **arguments)

    scheduled.pool.call = noted  # type: ignore[method-assign]
    await scheduled.advance(1_000)
    contents = {key: await redis.read("DUMP", key) for key in await redis.read("KEYS", "*")}
    for script, shard, rest, arguments in sent:
        await call(script, shard, rest, **arguments)
    assert {key: await redis.read("DUMP", key) for key in await redis.read("KEYS", "*")} == contents
    assert len(sent) == 2 and len(await made(scheduled)) == 1


@pytest.mark.parametrize(("catch_up", "number"), [("last", 1), ("all", 250), ("none", 1)])
async def test_what_nobody_made_in_time_is_caught_up_with_as_the_schedule_says(
    redis: Redis, scheduled: Scheduled, caplog: pytest.LogCaptureFixture, catch_up: str, number: int
) -> None:
    await scheduled.define("s", 1_000, catch_up=catch_up)
    start = scheduled.clock.now_us // 1000
    await scheduled.advance(250_000)
    assert await made(scheduled) == [f"s@{start + ms * 1_000}" for ms in range(251 - number, 251)]
    assert (await scheduled.record("s")).next == start + 251_000
    assert len(events(caplog, "schedule.missed")) == (catch_up != "all")
    await check_books(redis, scheduled.pool)


async def test_a_time_for_which_the_plan_makes_nothing_is_passed_over(
    redis: Redis, scheduled: Scheduled, caplog: pytest.LogCaptureFixture
) -> None:
    await scheduled.define("s", HOUR, catch_up="none")
    start = scheduled.clock.now_us // 1000
    await scheduled.advance(HOUR + 60_001)
    assert await made(scheduled) == []
    record = await scheduled.record("s")
    assert (record.last, record.next) == (0, start + 2 * HOUR)
    assert [each.since for each in events(caplog, "schedule.missed")] == [(start + HOUR) / 1000]  # type: ignore[attr-defined]
    await check_books(redis, scheduled.pool)


async def test_no_script_makes_more_than_it_may(pool: Pool, clock: HeldClock, scheduled: Scheduled) -> None:
    """1,000 occurrences with bodies of 64 KiB, in as many scripts as it takes, by one report of the timer."""
    await scheduled.define("s", 1_000, catch_up="all", body="x" * 65_536)
    for number in range(150):
        await scheduled.define(f"o{number}", 1_000)
    sizes, jobs = [], []
    call = pool.call

    async def noted(script: str, shard: int, rest: Any = (), **arguments: Any) -> Any:
        answer = await call(script, shard, rest, **arguments)
        if script == "occur":
            jobs.append(sum(len(each) - 1 for each in answer))
            sizes.append(jobs[-1] * 65_536 if rest[0] == "s" else 0)
        return answer

    pool.call = noted  # type: ignore[method-assign]
    clock.advance(1_000_000)
    met = await scheduled.met()
    for shard, bucket in {each[:2] for each in met}:
        await scheduled.occurrences.make(shard, bucket, [each[2] for each in met if each[:2] == (shard, bucket)])
    assert sum(jobs) == 1_150 and max(jobs) <= MOST_JOBS and max(sizes) <= 1 << 19
    assert len(await scheduled.times("s")) == 1_000


async def test_all_that_is_missed_at_once_is_at_most_what_the_plan_says(scheduled: Scheduled) -> None:
    await scheduled.define("s", 1_000, catch_up="all")
    await scheduled.advance(5_000_000)
    times = await scheduled.times("s")
    assert (len(times), times[0], times[-1]) == (1_000, 4_001_000, 5_000_000)


async def test_with_skips_there_is_none_while_the_last_one_is_not_done(scheduled: Scheduled) -> None:
    await scheduled.define("s", 1_000, skips=True, fields={"ttr_ms": 60_000})
    await scheduled.advance(1_000, 3)
    assert await scheduled.times("s") == [1_000]  # ready
    job = await pop_one(scheduled.pool)
    await scheduled.advance(1_000)
    assert await scheduled.times("s") == [1_000]  # reserved
    await scheduled.pool.release(job.id, job.lease, delay_ms=5_000)
    await scheduled.advance(1_000)
    assert await scheduled.times("s") == [1_000]  # delayed
    await scheduled.advance(5_000)
    await scheduled.pool.bury((await pop_one(scheduled.pool)).id)
    await scheduled.advance(1_000)
    assert len(await scheduled.times("s")) == 2  # dead is done
    await finish(scheduled.pool, (await pop_one(scheduled.pool)).id)
    await scheduled.advance(1_000)
    assert (await scheduled.record("s")).last == (await scheduled.record("s")).next - 1_000


async def test_without_skips_they_overlap(scheduled: Scheduled) -> None:
    await scheduled.define("s", 1_000)
    await scheduled.advance(1_000, 3)
    assert await scheduled.times("s") == [1_000, 2_000, 3_000]


async def test_of_those_that_are_caught_up_with_together_one_is_made_where_they_must_not_overlap(
    scheduled: Scheduled,
) -> None:
    await scheduled.define("s", 1_000, skips=True, catch_up="all")
    await scheduled.advance(10_000)
    assert await scheduled.times("s") == [1_000]


async def test_a_full_topic_is_waited_for_and_catch_up_decides_about_what_was_due_meanwhile(
    redis: Redis, scheduled: Scheduled, caplog: pytest.LogCaptureFixture
) -> None:
    await scheduled.define("s", 10_000, most=2)
    await scheduled.define("all", 10_000, most=2, catch_up="all", topic="u")
    start = scheduled.clock.now_us // 1000
    for topic in ("t", "u"):
        for number in range(2):
            await add(scheduled.pool, f"{topic}{number}", topic)
    await scheduled.advance(1_000, 35)
    assert await scheduled.times("s") == await scheduled.times("all") == []
    assert (await scheduled.record("s")).next == start + 10_000
    assert sorted(record.schedule for record in events(caplog, "schedule.waits")) == ["all", "s"]  # type: ignore[attr-defined]
    assert events(caplog, "schedule.missed") == []
    await check_books(redis, scheduled.pool)
    for topic in ("t", "u"):
        await pop(scheduled.pool, topic, count=2)
    await scheduled.advance(1_000)
    assert await scheduled.times("s") == [30_000]
    assert await scheduled.times("all") == [10_000, 20_000]
    assert (await scheduled.record("all")).next == start + 30_000
    assert [record.schedule for record in events(caplog, "schedule.missed")] == ["s"]  # type: ignore[attr-defined]
    await pop(scheduled.pool, "u", count=2)
    await scheduled.advance(1_000)
    assert await scheduled.times("all") == [10_000, 20_000, 30_000]
    await check_books(redis, scheduled.pool)


async def test_a_foreign_job_with_the_id_of_an_occurrence_blocks_this_one_only(
    redis: Redis, scheduled: Scheduled, caplog: pytest.LogCaptureFixture
) -> None:
    await scheduled.define("s", 1_000)
    start = scheduled.clock.now_us // 1000
    await add(scheduled.pool, f"s@{start + 2_000}", "other", body=b"foreign")
    await scheduled.advance(1_000, 3)
    assert await scheduled.times("s") == [1_000, 3_000]
    assert (await get(scheduled.pool, f"s@{start + 2_000}")).body == b"foreign"
    assert [record.id for record in events(caplog, "schedule.blocked")] == [f"s@{start + 2_000}"]  # type: ignore[attr-defined]
    await check_books(redis, scheduled.pool)


async def test_an_occurrence_that_is_dead_counts_as_made(
    redis: Redis, scheduled: Scheduled, caplog: pytest.LogCaptureFixture
) -> None:
    await scheduled.define("s", 1_000)
    before = await scheduled.record("s")
    await scheduled.advance(1_000)
    (job,) = await pop(scheduled.pool, "t")
    await scheduled.pool.bury(job.id, job.lease)
    now = await scheduled.record("s")
    lost = LostSchedule("s", pack_schedule(now._replace(next=before.next)), now.revision, [job.id.partition("@")[2]])
    assert await Restoring(scheduled.pool, "restore:1").put_schedules([lost]) == [True]  # as it was before
    await scheduled.advance(0)
    await scheduled.advance(1_000)
    assert await scheduled.times("s") == [1_000, 2_000]
    assert (await get(scheduled.pool, job.id)).state.word == "dead"
    assert events(caplog, "schedule.blocked") == []
    await check_books(redis, scheduled.pool)


async def test_a_virtual_topic_has_a_job_in_each_of_its_topics_or_none(redis: Redis, scheduled: Scheduled) -> None:
    await scheduled.define("s", 1_000, copies=["u", "v"], most=3)
    start = scheduled.clock.now_us // 1000
    await scheduled.advance(1_000)
    assert await made(scheduled) == [f"s@{start + 1_000}@u", f"s@{start + 1_000}@v"]
    await add(scheduled.pool, f"s@{start + 2_000}@v", "other")
    await scheduled.advance(1_000)
    assert await state(scheduled.pool, f"s@{start + 2_000}@u") == "unknown"
    for number in range(2):
        await add(scheduled.pool, f"more{number}", "v")
    await scheduled.advance(1_000)  # v is full
    assert await state(scheduled.pool, f"s@{start + 3_000}@u") == "unknown"
    await pop(scheduled.pool, "v", count=3)
    await scheduled.advance(1_000)
    assert [await state(scheduled.pool, f"s@{start + 4_000}@{topic}") for topic in "uv"] == ["ready", "ready"]
    await check_books(redis, scheduled.pool)
    assert await scheduled.schedules.undefine(await scheduled.record("s")) == 4


async def test_copies_that_are_not_done_count_where_they_must_not_overlap(scheduled: Scheduled) -> None:
    await scheduled.define("s", 1_000, copies=["u", "v"], skips=True)
    await scheduled.advance(1_000)
    await finish(scheduled.pool, (await pop_one(scheduled.pool, "u")).id)
    await scheduled.advance(1_000)
    assert await scheduled.times("s") == [1_000, 1_000]
    await finish(scheduled.pool, (await pop_one(scheduled.pool, "v")).id)
    await scheduled.advance(1_000)
    assert (await scheduled.times("s"))[-2:] == [3_000, 3_000]


async def test_occurrences_that_are_done_are_forgotten(redis: Redis, scheduled: Scheduled) -> None:
    await scheduled.define("s", 1_000)
    for _ in range(50):
        await scheduled.advance(1_000)
        await finish(scheduled.pool, (await pop_one(scheduled.pool)).id)
    assert len(await scheduled.times("s")) <= 5
    await check_books(redis, scheduled.pool)


async def test_a_clock_that_jumps_ahead_and_back_makes_nothing_twice_and_goes_on(
    redis: Redis, scheduled: Scheduled
) -> None:
    await scheduled.define("s", 60_000, catch_up="all")
    await scheduled.advance(60_000)
    await scheduled.advance(HOUR)
    assert len(await scheduled.times("s")) == 61
    await scheduled.advance(60_000 - HOUR)
    assert len(await scheduled.times("s")) == 61
    await scheduled.advance(60_000, 60)
    assert await scheduled.times("s") == [60_000 * n for n in range(1, 63)]
    await check_books(redis, scheduled.pool)


async def test_an_entry_that_was_met_while_the_clock_was_ahead_is_put_right(redis: Redis, scheduled: Scheduled) -> None:
    """It was put a second ahead, and its process died."""
    await scheduled.define("s", 60_000)
    scheduled.clock.advance(HOUR)
    await scheduled.met()
    scheduled.clock.advance(-HOUR)
    assert await scheduled.schedules.mend(0, b"0") == (b"0", 1)
    await check_books(redis, scheduled.pool)
    await scheduled.advance(60_000)
    assert await scheduled.times("s") == [60_000]


async def test_a_definition_that_cannot_be_read_is_told_of_once_and_holds_up_no_other(
    scheduled: Scheduled, caplog: pytest.LogCaptureFixture
) -> None:
    for name in ("a", "bad", "worse", "z"):
        await scheduled.define(name, 1_000)
    for name, raw in (("bad", b"{"), ("worse", b"[]")):
        seen = await scheduled.schedules.see(name)
        await scheduled.schedules.define(name, seen, raw, seen.now, seen.now + 1_000)
    scheduled.clock.advance(1_000)
    for _ in range(3):
        met = await scheduled.met()
        for bucket in {each[1] for each in met}:
            await scheduled.occurrences.make(0, bucket, [each[2] for each in met if each[1] == bucket])
        scheduled.clock.advance(1_000)
    assert [len(await scheduled.times(name)) for name in ("a", "bad", "worse", "z")] == [3, 0, 0, 3]
    assert sorted(record.schedule for record in events(caplog, "schedule.unreadable")) == ["bad", "worse"]  # type: ignore[attr-defined]
    await scheduled.define("bad", 1_000)
    await scheduled.advance(1_000)
    assert len(await scheduled.times("bad")) == 1


async def test_an_entry_that_no_record_confirms_is_removed(redis: Redis, scheduled: Scheduled, pool: Pool) -> None:
    await scheduled.define("s", 1_000)
    bucket = (await scheduled.record("s")).bucket
    await redis.read("ZADD", pool.keys[0].bucket(bucket), 5, "~unknown")
    await redis.read("ZADD", pool.keys[0].bucket((bucket + 1) % pool.buckets), 5, "~s")
    await redis.read("ZADD", pool.keys[0].bucket(bucket), 5, "~s")
    await scheduled.tick()
    await check_books(redis, pool)
    assert await scheduled.entry("s") == (await scheduled.record("s")).next


async def test_an_entry_that_is_no_text_holds_up_no_timer(redis: Redis, scheduled: Scheduled, pool: Pool) -> None:
    await scheduled.define("s", 1_000)
    await redis.read("ZADD", pool.keys[0].bucket((await scheduled.record("s")).bucket), 5, b"~\xff\x00")
    await scheduled.advance(1_000)
    assert await scheduled.times("s") == [1_000]


async def test_what_a_timer_reports_is_worked_off_and_not_begun_twice(live_pool: Pool) -> None:
    planned: Counter[str] = Counter()
    goes_on = asyncio.Event()

    async def counted(schedule: Schedule, now_ms: int) -> Plan:
        planned[schedule.name] += 1
        await goes_on.wait()
        return await plan(schedule, now_ms)

    scheduled = Scheduled(live_pool, HeldClock())
    scheduled.occurrences = Occurrences(scheduled.schedules, counted)
    for number in range(3):
        seen = await scheduled.schedules.see(f"s{number}")
        await scheduled.schedules.define(f"s{number}", seen, b'{"every_ms":3600000}', 1, seen.now - 1)
    for _ in range(3):
        for number in range(3):
            bucket = (await scheduled.record(f"s{number}")).bucket
            scheduled.occurrences.meet(0, bucket, [f"s{number}"])
    await asyncio.sleep(0.05)
    goes_on.set()
    await scheduled.occurrences.close()
    assert planned == {"s0": 1, "s1": 1, "s2": 1}
    assert len(await popped_ids(live_pool)) == 3


async def test_a_stop_waits_for_what_is_being_made(live_pool: Pool) -> None:
    scheduled = Scheduled(live_pool, HeldClock())
    seen = await scheduled.schedules.see("s")
    await scheduled.schedules.define("s", seen, b'{"every_ms":3600000}', 1, seen.now - 1)
    scheduled.occurrences.meet(0, (await scheduled.record("s")).bucket, ["s"])
    await scheduled.occurrences.close()
    assert len(await popped_ids(live_pool)) == 1


async def test_occurrences_stand_in_the_shard_of_their_schedule(redis: Redis, clock: HeldClock) -> None:
    pool = await Pool.open(redis, "many", shards=5, buckets=2, clock=clock)
    scheduled = Scheduled(pool, clock)
    names = [f"s{number}" for number in range(20)]
    for name in names:
        await scheduled.define(name, 1_000, copies=["u", "v"])
    await scheduled.advance(1_000, 2)
    shards = {scheduled.schedules.shard(name) for name in names}
    assert len(shards) == 5
    for name in names:
        tag = pool.keys[scheduled.schedules.shard(name)].tag
        keys = await redis.read("KEYS", f"*:j:{name}@*")
        assert len(keys) == 4 and all(key.decode().startswith(tag) for key in keys)
        assert {unpack("x", await redis.read("GET", key)).state.word for key in keys} == {"ready"}
    assert len(await popped_ids(pool, "u", "v")) == 80
    await check_books(redis, pool)


async def test_while_redis_does_not_answer_the_log_says_so_and_the_entry_is_met_again(
    scheduled: Scheduled, caplog: pytest.LogCaptureFixture
) -> None:
    await scheduled.define("s", 1_000)
    scheduled.clock.advance(1_000)
    ((shard, bucket, name),) = await scheduled.met()
    call = scheduled.pool.call

    async def away(script: str, shard: int, rest: Any = (), **arguments: Any) -> Any:
        if script == "occur":
            raise JobQueueError("away")
        return await call(script, shard, rest, **arguments)

    scheduled.pool.call = away  # type: ignore[method-assign]
    scheduled.occurrences.meet(shard, bucket, [name])
    await scheduled.occurrences.close()
    assert [record.error for record in events(caplog, "occurrences.failed")] == ["away"]  # type: ignore[attr-defined]
    scheduled.pool.call = call  # type: ignore[method-assign]
    await scheduled.advance(1_000)
    assert len(await made(scheduled)) == 1


async def test_its_record_is_what_an_add_would_have_written(redis: Redis, scheduled: Scheduled) -> None:
    fields: dict[str, Any] = {"priority": 3, "tries": 4, "ttl_ms": 9_000_000, "retention_ms": 5_000}
    await scheduled.define("s", 1_000, body="b", fields=fields)
    await scheduled.advance(1_000)
    (first,) = await made(scheduled)
    await scheduled.pool.add([NewJob("added", "t", b"b", **fields)])
    records = [bytearray(await redis.read("GET", scheduled.pool.keys[0].job(each))) for each in (first, "added")]
    for record in records:
        record[SPAN["bucket"]] = b"\0"
    assert records[0] == records[1]
