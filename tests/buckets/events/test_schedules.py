"""What scripts tell of schedules, and schedules that are put back from that."""

from __future__ import annotations

import pytest

from buckets.clock import HeldClock
from buckets.errors import NoRoom
from buckets.events.codec import Entry, Event, Unreadable, read_all, read_schedule
from buckets.events.restoring import LostSchedule, Restoring
from buckets.events.stream import read_tail
from buckets.job import State, Verb
from buckets.pool.pool import Pool
from buckets.redis.client import Redis
from buckets.schedules.record import pack_schedule
from tests.buckets.events.scheduled import HOUR, content, define, meet, there, undefine
from tests.buckets.events.switched import switch_on
from tests.buckets.events.test_telling import told
from tests.buckets.jobs import add, get


@pytest.fixture
async def telling(pool: Pool, redis: Redis) -> Pool:
    await switch_on(redis, pool.keys[0], 1000)
    return pool


def now_ms(clock: HeldClock) -> int:
    return int(clock.now()) // 1000


async def events_of(pool: Pool, some_id: str) -> list[Event]:
    return [event for _, events in await told(pool) for event in events if event.id == some_id]


async def raw(pool: Pool, name: str) -> bytes:
    found: bytes = await pool.redis.read("HGET", pool.keys[0].schedules, name)
    return found


async def test_a_definition_is_told_whole_and_an_existing_one_not_at_all(telling: Pool) -> None:
    assert [await define(telling, "s", b"\0any\xff") for _ in range(2)] == ["created", "existing"]
    [event] = await events_of(telling, "~s")
    assert (event.verb, event.before, event.after, event.created, event.topic) == (Verb.SCHEDULE, 0, 0, 0, "")
    assert event.schedule and pack_schedule(event.schedule) == await raw(telling, "s")
    assert event.next == event.schedule.next


async def test_one_entry_tells_of_an_occurrence_and_of_its_schedule(telling: Pool, clock: HeldClock) -> None:
    await define(telling, "s")
    clock.advance(HOUR)
    await meet(telling, "s")
    entry, events = (await told(telling))[-1]
    assert entry.verb is Verb.OCCUR
    assert [(each.id, each.verb, each.after) for each in events] == [
        (f"s@{now_ms(clock)}", Verb.ADD, State.READY),
        ("~s", Verb.OCCUR, 0),
    ]
    assert events[0].body == b'{"n":1}' and events[0].topic == "t"
    schedule = events[1].schedule
    assert schedule and schedule == (await there(telling))["s"]._replace(definition=b"")
    assert (schedule.last, schedule.next) == (now_ms(clock), now_ms(clock) + HOUR)


async def test_a_skipped_occurrence_tells_only_of_the_schedule(telling: Pool, clock: HeldClock) -> None:
    await define(telling, "s")
    for _ in range(2):
        clock.advance(HOUR)
        await meet(telling, "s", skips=True)
    assert [event.id for event in (await told(telling))[-1][1]] == ["~s"]


async def test_a_schedule_is_rebuilt_from_its_events_alone(telling: Pool, clock: HeldClock) -> None:
    await define(telling, "s", b"1")
    await define(telling, "s", "é".encode())
    clock.advance(HOUR)
    await meet(telling, "s")
    *_, whole, moved = [event.schedule for event in await events_of(telling, "~s")]
    assert whole and moved and moved.revision == whole.revision
    assert pack_schedule(moved._replace(definition=whole.definition)) == await raw(telling, "s")


async def test_a_removed_schedule_is_told_without_a_record(telling: Pool) -> None:
    await define(telling, "s")
    await undefine(telling, "s")
    *_, event = await events_of(telling, "~s")
    assert (event.verb, event.schedule, event.next) == (Verb.UNSCHEDULE, None, 0)


async def test_an_occurrence_that_is_not_drained_yet_is_read_as_an_add(telling: Pool, clock: HeldClock) -> None:
    await define(telling, "s")
    clock.advance(HOUR)
    await meet(telling, "s")
    [found] = (await read_tail(telling, 0, f"s@{now_ms(clock)}", (0, 0))).events
    assert (found.event.verb, found.entry.verb) == (Verb.ADD, Verb.OCCUR)


@pytest.mark.parametrize("value", [b"", b"\0" * 7, b"\0" * 7 + b"\x01" * 20, b"\0" * 7 + b"\x09" * 40])
def test_a_schedule_that_cannot_be_read_is_told_as_such(value: bytes) -> None:
    with pytest.raises(Unreadable):
        read_schedule(Entry(Verb.OCCUR, False, 0, "", ""), b"~s", value)
    head = bytes((1, Verb.OCCUR, 0)) + b"\0" * 7
    [(raw_id, *_)] = read_all([b"m", head, b"~s", value])[1]
    assert raw_id == b"~s"


