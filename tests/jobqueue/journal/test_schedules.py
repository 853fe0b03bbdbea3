"""Schedules in each database: written in the order in which they were told, whatever comes late or again."""

from __future__ import annotations

import zlib
from collections.abc import AsyncIterator
from typing import Any

import pytest
from sqlalchemy import select

from buckets.events.codec import Event
from buckets.job import Verb
from buckets.schedules.record import Schedule
from jobqueue.journal.database import open_engine, open_store
from jobqueue.journal.keeping import Keeper, Periods
from jobqueue.journal.store import Batch, Overtaken, Store
from jobqueue.journal.tables import schedule as table
from tests.jobqueue.journal.telling import NOW, SOURCE, Teller, event, read

DEFINITION = '{"topic":"t","every":3600.0,"body":{"n":"é\\u0000"}}'


def revision(number: int) -> int:
    return NOW * 1000 + number


def told(verb: Verb, at_ms: int, number: int = 1, *, name: str = "s", definition: str = "", **times: int) -> Event:
    """A move of a schedule, of a revision; `times`: start, next and last."""
    known = {"start": NOW, "next": NOW + 1000, "last": 0} | times
    schedule = Schedule(name, 3, revision(number), **known, definition=definition.encode())
    checksum = zlib.crc32(f"{verb} {at_ms} {schedule}".encode())
    gone = verb in (Verb.UNSCHEDULE, Verb.VANISHED)
    return Event(
        *(f"~{name}", verb, 0, 0, at_ms * 1000, 0, ""),
        next=schedule.next,
        checksum=checksum,
        schedule=None if gone else schedule,
    )


def defined(at_ms: int = NOW, number: int = 1, definition: str = DEFINITION, **fields: Any) -> Event:
    return told(Verb.SCHEDULE, at_ms, number, definition=definition, **fields)


@pytest.fixture
async def store(journal_url: str) -> AsyncIterator[Store]:
    store = await open_store(journal_url)
    yield store
    await store.close()


@pytest.fixture
def teller(store: Store) -> Teller:
    return Teller(store)


async def rows(url: str) -> dict[str, Any]:
    engine = await open_engine(url)
    async with engine.connect() as connection:
        found = {row.name: row for row in await connection.execute(select(table))}
    await engine.dispose()
    return found


async def test_every_column_of_a_schedule_comes_back(journal_url: str, teller: Teller) -> None:
    await teller.tell(defined(last=NOW - 5))
    assert (await rows(journal_url))["s"]._asdict() == {
        **{"source": SOURCE, "name": "s", "shard": 0, "topic": "t", "revision": revision(1), "start": NOW},
        **{"next": NOW + 1000, "last": NOW - 5, "definition": DEFINITION, "body_kept": 1},
        **{"ms": NOW, "seq": 0, "n": 0, "at": NOW * 1000, "gone": None},
    }


@pytest.mark.parametrize("together", [True, False], ids=["in one batch", "each in its own"])
async def test_a_schedule_stands_as_it_was_told_last(journal_url: str, teller: Teller, together: bool) -> None:
    moves = [
        defined(),
        told(Verb.OCCUR, NOW + 1, next=NOW + 2000, last=NOW + 1000),
        defined(NOW + 2, 2, '{"topic":"u"}', next=NOW + 9),
        told(Verb.OCCUR, NOW + 3, 2, next=0, last=NOW + 9),
        defined(name="gone"),
        told(Verb.UNSCHEDULE, NOW + 4, name="gone"),
        defined(name="again"),
        told(Verb.UNSCHEDULE, NOW + 4, name="again"),
        defined(NOW + 5, 3, name="again"),
    ]
    for some in [moves] if together else [[move] for move in moves]:
        await teller.tell(*some)
    found = await rows(journal_url)
    last = found["s"]
    assert (last.topic, last.revision, last.next, last.last, last.definition) == (
        *("u", revision(2), 0, NOW + 9),
        '{"topic":"u"}',
    )
    assert {name: row.gone for name, row in found.items()} == {"s": None, "gone": (NOW + 4) * 1000, "again": None}
    assert found["gone"].definition == DEFINITION and found["again"].revision == revision(3)
    events = await read(journal_url, "SELECT id, verb FROM jq_event ORDER BY ms, seq")
    assert sorted((row["id"], row["verb"]) for row in events) == sorted((each.id, each.verb) for each in moves)
    assert await read(journal_url, "SELECT * FROM jq_minute") == []


