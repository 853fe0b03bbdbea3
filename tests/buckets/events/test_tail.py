"""buckets.events.stream: what the stream of a shard has of one job behind a place."""

from __future__ import annotations

from typing import Any

import pytest

from buckets.clock import HeldClock
from buckets.events import stream
from buckets.events.stream import read_tail
from buckets.job import State, Verb
from buckets.pool.pool import Pool
from buckets.redis.client import Redis
from tests.buckets.events.switched import switch_on
from tests.buckets.jobs import add, finish, pop_one


@pytest.fixture
async def telling(redis: Redis, pool: Pool) -> Pool:
    """A pool that keeps events."""
    await switch_on(redis, pool.keys[0])
    return pool


async def entries(pool: Pool) -> list[tuple[int, int]]:
    """The places of the entries of the stream."""
    found = await pool.redis.read("XRANGE", pool.keys[0].events, "-", "+")
    return [(int(ms), int(seq)) for ms, _, seq in (raw.partition(b"-") for raw, _ in found)]


async def test_the_events_of_one_job_come_in_their_order(telling: Pool, clock: HeldClock) -> None:
    for job_id in ("a", "b", "a@t"):
        await add(telling, job_id)
    clock.advance(5)
    assert (await pop_one(telling)).id == "a"
    await finish(telling, "a")
    found = await read_tail(telling, 0, "a", (0, 0))
    assert found.is_whole
    moves = [(each.event.verb, each.event.before, each.event.after) for each in found.events]
    assert moves == [
        (Verb.ADD, 0, State.READY),
        (Verb.POP, State.READY, State.RESERVED),
        (Verb.FINISH, State.RESERVED, State.FINISHED),
    ]
    assert [each.event.at for each in found.events] == [clock.now_us - 5000, clock.now_us, clock.now_us]
    places = await entries(telling)
    assert [(each.ms, each.seq) for each in found.events] == [places[0], places[-2], places[-1]]


async def test_what_stands_before_the_place_is_left_out(telling: Pool) -> None:
    for _ in range(2):
        await add(telling, "a", if_exists="replace")
    first, second = await entries(telling)
    assert len((await read_tail(telling, 0, "a", (0, 0))).events) == 2
    (left,) = (await read_tail(telling, 0, "a", first)).events
    assert left.event.verb == Verb.REPLACE
    assert (await read_tail(telling, 0, "a", second)).events == []


async def test_the_number_of_an_event_is_its_place_in_its_entry(telling: Pool) -> None:
    for job_id in ("a", "b", "c"):
        await add(telling, job_id, delay_ms=1)
    await telling.delete(["a", "b", "c"])
    assert [[each.n for each in (await read_tail(telling, 0, job, (0, 0))).events] for job in "abc"] == [
        [0, 0],
        [0, 1],
        [0, 2],
    ]


async def test_only_so_many_entries_are_read(telling: Pool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stream, "MOST_ENTRIES", 4)
    monkeypatch.setattr(stream, "_FIRST", 2)
    monkeypatch.setattr(stream, "_MOST", 2)
    for number in range(3):
        await add(telling, f"x{number}")
    await add(telling, "a")
    found = await read_tail(telling, 0, "a", (0, 0))
    assert len(found.events) == 1 and not found.is_whole
    await add(telling, "b")
    assert await read_tail(telling, 0, "b", (0, 0)) == ([], False)


async def test_large_entries_are_read_a_few_at_a_time(telling: Pool, monkeypatch: pytest.MonkeyPatch) -> None:
    counts: list[int] = []
    redis = telling.redis
    read = redis.read

    async def counted(*command: Any) -> Any:
        counts.append(command[-1])
        return await read(*command)

    for number in range(40):
        await redis.read("XADD", telling.keys[0].events, f"1-{number + 1}", "m", "x" * (1 << 20))
    monkeypatch.setattr(redis, "read", counted)
    assert (await read_tail(telling, 0, "a", (0, 0))).is_whole
    assert counts[0] <= 16 and set(counts[1:]) == {3}  # 4 MiB, and what names the fields


async def test_what_cannot_be_read_is_left_out(redis: Redis, telling: Pool) -> None:
    key = telling.keys[0].events
    await redis.read("XADD", key, "1-1", "a", "x")
    await redis.read("XADD", key, "1-2", "m", "x", "a", "x")
    await redis.read("XADD", key, "1-3", "m", bytes((1, 1, 0)) + bytes(7), "a", "x")
    assert await read_tail(telling, 0, "a", (0, 0)) == ([], True)


async def test_a_key_of_another_program_or_none_has_no_events(redis: Redis, pool: Pool) -> None:
    assert await read_tail(pool, 0, "a", (0, 0)) == ([], True)
    await redis.read("SET", pool.keys[0].events, "x")
    assert await read_tail(pool, 0, "a", (0, 0)) == ([], True)
