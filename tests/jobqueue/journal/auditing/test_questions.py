"""jobqueue.journal.audit: each question, to a journal in each database."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Sequence
from typing import Any

import pytest
from sqlalchemy import Table, insert

from buckets.events.codec import Event
from buckets.job import Cause, State, Verb
from buckets.pool.pool import Pool
from jobqueue.journal import audit
from jobqueue.journal.audit import QUESTIONS, Asked, Found, Inexact, place_of
from jobqueue.journal.database import open_engine, open_store
from jobqueue.journal.tables import gap, position, refused
from jobqueue.metrics.process import LATENESS_S
from tests.buckets.jobs import add, delete, finish, kick, pop_one
from tests.jobqueue.journal.reading.drained import Journal
from tests.jobqueue.journal.telling import NOW, SOURCE, Teller, event, options
from tests.kit.waiting import tick_all

D, R, V, X = State.DELAYED, State.READY, State.RESERVED, State.DEAD
F, G = State.FINISHED, State.DELETED
HOUR = 3_600_000


@pytest.fixture
async def teller(journal_url: str) -> AsyncIterator[Teller]:
    store = await open_store(journal_url)
    yield Teller(store)
    await store.close()


async def asked(url: str, name: str, since_ms: int = NOW, until_ms: int = NOW + 24 * HOUR, **fields: Any) -> Found:
    return await audit.ask(url, None, name, Asked(since_ms * 1000, until_ms * 1000, **fields))


async def rows(url: str, name: str, **fields: Any) -> list[list[Any]]:
    return (await asked(url, name, **fields)).rows


def columns(found: Sequence[Sequence[Any]], *which: int) -> list[tuple[Any, ...]]:
    return [tuple(row[column] for column in which) for row in found]


def delivered(job_id: str, at_ms: int, waited_ms: int, worker: str = "", verb: Verb = Verb.POP, **fields: Any) -> Event:
    """A first delivery of a job that was due, and ready, so long before."""
    due = at_ms - waited_ms
    told = {"was": due, "due": due, "lease": at_ms * 1000, "deliveries": 1, "attempts": 1, "next": at_ms + 60_000}
    named = {"options": options(worker=worker.encode())} if worker else {}
    return event(verb, V, job_id, before=R, at_ms=at_ms, **{**told, **named, **fields})


def worked(job_id: str, popped_ms: int, span_ms: int, **fields: Any) -> Event:
    """The finish of a delivery."""
    lease = {"lease": popped_ms * 1000, "deliveries": 1, "attempts": 1}
    return event(Verb.FINISH, F, job_id, before=V, at_ms=popped_ms + span_ms, **{**lease, **fields})


async def test_real_lives_are_asked_about(journal: Journal, live_pool: Pool) -> None:
    for number in range(4):
        await add(live_pool, f"t{number}", ttr_ms=100, tries=1 if number == 2 else 9)
    await add(live_pool, "x", topic="T_x")
    assert (await pop_one(live_pool, "T_x", worker="wx")).id == "x"
    await finish(live_pool, "x")
    await asyncio.sleep(0.06)
    for worker in ("w1", "w1", "w2"):
        await pop_one(live_pool, worker=worker)
    await finish(live_pool, "t0")
    await asyncio.sleep(0.12)
    await tick_all(live_pool)  # the leases of t1 and t2 are over, and t2 is dead
    await kick(live_pool, "t2")
    await live_pool.bury((await pop_one(live_pool, worker="w3")).id, None, "no connection")
    for job_id in ("t1", "t2", "t3"):
        await delete(live_pool, job_id)
    await journal.drain()
    now = time.time_ns() // 1_000_000

    async def told(name: str, **fields: Any) -> list[list[Any]]:
        return await rows(journal.url, name, since_ms=now - HOUR, until_ms=now + 1, **fields)

    assert columns(await told("late", over_s=0.05), 0, 1, 2) == [("t", 4, 4), ("T_x", 1, 0)]
    assert columns(await told("waited", over_s=0.05), 0, 1, 2) == [("t", 4, 4), ("T_x", 1, 0)]
    assert await told("dead") == [["t", "buried", "no connection", 1], ["t", "tries", "lease ended", 1]]
    assert await told("deleted", by="topic") == [["t", "delete", 3]]
    assert await told("kicked", by="topic") == [["t", "kick", 1]]
    assert await told("expired-leases", by="worker") == [["w1", 1], ["w2", 1]]
    assert sorted(columns(await told("slow", by="worker"), 0, 1)) == [("w1", 1), ("wx", 1)]
    assert await told("volume") == [["t", 4, 4, 1, 0, 2, 1, 3], ["T_x", 1, 1, 1, 0, 0, 0, 0]]


async def test_first_deliveries_that_were_late_are_counted_by_the_bounds_of_the_histogram(
    journal_url: str, teller: Teller
) -> None:
    spans = (1, 1000, 1001, 4000, 31_000)
    await teller.tell(
        *(delivered(f"a{span}", NOW + 40_000, span) for span in spans),
        delivered("b", NOW + 40_000, 2000, topic="u", verb=Verb.TAKE),
        delivered("again", NOW + 40_000, 50_000, deliveries=2),
        delivered("next hour", NOW + HOUR, 2000),
    )
    found = await asked(journal_url, "late", over_s=1.0)
    assert found.columns == ["topic", "first_deliveries", "late", "percent", "average_s", "most_s"]
    assert found.rows[0] == ["t", 6, 4, 66.667, pytest.approx(39.002 / 6), 31.0]
    assert found.rows[1] == ["u", 1, 1, 100.0, 2.0, 2.0]
    assert columns(await rows(journal_url, "late", over_s=30.0), 0, 2) == [("t", 1), ("u", 0)]
    assert columns(await rows(journal_url, "late", over_s=0.0005), 0, 2) == [("t", 6), ("u", 1)]
    by_hour = await rows(journal_url, "late", over_s=1.0, by="hour")
    assert columns(by_hour, 0, 1, 2) == [("2023-11-14 22:00", 6, 4), ("2023-11-14 23:00", 1, 1)]
    assert columns(await rows(journal_url, "late", over_s=1.0, by="day"), 0, 1) == [("2023-11-14", 7)]
    part = await rows(journal_url, "late", over_s=1.0, until_ms=NOW + 60_000)
    assert columns(part, 0, 1) == [("t", 5), ("u", 1)]


def test_a_lateness_between_the_bounds_is_refused_with_the_bounds() -> None:
    assert [place_of(bound) for bound in LATENESS_S] == list(range(1, len(LATENESS_S) + 1))
    with pytest.raises(Inexact, match=r"--over is one of 0.0005, 0.001, .*, 1, 5, 30, 60 s"):
        place_of(2)


async def test_what_waited_is_counted_by_its_events(journal_url: str, teller: Teller) -> None:
    await teller.tell(
        delivered("a", NOW + 9000, 1500, "w1"),
        delivered("b", NOW + 9000, 1501, "w1"),
        delivered("c", NOW + 9000, 8000, deliveries=3),
        event(Verb.TAKE, V, "taken", before=D, at_ms=NOW + 9000, was=NOW),
    )
    assert await rows(journal_url, "waited", over_s=1.5) == [["t", 3, 2, 66.667, 8.0]]
    assert columns(await rows(journal_url, "waited", over_s=1.5, by="worker"), 0, 1, 2) == [("", 1, 1), ("w1", 2, 1)]


async def test_deaths_are_counted_by_cause_and_reason(journal_url: str, teller: Teller) -> None:
    def died(job_id: str, verb: Verb, cause: Cause, **fields: Any) -> Event:
        return event(verb, X, job_id, at_ms=NOW + 10_000, cause=cause, **{"before": V, **fields})

    await teller.tell(
        delivered("a", NOW + 1000, 0, "w1"),
        died("a", Verb.DUE, Cause.TRIES, lease=(NOW + 1000) * 1000, lease_ended=True),
        died("b", Verb.BURY, Cause.BURIED, options=options(reason=b"no connection")),
        died("c", Verb.BURY, Cause.BURIED, options=options(reason=b"no connection")),
        died("d", Verb.DUE, Cause.TTL, before=R, topic="u"),
        event(Verb.IMPORT, X, "e", at_ms=NOW, cause=Cause.TTL),
        event(Verb.WALK, X, "f", at_ms=NOW, cause=Cause.TTL),
    )
    assert await rows(journal_url, "dead") == [
        ["t", "buried", "no connection", 2],
        ["t", "tries", "lease ended", 1],
        ["u", "ttl", "", 1],
    ]
    assert await rows(journal_url, "dead", by="worker") == [
        ["", "buried", "no connection", 2],
        ["", "ttl", "", 1],
        ["w1", "tries", "lease ended", 1],
    ]


async def test_deletes_are_counted_by_who_did_them(journal_url: str, teller: Teller) -> None:
    await teller.tell(
        *(event(Verb.PURGE, G, f"p{number}", before=D, at_ms=NOW + 1) for number in range(3)),
        event(Verb.DELETE, G, "d", before=R, at_ms=NOW + 2),
        event(Verb.TRIM, G, "x", before=X, at_ms=NOW + 2),
        event(Verb.FINISH, F, "f", before=V, at_ms=NOW + 2),
        event(Verb.KICK, R, "k", before=X, at_ms=NOW + 3),
    )
    found = await asked(journal_url, "deleted", by="actor")
    assert found.rows == [["", "purge", 3], ["", "delete", 1], ["", "trim", 1]]
    assert "without an actor" in found.notes[0]
    assert await rows(journal_url, "kicked", by="topic") == [["t", "kick", 1]]


async def test_leases_that_expired_are_counted_by_the_worker_that_had_them(journal_url: str, teller: Teller) -> None:
    first, second = NOW + 1000, NOW + 5000
    over: dict[str, Any] = {"before": V, "deliveries": 1}
    await teller.tell(
        delivered("a", first, 0, "w1"),
        event(Verb.DUE, R, "a", at_ms=first + 3000, lease=first * 1000, **over),
        delivered("a", second, 0, "w2"),
        event(Verb.DUE, D, "a", at_ms=second + 3000, lease=second * 1000, **over),
        event(Verb.DUE, R, "other", before=D, at_ms=second + 3000),
        event(Verb.DUE, X, "b", at_ms=second + 3000, lease=second * 1000, **over),
    )
    assert await rows(journal_url, "expired-leases", by="worker") == [["", 1], ["w1", 1], ["w2", 1]]
    assert await rows(journal_url, "expired-leases", by="topic") == [["t", 3]]


async def test_percentiles_of_the_work_are_those_of_the_nearest_rank(journal_url: str, teller: Teller) -> None:
    spans = [*range(1, 201)]
    await teller.tell(
        *(worked(f"a{span}", NOW + 1000, span) for span in spans),
        worked("u1", NOW + 1000, 9, topic="u"),
        event(Verb.FINISH, F, "late", before=R, at_ms=NOW + 9000, lease=NOW * 1000),
    )
    found = await asked(journal_url, "slow")
    assert found.columns == ["topic", "finished", "p50_s", "p95_s", "p99_s", "most_s"]
    assert found.rows == [["t", 200, 0.1, 0.19, 0.198, 0.2], ["u", 1, 0.009, 0.009, 0.009, 0.009]]


async def test_the_volume_is_counted_by_what_happened(journal_url: str, teller: Teller) -> None:
    def at(verb: Verb, after: State, before: int = 0, **fields: Any) -> Event:
        return event(verb, after, f"{verb}{after}", before=before, at_ms=NOW + 1, **fields)

    await teller.tell(
        *(at(Verb.ADD, D), at(Verb.REPLACE, D, R), at(Verb.DUE, R, D)),
        *(at(Verb.POP, V, R), at(Verb.POP, F, R), at(Verb.TAKE, V, D), at(Verb.UNPOP, R, V)),
        *(at(Verb.FINISH, F, V), at(Verb.RELEASE, D, V), at(Verb.RELEASE, X, V), at(Verb.DUE, X, V)),
        *(at(Verb.KICK, R, X), at(Verb.DELETE, G, R), at(Verb.EXPORT, G, R), at(Verb.WALK, R)),
        Event("", Verb.PAUSE, 0, 0, (NOW + 1) * 1000, 0, "t"),
    )
    assert await rows(journal_url, "volume") == [["t", 2, 2, 2, 2, 2, 1, 1]]
    assert columns(await rows(journal_url, "volume", by="hour"), 0, 1) == [("2023-11-14 22:00", 2)]


async def test_what_a_failover_took_back_is_not_counted(journal_url: str, teller: Teller) -> None:
    await teller.tell(*(delivered(f"a{number}", NOW + 2000 + number, 1500) for number in range(5)))
    await _write(journal_url, gap, _gap(2, NOW + 2001, NOW + 2003))
    assert columns(await rows(journal_url, "waited", over_s=1.0), 1, 2) == [(3, 3)]


@pytest.mark.parametrize("name", ["waited", "expired-leases", "slow"])
async def test_what_happened_before_redis_was_emptied_is_counted(journal_url: str, teller: Teller, name: str) -> None:
    await teller.tell(
        delivered("a", NOW + 2000, 1500),
        event(Verb.DUE, R, "a", before=V, at_ms=NOW + 2001),
        worked("b", NOW + 1000, 1100),
    )
    before = await rows(journal_url, name)
    emptied = {"from_ms": 0, "from_seq": 0}
    await _write(journal_url, gap, _gap(2, 0, NOW + 3000) | emptied, _gap(3, 0, NOW + 3000) | emptied)
    assert await rows(journal_url, name) == before != []
    await _write(journal_url, gap, _gap(2, NOW, NOW + 3000, epoch=2))
    assert await rows(journal_url, name) == []


def _gap(kind: int, from_ms: int, to_ms: int, **fields: Any) -> dict[str, Any]:
    places = {"from_ms": from_ms, "from_seq": 0, "to_ms": to_ms, "to_seq": 0}
    return (
        {"source": SOURCE, "shard": 0, "epoch": 1, "kind": kind, "entries": 0, "found": to_ms * 1000} | places | fields
    )


async def _write(url: str, table: Table, *values: dict[str, Any]) -> None:
    engine = await open_engine(url)
    async with engine.begin() as connection:
        await connection.execute(insert(table), list(values))
    await engine.dispose()


async def test_gaps_are_listed_and_other_answers_point_to_them(journal_url: str, teller: Teller) -> None:
    await teller.tell(delivered("a", NOW + 2000, 0))
    await _write(
        journal_url,
        gap,
        _gap(1, NOW + 5000, NOW + 9000, entries=393) | {"walked": (NOW + 60_000) * 1000},
        _gap(2, NOW + 6000, NOW + 7000) | {"walked": None},
        _gap(3, NOW + 6000, NOW + 7000) | {"walked": None},
        _gap(1, NOW - 9000, NOW - 8000, entries=7) | {"walked": None},
    )
    raw = {"shard": 0, "ms": NOW, "seq": 0, "n": 0, "time": (NOW + 1) * 1000, "reason": "x", "raw": b""}
    await _write(journal_url, refused, {"source": SOURCE, **raw})
    found = await asked(journal_url, "gaps")
    begin = "2023-11-14 22:13:"
    assert found.rows == [
        ["lost", 0, f"{begin}25.000", f"{begin}29.000", 393, f"{begin}29.000", "2023-11-14 22:14:20.000"],
        ["forgotten", 0, f"{begin}26.000", f"{begin}27.000", 0, f"{begin}27.000", ""],
    ]
    assert found.notes[0] == "1 events could not be read; they are in jq_refused"
    assert "393 entries of that time are missing; see jobqueue audit gaps" in (await asked(journal_url, "waited")).notes


async def test_a_gap_of_all_that_was_before_begins_at_the_beginning(journal_url: str, teller: Teller) -> None:
    await teller.tell(delivered("a", NOW + 2000, 0))
    await _write(journal_url, gap, _gap(2, 0, NOW + 5000))
    assert columns(await rows(journal_url, "gaps"), 2, 3) == [("the beginning", "2023-11-14 22:13:25.000")]


async def test_a_time_when_events_were_off_is_a_note(journal_url: str, teller: Teller) -> None:
    await teller.tell(delivered("a", NOW + 2000, 0))
    await _write(journal_url, gap, _gap(1, NOW + 5000, NOW + 9000))
    off = "events were off for a part of that time; see jobqueue audit gaps"
    notes = (await asked(journal_url, "waited")).notes
    assert off in notes and not any("missing" in note for note in notes)
    assert off not in (await asked(journal_url, "waited", until_ms=NOW + 4000)).notes
    assert off not in (await asked(journal_url, "gaps")).notes
    await _write(journal_url, gap, _gap(1, NOW + 5000, NOW + 6000, entries=7))
    notes = (await asked(journal_url, "waited")).notes
    assert notes[-2:] == ["7 entries of that time are missing; see jobqueue audit gaps", off]


@pytest.mark.parametrize("name", ["late", "waited"])
async def test_a_time_that_the_journal_does_not_have_is_a_note(journal_url: str, teller: Teller, name: str) -> None:
    await teller.tell(delivered("a", NOW + 2000, 0))
    notes = (await asked(journal_url, name, since_ms=NOW - HOUR, until_ms=NOW + HOUR, over_s=1.0)).notes
    since = "2023-11-14 22:13:00.000" if name == "late" else "2023-11-14 22:13:22.000"
    assert notes == [
        f"the journal goes back to {since} UTC",
        "the journal has what was recorded until 2023-11-14 22:13:20.000 UTC",
    ]
    assert (await asked(journal_url, name, since_ms=NOW + 2000, until_ms=NOW + 2001, over_s=1.0)).notes == []


async def test_only_one_source_is_asked(journal_url: str, teller: Teller) -> None:
    await teller.tell(delivered("a", NOW + 2000, 1500))
    other = Teller(teller.store, source="other")
    await other.tell(delivered("a", NOW + 2000, 1500), delivered("b", NOW + 2000, 1500))
    for name, count in ((SOURCE, 1), ("other", 2)):
        asked_of = Asked(NOW * 1000, (NOW + HOUR) * 1000, over_s=1.0)
        for question in ("late", "waited"):
            assert columns((await audit.ask(journal_url, name, question, asked_of)).rows, 1) == [(count,)]


async def test_topics_are_matched_by_their_bytes(journal_url: str, teller: Teller) -> None:
    for topic in ("t", "T_x"):
        await teller.tell(delivered(f"a{topic}", NOW + 2000, 1500, topic=topic))
    patterns = {"t": {"t"}, "T*": {"T_x"}, "T?x": {"T_x"}, "t*": {"t"}, "*_*": {"T_x"}, "T": set(), "?": {"t"}}
    for pattern, found in patterns.items():
        for name in ("late", "waited", "volume"):
            assert {row[0] for row in await rows(journal_url, name, topic=pattern, over_s=1.0)} == found


async def test_an_empty_journal_answers_nothing(subtests: pytest.Subtests, sqlite_url: str) -> None:
    await (await open_store(sqlite_url)).close()
    begun = {"source": SOURCE, "shard": 0, "epoch": 0, "ms": 0, "seq": 0, "entries": 0, "stream": "w"}
    await _write(sqlite_url, position, begun | {"since": NOW * 1000, "time": NOW * 1000})
    for name in QUESTIONS:
        with subtests.test(name=name):
            found = await asked(sqlite_url, name, until_ms=NOW + 1, over_s=1.0, by="topic")
            assert (found.rows, found.notes) == ([], [])
