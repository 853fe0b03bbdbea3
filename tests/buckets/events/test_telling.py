"""What scripts tell where events are on, seen in the stream."""

from __future__ import annotations

import asyncio

import pytest

from buckets.events.codec import Entry, Event, read_all
from buckets.job import NewJob, State, Verb
from buckets.pool.pool import Pool
from buckets.record import unpack
from buckets.redis.client import Redis
from buckets.shards import ACTOR
from buckets.topics.topics import Topics
from tests.buckets.events.switched import switch_on


async def told(pool: Pool) -> list[tuple[Entry, list[Event]]]:
    """The entries of the first shard."""
    entries = await pool.redis.read("XRANGE", pool.keys[0].events, "-", "+")
    read = [read_all(fields) for _, fields in entries]
    return [(entry, [event for event in events if isinstance(event, Event)]) for entry, events in read]


@pytest.fixture
async def telling(pool: Pool, redis: Redis) -> Pool:
    await switch_on(redis, pool.keys[0], 1000)
    return pool


async def test_nothing_is_told_where_events_are_off(pool: Pool, redis: Redis) -> None:
    await pool.add([NewJob("a", "t", b"1")])
    await pool.pop(["t"], 1)
    assert await redis.read("EXISTS", pool.keys[0].events) == 0


@pytest.mark.parametrize("value", ["", "many", "-"])
async def test_damaged_settings_do_not_hold_up_a_move(pool: Pool, redis: Redis, value: str) -> None:
    await switch_on(redis, pool.keys[0], value)
    await pool.add([NewJob("a", "t", b"1")])
    assert len((await pool.pop(["t"], 1)).jobs) == 1


async def test_settings_of_another_type_do_not_hold_up_a_move(pool: Pool, redis: Redis) -> None:
    await redis.read("SET", pool.keys[0].meta, "x")
    await pool.add([NewJob("a", "t", b"1")])
    assert len((await pool.pop(["t"], 1)).jobs) == 1


async def test_a_script_tells_all_its_moves_in_one_entry(telling: Pool) -> None:
    await telling.add([NewJob(f"a{n}", "t", b"1") for n in range(200)])
    [(entry, events)] = await told(telling)
    assert entry.verb is Verb.ADD and entry.instance == telling.instance
    assert [event.id for event in events] == [f"a{n}" for n in range(200)]


async def test_a_refused_command_tells_nothing(telling: Pool) -> None:
    await telling.finish([("unknown", None)])
    await telling.delete(["unknown"])
    await telling.pop(["t"], 1)
    assert await told(telling) == []


async def test_another_programs_key_in_place_of_the_stream_is_set_aside(telling: Pool, redis: Redis) -> None:
    await redis.read("SET", telling.keys[0].events, "x")
    await telling.add([NewJob("a", "t", b"1")])
    assert [events[0].id for _, events in await told(telling)] == ["a"]
    assert await redis.read("HEXISTS", telling.keys[0].aside, telling.keys[0].events) == 1


async def test_the_stream_is_cut_at_its_most_entries(telling: Pool, redis: Redis) -> None:
    for n in range(1500):
        await telling.add([NewJob(f"a{n}", "t", b"1")])
    assert 1000 <= await redis.read("XLEN", telling.keys[0].events) <= 1200


async def test_an_unreadable_record_is_told_as_set_aside(telling: Pool, redis: Redis) -> None:
    await redis.read("SET", telling.keys[0].job("bad"), "x" * 40)
    await telling.delete(["bad"])
    [(entry, [event])] = await told(telling)
    assert (entry.verb, event.id, event.verb, event.after) == (Verb.ASIDE, "bad", Verb.ASIDE, 0)


async def test_the_actor_of_the_moves_of_a_request_is_told(telling: Pool) -> None:
    async def delete() -> None:
        ACTOR.set("chief/Zoë B")
        await telling.delete(["a"])

    await telling.add([NewJob("a", "t", b"1")])
    await asyncio.create_task(delete())
    assert [entry.actor for entry, _ in await told(telling)] == ["", "chief/Zoë B"]


async def test_touches_are_told_only_where_that_is_asked_for(telling: Pool, redis: Redis) -> None:
    await telling.add([NewJob("a", "t", b"1")])
    [job] = (await telling.pop(["t"], 1)).jobs
    await telling.touch("a", job.lease)
    await redis.read("HSET", telling.keys[0].meta, "touches", 1)
    await telling.touch("a", job.lease, 90_000)
    entries = await told(telling)
    assert [entry.verb for entry, _ in entries] == [Verb.ADD, Verb.POP, Verb.TOUCH]
    assert entries[-1][1][0].next - entries[-1][0].at // 1000 in (90_000, 90_001)


async def test_pauses_are_told_with_their_ends(telling: Pool) -> None:
    topics = Topics(telling)
    until = await topics.pause("t", 5000)
    await topics.resume("t")
    await topics.resume("t")
    events = [events[0] for _, events in await told(telling)]
    assert [(event.verb, event.topic, event.was) for event in events] == [
        (Verb.PAUSE, "t", until),
        (Verb.RESUME, "t", 0),
    ]


async def test_a_reserved_job_comes_back_with_its_lease_and_a_worker_finishes_it(telling: Pool, redis: Redis) -> None:
    await telling.add([NewJob("a", "t", b"1")])
    [job] = (await telling.pop(["t"], 1, worker="w")).jobs
    raw = await redis.read("GET", telling.keys[0].job("a"))
    await redis.read("FLUSHALL")
    await telling.ensure_meta(0)
    await switch_on(redis, telling.keys[0], 1000)
    restored = await telling.call("import", 0, ["a", raw], now="", verb=int(Verb.RESTORE), bucket=0, buckets=1)
    assert restored == [1]
    assert unpack("a", await redis.read("GET", telling.keys[0].job("a"))).lease == job.lease
    assert await telling.finish([("a", job.lease)]) == ["finished"]
    entries = await told(telling)
    assert [(entry.verb, events[0].before, events[0].after) for entry, events in entries] == [
        (Verb.RESTORE, 0, State.RESERVED),
        (Verb.FINISH, State.RESERVED, State.FINISHED),
    ]


async def test_a_large_body_is_left_out(telling: Pool) -> None:
    await telling.add([NewJob("a", "t", b"x" * 4096), NewJob("b", "t", b"x" * 4097)])
    [(_, events)] = await told(telling)
    assert [event.body for event in events] == [b"x" * 4096, None]
