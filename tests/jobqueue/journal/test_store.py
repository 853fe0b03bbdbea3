"""What every store does, with each database: a batch is written once, whole or not at all, and comes back as it was."""

from __future__ import annotations

import asyncio
import sqlite3
import sys
from collections.abc import AsyncIterator
from contextlib import closing, suppress
from typing import Any

import pytest
from structlog.testing import capture_logs

from buckets.events.codec import Event
from buckets.job import State, Verb
from jobqueue.journal.database import engine_of, open_store
from jobqueue.journal.reading.sql import Sql
from jobqueue.journal.rows import WALKED
from jobqueue.journal.store import Away, Batch, ContentRefused, Overtaken, Position, Store
from jobqueue.journal.url import address
from tests.jobqueue.journal.conftest import Database
from tests.jobqueue.journal.telling import NOW, SOURCE, Teller, event, life, options, read

_JOB = "SELECT * FROM jq_job WHERE source = 'jq' AND id = 'a'"
_EVERY_CHARACTER = "".join(map(chr, range(33, 127)))


@pytest.fixture
async def store(journal_url: str) -> AsyncIterator[Store]:
    store = await open_store(journal_url)
    yield store
    await store.close()


@pytest.fixture
def teller(store: Store) -> Teller:
    return Teller(store)


async def job(url: str, query: str = _JOB) -> dict[str, Any]:
    (row,) = await read(url, query)
    return row


async def test_a_new_journal_has_no_position(store: Store) -> None:
    assert await store.position(SOURCE, 0) is None


async def test_the_position_moves_with_its_batch(store: Store, teller: Teller) -> None:
    await teller.tell(*life())
    assert (
        await store.position(SOURCE, 0)
        == teller.position
        == Position(0, NOW + 3000, 0, 4, "word", NOW * 1000, NOW * 1000)
    )
    assert await store.position(SOURCE, 1) is None


async def test_a_batch_without_events_moves_the_position(store: Store, teller: Teller) -> None:
    await teller.tell(*life())
    assert teller.position
    later = teller.position._replace(time=NOW * 1000 + 5)
    await store.write(Batch(SOURCE, 0, teller.position, later))
    await store.write(Batch(SOURCE, 0, later, later))  # nor need it move
    assert await store.position(SOURCE, 0) == later


async def test_every_column_of_an_event_comes_back(journal_url: str, teller: Teller) -> None:
    told = event(
        Verb.RELEASE,
        State.DELAYED,
        before=State.RESERVED,
        was=NOW + 7,
        next=NOW + 99,
        cause=4,
        attempts=65_535,
        deliveries=2**24 - 1,
        lease=2**56 - 1,
        options=options(worker="wörker".encode(), reason=b"why\x00not"),
    )
    await teller.tell(told)
    (row,) = await read(journal_url, "SELECT * FROM jq_event")
    assert row == {
        **{
            "ms": NOW,
            "source": SOURCE,
            "shard": 0,
            "seq": 0,
            "n": 0,
            "branch": 0,
            "id": "a",
            "life": NOW,
            "topic": "t",
        },
        **{"verb": Verb.RELEASE, "state_before": State.RESERVED, "state_after": State.DELAYED, "at": NOW * 1000},
        **{"was": NOW + 7, "due": NOW + 1000, "next": NOW + 99, "priority": 4, "cause": 4, "attempts": 65_535},
        **{"deliveries": 2**24 - 1, "lease": 2**56 - 1, "instance": "shop1:812:0", "actor": "", "worker": "wörker"},
        **{"reason": "why\ufffdnot", "checksum": told.checksum},
    }