async def test_what_comes_late_changes_nothing(journal_url: str, store: Store, teller: Teller) -> None:
    await teller.tell(defined(NOW + 10, 2, next=NOW + 77))
    late = [defined(), told(Verb.OCCUR, NOW + 1, 2, next=5), told(Verb.UNSCHEDULE, NOW + 2)]
    for each in late:
        await teller.write(teller.batch([(each.at // 1000, 0, each)], may_repeat=True))
    row = (await rows(journal_url))["s"]
    assert (row.revision, row.next, row.gone, row.ms) == (revision(2), NOW + 77, None, NOW + 10)


async def test_times_of_another_definition_are_not_those_of_the_one_that_is_known(
    journal_url: str, teller: Teller
) -> None:
    """As behind a gap: the walk reads the definition that was missed."""
    await teller.tell(defined())
    await teller.tell(told(Verb.OCCUR, NOW + 1, 2, next=5), told(Verb.OCCUR, NOW + 1, 2, name="unknown"))
    found = await rows(journal_url)
    assert set(found) == {"s"} and (found["s"].next, found["s"].ms) == (NOW + 1000, NOW)
    await teller.tell(told(Verb.UNSCHEDULE, NOW + 2), told(Verb.UNSCHEDULE, NOW + 2, name="unknown"))
    assert (await rows(journal_url))["s"].gone == (NOW + 2) * 1000


async def test_a_schedule_that_was_removed_does_not_live_again_as_its_time_comes(
    journal_url: str, teller: Teller
) -> None:
    """As after a failover that forgot the removal, until that is made again."""
    await teller.tell(defined(), told(Verb.UNSCHEDULE, NOW + 1))
    await teller.tell(told(Verb.OCCUR, NOW + 2, next=5))
    row = (await rows(journal_url))["s"]
    assert (row.gone, row.next) == ((NOW + 1) * 1000, NOW + 1000)


async def test_events_that_are_there_already_are_passed_over(journal_url: str, teller: Teller) -> None:
    places = teller.places([defined(), told(Verb.OCCUR, NOW + 1, next=5)])
    for _ in range(2):
        await teller.write(teller.batch(places, may_repeat=True))
    assert len(await read(journal_url, "SELECT * FROM jq_event")) == 2
    assert (await rows(journal_url))["s"].next == 5


async def test_without_bodies_the_definition_is_kept_without_its_body(journal_url: str, store: Store) -> None:
    teller = Teller(store, bodies=False)
    await teller.tell(defined(), defined(name="odd", definition="no JSON"))
    found = await rows(journal_url)
    assert (found["s"].definition, found["s"].body_kept) == ('{"topic":"t","every":3600.0}', 0)
    assert (found["odd"].definition, found["odd"].topic) == ("no JSON", "")


async def test_names_of_schedules_are_compared_by_bytes(journal_url: str, teller: Teller) -> None:
    names = ["A", "a", "x" * 200]
    await teller.tell(*(defined(name=name) for name in names))
    assert sorted(await rows(journal_url)) == names


async def test_all_events_of_schedules_are_kept_as_ends(journal_url: str, store: Store) -> None:
    await Teller(store, events="ends").tell(defined(), told(Verb.OCCUR, NOW + 1), told(Verb.UNSCHEDULE, NOW + 2))
    assert len(await read(journal_url, "SELECT * FROM jq_event")) == 3


async def test_a_schedule_is_kept_while_it_lives_however_old_it_is(journal_url: str, teller: Teller) -> None:
    await teller.tell(defined(name="lives"), defined(name="gone"), defined(name="newly gone"))
    await teller.tell(told(Verb.UNSCHEDULE, NOW + 1, name="gone"))
    await teller.tell(told(Verb.UNSCHEDULE, NOW + 900_000, name="newly gone"))
    engine = await open_engine(journal_url)
    await Keeper(engine, Periods(jobs=100_000, events=1)).step(NOW + 950_000)
    await engine.dispose()
    assert set(await rows(journal_url)) == {"lives", "newly gone"}


async def test_the_views_show_schedules_beside_jobs(journal_url: str, teller: Teller) -> None:
    await teller.tell(event(), defined(next=0), told(Verb.UNSCHEDULE, NOW + 1), defined(name="t", last=NOW - 7))
    lives = await read(journal_url, "SELECT id FROM jq_life")
    assert [row["id"] for row in lives] == ["a"]
    told_of = await read(journal_url, "SELECT what FROM jq_timeline WHERE id = '~s' ORDER BY at")
    assert [row["what"] for row in told_of] == ["scheduled", "unscheduled"]
    times = await read(journal_url, "SELECT name, topic, next, last, gone, definition FROM jq_timetable ORDER BY name")
    assert [tuple(row.values()) for row in times] == [
        ("s", "t", None, None, (NOW + 1) * 1000, DEFINITION),
        ("t", "t", NOW + 1000, NOW - 7, None, DEFINITION),
    ]


async def test_a_batch_that_was_overtaken_writes_no_schedule(journal_url: str, store: Store, teller: Teller) -> None:
    await teller.tell(defined())
    batch = teller.batch(teller.places([told(Verb.UNSCHEDULE, NOW + 1)]))
    assert batch.before
    other = batch.before._replace(entries=99)
    with pytest.raises(Overtaken):
        await store.write(Batch(SOURCE, 0, other, batch.after, batch.events, schedules=batch.schedules))
    assert (await rows(journal_url))["s"].gone is None
