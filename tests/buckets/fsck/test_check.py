"""buckets.fsck.check: each kind of fault is found, reported, and repaired if asked; a healthy queue has none."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import pytest

from buckets.access import Actions, lease
from buckets.clock import HeldClock
from buckets.errors import Unfit
from buckets.events.switch import read_events, stream_key, switch_on
from buckets.fsck.check import Fsck
from buckets.fsck.shard import KINDS, Report
from buckets.job import Job, NewJob, State
from buckets.keys import shard_of
from buckets.namespace import Switch
from buckets.pool.pool import Pool
from buckets.redis.client import Redis
from buckets.schedules import moving
from buckets.schedules.schedules import Schedules
from buckets.scripts import Value
from buckets.topics.topics import Topics
from tests.buckets.books import check_books
from tests.buckets.conftest import NewPool
from tests.buckets.instances import give_up, sign, take
from tests.buckets.jobs import add, delete, finish, get, pop, popped_ids
from tests.kit.everything import everything
from tests.kit.redis_server import RedisServer
from tests.kit.waiting import tick_all

Damage = Callable[[Redis, Pool], Awaitable[object]]
Meddle = Callable[[], Awaitable[object]]


async def fsck(pool: Pool, *, repair: bool = False) -> Report:
    check = await Fsck.open(pool.redis, repair=repair, rest=0, clock=pool.clock)
    return await check.run()


def kinds(report: Report) -> set[str]:
    return {kind for kind, finding in report.findings.items() if finding.found}


async def contents(redis: Redis) -> dict[bytes, bytes]:
    return {key: stored.dump for key, stored in (await everything(redis)).items()}


async def fill(pool: Pool, clock: HeldClock) -> None:
    """A job in each state: delayed, far, ready, mortal (ready, with a ttl), reserved, dead, finished, deleted;
    and a reserved one that holds its key, one that waits for it, and a ready one that holds another."""
    await add(pool, "dead", ttl_ms=1)
    clock.advance(1)
    await tick_all(pool)
    await add(pool, "reserved")
    await add(pool, "finished")
    assert await popped_ids(pool) == ["reserved", "finished"]
    await finish(pool, "finished")
    await add(pool, "holder", "k", key="7")
    await add(pool, "blocked", "k", key="7")
    assert await popped_ids(pool, "k") == ["holder"]
    await add(pool, "first", "k", key="8")
    await add(pool, "delayed", delay_ms=60_000)
    await add(pool, "far", delay_ms=90_000_000)
    await pool.slice(0, (await get(pool, "far")).bucket, 0, 100)
    await add(pool, "ready")
    await add(pool, "mortal", ttl_ms=600_000)
    await add(pool, "deleted")
    await delete(pool, "deleted")
    await sign(pool, "token")
    await take(pool, "token")
    await pool.call("report_workers", 0, now=pool.clock.now(), token="aa", life=600_000, report="{}")  # noqa: S106 - the name of an instance
    clock.advance(1)


async def flags(redis: Redis, pool: Pool, job_id: str, value: int) -> None:
    await redis.read("SETRANGE", pool.keys[0].job(job_id), 2, bytes((value,)))


async def take_away(redis: Redis, pool: Pool) -> None:
    """As a migration that died long ago leaves them."""
    ids, now = ("delayed", "ready", "dead", "finished"), pool.clock.now()
    _, _, key, *_ = await pool.call("export", 0, ids, now=now, batch="f00d", front="", page=0, room=1 << 20)
    await redis.read("RENAME", key, "{jq:0}:m:5:f00d")


async def drop_bucket_entry(redis: Redis, pool: Pool, job_id: str) -> None:
    await redis.read("ZREM", pool.keys[0].bucket((await get(pool, job_id)).bucket), job_id)


async def move_bucket_entry(redis: Redis, pool: Pool, job_id: str) -> None:
    await redis.read("ZADD", pool.keys[0].bucket((await get(pool, job_id)).bucket), 5, job_id)


async def _bounds(pool: Pool) -> tuple[str, str]:
    """The key of the bounds of the bucket with the job `far`, and the only bound."""
    key = pool.keys[0].slices((await get(pool, "far")).bucket)
    (bound,) = await pool.redis.read("ZRANGE", key, 0, -1)
    return key, bound.decode()


async def in_slice(pool: Pool, command: str, *values: str) -> None:
    await pool.redis.read(command, ":".join(await _bounds(pool)), *values)


async def of_bounds(pool: Pool, command: str, *values: str) -> None:
    key, bound = await _bounds(pool)
    await pool.redis.read(command, key, *values, bound)


async def replace_bounds(redis: Redis, pool: Pool) -> None:
    key, _ = await _bounds(pool)
    await _replace(redis, key, "SET", "x")


async def enter_bucket(redis: Redis, pool: Pool, job_id: str) -> None:
    job = await get(pool, job_id)
    await redis.read("ZADD", pool.keys[0].bucket(job.bucket), job.next, job_id)


async def keep_body(redis: Redis, pool: Pool, ended: bool, damage: Meddle) -> None:
    await add(pool, "kept", delay_ms=60_000, keeps_body=True)
    if ended:
        await delete(pool, "kept")
    await damage()


READY_LIST = "{jq:0}:r:4:t"

FAULTS: dict[str, tuple[set[str], Damage]] = {
    "a record of another type": (
        {"unreadable", "orphan", "miscounted"},
        lambda redis, pool: _replace(redis, pool.keys[0].job("delayed"), "RPUSH", "x"),
    ),
    "a record that is no record": (
        {"unreadable", "miscounted"},
        lambda redis, pool: redis.read("SET", pool.keys[0].job("ready"), "junk"),
    ),
    "an empty record": (
        {"unreadable", "orphan", "miscounted"},
        lambda redis, pool: redis.read("SET", pool.keys[0].job("dead"), ""),
    ),
    "a record that is gone": (
        {"orphan", "miscounted"},
        lambda redis, pool: redis.read("DEL", pool.keys[0].job("delayed")),
    ),
    "a live job that calls itself finished": (
        {"contradictory", "orphan", "miscounted"},
        lambda redis, pool: flags(redis, pool, "delayed", State.FINISHED),
    ),
    "a tombstone that calls itself ready": (
        {"contradictory"},
        lambda redis, pool: flags(redis, pool, "finished", State.READY),
    ),
    "a tombstone without an end": ({"endless"}, lambda redis, pool: redis.read("PERSIST", pool.keys[0].job("deleted"))),
    "a live job with an end": (
        {"ending"},
        lambda redis, pool: redis.read("EXPIRE", pool.keys[0].job("reserved"), 1000),
    ),
    "a live job that keeps its body and calls itself finished": (
        {"contradictory", "orphan", "miscounted"},
        lambda redis, pool: keep_body(redis, pool, False, lambda: flags(redis, pool, "kept", State.FINISHED | 8)),
    ),
    "a tombstone with its body that calls itself delayed": (
        {"contradictory"},
        lambda redis, pool: keep_body(redis, pool, True, lambda: flags(redis, pool, "kept", State.DELAYED | 8)),
    ),
    "a tombstone with its body and without an end": (
        {"endless"},
        lambda redis, pool: keep_body(redis, pool, True, lambda: redis.read("PERSIST", pool.keys[0].job("kept"))),
    ),
    "a live job that keeps its body with an end": (
        {"ending"},
        lambda redis, pool: keep_body(redis, pool, False, lambda: redis.read("EXPIRE", pool.keys[0].job("kept"), 1000)),
    ),
    "a bucket without a timer": (
        {"no_timer", "orphan"},
        lambda redis, pool: redis.read("SETRANGE", pool.keys[0].job("delayed"), 4, b"\xc8"),
    ),
    "a delayed job without its bucket entry": (
        {"unindexed"},
        lambda redis, pool: drop_bucket_entry(redis, pool, "delayed"),
    ),
    "a reserved job without its bucket entry": (
        {"unindexed"},
        lambda redis, pool: drop_bucket_entry(redis, pool, "reserved"),
    ),
    "a mortal job without its bucket entry": (
        {"unindexed"},
        lambda redis, pool: drop_bucket_entry(redis, pool, "mortal"),
    ),
    "a bucket entry with a wrong time": ({"misdated"}, lambda redis, pool: move_bucket_entry(redis, pool, "mortal")),
    "a dead job without its entry": (
        {"unindexed"},
        lambda redis, pool: redis.read("ZREM", pool.keys[0].dead("t"), "dead"),
    ),
    "a dead job with a wrong time": (
        {"misdated"},
        lambda redis, pool: redis.read("ZADD", pool.keys[0].dead("t"), 5, "dead"),
    ),
    "a stranger in a bucket": ({"orphan"}, lambda redis, pool: redis.read("ZADD", pool.keys[0].bucket(3), 5, "nobody")),
    "a job in a second bucket": (
        {"orphan"},
        lambda redis, pool: redis.read("ZADD", pool.keys[0].bucket(77), 5, "delayed"),
    ),
    "a far job without its entry": ({"unindexed", "orphan"}, lambda redis, pool: in_slice(pool, "ZREM", "far")),
    "a far job with another time": ({"unindexed", "orphan"}, lambda redis, pool: in_slice(pool, "ZINCRBY", "1", "far")),
    "a stranger in a slice": ({"orphan"}, lambda redis, pool: in_slice(pool, "ZADD", "5", "nobody")),
    "a near job in a slice": ({"orphan"}, lambda redis, pool: in_slice(pool, "ZADD", "5", "delayed")),
    "a far job in the set of its bucket too": (
        {"orphan"},
        lambda redis, pool: enter_bucket(redis, pool, "far"),
    ),
    "a slice without its bound": ({"unindexed", "orphan"}, lambda redis, pool: of_bounds(pool, "ZREM")),
    "a bound with a score": ({"orphan"}, lambda redis, pool: of_bounds(pool, "ZINCRBY", "5")),
    "a bound without a slice": (
        {"orphan"},
        lambda redis, pool: redis.read("ZADD", pool.keys[0].slices(3), 0, "000000000000005a"),
    ),
    "a bound that is no bound": ({"orphan"}, lambda redis, pool: redis.read("ZADD", pool.keys[0].slices(3), 0, "x")),
    "bounds of another type": (
        {"spoilt", "unindexed", "orphan"},
        replace_bounds,
    ),
    "a stranger among the dead": (
        {"orphan"},
        lambda redis, pool: redis.read("ZADD", pool.keys[0].dead("t"), 5, "ready"),
    ),
    "a dead job among those of another topic": (
        {"orphan"},
        lambda redis, pool: redis.read("ZADD", pool.keys[0].dead("u"), 5, "dead"),
    ),
    "a ready list that is gone": ({"unlisted"}, lambda redis, pool: redis.read("DEL", READY_LIST)),
    "a ready list that lacks one": ({"unlisted"}, lambda redis, pool: redis.read("LPOP", READY_LIST)),
    "a ready list of another type": (
        {"spoilt", "unlisted"},
        lambda redis, pool: _replace(redis, READY_LIST, "SET", "x"),
    ),
    "a delayed job that calls itself ready": (
        {"unlisted", "orphan", "miscounted"},
        lambda redis, pool: flags(redis, pool, "far", State.READY),
    ),
    "a list of a topic without jobs": ({"idle_list"}, lambda redis, pool: redis.read("RPUSH", "{jq:0}:r:1:u", "1:a")),
    "a wrong count": ({"miscounted"}, lambda redis, pool: redis.read("HINCRBY", pool.keys[0].counts("t"), "ready", 7)),
    "a lost count": ({"miscounted"}, lambda redis, pool: redis.read("HDEL", pool.keys[0].counts("t"), "dead")),
    "a lost total": ({"miscounted"}, lambda redis, pool: redis.read("HDEL", pool.keys[0].counts("t"), "created")),
    "a count that is no number": (
        {"miscounted"},
        lambda redis, pool: redis.read("HSET", pool.keys[0].counts("t"), "delivered", "many"),
    ),
    "counts that are gone": ({"miscounted"}, lambda redis, pool: redis.read("DEL", pool.keys[0].counts("t"))),
    "a count of topics without jobs": (
        {"miscounted", "unknown_topic"},
        lambda redis, pool: redis.read("HSET", pool.keys[0].counts("u"), "ready", "1"),
    ),
    "a histogram that is gone": ({"miscounted"}, lambda redis, pool: redis.read("DEL", pool.keys[0].due("t"))),
    "a histogram with too many": (
        {"miscounted"},
        lambda redis, pool: redis.read("HSET", pool.keys[0].due("t"), "m5", "3", "junk", "x"),
    ),
    "a topic that is not listed": ({"unknown_topic"}, lambda redis, pool: redis.read("ZREM", pool.keys[0].topics, "t")),
    "a list of topics of another type": (
        {"spoilt", "unknown_topic"},
        lambda redis, pool: _replace(redis, pool.keys[0].topics, "SET", "x"),
    ),
    "a pause that is no time": (
        {"spoilt"},
        lambda redis, pool: redis.read("SET", pool.keys[0].paused("t"), "for ever"),
    ),
    "a lock without an end": ({"spoilt"}, lambda redis, pool: redis.read("SET", pool.keys[0].lock(2), "nobody")),
    "set-aside records of another type": ({"spoilt"}, lambda redis, pool: redis.read("SET", pool.keys[0].aside, "x")),
    "cards of another type": ({"spoilt"}, lambda redis, pool: redis.read("SET", "{jq:0}:cards", "x")),
    "jobs that a mover left": ({"adrift"}, take_away),
    "settings that are gone": ({"meta"}, lambda redis, pool: redis.read("DEL", pool.keys[0].meta)),
    "settings of another type": ({"meta"}, lambda redis, pool: _replace(redis, pool.keys[0].meta, "SET", "x")),
    "settings with a stranger": ({"meta"}, lambda redis, pool: redis.read("HSET", pool.keys[0].meta, "colour", "red")),
    "settings without the number of buckets": (
        {"meta"},
        lambda redis, pool: redis.read("HDEL", pool.keys[0].meta, "buckets"),
    ),
    "settings with shards that nobody has seen": (
        {"meta"},
        lambda redis, pool: redis.read("HSET", pool.keys[0].meta, "shards", "5"),
    ),
}


HOLDERS, BLOCKED = "{jq:0}:kh:k", "{jq:0}:kb:k"
FAULTS |= {
    "holders that are gone": ({"unindexed", "stuck"}, lambda redis, pool: redis.read("DEL", HOLDERS)),
    "a holder with a score": ({"unindexed", "stuck"}, lambda redis, pool: redis.read("ZADD", HOLDERS, 5, "7@holder")),
    "a ready job that does not hold its key": (
        {"unindexed"},
        lambda redis, pool: redis.read("ZREM", HOLDERS, "8@first"),
    ),
    "a stranger among the holders": ({"orphan"}, lambda redis, pool: redis.read("ZADD", HOLDERS, 0, "8@nobody")),
    "the pace of a job without a key": (
        {"orphan"},
        lambda redis, pool: redis.read("ZADD", pool.keys[0].holders("t"), 0, "8@|:ready"),
    ),
    "a holder whose record is gone": (
        {"orphan", "miscounted"},
        lambda redis, pool: redis.read("DEL", pool.keys[0].job("holder")),
    ),
    "holders of another type": (
        {"spoilt", "unindexed", "stuck"},
        lambda redis, pool: _replace(redis, HOLDERS, "SET", "x"),
    ),
    "jobs that wait for a key and are not among them": (
        {"unindexed", "unlisted", "miscounted"},
        lambda redis, pool: redis.read("DEL", BLOCKED),
    ),
    "a stranger among those that wait for a key": (
        {"orphan"},
        lambda redis, pool: redis.read("ZADD", BLOCKED, 0, f"7@{0:040d}:nobody"),
    ),
    "a job that waits and has its key": (
        {"orphan", "miscounted", "unlisted"},
        lambda redis, pool: redis.read("ZADD", HOLDERS, 0, "7@blocked"),
    ),
}
SCHEDULES = "{jq:0}:schedules"
FAULTS |= {
    "a schedule whose entry is gone": (
        {"unscheduled"},
        lambda redis, pool: scheduled(redis, pool, lambda bucket: redis.read("ZREM", bucket, "~s")),
    ),
    "a schedule whose entry has another time": (
        {"unscheduled"},
        lambda redis, pool: scheduled(redis, pool, lambda bucket: redis.read("ZINCRBY", bucket, "5000", "~s")),
    ),
    "a schedule in a bucket without a timer": (
        {"unscheduled"},
        lambda redis, pool: scheduled(redis, pool, lambda bucket: _in_no_bucket(redis, bucket)),
    ),
    "a record of a schedule that cannot be read": (
        {"unreadable", "orphan"},
        lambda redis, pool: scheduled(redis, pool, lambda bucket: redis.read("HSET", SCHEDULES, "s", "junk")),
    ),
    "schedules of another type": (
        {"spoilt", "orphan"},
        lambda redis, pool: scheduled(redis, pool, lambda bucket: _replace(redis, SCHEDULES, "SET", "x")),
    ),
    "an entry of a schedule that is not there": (
        {"orphan"},
        lambda redis, pool: redis.read("ZADD", pool.keys[0].bucket(0), "5", "~s"),
    ),
    "an entry of a paused schedule": (
        {"orphan"},
        lambda redis, pool: scheduled(redis, pool, lambda bucket: redis.read("ZADD", bucket, "5", "~s"), next_ms=0),
    ),
    "occurrences of a schedule that is not there": (
        {"orphan"},
        lambda redis, pool: redis.read("ZADD", pool.keys[0].occurrences("s"), "5", "5"),
    ),
    "a schedule that a migration took away": (
        {"adrift"},
        lambda redis, pool: scheduled(redis, pool, lambda bucket: _take_schedule_away(redis, pool)),
    ),
}


async def scheduled(redis: Redis, pool: Pool, meddle: Callable[[str], Awaitable[object]], next_ms: int = 1) -> None:
    """A schedule `s` that waits for its first time, and what happens to it; `meddle` gets the key of its bucket."""
    schedules = Schedules(pool)
    seen = await schedules.see("s")
    await schedules.define("s", seen, b"{}", seen.now, next_ms and seen.now + 60_000)
    schedule = (await schedules.see("s")).schedule
    assert schedule
    await meddle(pool.keys[0].bucket(schedule.bucket))


async def _in_no_bucket(redis: Redis, bucket: str) -> None:
    raw = await redis.read("HGET", SCHEDULES, "s")
    await redis.read("HSET", SCHEDULES, "s", raw[:2] + b"\xee" + raw[3:])
    await redis.read("ZREM", bucket, "~s")


async def _take_schedule_away(redis: Redis, pool: Pool) -> None:
    exported = await moving.export(pool, 0, [b"s"])
    await redis.read("RENAME", exported.key, "{jq:0}:m:5:f00d")


async def _replace(redis: Redis, key: str, command: str, *value: str) -> None:
    await redis.read("DEL", key)
    await redis.read(command, key, *value)


async def test_a_fault_is_found_and_nothing_changed_then_mended_and_then_gone(
    subtests: pytest.Subtests, redis: Redis, new_pool: NewPool, clock: HeldClock
) -> None:
    for name in FAULTS:
        with subtests.test(name=name):
            pool = await new_pool()
            await fill(pool, clock)
            expected, damage = FAULTS[name]
            await damage(redis, pool)
            before = await contents(redis)
            report = await fsck(pool)
            assert kinds(report) == expected
            assert report.faults > 0 and not any(finding.repaired for finding in report.findings.values())
            assert await contents(redis) == before
            report = await fsck(pool, repair=True)
            assert report.findings and kinds(report) <= expected  # one repair may remove another fault
            assert report.faults == 0
            report = await fsck(pool, repair=True)
            assert (kinds(report), report.unverified) == (set(), [])
            await check_books(redis, pool)


def test_every_kind_of_fault_is_tried() -> None:
    assert set().union(*(expected for expected, _ in FAULTS.values())) == set(KINDS) - {"misplaced"}


async def test_a_healthy_queue_has_no_findings(redis: Redis, pool: Pool, clock: HeldClock) -> None:
    await fill(pool, clock)
    before = await contents(redis)
    report = await fsck(pool, repair=True)
    assert (report.findings, report.unverified, report.jobs, report.topics) == ({}, [], 11, 2)
    assert await contents(redis) == before


async def test_only_the_first_of_the_blocked_jobs_of_a_key_is_stuck_if_the_key_is_free(
    redis: Redis, pool: Pool
) -> None:
    for job_id, concurrency in (("a", 1), ("b", 1), ("c", 2)):
        await add(pool, job_id, key="7", key_concurrency=concurrency)
    assert await popped_ids(pool) == ["a"]
    assert (await fsck(pool)).findings == {}, "c may run beside a, but b is before it"
    await redis.read("DEL", pool.keys[0].job("a"))
    assert (await fsck(pool, repair=True)).faults == 0
    await check_books(redis, pool)
    assert await popped_ids(pool) == ["b", "c"]


async def test_the_keys_of_schedules_rates_and_actions_are_ours(redis: Redis, pool: Pool) -> None:
    await scheduled(redis, pool, lambda bucket: redis.read("ZADD", pool.keys[0].occurrences("s"), "5", "5"))
    await lease(pool, "abcdefgh", rate=1, burst=1, least=1, most=1, owed=0)
    await Actions(pool).note([{"actor": "somebody"}])
    report = await fsck(pool)
    assert (report.findings, report.foreign.found, report.schedules) == ({}, 0, 1)


async def test_a_schedule_in_a_shard_that_its_name_does_not_belong_to_is_reported(redis: Redis) -> None:
    pool = await Pool.open(redis, shards=2)
    shard = 1 - shard_of("s", 2)
    await pool.call(
        *("define", shard), now=pool.clock.now(), id="s", seen=0, start=1, next_ms=0, bucket=0, definition=b"{}"
    )
    report = await fsck(pool, repair=True)
    assert (kinds(report), report.faults) == ({"misplaced"}, 1)


async def test_the_key_that_a_barrier_leaves_for_a_second_is_ours(redis: Redis, pool: Pool) -> None:
    await pool.call("barrier", 0)
    report = await fsck(pool)
    assert (report.findings, report.foreign.found) == ({}, 0)


async def test_the_cards_of_instances_are_ours(redis: Redis, pool: Pool) -> None:
    await sign(pool, "aa")
    assert await pool.call("write_card", 0, token="aa", card="{}") == 1  # noqa: S106 - not a secret
    report = await fsck(pool)
    assert (report.findings, report.foreign.found) == ({}, 0)


async def test_keys_that_are_not_ours_are_told_and_left_alone(redis: Redis, pool: Pool, clock: HeldClock) -> None:
    await fill(pool, clock)
    names = [f"{pool.keys[0].tag}{name}" for name in ("colour", "r:x:t", "b:one", "never")]
    for name in [*names, "{jq:00}:c:t", "jq:0:c:t"]:
        await redis.read("SET", name, "red")
    report = await fsck(pool, repair=True)
    assert (report.findings, report.foreign.found) == ({}, 4)
    assert sorted(report.foreign.samples) == sorted(names)
    assert await redis.read("EXISTS", *names) == 4


async def test_what_was_set_aside_is_kept_and_counted(redis: Redis, pool: Pool, clock: HeldClock) -> None:
    await fill(pool, clock)
    await redis.read("SET", pool.keys[0].job("ready"), "junk")
    await redis.read("SET", pool.keys[0].counts("u"), "more junk")
    assert (await fsck(pool, repair=True)).aside == 2
    assert await redis.read("HGET", pool.keys[0].aside, "ready") == b"junk"
    assert b"more junk" in await redis.read("HGET", pool.keys[0].aside, pool.keys[0].counts("u"))


async def test_a_job_in_a_shard_where_nobody_looks_for_it_is_told(redis: Redis, clock: HeldClock) -> None:
    pool = await Pool.open(redis, shards=2, clock=clock)
    await add(pool, "a")
    here = shard_of("a", 2)
    await redis.read("RENAME", pool.keys[here].job("a"), pool.keys[1 - here].job("a"))
    report = await fsck(pool, repair=True)
    assert report.findings["misplaced"].samples == ["a"]
    assert report.faults == 1


async def test_no_body_is_shown_though_a_damaged_topic_contains_it(redis: Redis, pool: Pool, clock: HeldClock) -> None:
    await add(pool, "a", body=b'{"card":"4711"}')
    clock.advance(1)
    await redis.read("SETRANGE", pool.keys[0].job("a"), 5, b"\x0c")  # the length of its topic
    report = await fsck(pool)
    assert kinds(report) == {"unlisted", "miscounted"}
    assert not [each for finding in report.findings.values() for each in finding.samples if "card" in each]


async def test_a_requeued_job_keeps_its_age_and_is_popped_once(redis: Redis, pool: Pool, clock: HeldClock) -> None:
    await add(pool, "a")
    since = (await get(pool, "a")).next
    clock.advance(5_000)
    await redis.read("DEL", READY_LIST)
    await fsck(pool, repair=True)
    assert (await get(pool, "a")).next == since
    assert await popped_ids(pool) == ["a"]
    assert await popped_ids(pool) == []


async def test_an_entry_that_was_renewed_since_it_was_missed_is_not_renewed_again(redis: Redis, pool: Pool) -> None:
    await add(pool, "a")
    number = (await get(pool, "a")).number
    await redis.read("DEL", READY_LIST)
    assert await pool.call("requeue", 0, [f"{number}:a"], now=pool.clock.now()) == [1]
    assert await pool.call("requeue", 0, [f"{number}:a"], now=pool.clock.now()) == [0]
    assert await redis.read("LLEN", READY_LIST) == 1
    await check_books(redis, pool)


async def test_a_job_that_became_ready_during_the_walk_is_no_fault(redis: Redis, pool: Pool) -> None:
    await add(pool, "a")
    await redis.read("DEL", READY_LIST)  # as if the lists had been read before it came: ready in this millisecond
    assert "unlisted" not in kinds(await fsck(pool, repair=True))


async def test_counts_that_changed_since_they_were_seen_are_not_touched(redis: Redis, pool: Pool) -> None:
    key = pool.keys[0].counts("t")
    await redis.read("HSET", key, "ready", 5, "dead", 2)
    fields = ("ready", "5", "1", "dead", "3", "0")
    assert await pool.call("recount", 0, fields, now="", family="c", topic="t") == 0
    assert await redis.read("HMGET", key, "ready", "dead") == [b"5", b"2"]


async def test_the_counts_of_a_busy_topic_are_not_judged(redis: Redis, pool: Pool, clock: HeldClock) -> None:
    """Every step of the walk adds another job; faults elsewhere are found all the same."""
    await fill(pool, clock)
    await redis.read("HINCRBY", pool.keys[0].counts("t"), "ready", 7)
    await add(pool, "other", "u")
    await redis.read("HINCRBY", pool.keys[0].counts("u"), "ready", 7)
    clock.advance(1)
    check = await Fsck.open(redis, repair=True, rest=0, clock=clock)
    turn = 0

    async def more() -> None:
        nonlocal turn
        while True:
            turn += 1
            await add(pool, f"more{turn}")
            await asyncio.sleep(0)

    adding = asyncio.create_task(more())
    report = await check.run()
    adding.cancel()
    await asyncio.gather(adding, return_exceptions=True)
    assert report.unverified == ["t"]
    assert report.findings["miscounted"].samples == ["u"]
    report = await fsck(pool, repair=True)
    assert (kinds(report), report.unverified) == ({"miscounted"}, [])
    await check_books(redis, pool)


class Meddling(Redis):
    """Something happens just before and just after each call of a script or command."""

    def __init__(self, url: str, name: str, before: Meddle, behind: Meddle) -> None:
        super().__init__(url)
        self._name = name
        self._before = before
        self._behind = behind

    async def call(self, name: str, rest: Sequence[Value] = (), **arguments: Any) -> Any:
        return await self._meddled(name, super().call(name, rest, **arguments))

    async def read(self, *command: Value) -> Any:
        return await self._meddled(command[0], super().read(*command))

    async def _meddled(self, name: Value, work: Awaitable[Any]) -> Any:
        if name != self._name:
            return await work
        await self._before()
        reply = await work
        await self._behind()
        return reply


async def test_deliveries_that_are_undone_do_not_make_counts_wrong(
    redis: Redis, redis_server: RedisServer, pool: Pool, clock: HeldClock
) -> None:
    """A client hangs up and asks again, and each look happens to see the job reserved; a repair based on that would
    lose its ready list."""
    await add(pool, "a")
    clock.advance(1)
    jobs: list[Job] = []

    async def take() -> None:
        jobs[:] = await pop(pool)

    async def undo() -> None:
        await pool.unpop(jobs)

    connection = Meddling(redis_server.url, "mend", take, undo)
    report = await (await Fsck.open(connection, repair=True, rest=0, clock=clock)).run()
    await connection.close()
    assert (kinds(report), report.unverified) == (set(), ["t"])
    assert await popped_ids(pool) == ["a"]
    await check_books(redis, pool)


async def test_jobs_that_became_ready_after_the_clock_went_back_keep_their_places(
    redis: Redis, redis_server: RedisServer, pool: Pool, clock: HeldClock
) -> None:
    await add(pool, "a")
    clock.advance(1)
    names = iter("bcdefghijklmnopqrstuvwxyz")

    async def back() -> None:
        clock.advance(-1_000)
        await add(pool, next(names))

    async def nothing() -> None:
        pass

    connection = Meddling(redis_server.url, "HSCAN", back, nothing)
    report = await (await Fsck.open(connection, repair=True, rest=0, clock=clock)).run()
    await connection.close()
    assert kinds(report) == set()
    popped = await popped_ids(pool)
    assert popped == sorted(popped) and len(popped) > 2
    await check_books(redis, pool)


async def test_a_topic_that_is_forgotten_while_it_is_judged_is_no_fault(
    redis: Redis, redis_server: RedisServer, pool: Pool, clock: HeldClock
) -> None:
    await add(pool, "a", retention_ms=0)
    await delete(pool, "a")
    clock.advance(1)

    async def forget() -> None:
        await Topics(pool).forget(0, 1)

    async def nothing() -> None:
        pass

    connection = Meddling(redis_server.url, "ZSCORE", forget, nothing)
    report = await (await Fsck.open(connection, rest=0, clock=clock)).run()
    await connection.close()
    assert kinds(report) == set()
    assert await redis.read("EXISTS", pool.keys[0].counts("t")) == 0


async def test_a_namespace_may_have_as_many_shards_as_its_settings_can_tell(redis: Redis, clock: HeldClock) -> None:
    pool = await Pool.open(redis, shards=255, buckets=1, clock=clock)
    for number in range(300):
        await add(pool, f"j{number}")
    clock.advance(1)
    assert kinds(await fsck(pool, repair=True)) == set()
    await redis.read("DEL", *(keys.meta for keys in pool.keys[1:]))
    assert (await fsck(pool, repair=True)).findings["meta"].found == 254
    await pool.close()


@pytest.mark.parametrize("damage", [{"colour": "red"}, {"buckets": "x"}, {"stream": "?"}])
async def test_a_repair_of_damaged_settings_keeps_the_switch_of_the_events(
    redis: Redis, clock: HeldClock, damage: dict[str, str]
) -> None:
    pool = await Pool.open(redis, shards=2, clock=clock)
    await switch_on(pool, 0, Switch(5_000, touches=True))
    word = await switch_on(pool, 1, Switch(6_000))
    assert kinds(await fsck(pool)) == set()
    for field, value in damage.items():
        await redis.read("HSET", pool.keys[1].meta, field, value)
    assert (await fsck(pool, repair=True)).findings["meta"].repaired == 1
    assert kinds(await fsck(pool)) == set()
    assert (await read_events(pool, 0)).switch == (5_000, True)
    events = await read_events(pool, 1)
    assert (events.switch, events.word) == ((6_000, False), word)
    assert (await fsck(pool)).foreign.found == 0


@pytest.mark.parametrize(
    "damage",
    [
        lambda redis, key: redis.read("DEL", key),
        lambda redis, key: _replace(redis, key, "SET", "x"),
        lambda redis, key: redis.read("HSET", key, "events", "many"),
    ],
)
async def test_a_repair_switches_no_events_on_that_it_cannot_know_of(
    redis: Redis, clock: HeldClock, damage: Callable[[Redis, str], Awaitable[Any]]
) -> None:
    pool = await Pool.open(redis, shards=2, clock=clock)
    for shard in range(2):
        await switch_on(pool, shard, Switch(5_000))
    await damage(redis, pool.keys[1].meta)
    assert (await fsck(pool, repair=True)).findings["meta"].repaired == 1
    assert ((await read_events(pool, 0)).switch, (await read_events(pool, 1)).switch) == ((5_000, False), None)


async def test_another_programs_key_in_the_place_of_the_events_is_a_fault(redis: Redis, pool: Pool) -> None:
    await redis.read("SET", stream_key(pool, 0), "x")
    assert kinds(await fsck(pool, repair=True)) == {"spoilt"}
    assert kinds(await fsck(pool)) == set()


@pytest.mark.parametrize("gone", [0, 1, 2])
async def test_the_settings_of_one_shard_of_three_are_those_of_the_others(
    redis: Redis, clock: HeldClock, gone: int
) -> None:
    pool = await Pool.open(redis, shards=3, buckets=5, clock=clock)
    await pool.add([NewJob(f"{number}", "t", b"") for number in range(30)])
    before = await contents(redis)
    await redis.read("DEL", pool.keys[gone].meta)
    report = await fsck(pool, repair=True)
    assert report.findings["meta"].samples == [f"{pool.keys[gone].meta}: gone"]
    assert await contents(redis) == before


async def test_the_number_of_buckets_is_taken_from_the_keys_when_all_settings_are_gone(
    redis: Redis, clock: HeldClock
) -> None:
    pool = await Pool.open(redis, buckets=12, clock=clock)
    await take(pool, "token")
    await redis.read("DEL", pool.keys[0].meta)
    await fsck(pool, repair=True)
    assert (await Pool.open(redis)).buckets == 12


async def test_settings_that_are_no_settings_are_refused_in_words(
    subtests: pytest.Subtests, redis: Redis, new_pool: NewPool
) -> None:
    for field, value in itertools.product(("shards", "buckets"), ("", "0", "x", "-1", "256", "1" * 5000, "²")):
        with subtests.test(field=field, value=value):
            pool = await new_pool()
            await redis.read("HSET", pool.keys[0].meta, field, value)
            with pytest.raises(Unfit, match="was written by another version or is damaged"):
                await Pool.open(redis)
            await fsck(pool, repair=True)
            assert (await Pool.open(redis)).buckets == 8


async def test_a_job_that_cannot_be_read_blocks_nobody_though_none_can_be_set_aside(redis: Redis, pool: Pool) -> None:
    await redis.read("SET", pool.keys[0].aside, "of another program")
    await pool.add([NewJob("bad", "t", b""), NewJob("good", "t", b"")])
    await redis.read("SET", pool.keys[0].job("bad"), "junk")
    assert await popped_ids(pool) == ["good"]
    assert await redis.read("HGET", pool.keys[0].aside, "bad") == b"junk"
    assert b"of another program" in await redis.read("HGET", pool.keys[0].aside, pool.keys[0].aside)


async def test_a_lock_without_an_end_stops_no_timer(redis: Redis, pool: Pool) -> None:
    await take(pool, "first")
    await redis.read("SET", pool.keys[0].lock(3), "nobody")
    await _replace(redis, pool.keys[0].lock(4), "RPUSH", "x")
    assert await take(pool, "second", living=["first", "nobody"]) == [number in (3, 4) for number in range(8)]
    await _replace(redis, pool.keys[0].lock(5), "RPUSH", "x")
    await give_up(pool, "second")
    assert await redis.read("EXISTS", pool.keys[0].lock(3)) == 0