async def test_every_column_of_a_job_comes_back(journal_url: str, teller: Teller) -> None:
    block = options(ttl=b"\0" * 6, worker=b"w1")
    told = event(
        Verb.ADD, State.DELAYED, next=NOW + 1000, step=3, keeps_body=True, options=block, body=b'{"a": "\xc3\xa4"}'
    )
    await teller.tell(told)
    assert await job(journal_url) == {
        **{"source": SOURCE, "id": "a", "shard": 0, "life": NOW, "topic": "t", "state": State.DELAYED, "priority": 4},
        **{"cause": 0, "due": NOW + 1000, "next": NOW + 1000, "ttr": 60_000, "tries": 16, "attempts": 0},
        **{"deliveries": 0, "step": 3, "lease": 0, "keeps_body": 1, "options": block, "worker": "w1", "reason": None},
        **{"body": '{"a": "ä"}', "body_kept": 1, "ms": NOW, "seq": 0, "n": 0, "at": NOW * 1000, "ended": None},
    }


async def test_names_are_compared_by_bytes(journal_url: str, teller: Teller) -> None:
    await teller.tell(*(event(job_id=name, topic=name) for name in ("A", "a", "a~", "AB", "ab")))
    rows = await read(journal_url, "SELECT id, topic FROM jq_job ORDER BY id")
    assert [row["id"] for row in rows] == ["A", "AB", "a", "ab", "a~"]
    assert len(await read(journal_url, "SELECT * FROM jq_job WHERE id = 'a' AND topic = 'a'")) == 1
    assert len(await read(journal_url, "SELECT DISTINCT topic FROM jq_minute")) == 5


async def test_ids_and_topics_of_255_characters_of_every_kind_come_back(journal_url: str, teller: Teller) -> None:
    names = [_EVERY_CHARACTER + "x" * (255 - 94), _EVERY_CHARACTER[::-1] + "'" * (255 - 94), "\\" * 255, "%s" * 127]
    await teller.tell(*(event(job_id=name, topic=name, body=b"1") for name in names))
    for table in ("jq_job", "jq_event"):
        rows = await read(journal_url, f"SELECT id, topic FROM {table}")
        assert sorted((row["id"], row["topic"]) for row in rows) == sorted((name, name) for name in names)


@pytest.mark.parametrize(
    "body",
    [
        rb'"\u0000"',
        rb'"\ud800 \\ \" %s %% \x27"',
        b"\"'; DROP TABLE jq_job; --'\"",
        '"\U0001f600 ä \u2028 \x7f \x1a"'.encode(),
        b'  { "spaces":\t1.50,\r\n "order": 2 } ',
        b'"' + b"ab\\\\'" * 52_428 + b'"',
        b"1e999",
    ],
    ids=["nul", "escapes", "quotes", "unicode", "spaces", "256 KiB", "number"],
)
async def test_a_body_comes_back_byte_for_byte(journal_url: str, teller: Teller, body: bytes) -> None:
    await teller.tell(event(body=body))
    assert (await job(journal_url))["body"].encode() == body


async def test_a_batch_of_many_large_bodies_is_written(journal_url: str, teller: Teller) -> None:
    await teller.tell(*(event(job_id=f"{number}", body=b"'" * 262_144) for number in range(100)))
    assert (await read(journal_url, "SELECT COUNT(*) AS n FROM jq_job WHERE LENGTH(body) = 262144"))[0]["n"] == 100


async def test_what_a_move_does_not_tell_stays_as_it_is(journal_url: str, teller: Teller) -> None:
    added, *others = life()
    await teller.tell(added._replace(has_options=True, options=options(reason=b"r")))
    for told in others:
        await teller.tell(told._replace(has_options=True))
    row = await job(journal_url)
    assert (row["state"], row["ended"], row["body"], row["body_kept"]) == (
        State.FINISHED,
        (NOW + 3000) * 1000,
        '{"n":1}',
        1,
    )
    assert (row["worker"], row["reason"], row["options"]) == ("w1", None, options(worker=b"w1"))


async def test_a_tombstone_leaves_the_options_of_the_job(journal_url: str, teller: Teller) -> None:
    await teller.tell(event(options=options(headers=b"{}")))
    await teller.tell(event(Verb.DELETE, State.DELETED, before=State.DELAYED, at_ms=NOW + 1))
    assert (await job(journal_url))["options"] == options(headers=b"{}")


