"""From events to rows: one of each job, with all that a batch tells of it, and sums by minute."""

from __future__ import annotations

from typing import Any

import pytest

from buckets.events.codec import Entry, Event, read_all
from buckets.job import State, Verb
from jobqueue.journal.rows import Collector, Rows, less, minutes_of, words_of
from jobqueue.journal.statements import EVENT, JOB, MINUTE
from tests.jobqueue.journal.telling import NOW, event, life, options

_ENTRY = Entry(Verb.ADD, False, NOW * 1000, "shop1:812:0", "ann")


def rows_of(*events: Any, **kept: Any) -> Rows:
    """Rows of one entry."""
    collector = Collector("jq", 3, **kept)
    collector.add(NOW, 7, _ENTRY, events)
    return collector.rows()


def jobs_of(*events: Any, **kept: Any) -> list[dict[str, Any]]:
    return [dict(zip(JOB, row, strict=True)) for row in rows_of(*events, **kept).jobs]


def sums_of(*events: Event) -> list[dict[str, Any]]:
    return [dict(zip(MINUTE, row, strict=True)) for row in rows_of(*events).minutes]


def test_events_have_the_place_of_their_entry() -> None:
    collector = Collector("jq", 3)
    collector.add(NOW, 7, _ENTRY, life()[:2])
    collector.add(NOW, 8, _ENTRY, life()[2:], 5)
    rows = [dict(zip(EVENT, row, strict=True)) for row in collector.rows().events]
    assert [(row["ms"], row["seq"], row["n"]) for row in rows] == [
        (NOW, 7, 0),
        (NOW, 7, 1),
        (NOW, 8, 5),
        (NOW, 8, 6),
    ]
    assert {(row["source"], row["shard"], row["instance"], row["actor"]) for row in rows} == {
        ("jq", 3, "shop1:812:0", "ann")
    }


def test_a_job_has_one_row_with_all_that_its_events_tell() -> None:
    (row,) = jobs_of(*(each._replace(has_options=True) for each in life()))
    assert (row["state"], row["ended"], row["n"]) == (State.FINISHED, (NOW + 3000) * 1000, 3)
    assert (row["body"], row["body_kept"], row["worker"]) == ('{"n":1}', 1, "w1")


def test_a_new_life_in_a_batch_takes_nothing_of_the_one_before() -> None:
    (row,) = jobs_of(*life(), event(created=NOW + 1, has_options=True))
    assert (row["life"], row["ended"], row["options"], row["body"], row["body_kept"]) == (NOW + 1, None, None, None, 1)


@pytest.mark.parametrize(
    ("after", "is_ended"), [(State.DEAD, False), (State.READY, False), (State.FINISHED, True), (State.DELETED, True)]
)
def test_a_job_has_ended_when_it_is_finished_or_deleted(after: State, is_ended: bool) -> None:
    (row,) = jobs_of(event(Verb.EXPORT, after))
    assert (row["ended"] is not None) is is_ended


def test_a_job_that_is_set_aside_keeps_what_the_batch_has_told() -> None:
    (row,) = jobs_of(event(body=b"1"), event(Verb.ASIDE, 0, created=0, at_ms=NOW + 5))
    assert (row["life"], row["state"], row["body"], row["ended"], row["n"]) == (NOW, 0, "1", (NOW + 5) * 1000, 1)
    (row,) = jobs_of(event(Verb.ASIDE, 0, created=0), event(created=NOW + 5, at_ms=NOW + 5))
    assert (row["life"], row["state"], row["ended"]) == (NOW + 5, State.DELAYED, None)
    (row,) = jobs_of(event(Verb.VANISHED, 0))
    assert row["life"] == 0


def test_a_rewritten_job_without_its_body_has_missed_it() -> None:
    rewritten = event(Verb.REWRITE)
    assert [row["body_kept"] for row in jobs_of(event(body=b"1"), rewritten)] == [2]
    (row,) = jobs_of(event(body=b"1"), rewritten, event(Verb.RUN, State.READY))
    assert (row["body"], row["body_kept"]) == (None, 2)
    (row,) = jobs_of(rewritten, event(Verb.REWRITE, body=b"2"))
    assert (row["body"], row["body_kept"]) == ("2", 1)
    assert [row["body_kept"] for row in jobs_of(rewritten, bodies=False)] == [0]


def test_what_is_of_a_topic_is_of_no_job() -> None:
    rows = rows_of(event(Verb.PAUSE, 0, "", created=0))
    assert (len(rows.events), rows.jobs, len(rows.minutes)) == (1, [], 1)


