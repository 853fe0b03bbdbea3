"""jobqueue.protocols.command.in_flight: the bytes are those that orjson writes for the same answers."""

from __future__ import annotations

import json
import random
import string
from typing import Any

import orjson

from buckets import Added, Job, Pool, Popped
from buckets.clock import HeldClock
from buckets.errors import NotFound
from jobqueue.commands.answers import handed_out, kept, success
from jobqueue.protocols.command import in_flight
from jobqueue.schema import params
from jobqueue.schema.fields import NAME_CHARACTERS
from tests.buckets.jobs import add, get, pop, pop_one
from tests.kit.waiting import tick_all

_YEAR_MS = 31_536_000_000


def name(chance: random.Random) -> str:
    return "".join(chance.choices([*NAME_CHARACTERS, "%2A", "%E2"], k=chance.randrange(1, 80)))


def due_ms(chance: random.Random) -> int:
    """A time as a record may have it, most often one of this decade."""
    return chance.choice(
        [chance.randrange(10**5), chance.randrange(1 << 48), 1_763_000_000_000 + chance.randrange(10 * _YEAR_MS)]
    )


def test_the_answers_to_adds_are_those_of_orjson() -> None:
    chance = random.Random(1)
    for number in range(20_000):
        adds = [params.Add(topic="t", body=None, id=name(chance)) for _ in range(1 + number % 3)]  # type: ignore[arg-type]
        result = Added(
            chance.choice(["created", "existing", "replaced"]),
            chance.choice(["delayed", "ready", "reserved", "dead", "finished"]),
            due_ms(chance),
        )
        other = result._replace(due=due_ms(chance))
        results = [result, result, other][: len(adds)]
        expected = orjson.dumps([kept(add.id, each) for add, each in zip(adds, results, strict=True)])
        assert b"[%b]" % (in_flight.added(adds, results) or b"") == expected


def test_the_answers_to_finishes_are_those_of_orjson() -> None:
    chance = random.Random(2)
    finishes = [params.Finish(id=name(chance)) for _ in range(1000)]
    expected = orjson.dumps([success(id=each.id, state="finished") for each in finishes])
    assert b"[%b]" % (in_flight.finished(finishes, ["finished"] * 1000) or b"") == expected


def test_where_one_failed_there_is_no_template() -> None:
    adds = [params.Add(topic="t", body=None, id=each) for each in "ab"]  # type: ignore[arg-type]
    finishes = [params.Finish(id=each) for each in "ab"]
    assert in_flight.added(adds, [Added("created", "ready", 1), NotFound()]) is None
    assert in_flight.finished(finishes, ["finished", NotFound()]) is None


def written(command: params.Pop, jobs: list[Job]) -> bytes:
    return in_flight.popped(command, Popped(jobs)) or b""


ONE, SOME = params.Pop(topic="t"), params.Pop(topic="t", count=5)


def expected(jobs: list[Job]) -> bytes:
    return orjson.dumps(success(jobs=[handed_out(job) for job in jobs]))


async def test_jobs_are_written_as_orjson_writes_them(pool: Pool) -> None:
    chance = random.Random(3)
    bodies: list[Any] = [None, 0, 1.5, "ü\u2028", "x" * 200, {"a": [True, {"b": "\\\"'/"}]}, [], "\x7f", '"', 1e308]
    for number in range(400):
        fields: dict[str, Any] = {
            "ttr_ms": chance.choice([0, 100, 60_000, 16_100, 86_400_000]),
            "tries": chance.choice([0, 1, 16, 65_535]),
            "priority": chance.randrange(10),
            "headers": chance.choice([b"", b"", b'{"a":"\xc3\xbc"}']),
            "tags": chance.choice([b"", b'["x"]']),
            "ttl_ms": chance.choice([None, 10**9]),
            "backoff_ms": chance.choice([(), (1, 2)]),
        }
        fields["due_ms"] = chance.randrange(1, pool.clock.now_us // 1000)  # type: ignore[attr-defined]
        topic = name(chance)
        await add(pool, f"{name(chance)[:40]}{number}", topic, json.dumps(chance.choice(bodies)).encode(), **fields)
        job = await pop_one(pool, topic, worker=chance.choice(["", "w", "ü"]), ttr_ms=chance.choice([None, 0, 7]))
        for _ in range(2):  # made, and from memory
            assert written(ONE, [job]) == orjson.dumps(success(**handed_out(job)))
            assert written(SOME, [job, job]) == expected([job, job])


async def test_jobs_that_differ_in_one_time_only_have_their_own(pool: Pool, clock: HeldClock) -> None:
    due = clock.now_us // 1000 + 5_000
    for number in range(3):
        for each in range(2):
            await add(pool, f"{number}:{each}", due_ms=due)
        clock.advance(7)
    await add(pool, "other", due_ms=due + 1)
    clock.advance(6_000)
    await tick_all(pool)
    jobs = sorted(await pop(pool, count=9), key=lambda job: job.due)
    assert [job.due for job in jobs] == [due] * 6 + [due + 1]
    assert len({job.created for job in jobs}) == 4 and len({job.lease for job in jobs}) == 1
    assert len({id(job.kind) for job in jobs}) == 1
    for some in (jobs, jobs[::-1], jobs[::2]):
        assert written(SOME, some) == expected(some)


async def test_a_job_that_was_delivered_before_says_since_when_it_was_ready(pool: Pool) -> None:
    await add(pool, "a")
    first = await pop_one(pool)
    await pool.release("a", first.lease)
    (again,) = await pop(pool)
    assert b'"ready":' in written(ONE, [again])
    assert written(SOME, [first, again]) == expected([first, again])


async def test_a_job_without_a_body_has_null_as_its_value(pool: Pool) -> None:
    await add(pool, "a")
    job = await pop_one(pool)
    await pool.finish([("a", None)])
    gone = await get(pool, "a")
    assert not gone.body
    assert written(SOME, [job, gone]) == expected([job, gone])


def test_a_pop_that_found_nothing_is_written_unless_it_is_to_say_why() -> None:
    assert in_flight.popped(ONE, Popped()) == orjson.dumps(success(id=None, value=None))
    assert in_flight.popped(SOME, Popped()) == orjson.dumps(success(jobs=[]))
    assert in_flight.popped(ONE, Popped(ask_why=True)) is None


async def test_the_memory_of_kinds_is_bounded(pool: Pool) -> None:
    for number in range(in_flight._MOST_KINDS + 20):
        await add(pool, f"{number}", tries=number + 1)
    for job in await pop(pool, count=in_flight._MOST_KINDS + 20):
        assert written(SOME, [job]) == expected([job])
    assert len(in_flight._parts) <= in_flight._MOST_KINDS


def test_names_have_no_character_that_json_escapes() -> None:
    assert set(NAME_CHARACTERS) <= set(string.printable) - set('"\\')