async def test_a_job_that_has_lost_its_options_has_none(journal_url: str, teller: Teller) -> None:
    await teller.tell(event(options=options(worker=b"w1")))
    await teller.tell(event(Verb.KICK, State.READY, before=State.DEAD, at_ms=NOW + 1))
    row = await job(journal_url)
    assert (row["options"], row["worker"]) == (b"", None)


async def test_a_new_life_begins_with_nothing(journal_url: str, teller: Teller) -> None:
    await teller.tell(event(options=options(worker=b"w1"), body=b"1"))
    await teller.tell(event(Verb.REPLACE, State.READY, created=NOW + 5, at_ms=NOW + 5, has_options=True))
    row = await job(journal_url)
    assert (row["life"], row["options"], row["worker"]) == (NOW + 5, None, None)
    assert (row["body"], row["body_kept"]) == (None, 2)


async def test_a_body_that_was_never_told_is_missed(journal_url: str, teller: Teller) -> None:
    await teller.tell(life()[1])
    row = await job(journal_url)
    assert (row["body"], row["body_kept"]) == (None, 2)
    await teller.tell(life()[2])
    assert (await job(journal_url))["body_kept"] == 2


async def test_a_new_body_that_was_missed_is_not_the_old_one(journal_url: str, teller: Teller) -> None:
    await teller.tell(event(body=b"1"))
    await teller.tell(event(Verb.REWRITE, State.DELAYED, before=State.DELAYED, at_ms=NOW + 1))
    row = await job(journal_url)
    assert (row["body"], row["body_kept"]) == (None, 2)
    await teller.tell(event(Verb.REWRITE, State.DELAYED, before=State.DELAYED, at_ms=NOW + 2, body=b"2"))
    row = await job(journal_url)
    assert (row["body"], row["body_kept"]) == ("2", 1)


async def test_without_bodies_none_is_kept(journal_url: str, store: Store) -> None:
    await Teller(store, bodies=False).tell(*life())
    row = await job(journal_url)
    assert (row["body"], row["body_kept"]) == (None, 0)


async def test_a_row_is_not_overwritten_by_what_is_older(journal_url: str, teller: Teller) -> None:
    added, due, *_ = teller.places(life())
    await teller.write(teller.batch([due]))
    await teller.write(teller.batch([added]))
    row = await job(journal_url)
    assert (row["state"], row["ms"]) == (State.READY, NOW + 1002)
    assert len(await read(journal_url, "SELECT * FROM jq_event")) == 2


@pytest.mark.parametrize("newer", [(NOW, 3, 3), (NOW, 4, 0), (NOW + 1, 0, 0)])
async def test_newer_is_by_ms_then_entry_then_number(
    journal_url: str, teller: Teller, newer: tuple[int, int, int]
) -> None:
    def at(place: tuple[int, int, int], told: Event) -> Batch:
        batch = teller.batch([(*place[:2], told)])
        batch.jobs = [(*row[:24], place[2], *row[25:]) for row in batch.jobs]
        batch.events = [(*row[:4], place[2], *row[5:]) for row in batch.events]
        return batch

    await teller.write(at((NOW, 3, 2), event()))
    await teller.write(at(newer, event(Verb.RUN, State.READY)))
    row = await job(journal_url)
    assert (row["ms"], row["seq"], row["n"], row["state"]) == (*newer, State.READY)


async def test_a_job_that_is_set_aside_keeps_all_else(journal_url: str, teller: Teller) -> None:
    await teller.tell(event(body=b"1"))
    await teller.tell(event(Verb.ASIDE, 0, at_ms=NOW + 9, created=0, topic=""), event(Verb.ASIDE, 0, "new", topic=""))
    row = await job(journal_url)
    assert (row["state"], row["ended"], row["ms"], row["at"]) == (0, (NOW + 9) * 1000, NOW + 9, (NOW + 9) * 1000)
    assert (row["life"], row["topic"], row["body"], row["body_kept"]) == (NOW, "t", "1", 1)
    assert await read(journal_url, "SELECT * FROM jq_job WHERE id = 'new'") == []  # nothing is known of it


