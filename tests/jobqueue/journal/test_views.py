"""The views: what users' tools read, the same with each database."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import UTC, datetime
from typing import Any

import pytest
from sqlalchemy import text

from buckets.job import State, Verb
from jobqueue.journal.database import open_engine, open_store
from jobqueue.journal.rows import WALKED
from jobqueue.journal.store import Batch
from jobqueue.journal.views import WORDS
from jobqueue.metrics.process import LATENESS_S
from tests.jobqueue.journal.conftest import Database
from tests.jobqueue.journal.telling import NOW, Teller, event, life, options, read

_FORGOTTEN, _UNKNOWN = 2, 3


@pytest.fixture
async def teller(journal_url: str) -> AsyncIterator[Teller]:
    store = await open_store(journal_url)
    yield Teller(store)
    await store.close()


async def seen(url: str, query: str, *columns: str) -> list[tuple[Any, ...]]:
    return [tuple(row[name] for name in columns) for row in await read(url, query)]


def leased(number: int, at_ms: int, **fields: Any) -> dict[str, Any]:
    return {"deliveries": number, "attempts": number, "lease": at_ms * 1000, **fields}


async def test_a_life_is_told_in_words(journal_url: str, teller: Teller) -> None:
    await teller.tell(*life())
    columns = ("what", "state_before", "state_after", "at", "worker", "forgotten", "life")
    assert await seen(journal_url, "SELECT * FROM jq_timeline WHERE id = 'a' ORDER BY at", *columns) == [
        ("added", "none", "delayed", NOW * 1000, None, 0, NOW),
        ("fell due", "delayed", "ready", (NOW + 1002) * 1000, None, 0, NOW),
        ("delivered", "ready", "reserved", (NOW + 2500) * 1000, "w1", 0, NOW),
        ("finished", "reserved", "finished", (NOW + 3000) * 1000, None, 0, NOW),
    ]


async def test_every_verb_has_a_word_of_its_own(journal_url: str, teller: Teller) -> None:
    assert set(WORDS) == set(Verb)
    await teller.tell(*(event(verb, State.READY, at_ms=NOW + verb) for verb in Verb))
    words = [what for (what,) in await seen(journal_url, "SELECT what FROM jq_timeline ORDER BY at", "what")]
    assert len(set(words)) == len(Verb)
    assert None not in words


@pytest.mark.parametrize(
    ("before", "after", "what"),
    [
        (State.DELAYED, State.READY, "fell due"),
        (State.RESERVED, State.DELAYED, "lease over"),
        (State.RESERVED, State.DEAD, "lease over"),
        (State.READY, State.DEAD, "ttl over"),
        (State.DELAYED, State.DEAD, "ttl over"),
    ],
)
async def test_what_a_timer_did_follows_from_the_state_before(
    journal_url: str, teller: Teller, before: State, after: State, what: str
) -> None:
    await teller.tell(event(Verb.DUE, after, before=before, cause=2))
    assert await seen(journal_url, "SELECT * FROM jq_timeline", "what", "cause") == [(what, "ttl")]


@pytest.mark.parametrize("view", ["jq_timeline", "jq_delivery", "jq_life"])
async def test_the_time_is_one_of_the_database_in_utc(journal_url: str, teller: Teller, view: str) -> None:
    start = NOW + 123
    await teller.tell(*life(start=start))
    ((time,),) = await seen(journal_url, f"SELECT MAX(time) AS time FROM {view}", "time")
    when = start + {"jq_timeline": 3000, "jq_delivery": 2500, "jq_life": 0}[view]
    found = datetime.fromisoformat(time) if isinstance(time, str) else time
    assert found.replace(tzinfo=UTC) == datetime.fromtimestamp(when / 1000, UTC)


async def test_a_delivery_has_its_times_and_spans(journal_url: str, teller: Teller) -> None:
    await teller.tell(*life())
    (row,) = await read(journal_url, "SELECT * FROM jq_delivery")
    assert {name: value for name, value in row.items() if name not in ("time", "lease")} == {
        **{"source": "jq", "shard": 0, "id": "a", "life": NOW, "topic": "t", "priority": 4, "delivery": 1},
        **{"attempt": 1, "due": NOW + 1000, "ready": NOW + 1002, "popped": (NOW + 2500) * 1000},
        **{"ended": (NOW + 3000) * 1000, "ending": "finished", "late": 1.5, "waited": 1.498, "worked": 0.5},
        **{"worker": "w1", "instance": "shop1:812:0", "reason": None, "ms": NOW + 2500, "seq": 0, "n": 0},
    }
    assert all(isinstance(row[name], float) for name in ("late", "waited", "worked"))


async def test_each_delivery_of_a_job_has_its_own_end(journal_url: str, teller: Teller) -> None:
    added, due, *_ = life()
    first, second, third = (leased(number, NOW + 2500 + number * 100) for number in (1, 2, 3))
    moves = [
        (Verb.POP, State.READY, State.RESERVED, 2600, first),
        (Verb.TOUCH, State.RESERVED, State.RESERVED, 2610, first),
        (Verb.DUE, State.RESERVED, State.READY, 2650, first),
        (Verb.POP, State.READY, State.RESERVED, 2700, second),
        (Verb.RELEASE, State.RESERVED, State.READY, 2720, {**second, "options": options(reason=b"busy")}),
        (Verb.POP, State.READY, State.RESERVED, 2800, third),
        (Verb.WALK, State.RESERVED, State.RESERVED, 2850, third),
    ]
    told = [
        event(verb, after, before=before, at_ms=NOW + at, was=NOW + at - 10, **fields)
        for verb, before, after, at, fields in moves
    ]
    await teller.tell(added, due, *told)
    columns = ("delivery", "ended", "ending", "late", "waited", "reason")
    assert await seen(journal_url, "SELECT * FROM jq_delivery ORDER BY popped", *columns) == [
        (1, (NOW + 2650) * 1000, "lease over", 1.6, 0.01, None),
        (2, (NOW + 2720) * 1000, "released", None, 0.01, "busy"),
        (3, None, None, None, 0.01, None),
    ]


async def test_a_delivery_at_most_once_has_ended_as_it_began(journal_url: str, teller: Teller) -> None:
    await teller.tell(event(Verb.POP, State.FINISHED, before=State.READY, at_ms=NOW + 2000, deliveries=1, lease=5))
    columns = ("ended", "ending", "late", "worked")
    assert await seen(journal_url, "SELECT * FROM jq_delivery", *columns) == [
        ((NOW + 2000) * 1000, "at most once", 1.0, None)
    ]


async def test_a_job_taken_before_it_was_ready_has_not_waited(journal_url: str, teller: Teller) -> None:
    taken = event(Verb.TAKE, State.RESERVED, before=State.DELAYED, was=NOW + 1000, **leased(1, NOW))
    await teller.tell(taken, event(Verb.UNPOP, State.READY, before=State.RESERVED, at_ms=NOW + 1, lease=NOW * 1000))
    columns = ("ready", "waited", "ending")
    assert await seen(journal_url, "SELECT * FROM jq_delivery", *columns) == [(None, None, "delivery undone")]


async def test_a_life_is_summed_up(journal_url: str, teller: Teller) -> None:
    again = life(start=NOW + 10_000, topic="u")
    lease_over = event(
        Verb.DUE, State.DEAD, before=State.RESERVED, at_ms=NOW + 12_600, created=NOW + 10_000, cause=1, topic="u"
    )
    await teller.tell(*life(), *again[:3], lease_over)
    columns = ("life", "topic", "deliveries", "leases_over", "deaths", "late", "ended", "ending", "first_popped")
    assert await seen(journal_url, "SELECT * FROM jq_life WHERE id = 'a' ORDER BY life", *columns) == [
        (NOW, "t", 1, 0, 0, 1.5, (NOW + 3000) * 1000, "finished", (NOW + 2500) * 1000),
        (NOW + 10_000, "u", 1, 1, 1, 1.5, None, None, (NOW + 12_500) * 1000),
    ]


@pytest.mark.parametrize(
    ("verb", "after", "ending"),
    [
        (Verb.FINISH, State.FINISHED, "finished"),
        (Verb.DELETE, State.DELETED, "deleted"),
        (Verb.PURGE, State.DELETED, "purged"),
        (Verb.EXPORT, State.DELETED, "moved away"),
        (Verb.ASIDE, 0, "set aside"),
        (Verb.VANISHED, 0, "vanished"),
    ],
)
async def test_lives_end_in_several_ways(journal_url: str, teller: Teller, verb: Verb, after: int, ending: str) -> None:
    end = event(verb, after, at_ms=NOW + 50, created=0 if verb == Verb.ASIDE else NOW)
    await teller.tell(event(), end, event(at_ms=NOW + 100, created=NOW + 100))
    assert await seen(journal_url, "SELECT * FROM jq_life ORDER BY life", "life", "ended", "ending") == [
        (NOW, (NOW + 50) * 1000, ending),
        (NOW + 100, None, None),
    ]
    assert {
        row["life"] for row in await read(journal_url, "SELECT life FROM jq_timeline WHERE at < 1700000000100000")
    } == {NOW}


async def forget(
    teller: Teller, after: tuple[int, int], upto: tuple[int, int], epoch: int, *others: tuple[int, ...]
) -> None:
    """Write that Redis went back. `others`: further gaps: their kinds and places."""
    position = teller.position
    assert position
    gaps = [("jq", 0, epoch, *gap, 0, NOW * 1000, None) for gap in ((_FORGOTTEN, *after, *upto), *others)]
    await teller.store.write(Batch("jq", 0, position, position._replace(epoch=epoch), gaps=gaps))
    teller.position, teller.epoch = position._replace(epoch=epoch), epoch


async def test_what_redis_has_forgotten_is_marked_and_in_no_sum(journal_url: str, teller: Teller) -> None:
    told = teller.places(life())
    await teller.write(teller.batch(told))
    await forget(teller, told[1][:2], told[3][:2], epoch=1)
    columns = ("what", "branch", "forgotten")
    query = "SELECT * FROM jq_timeline ORDER BY at, branch"
    forgotten = [("added", 0, 0), ("fell due", 0, 0), ("delivered", 0, 1), ("finished", 0, 1)]
    assert await seen(journal_url, query, *columns) == forgotten
    assert await seen(journal_url, "SELECT * FROM jq_delivery") == []
    assert await seen(journal_url, "SELECT * FROM jq_life", "deliveries", "ending") == [(0, None)]
    # It goes on in another way: one event in the place of a forgotten one, and one between them.
    deleted = event(Verb.DELETE, State.DELETED, before=State.READY, at_ms=NOW + 2500)
    ran = event(Verb.UPDATE, State.READY, before=State.READY, at_ms=NOW + 2000)
    again = [(NOW + 2000, 0, ran), (NOW + 2500, 0, deleted)]
    await teller.write(teller.batch(again, branch=1, may_repeat=True))
    assert [row for row in await seen(journal_url, query, *columns) if not row[2]] == [
        ("added", 0, 0),
        ("fell due", 0, 0),
        ("updated", 1, 0),
        ("deleted", 1, 0),
    ]
    assert await seen(journal_url, "SELECT * FROM jq_life", "deliveries", "ending") == [(0, "deleted")]


async def test_what_happened_before_redis_was_emptied_counts(journal_url: str, teller: Teller) -> None:
    told = teller.places(life())
    await teller.write(teller.batch(told))
    upto = told[3][:2]
    await forget(teller, (0, 0), upto, 1, (_UNKNOWN, 0, 0, *upto))
    assert await seen(journal_url, "SELECT * FROM jq_timeline", "forgotten") == [(0,)] * 4
    assert await seen(journal_url, "SELECT * FROM jq_delivery", "ending", "waited") == [("finished", 1.498)]
    assert await seen(journal_url, "SELECT * FROM jq_life", "deliveries", "ending") == [(1, "finished")]
    # What a failover takes back afterwards does not.
    await forget(teller, told[2][:2], upto, 2)
    assert await seen(journal_url, "SELECT * FROM jq_life", "deliveries", "ending") == [(1, None)]


async def test_a_walk_that_was_asked_for_after_a_failover_changes_nothing(journal_url: str, teller: Teller) -> None:
    told = teller.places(life())
    await teller.write(teller.batch(told))
    upto = told[3][:2]
    await forget(teller, told[2][:2], upto, 1, (_UNKNOWN, *upto, *upto))
    assert await seen(journal_url, "SELECT * FROM jq_life", "deliveries", "ending") == [(1, None)]


async def test_what_a_walk_saw_is_a_line_of_its_own(journal_url: str, teller: Teller) -> None:
    await teller.write(teller.batch([(NOW, 3, event(Verb.WALK, State.DEAD))], branch=WALKED, may_repeat=True))
    assert await seen(journal_url, "SELECT * FROM jq_timeline", "what", "branch") == [("seen", -1)]
    assert await seen(journal_url, "SELECT * FROM jq_life", "deaths") == [(0,)]


async def test_lateness_is_by_minute_and_topic(journal_url: str, teller: Teller) -> None:
    await teller.tell(*life("a"), *life("b"), *life("c", topic="u"), *life("d", start=NOW + 60_000))
    rows = await read(journal_url, "SELECT * FROM jq_lateness ORDER BY minute, topic")
    assert [(row["topic"], row["deliveries"], row["first_deliveries"]) for row in rows] == [
        ("t", 2, 2),
        ("u", 1, 1),
        ("t", 1, 1),
    ]
    assert (rows[0]["late_average"], rows[0]["late_most"]) == (1.5, 1.5)
    assert (rows[0]["over_1ms"], rows[0]["over_1s"], rows[0]["over_5s"]) == (2, 2, 0)
    assert len([name for name in rows[0] if name.startswith("over_")]) == len(LATENESS_S)


@pytest.mark.parametrize("view", ["jq_timeline", "jq_delivery", "jq_life"])
async def test_one_id_is_found_by_its_index(journal_database: Database, teller: Teller, view: str) -> None:
    await teller.tell(*life(), *(each for number in range(200) for each in life(f"{number}")))
    query = f"SELECT * FROM {view} WHERE id = 'a' AND source = 'jq'"
    if journal_database.kind == "sqlite":
        plan = await read(journal_database.url, f"EXPLAIN QUERY PLAN {query}")
        looks = [row["detail"] for row in plan if "jq_event" in row["detail"] or row["detail"].startswith("SCAN")]
        assert any("INDEX jq_event_id (id=?" in look for look in looks)
        assert not any(look.startswith("SCAN e") or look.startswith("SCAN d") for look in looks)
        return
    engine = await open_engine(journal_database.url)
    async with engine.connect() as connection:
        if journal_database.kind == "postgresql":
            await connection.execute(text("SET enable_seqscan = off"))  # such a table is soon read
            plan_text = "\n".join((await connection.execute(text(f"EXPLAIN {query}"))).scalars())
            assert "Seq Scan on jq_event_2" not in plan_text
            assert "((id)::text = 'a'::text)" in plan_text
        else:
            found = (await connection.execute(text(f"EXPLAIN {query}"))).mappings().all()
            keys = {row["table"]: row["key"] for row in found if row["table"] in ("e", "d", "f", "jq_event")}
            assert set(keys.values()) == {"jq_event_id"}
    await engine.dispose()