def test_events_that_cannot_be_read_or_stored_are_refused_and_the_rest_is_not() -> None:
    rows = rows_of((b"x", b"\1\2", "a value of 2 bytes"), event(body=b"\xed\xa0\x80"), event(job_id="b", body=b"1"))
    assert [row[:5] for row in rows.refused] == [("jq", 3, NOW, 7, 0), ("jq", 3, NOW, 7, 1)]
    assert [row[6:] for row in rows.refused] == [
        ("a value of 2 bytes", b"x\0\1\2"),
        ("a body that is not UTF-8", b"a\0\xed\xa0\x80"),
    ]
    assert [row[JOB.index("id")] for row in rows.jobs] == ["b"]
    assert [row[EVENT.index("n")] for row in rows.events] == [2]


def test_what_the_stream_has_is_read_to_rows() -> None:
    head = b"\1\1\1" + (NOW * 1000).to_bytes(7, "big") + b"shop1:812:0 ann"
    times = b"".join(ms.to_bytes(6, "big") for ms in (NOW, NOW + 1000, NOW + 1000))
    record = bytes((1, 39 - 5, 1, 4, 9, 1)) + times + (60_000).to_bytes(4, "big") + (16).to_bytes(2, "big") + b"\0" * 4
    entry, events = read_all([b"m", head, b"a", record + b"t" + b'{"n":1}'])
    collector = Collector("jq", 0)
    collector.add(NOW, 0, entry, events)
    (row,) = (dict(zip(JOB, row, strict=True)) for row in collector.rows().jobs)
    assert (row["id"], row["topic"], row["life"], row["due"], row["ttr"], row["tries"], row["body"]) == (
        *("a", "t", NOW, NOW + 1000, 60_000, 16),
        '{"n":1}',
    )


def test_first_deliveries_are_counted_by_their_lateness() -> None:
    def pop(late_us: int, **fields: Any) -> Event:
        seconds, rest_us = divmod(late_us, 1_000_000)  # all in one minute
        told = event(Verb.POP, State.RESERVED, due=NOW - seconds * 1000, **{"deliveries": 1, **fields})
        return told._replace(at=NOW * 1000 + rest_us)

    (row,) = sums_of(pop(-5), pop(500), pop(501), pop(1_000_000), pop(60_000_001), pop(99, deliveries=2))
    assert (row["events"], row["firsts"], row["late_sum"], row["late_most"]) == (6, 5, 61.001002, 60.000001)
    assert {name for name, number in row.items() if name.startswith("late_") and number == 1} >= {"late_1", "late_10"}
    assert (row["late_0"], row["late_1"], row["late_10"], row["late_11"], row["late_14"]) == (2, 1, 1, 0, 1)


def test_sums_are_by_minute_topic_verb_and_state() -> None:
    rows = sums_of(event(), event(topic="u"), event(after=State.READY), event(at_ms=NOW + 60_000), event())
    assert [(row["minute"] - NOW // 60_000, row["topic"], row["state"], row["events"]) for row in rows] == [
        (0, "t", State.DELAYED, 2),
        (0, "t", State.READY, 1),
        (0, "u", State.DELAYED, 1),
        (1, "t", State.DELAYED, 1),
    ]


def test_walks_are_not_counted() -> None:
    assert sums_of(event(Verb.WALK), event(Verb.VANISHED, 0)) == []


def test_sums_less_what_was_counted_are_those_of_the_rest() -> None:
    rows = rows_of(*life(), *life("b"), event(topic="u")).events
    assert less(minutes_of(rows), rows[:4]) == minutes_of(rows[4:])
    assert less(minutes_of(rows), rows) == []


def test_ends_are_beginnings_ends_deaths_and_what_is_of_topics() -> None:
    others = [event(Verb.BURY, State.DEAD), event(Verb.KICK, State.READY), event(Verb.TOUCH, State.RESERVED)]
    topic = event(Verb.RESUME, 0, "", created=0)
    rows = rows_of(*life(), *others, topic, event(Verb.ASIDE, 0), events="ends")
    verbs = [row[EVENT.index("verb")] for row in rows.events]
    assert verbs == [Verb.ADD, Verb.FINISH, Verb.BURY, Verb.RESUME, Verb.ASIDE]
    assert sum(row[MINUTE.index("events")] for row in rows.minutes) == 9


def test_what_was_counted_and_is_not_kept_is_not_counted_again() -> None:
    for kept, number in (("none", 0), ("ends", 2), ("all", 4)):
        rows = rows_of(*life(), events=kept, counted=(NOW, 7))
        assert sum(row[MINUTE.index("events")] for row in rows.minutes) == number
        rows = rows_of(*life(), events=kept, counted=(NOW, 6))
        assert sum(row[MINUTE.index("events")] for row in rows.minutes) == 4


def test_words_are_cut_to_their_columns() -> None:
    worker, reason = words_of(options(worker=b"\xc3\xa4" * 300, reason=b"\xff" + b"r" * 2000), False)
    assert worker == "ä" * 255
    assert reason == "\ufffd" + "r" * 1023
    assert words_of(options(headers=b"{}"), False) == (None, None)
    assert words_of(None, True) == (None, "lease ended")