async def test_sums_by_minute_are_added_up(journal_url: str, teller: Teller) -> None:
    for number in range(3):
        await teller.tell(*life(f"{number}"))
    await teller.tell(*life("later", start=NOW + 60_000))
    rows = await read(journal_url, "SELECT * FROM jq_minute WHERE verb = 4 ORDER BY minute")
    assert [row["events"] for row in rows] == [3, 1]
    assert (rows[0]["firsts"], round(rows[0]["late_sum"], 6), rows[0]["late_most"]) == (3, 4.5, 1.5)
    assert {name: number for name, number in rows[0].items() if name.startswith("late_") and number == 3} == {
        "late_11": 3  # more than 1 s, at most 5 s
    }


async def test_a_second_writer_is_overtaken(journal_url: str, teller: Teller) -> None:
    other = Teller(await open_store(journal_url))
    await teller.tell(*life())
    for before in (None, teller.position and teller.position._replace(entries=3)):
        other.position = before
        with pytest.raises(Overtaken):
            await other.tell(*life("b"))
    other.position = teller.position
    await other.tell(*life("c"))
    with pytest.raises(Overtaken):
        await teller.tell(*life("d"))
    await other.store.close()
    rows = await read(journal_url, "SELECT DISTINCT id FROM jq_event UNION SELECT id FROM jq_job ORDER BY 1")
    assert [row["id"] for row in rows] == ["a", "c"]


@pytest.mark.parametrize("has_begun", [False, True])
async def test_of_several_writers_at_a_time_one_writes(journal_url: str, has_begun: bool) -> None:
    stores = [await open_store(journal_url) for _ in range(4)]
    tellers = [Teller(store) for store in stores]
    if has_begun:
        await tellers[0].tell()
        for each in tellers:
            each.position = tellers[0].position
    told = (each.tell(*life(f"{number}")) for number, each in enumerate(tellers))
    done = await asyncio.gather(*told, return_exceptions=True)
    # A database may also end one of several that wait for each other: it is to try again, and then is overtaken.
    assert [type(each) for each in done if not isinstance(each, Overtaken | Away)] == [type(None)]
    assert len(await read(journal_url, "SELECT * FROM jq_event")) == 4
    for store in stores:
        await store.close()


async def test_shards_that_add_to_the_same_minutes_do_not_hold_each_other_up(journal_url: str) -> None:
    stores = [await open_store(journal_url) for _ in range(4)]

    async def tell(shard: int, store: Store) -> None:
        teller = Teller(store, shard=shard)
        for number in range(20):
            await teller.tell(*(each for topic in "ab" for each in life(f"{shard}-{number}-{topic}", topic=topic)))

    await asyncio.gather(*(tell(shard, store) for shard, store in enumerate(stores)))
    (row,) = await read(journal_url, "SELECT SUM(events) AS n FROM jq_minute")
    assert row["n"] == 4 * 20 * 2 * 4
    for store in stores:
        await store.close()


async def test_what_is_there_is_passed_over_and_counted_once(journal_url: str, teller: Teller) -> None:
    placed = teller.places([*life(), *life("b")])
    await teller.write(teller.batch(placed[:6]))
    teller.epoch = 1
    await teller.write(teller.batch(placed, may_repeat=True))
    rows = await read(journal_url, "SELECT * FROM jq_event")
    assert (len(rows), {row["branch"] for row in rows}) == (8, {0})
    sums = await read(journal_url, "SELECT verb, events, firsts, late_sum FROM jq_minute ORDER BY verb")
    assert [(row["events"], row["firsts"]) for row in sums] == [(2, 0), (2, 0), (2, 2), (2, 0)]
    assert round(sums[2]["late_sum"], 6) == 3


