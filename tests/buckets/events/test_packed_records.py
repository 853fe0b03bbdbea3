"""buckets.record: a record is packed as it was, whatever its job has gone through."""

from __future__ import annotations

import itertools
from typing import Any

import pytest

from buckets.clock import HeldClock
from buckets.job import Job, State, Tag
from buckets.pool.pool import Pool
from buckets.record import Fields, pack_optional, pack_record, unpack, unpack_optional
from tests.buckets.conftest import NewPool
from tests.buckets.jobs import add, delete, finish, get, pop_one
from tests.kit.waiting import tick_all

HOUR = 3_600_000
EVERYTHING: dict[str, Any] = {
    "backoff_ms": (1_000, 5_000),
    "ttl_ms": 40 * HOUR,
    "retention_ms": HOUR,
    "headers": b'{"a":"\\u0000"}',
    "tags": b'["x"]',
    "note": b"\x00\xff",
    "priority": 9,
    "tries": 0,
    "keeps_body": True,
}


def fields_of(job: Job) -> Fields:
    """What a journal keeps of a job, and what the indexes add."""
    raw, kind = job.raw, job.kind
    end = raw[1] + len(kind.topic)
    return Fields(
        *(kind.state, kind.topic, job.created, job.due, job.next, kind.ttr, kind.tries, kind.priority, kind.cause),
        *(kind.attempts, kind.deliveries, kind.step, job.lease, bool(raw[2] & 0x08)),
        raw[end + 2 : kind.body_at] if kind.optional else b"",
        *(job.body, job.bucket, job.number, bool(raw[2] & 0x20)),
    )


async def go_through(pool: Pool, clock: HeldClock, job_id: str) -> None:
    """Bring a job into the state that its id names."""
    word = job_id.partition(" ")[0]
    if word in ("delayed", "far"):
        return
    clock.advance(0)
    popped = await pop_one(pool, worker="w:1", ttr_ms=5_000)
    if word == "released":
        await pool.release(popped.id, popped.lease, reason="é\0")
    elif word == "dead":
        await pool.bury(popped.id, popped.lease, "it broke")
    elif word == "finished":
        await finish(pool, popped.id, popped.lease)
    elif word == "deleted":
        await delete(pool, popped.id)


async def test_a_record_that_redis_has_is_packed_byte_for_byte(
    subtests: pytest.Subtests, new_pool: NewPool, clock: HeldClock
) -> None:
    words: list[str] = ["delayed", "far", "reserved", "released", "dead", "finished", "deleted"]
    for options, word in itertools.product(({}, EVERYTHING), words):
        with subtests.test(options=options, word=word):
            pool = await new_pool()
            delay_ms = {"delayed": 1_000, "far": 30 * HOUR}.get(word, 0)
            await add(pool, word, body=b'{"n":"\\u0000"}', delay_ms=delay_ms, **options)
            await go_through(pool, clock, word)
            job = await get(pool, word)
            packed = pack_record(fields_of(job))
            assert packed == job.raw
            again = unpack(word, packed)
            assert (again.kind, again.due, again.lease) == (job.kind, job.due, job.lease)


async def test_a_job_whose_lease_ended_is_packed_byte_for_byte(pool: Pool, clock: HeldClock) -> None:
    await add(pool, "a", "x" * 255, backoff_ms=(1_000,))
    await pop_one(pool, "x" * 255)
    clock.advance(60_000)
    await tick_all(pool)
    job = await get(pool, "a")
    assert job.state is State.DELAYED and job.lease_ended
    assert pack_record(fields_of(job)) == job.raw


async def test_unknown_optional_fields_are_packed_as_they_are() -> None:
    block = pack_optional(iter({250: b"later", Tag.TTL: b"\0" * 6}.items()))[2:]  # type: ignore[arg-type]
    raw = pack_record(Fields(State.READY, "t", 1, 2, 3, 4, 5, 6, options=block, body=b"{}"))
    job = unpack("a", raw)
    assert job.optional == unpack_optional(block) and job.body == b"{}" and pack_record(fields_of(job)) == raw


@pytest.mark.parametrize("wrong", [{"ttr": 1 << 32}, {"due": -1}, {"topic": "x" * 256}, {"options": b"x" * 65_536}])
def test_what_no_record_can_have_is_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(OverflowError):
        pack_record(Fields(State.READY, "t", 1, 2, 3, 4, 5, 6)._replace(**wrong))
