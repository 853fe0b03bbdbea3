"""buckets.job and buckets.record: the record, as Python and as the scripts read and write it."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from buckets.clock import HeldClock
from buckets.errors import NotFound
from buckets.job import Cause, NewJob, State, Tag
from buckets.layout import HEADER, NEW_HEADER
from buckets.pool.pool import Pool
from buckets.record import lua_numbers, pack_front, pack_optional, unpack, unpack_all, unpack_optional
from buckets.redis.client import Redis
from tests.buckets.books import check_books
from tests.buckets.conftest import NewPool
from tests.buckets.jobs import add, delete, finish, get, is_stored, pop_one, popped_ids, state
from tests.kit.waiting import tick_all

FULL = NewJob(
    "order:1",
    "order-close",
    b'{"order": "\xc3\xa9\x00"}',
    delay_ms=5_000,
    ttr_ms=1_234,
    priority=7,
    tries=9,
    backoff_ms=(0, 15_000, 315_360_000_000),
    ttl_ms=315_360_000_000,
    retention_ms=2_592_000_000,
    headers=b'{"trace":"1"}',
    tags=b'["a"]',
)


def record_of(job: NewJob) -> bytes:
    """The record as the script stores it, except for the times."""
    return pack_front(job) + job.body


async def raw_of(redis: Redis, pool: Pool, job_id: str) -> bytes:
    raw = await redis.read("GET", pool.keys[0].job(job_id))
    assert isinstance(raw, bytes)
    return raw


async def write(redis: Redis, pool: Pool, job_id: str, raw: bytes) -> None:
    await redis.read("SET", pool.keys[0].job(job_id), raw)


def test_the_header_of_a_new_job_is_34_bytes_and_holds_its_length() -> None:
    raw = record_of(NewJob("a", "topic", b"body"))
    assert raw[:2] == bytes((1, 34))
    assert len(raw) == 34 + len("topic") + len("body")


def test_a_script_gets_the_numbers_of_the_record_that_it_uses_and_no_others() -> None:
    line = lua_numbers({"struct", "DELIVERY", "job", "dead", "SHORT"})
    assert line == "local dead, SHORT, DELIVERY = 4, 34, '>HI3BI7'\n"
    assert lua_numbers({"return"}) == ""


async def test_the_first_pop_makes_the_header_47_bytes_and_a_delete_before_it_does_not(
    redis: Redis, pool: Pool
) -> None:
    await add(pool, "a")
    await add(pool, "b")
    assert (await pop_one(pool)).lease > 0
    await pool.delete(["b"])
    assert (await raw_of(redis, pool, "a"))[1] == HEADER == 47
    assert (await raw_of(redis, pool, "b"))[1] == NEW_HEADER == 34


async def test_a_record_goes_through_the_scripts_and_back_whole(redis: Redis, pool: Pool, clock: HeldClock) -> None:
    await pool.add([FULL])
    now = clock.now_us // 1000
    job = await get(pool, FULL.id)
    assert (job.id, job.topic, job.body) == (FULL.id, FULL.topic, FULL.body)
    assert (job.state, job.priority, job.cause) == (State.DELAYED, 7, Cause.NONE)
    assert (job.created, job.due, job.next) == (now, now + 5_000, now + 5_000)
    assert (job.ttr, job.own_ttr, job.tries, job.attempts, job.deliveries, job.kind.step) == (1_234, 1_234, 9, 0, 0, 0)
    assert (job.ttl, job.retention, job.backoff) == (FULL.ttl_ms, FULL.retention_ms, FULL.backoff_ms)
    assert (job.text(Tag.HEADERS), job.text(Tag.TAGS), job.text(Tag.WORKER)) == ('{"trace":"1"}', '["a"]', None)
    assert (await raw_of(redis, pool, FULL.id))[1] == 34


async def test_a_delivery_writes_into_the_record_what_the_popped_job_shows(pool: Pool, clock: HeldClock) -> None:
    await pool.add([FULL])
    clock.advance(5_000)
    await tick_all(pool)
    popped = await pop_one(pool, "order-close", worker="w:1")
    now = clock.now_us // 1000
    assert popped == await get(pool, FULL.id)
    assert (popped.state, popped.attempts, popped.deliveries) == (State.RESERVED, 1, 1)
    assert (popped.lease, popped.next, popped.text(Tag.WORKER)) == (clock.now_us, now + 1_234, "w:1")
    assert (popped.body, popped.backoff, popped.text(Tag.HEADERS)) == (FULL.body, FULL.backoff_ms, '{"trace":"1"}')


async def test_the_length_of_a_body_does_not_matter_to_a_move(
    subtests: pytest.Subtests, new_pool: NewPool, clock: HeldClock
) -> None:
    """Scripts read the first 128 bytes of a record, and more only if they must."""
    for size in (0, 1, 60, 75, 80, 81, 127, 128, 129, 5_000):
        with subtests.test(size=size):
            pool = await new_pool()
            await add(pool, "a", body=b"x" * size, delay_ms=10, ttl_ms=60_000, backoff_ms=(5_000,) * 32)
            clock.advance(10)
            await tick_all(pool)
            assert (await pop_one(pool)).body == b"x" * size
            clock.advance(60_000)
            await tick_all(pool)
            job = await get(pool, "a")
            assert (job.state, job.body, len(job.backoff)) == (State.DEAD, b"x" * size, 32)


@pytest.mark.parametrize("topic", ["t", "x" * 81, "x" * 255])
async def test_a_topic_may_be_as_long_as_its_length_byte_says(redis: Redis, pool: Pool, topic: str) -> None:
    await add(pool, "a", topic, ttl_ms=60_000)
    assert (await pop_one(pool, topic)).topic == topic
    assert await finish(pool, "a") == "finished"
    await check_books(redis, pool)


async def test_unknown_optional_fields_stay_and_do_no_harm(redis: Redis, pool: Pool, clock: HeldClock) -> None:
    await add(pool, "a", delay_ms=1_000, backoff_ms=(2_000,))
    raw = await raw_of(redis, pool, "a")
    at = 34 + 1
    end = at + 2 + int.from_bytes(raw[at : at + 2], "big")
    known = unpack_optional(raw[at + 2 : end])
    later = {250: b"from the future", 99: b""}
    optional = pack_optional(iter({**later, **known}.items()))  # type: ignore[arg-type]  # tags that Tag does not have
    await write(redis, pool, "a", raw[:at] + optional + raw[end:])
    clock.advance(1_000)
    await tick_all(pool)
    job = await pop_one(pool, worker="w", ttr_ms=500)
    assert (job.body, job.backoff) == (b'"body"', (2_000,))
    clock.advance(500)
    await tick_all(pool)
    job = await get(pool, "a")
    assert (job.state, job.body, job.own_ttr) == (State.DELAYED, b'"body"', 60_000)
    assert {tag: job.optional[tag] for tag in later} == later


def longer(raw: bytes) -> bytes:
    """The record of a new job with the header of a later version: ours in full, and 3 bytes more."""
    return raw[:1] + bytes((50,)) + raw[2:34] + bytes(13) + b"new" + raw[34:]


async def test_a_header_longer_than_ours_is_moved_and_handed_out(redis: Redis, pool: Pool, clock: HeldClock) -> None:
    """A record holds the length of its header, so that a later version may append to it."""
    await add(pool, "a", delay_ms=1_000, tries=2)
    raw = await raw_of(redis, pool, "a")
    await write(redis, pool, "a", longer(raw))
    clock.advance(1_000)
    await tick_all(pool)
    for worker in ("", "w"):
        job = await pop_one(pool, worker=worker)
        assert (job.topic, job.body) == ("t", b'"body"')
        assert await is_stored(pool, job)
        assert (await raw_of(redis, pool, "a"))[47:50] == b"new"
        clock.advance(60_000)
        await tick_all(pool)
    assert await state(pool, "a") == "dead"
    await check_books(redis, pool)


async def test_a_longer_header_survives_a_delivery_at_most_once(redis: Redis, pool: Pool) -> None:
    await add(pool, "a", ttr_ms=0)
    raw = await raw_of(redis, pool, "a")
    await write(redis, pool, "a", longer(raw))
    job = await pop_one(pool)
    assert (job.topic, job.body, job.state) == ("t", b'"body"', State.FINISHED)
    assert await state(pool, "a") == "finished"


_GOOD = record_of(NewJob("a", "t", b"x"))
FOREIGN = {
    "text of another program": b"hello",
    "long text of another program": b"hello " * 100,
    "another version": b"\x02" + _GOOD[1:],
    "a short header": b"\x01\x2e" + _GOOD[2:],
    "no such state": _GOOD[:2] + b"\x07" + _GOOD[3:],
    "state zero": _GOOD[:2] + b"\x00" + _GOOD[3:],
    "no such priority": _GOOD[:3] + b"\x0a" + _GOOD[4:],
    "no topic": _GOOD[:5] + b"\x00" + _GOOD[6:],
    "a topic cut short": record_of(NewJob("a", "t" * 50, b""))[:60],
    "optional fields cut short": record_of(NewJob("a", "t", b"", headers=b"x" * 500))[:200],
    "a ladder of five bytes": record_of(NewJob("a", "t", b"", headers=b"12345")).replace(
        b"\x07\x00\x05", b"\x03\x00\x05"
    ),
}


async def set_aside(redis: Redis, pool: Pool) -> dict[bytes, bytes]:
    flat = await redis.read("HGETALL", pool.keys[0].aside)
    return dict(zip(flat[::2], flat[1::2], strict=True))


async def test_a_foreign_record_in_a_bucket_is_set_aside_and_its_neighbours_fire(
    subtests: pytest.Subtests, redis: Redis, new_pool: NewPool, clock: HeldClock
) -> None:
    for name, foreign in FOREIGN.items():
        with subtests.test(name=name):
            pool = await new_pool()
            for job_id in "abc":
                await add(pool, job_id, delay_ms=1_000)
            await write(redis, pool, "b", foreign)
            clock.advance(1_000)
            await tick_all(pool)
            assert sorted(await popped_ids(pool)) == ["a", "c"]
            assert await set_aside(redis, pool) == {b"b": foreign}
            assert await pool.get("b") is None


async def test_a_foreign_record_in_a_ready_list_is_set_aside_and_its_neighbours_are_popped(
    subtests: pytest.Subtests, redis: Redis, new_pool: NewPool
) -> None:
    for name, foreign in FOREIGN.items():
        with subtests.test(name=name):
            pool = await new_pool()
            for job_id in "abc":
                await add(pool, job_id)
            await write(redis, pool, "b", foreign)
            await pool.get("b")  # must not fail, at least
            assert await popped_ids(pool) == ["a", "c"]
            assert await set_aside(redis, pool) == {b"b": foreign}


async def test_commands_find_no_job_in_place_of_a_foreign_record_and_an_add_replaces_it(
    subtests: pytest.Subtests, redis: Redis, new_pool: NewPool
) -> None:
    for name, foreign in FOREIGN.items():
        with subtests.test(name=name):
            pool = await new_pool()
            for job_id in ("finished", "deleted", "added"):
                await write(redis, pool, job_id, foreign)
            with pytest.raises(NotFound):
                await finish(pool, "finished")
            with pytest.raises(NotFound):
                await delete(pool, "deleted")
            assert (await add(pool, "added")).result == "created"
            assert await popped_ids(pool) == ["added"]
            assert set(await set_aside(redis, pool)) == {b"finished", b"deleted", b"added"}


async def test_a_key_of_another_type_is_set_aside_too(redis: Redis, pool: Pool, clock: HeldClock) -> None:
    for job_id in "abcd":
        await add(pool, job_id, delay_ms=1_000 if job_id in "ab" else 0)
    for job_id in "ac":
        await redis.read("DEL", pool.keys[0].job(job_id))
        await redis.read("RPUSH", pool.keys[0].job(job_id), "not", "a", "record")
    assert await pool.get("a") is None
    clock.advance(1_000)
    await tick_all(pool)
    assert await popped_ids(pool) == ["d", "b"]
    aside = await set_aside(redis, pool)
    assert set(aside) == {b"a", b"c"}
    await redis.read("RESTORE", "again", 0, aside[b"a"])
    assert await redis.read("LRANGE", "again", 0, -1) == [b"not", b"a", b"record"]


async def test_a_record_with_an_unknown_cause_can_be_read(redis: Redis, pool: Pool) -> None:
    """A later version may have more causes of death; this one reads them as none."""
    await add(pool, "a")
    raw = await raw_of(redis, pool, "a")
    await write(redis, pool, "a", raw[:3] + bytes((raw[3] | 0x90,)) + raw[4:])
    assert (await pop_one(pool)).id == "a"
    assert await finish(pool, "a") == "finished"


@given(place=st.integers(0, 59), value=st.integers(0, 255))
def test_a_record_is_read_or_refused_with_a_value_error_whatever_byte_is_wrong(place: int, value: int) -> None:
    raw = bytearray(record_of(FULL))
    raw[place] = value
    with contextlib.suppress(ValueError, IndexError):
        unpack("a", bytes(raw))


@given(st.lists(st.tuples(st.sampled_from("abc"), st.integers(0, 46), st.integers(0, 255)), max_size=8))
def test_jobs_that_are_read_together_are_read_as_each_alone(changes: list[tuple[str, int, int]]) -> None:
    """Also where like jobs stand behind unlike ones, and jobs that were popped behind those that were not."""
    never = record_of(NewJob("a", "topic", b'"body"'))
    popped = never[:1] + bytes((HEADER,)) + never[2:NEW_HEADER] + bytes(range(1, 14)) + never[NEW_HEADER:]
    other = popped.replace(b"topic", b"ticop")
    pairs: list[bytes] = []
    for kind, place, value in changes:
        raw = bytearray({"a": never, "b": popped, "c": other}[kind])
        if place not in (0, 1, 5) and kind != "a":
            raw[place] = value if place != 2 else raw[2] ^ (value & 0x2F)
        pairs += (b"id", bytes(raw), b"id", bytes(raw))
    try:
        expected = [unpack("id", raw) for raw in pairs[1::2]]
    except ValueError:
        with pytest.raises(ValueError):
            unpack_all(pairs)
    else:
        assert unpack_all(pairs) == expected


# Each move that writes a record, with all that it may write; "a" is reserved, delayed or dead before it.
OF_ITS_WORKER: dict[str, Callable[[Pool], Awaitable[Any]]] = {
    "touch": lambda pool: pool.touch("a", ttr_ms=5_000),
    "release": lambda pool: pool.release("a"),
    "release with a delay and a reason": lambda pool: pool.release("a", delay_ms=9_000, reason="why"),
    "release that does not count as a try": lambda pool: pool.release("a", counts=False, reason="why"),
    "bury": lambda pool: pool.bury("a"),
    "bury with a reason": lambda pool: pool.bury("a", reason="why"),
}
OF_ANYONE: dict[str, Callable[[Pool], Awaitable[Any]]] = {
    "run": lambda pool: pool.run("a"),
    "update of the time": lambda pool: pool.update("a", delay_ms=9_000),
    "update to now": lambda pool: pool.update("a", delay_ms=0),
    "update of the priority": lambda pool: pool.update("a", priority=9),
    "update of the ttl": lambda pool: pool.update("a", ttl_ms=60_000),
    "update of the body": lambda pool: pool.update("a", body=b'"body"'),
    "update of all": lambda pool: pool.update("a", delay_ms=9, priority=9, ttl_ms=60_000, body=b'"body"'),
}
LATER = {250: b"from the future", 99: b""}


def from_the_future(raw: bytes) -> bytes:
    """The record of a new job of topic `t` as a later version may write it: a longer header, and unknown fields."""
    at = 34 + 1
    known = b""
    if raw[2] & 0x10:
        end = at + 2 + int.from_bytes(raw[at : at + 2], "big")
        known, body = raw[at + 2 : end], raw[end:]
    else:
        body = raw[at:]
    block = pack_optional(iter({**LATER, **unpack_optional(known)}.items()))  # type: ignore[arg-type]  # tags that Tag does not have
    return longer(raw[:2] + bytes((raw[2] | 0x10,)) + raw[3:at] + block + body)


async def check_future(redis: Redis, pool: Pool) -> None:
    job = await get(pool, "a")
    assert (job.topic, job.body) == ("t", b'"body"')
    assert {tag: job.optional[tag] for tag in LATER} == LATER
    raw = await raw_of(redis, pool, "a")
    assert (raw[1], raw[47:50]) == (50, b"new")
    await check_books(redis, pool)


async def test_a_workers_move_preserves_what_it_does_not_know(
    subtests: pytest.Subtests, redis: Redis, new_pool: NewPool
) -> None:
    for fields, move in itertools.product(({}, {"ttl_ms": 60_000, "backoff_ms": (5_000,)}), OF_ITS_WORKER):
        with subtests.test(fields=fields, move=move):
            pool = await new_pool()
            await add(pool, "a", **fields)
            await write(redis, pool, "a", from_the_future(await raw_of(redis, pool, "a")))
            await pop_one(pool)
            await OF_ITS_WORKER[move](pool)
            await check_future(redis, pool)
            if await state(pool, "a") == "dead":
                await pool.kick(["a"])
                await check_future(redis, pool)


async def test_a_change_preserves_what_it_does_not_know(
    subtests: pytest.Subtests, redis: Redis, new_pool: NewPool
) -> None:
    for fields, popped, move in itertools.product(
        ({}, {"ttl_ms": 60_000, "backoff_ms": (5_000,)}), (False, True), OF_ANYONE
    ):
        with subtests.test(fields=fields, popped=popped, move=move):
            pool = await new_pool()
            await add(pool, "a", delay_ms=0 if popped else 1_000, **fields)
            await write(redis, pool, "a", from_the_future(await raw_of(redis, pool, "a")))
            if popped:
                await pop_one(pool)
                await pool.release("a", delay_ms=1_000)
            await OF_ANYONE[move](pool)
            await check_future(redis, pool)


@pytest.mark.parametrize("size", [0, 75, 128, 5_000])
async def test_the_length_of_topic_and_body_does_not_matter_to_the_commands(
    redis: Redis, pool: Pool, clock: HeldClock, size: int
) -> None:
    topic, body = "t" * 255, b"x" * size
    await add(pool, "a", topic, body=body, delay_ms=10, backoff_ms=(5_000,) * 32)
    await pool.update("a", priority=9)
    await pool.run("a")
    await pop_one(pool, topic)
    await pool.touch("a")
    await pool.release("a", reason="why")
    await pool.run("a")
    await pop_one(pool, topic)
    await pool.bury("a")
    assert await pool.kick(["a"]) == ["ready"]
    job = await get(pool, "a")
    assert (job.body, job.topic, job.priority, len(job.backoff)) == (body, topic, 9, 32)
    await check_books(redis, pool)


async def test_the_commands_find_no_job_in_place_of_a_foreign_record(
    subtests: pytest.Subtests, redis: Redis, new_pool: NewPool
) -> None:
    for name, foreign in FOREIGN.items():
        with subtests.test(name=name):
            pool = await new_pool()
            for call in (pool.touch, pool.release, pool.bury, pool.run, pool.update):
                await write(redis, pool, "a", foreign)
                with pytest.raises(NotFound):
                    await call("a")
                assert await set_aside(redis, pool) == {b"a": foreign}
            await write(redis, pool, "a", foreign)
            (answer,) = await pool.kick(["a"])
            assert isinstance(answer, NotFound)