async def test_another_event_at_the_same_place_is_of_a_branch(journal_url: str, teller: Teller) -> None:
    first = teller.places(life())
    await teller.write(teller.batch(first))
    teller.epoch = 2
    again = [*first[:2], (*first[2][:2], event(Verb.DELETE, State.DELETED, before=State.READY, at_ms=NOW + 2500))]
    for _ in range(2):  # its repetition is there, too
        await teller.write(teller.batch(again, may_repeat=True))
    rows = await read(journal_url, "SELECT ms, verb, branch FROM jq_event ORDER BY ms, branch")
    assert [(row["ms"] - NOW, row["verb"], row["branch"]) for row in rows] == [
        (0, Verb.ADD, 0),
        (1002, Verb.DUE, 0),
        (2500, Verb.POP, 0),
        (2500, Verb.DELETE, 2),
        (3000, Verb.FINISH, 0),
    ]
    (row,) = await read(journal_url, f"SELECT events FROM jq_minute WHERE verb = {int(Verb.DELETE)}")
    assert row["events"] == 1


async def test_walks_do_not_take_the_places_of_events_or_of_each_other(journal_url: str, teller: Teller) -> None:
    await teller.tell(event())
    for number in range(3):
        walked = event(Verb.WALK, State.DELAYED, at_ms=NOW + min(number, 1))
        await teller.write(teller.batch([(NOW, 0, walked)], branch=WALKED, may_repeat=True))
    rows = await read(journal_url, "SELECT branch FROM jq_event ORDER BY branch")
    assert [row["branch"] for row in rows] == [-2, -1, 0]
    assert len(await read(journal_url, "SELECT * FROM jq_minute")) == 1


async def test_gaps_and_what_was_refused_are_numbered(journal_url: str, store: Store) -> None:
    after = Position(0, 5, 6, 1, "word", 1, 2)
    gaps = [(SOURCE, 0, 0, 1, NOW, 0, NOW + 5, 1, 393, NOW * 1000, None)] * 2
    refused = [(SOURCE, 0, NOW, 0, -1, NOW * 1000, "unreadable: '\\'", b"\x00\xff'\\")] * 2
    await store.write(Batch(SOURCE, 0, None, after, gaps=gaps, refused=refused))
    rows = await read(journal_url, "SELECT * FROM jq_gap ORDER BY number")
    assert [tuple(row.values())[1:] for row in rows] == gaps
    assert rows[0]["number"] < rows[1]["number"]
    rows = await read(journal_url, "SELECT * FROM jq_refused ORDER BY number")
    assert [tuple(row.values())[1:] for row in rows] == refused


async def test_content_that_the_database_refuses_undoes_its_batch(
    journal_database: Database, store: Store, teller: Teller
) -> None:
    await teller.tell(*life())
    bad = event(job_id="b", body=b"1")._replace(lease=2**70)
    with pytest.raises(ContentRefused):
        await teller.tell(event(job_id="c"), bad)
    assert await store.position(SOURCE, 0) == teller.position
    assert await read(journal_database.url, "SELECT * FROM jq_job WHERE id <> 'a'") == []
    await teller.tell(event(job_id="c", at_ms=NOW + 9000))  # the rest it takes
    assert len(await read(journal_database.url, "SELECT * FROM jq_job")) == 2


async def test_names_and_words_that_are_too_long_are_refused_by_servers(
    journal_database: Database, teller: Teller
) -> None:
    if journal_database.kind == "sqlite":  # it has no lengths
        return
    for name in ("x" * 256, "ä" if journal_database.kind == "mariadb" else "x\0"):
        with pytest.raises(ContentRefused):
            await teller.tell(event(job_id=name))