async def lose(pool: Pool) -> None:
    await pool.redis.read("FLUSHALL")
    await pool.ensure_meta(0)
    await switch_on(pool.redis, pool.keys[0], 1000)


async def test_a_schedule_is_put_as_it_was_and_told_as_restored(telling: Pool, redis: Redis, clock: HeldClock) -> None:
    await define(telling, "s")
    clock.advance(HOUR)
    await meet(telling, "s")
    before, record = (await there(telling))["s"], await raw(telling, "s")
    occurrence = await get(telling, f"s@{now_ms(clock)}")
    await lose(telling)
    restoring = Restoring(telling, "restore:7")
    [asked] = await restoring.ask(["~s", "~other", "s"])
    assert asked.unknown == ["~s", "~other", "s"]
    await restoring.put([(occurrence.id, occurrence.raw)])
    assert await restoring.put_schedules([LostSchedule("s", record, 0, [str(now_ms(clock))])]) == [True]
    assert content(await there(telling)) == content({"s": before})
    [asked] = await restoring.ask(["~s", "s"])
    assert asked.unknown == ["s"]
    entry, [event] = (await told(telling))[-1]
    assert (entry.verb, entry.actor, event.id, event.verb) == (Verb.RESTORE, "restore:7", "~s", Verb.RESTORE)
    assert event.schedule == (await there(telling))["s"]
    assert await redis.read("ZRANGE", telling.keys[0].occurrences("s"), 0, -1) == [str(now_ms(clock)).encode()]
    restored = (await there(telling))["s"]
    assert await redis.read("ZSCORE", telling.keys[0].bucket(restored.bucket), "~s") == str(restored.next).encode()
    clock.advance(HOUR)
    await meet(telling, "s")
    assert (await get(telling, f"s@{now_ms(clock)}")).state is State.READY


async def test_a_schedule_takes_only_the_place_of_the_one_that_was_seen(telling: Pool, clock: HeldClock) -> None:
    await define(telling, "s", b"old")
    old = (await there(telling))["s"]
    clock.advance(1)
    await define(telling, "s", b"new")
    new = (await there(telling))["s"]
    restoring = Restoring(telling, "restore:7")
    for seen in (0, old.revision):
        assert await restoring.put_schedules([LostSchedule("s", pack_schedule(old), seen)]) == [False]
    assert (await there(telling))["s"] == new
    later = pack_schedule(new._replace(revision=new.revision + 5, last=0))
    assert await restoring.put_schedules([LostSchedule("s", later, new.revision)]) == [True]
    assert (await there(telling))["s"] == new._replace(revision=new.revision + 5)
    assert await restoring.put_schedules([LostSchedule("s", b"\x09bad", new.revision + 5)]) == [False]


async def test_only_the_definition_that_was_seen_is_removed(telling: Pool) -> None:
    await define(telling, "s")
    restoring, revision = Restoring(telling, "restore:7"), (await there(telling))["s"].revision
    assert not await restoring.remove_schedule("s", revision - 1)
    assert await restoring.remove_schedule("s", revision)
    assert not await restoring.remove_schedule("s", revision)
    assert await there(telling) == {}


async def test_a_schedule_for_which_there_is_no_room_is_refused(telling: Pool, redis: Redis) -> None:
    await define(telling, "s")
    record = await raw(telling, "s")
    await undefine(telling, "s")
    await redis.read("CONFIG", "SET", "maxmemory", "1")
    try:
        [result] = await Restoring(telling, "restore:7").put_schedules([LostSchedule("s", record)])
    finally:
        await redis.read("CONFIG", "SET", "maxmemory", "0")
    assert isinstance(result, NoRoom)


async def test_schedules_of_other_shards_are_asked_about_and_put_where_they_belong(redis: Redis) -> None:
    pool = await Pool.open(redis, "many", shards=4)
    for number in range(12):
        await define(pool, f"s{number}")
        await add(pool, f"j{number}")
    restoring = Restoring(pool, "restore:7")
    ids = [f"{mark}{number}" for number in range(24) for mark in ("~s", "j")]
    unknown = {each for asked in await restoring.ask(ids) for each in asked.unknown}
    assert unknown == {f"{mark}{number}" for number in range(12, 24) for mark in ("~s", "j")}
    before = await there(pool)
    for name in before:
        await undefine(pool, name)
    lost = [LostSchedule(name, pack_schedule(schedule)) for name, schedule in before.items()]
    assert await restoring.put_schedules(lost) == [True] * 12
    assert content(await there(pool)) == content(before)