async def test_a_killed_server_has_a_batch_whole_or_not_at_all(journal_database: Database, store: Store) -> None:
    server = journal_database.server
    if server is None:
        return
    teller = Teller(store)
    for number in range(5):
        batch = teller.batch(teller.places([each for job in range(500) for each in life(f"{number}-{job}")]))
        writing = asyncio.create_task(store.write(batch))
        await asyncio.sleep(0.02 * number)  # wherever it is then
        await asyncio.to_thread(server.kill)
        failed = (await asyncio.gather(writing, return_exceptions=True))[0]
        assert isinstance(failed, Away | None)
        with pytest.raises(Away):
            await store.position(SOURCE, 0)
        await asyncio.to_thread(server.start)
        found = await store.position(SOURCE, 0)
        assert found in (teller.position, batch.after)
        teller.position = found
        entries = found.entries if found else 0
        (row,) = await read(journal_database.url, "SELECT COUNT(*) AS n FROM jq_event")
        (sums,) = await read(journal_database.url, "SELECT COALESCE(SUM(events), 0) AS n FROM jq_minute")
        assert row["n"] == sums["n"] == entries
        if found != batch.after:
            await teller.write(batch)
    (row,) = await read(journal_database.url, "SELECT COUNT(*) AS n FROM jq_job")
    assert row["n"] == 2500


async def test_a_connection_that_is_closed_by_the_server_is_opened_again(journal_database: Database) -> None:
    server = journal_database.server
    if server is None:
        return
    store = await open_store(journal_database.url)
    teller = Teller(store)
    await teller.tell(*life())
    await asyncio.to_thread(server.kill)
    await asyncio.to_thread(server.start)
    with suppress(Away):  # unless it was known before
        await store.position(SOURCE, 0)
    await teller.tell(*life("b"))
    assert await store.position(SOURCE, 0) == teller.position
    await store.close()


async def test_a_server_that_does_not_answer_counts_as_away(
    journal_database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = journal_database.server
    if server is None:
        return
    monkeypatch.setattr("jobqueue.journal.stores.SHORTEST_S", 0.3)
    store = await open_store(journal_database.url)
    teller = Teller(store)
    await teller.tell(*life())
    server.freeze()
    try:
        with pytest.raises(Away):
            await teller.tell(*life("b"))
    finally:
        server.thaw()
    await store.close()


_SLOW = {
    "postgresql": [
        "CREATE FUNCTION slow() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN PERFORM pg_sleep(0.5); RETURN NEW; END $$",
        "CREATE TRIGGER slow BEFORE INSERT ON jq_job FOR EACH ROW WHEN (NEW.id = 'slow') EXECUTE FUNCTION slow()",
    ],
    "mariadb": ["CREATE TRIGGER slow BEFORE INSERT ON jq_job FOR EACH ROW SET @slept = SLEEP((NEW.id = 'slow') * 0.5)"],
}


async def test_a_batch_that_takes_long_is_waited_for_in_the_end_while_others_are_written(
    journal_database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = journal_database.server
    if server is None:
        return
    monkeypatch.setattr("jobqueue.journal.stores.SHORTEST_S", 0.2)
    sql = Sql(journal_database.url)
    await sql.open()
    for statement in _SLOW[journal_database.kind]:
        server.sql(statement, journal_database.url.split("/")[3].split("?")[0])
    slow, quick = Teller(sql), Teller(sql, shard=1)

    async def others() -> None:
        for number in range(10):
            await quick.tell(*life(f"{number}"))
            await asyncio.sleep(0.1)

    with capture_logs() as logs:
        async with asyncio.timeout(20):
            await asyncio.gather(slow.tell(*life("slow")), others())
    told = {(line["waited_s"], line["next_s"]) for line in logs if line["event"] == "database.slow"}
    assert told >= {(0.2, 0.4), (0.4, 0.8)}
    assert await sql.position(SOURCE, 0) == slow.position
    await sql.close()


async def test_a_writer_that_is_cancelled_leaves_nothing_half_done(journal_url: str, store: Store) -> None:
    teller = Teller(store)
    batch = teller.batch(teller.places([each for job in range(500) for each in life(f"{job}")]))
    for pause in (0.0, 0.005, 0.01, 0.02):
        writing = asyncio.create_task(store.write(batch))
        await asyncio.sleep(pause)
        writing.cancel()
        await asyncio.gather(writing, return_exceptions=True)
        found = await store.position(SOURCE, 0)
        (row,) = await read(journal_url, "SELECT COUNT(*) AS n FROM jq_event")
        assert row["n"] == (found.entries if found else 0)
        if found:
            return
    await teller.write(batch)


@pytest.mark.parametrize("kept", ["ends", "none"])
async def test_fewer_events_are_kept_on_demand_and_all_are_counted(journal_url: str, store: Store, kept: Any) -> None:
    await Teller(store, events=kept).tell(*life(), event(Verb.PAUSE, 0, "", created=0))
    rows = await read(journal_url, "SELECT verb FROM jq_event ORDER BY verb")
    assert [row["verb"] for row in rows] == ([Verb.ADD, Verb.FINISH, Verb.PAUSE] if kept == "ends" else [])
    assert (await job(journal_url))["state"] == State.FINISHED
    assert (await read(journal_url, "SELECT SUM(events) AS n FROM jq_minute"))[0]["n"] == 5


_WRITER = """
import asyncio, sys
from jobqueue.journal.database import open_store
from tests.jobqueue.journal.telling import Teller, life

async def main() -> None:
    teller = Teller(await open_store(sys.argv[1]))
    teller.position = await teller.store.position("jq", 0)
    for number in range(1000):
        start = 1_700_000_000_000 + 10 * (teller.position.entries if teller.position else 0)
        await teller.tell(*(each for job in range(100) for each in life(f"{start}-{job}", start=start + job)))
        print(number, flush=True)

asyncio.run(main())
"""


async def test_a_killed_writer_of_a_file_leaves_whole_batches(sqlite_url: str) -> None:
    for kill in range(3):
        writer = await asyncio.create_subprocess_exec(
            *(sys.executable, "-c", _WRITER, sqlite_url), stdout=asyncio.subprocess.PIPE
        )
        assert writer.stdout
        await writer.stdout.readline()
        await asyncio.sleep(0.01 * kill)  # wherever it is then
        writer.kill()
        await writer.wait()
        (events,) = await read(sqlite_url, "SELECT COUNT(*) AS n, COUNT(*) % 400 AS rest FROM jq_event")
        (sums,) = await read(sqlite_url, "SELECT SUM(events) AS n FROM jq_minute")
        (position,) = await read(sqlite_url, "SELECT entries AS n FROM jq_position")
        assert events["rest"] == 0
        assert events["n"] == sums["n"] == position["n"]


async def test_a_file_that_another_writes_for_too_long_counts_as_away(
    sqlite_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("jobqueue.journal.stores.sqlite.LOCKED_S", 0.1)
    store = await open_store(sqlite_url)
    teller = Teller(store)
    other = sqlite3.connect(sqlite_url.removeprefix("sqlite:///"), isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    with pytest.raises(Away, match="locked"):
        await teller.tell(*life())
    other.close()
    await teller.tell(*life())
    await store.close()


async def test_a_transaction_whose_task_is_cancelled_keeps_no_other_one_waiting(sqlite_url: str) -> None:
    engine = await engine_of(address(sqlite_url))
    async with engine.connect() as connection:
        driver = (await connection.get_raw_connection()).driver_connection
        assert driver
        await driver.execute("CREATE TABLE orders (id INT)")
        cursor = await driver.executemany("INSERT INTO orders VALUES (?)", [(1,)])
        await connection.invalidate()  # as SQLAlchemy does when the task is cancelled
    with closing(sqlite3.connect(address(sqlite_url).path, timeout=0)) as other:
        other.execute("INSERT INTO orders VALUES (2)")
        assert other.execute("SELECT id FROM orders").fetchall() == [(2,)]
    del cursor
    await engine.dispose()
