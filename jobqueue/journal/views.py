"""The views of a journal, which users' tools read. Tables may change from version to version, views stay.

`time` is a timestamp of the database, in UTC; other times are numbers since the epoch, in the units of the tables;
spans are seconds. Events that Redis took back when it went back (choices.py) are only in `jq_timeline`, where they are
marked.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import IntEnum
from typing import Any

from buckets.job import Cause, State, Verb
from buckets.layout import SCHEDULE
from jobqueue.journal.choices import is_taken_back
from jobqueue.metrics.process import LATENESS_S

WORDS: dict[Verb, str] = {
    Verb.ADD: "added",
    Verb.REPLACE: "replaced",
    Verb.DUE: "fell due",  # but see `_what`
    Verb.POP: "delivered",
    Verb.UNPOP: "delivery undone",
    Verb.TOUCH: "touched",
    Verb.RELEASE: "released",
    Verb.BURY: "buried",
    Verb.FINISH: "finished",
    Verb.DELETE: "deleted",
    Verb.KICK: "kicked",
    Verb.RUN: "made due",
    Verb.UPDATE: "updated",
    Verb.REWRITE: "rewritten",
    Verb.PURGE: "purged",
    Verb.TRIM: "trimmed",
    Verb.TAKE: "taken",
    Verb.EXPORT: "moved away",
    Verb.IMPORT: "moved here",
    Verb.MEND: "mended",
    Verb.ASIDE: "set aside",
    Verb.RESTORE: "restored",
    Verb.PAUSE: "paused",
    Verb.RESUME: "resumed",
    Verb.WALK: "seen",
    Verb.VANISHED: "vanished",
    Verb.SCHEDULE: "scheduled",
    Verb.OCCUR: "occurred",
    Verb.UNSCHEDULE: "unscheduled",
}
"""What happened, by verb."""
_NO_STATE = {0: "none"}
_DELIVERED = f"({int(Verb.POP)}, {int(Verb.TAKE)})"
_UNMOVED = f"({int(Verb.TOUCH)}, {int(Verb.WALK)})"  # these leave a reserved job as it is
_TIMES = {
    "sqlite": "strftime('%Y-%m-%d %H:%M:%f', {} / 1000000.0, 'unixepoch')",
    "postgresql": "to_timestamp({} / 1000000.0)",
    "mysql": "TIMESTAMPADD(MICROSECOND, {}, TIMESTAMP'1970-01-01 00:00:00')",
}
"""SQL that makes a timestamp from us, by database."""
_SECONDS = {"sqlite": "({}) / 1000000.0", "postgresql": "({}) / 1000000::float8", "mysql": "({}) / 1000000e0"}
"""SQL that makes seconds from us."""
_SUM = {
    "sqlite": "SUM({})",
    "postgresql": "CAST(SUM({}) AS BIGINT)",
    "mysql": "CAST(SUM({}) AS SIGNED)",
}
"""SQL that sums integers to an integer."""


def statements(kind: str) -> list[str]:
    """The statements that create the views, replacing the existing ones."""
    views = {
        "jq_timeline": _timeline(kind),
        "jq_delivery": _delivery(kind),
        "jq_life": _life(kind),
        "jq_lateness": _lateness(kind),
        "jq_timetable": _timetable(kind),
    }
    if kind == "mysql":
        return [f"CREATE OR REPLACE VIEW {name} AS {query}" for name, query in views.items()]
    # SQLite has no such statement, and PostgreSQL's cannot replace a view that has other columns.
    return [
        *(f"DROP VIEW IF EXISTS {name}" for name in reversed(views)),
        *(f"CREATE VIEW {name} AS {query}" for name, query in views.items()),
    ]


def _words(column: str, words: Mapping[Any, str]) -> str:
    cases = " ".join(f"WHEN {int(number)} THEN '{word}'" for number, word in words.items())
    return f"CASE {column} {cases} END"


def _words_of(column: str, numbers: type[IntEnum], others: Mapping[int, str]) -> str:
    return _words(column, {**others, **{int(each): each.name.lower() for each in numbers}})


def _what(event: str) -> str:
    """What happened, in words."""
    return (
        f"CASE WHEN {event}.verb = {int(Verb.DUE)} AND {event}.state_before = {int(State.RESERVED)} THEN 'lease over' "
        f"WHEN {event}.verb = {int(Verb.DUE)} AND {event}.state_after = {int(State.DEAD)} THEN 'ttl over' "
        f"ELSE {_words(f'{event}.verb', WORDS)} END"
    )


_LIFE = (
    f"CASE WHEN e.verb <> {int(Verb.ASIDE)} THEN e.life ELSE (SELECT MAX(p.life) FROM jq_event p "
    "WHERE p.id = e.id AND p.source = e.source AND p.ms <= e.ms) END"
)
"""The life of an event. An event that only says that the job was set aside belongs to the newest life."""


def _timeline(kind: str) -> str:
    return (
        f"SELECT e.source, e.shard, e.id, {_LIFE} AS life, {_TIMES[kind].format('e.at')} AS time, e.at, e.topic, "
        f"{_what('e')} AS what, {_words_of('e.state_before', State, _NO_STATE)} AS state_before, "
        f"{_words_of('e.state_after', State, _NO_STATE)} AS state_after, e.due, e.next, e.was, e.priority, "
        f"{_words_of('e.cause', Cause, {})} AS cause, e.attempts, e.deliveries, e.lease, e.instance, e.actor, "
        f"e.worker, e.reason, e.ms, e.seq, e.n, e.branch, "
        f"CASE WHEN {is_taken_back('e')} THEN 1 ELSE 0 END AS forgotten FROM jq_event e"
    )


def _delivery(kind: str) -> str:
    at_most_once = f"d.state_after = {int(State.FINISHED)}"
    ended = f"CASE WHEN {at_most_once} THEN d.at ELSE f.at END"
    is_first, seconds = "d.deliveries = 1", _SECONDS[kind].format
    return (
        f"SELECT d.source, d.shard, d.id, d.life, {_TIMES[kind].format('d.at')} AS time, d.topic, d.priority, "
        "d.deliveries AS delivery, d.attempts AS attempt, d.lease, d.due, "
        f"CASE WHEN d.state_before = {int(State.READY)} THEN d.was END AS ready, d.at AS popped, "
        f"{ended} AS ended, CASE WHEN {at_most_once} THEN 'at most once' ELSE {_what('f')} END AS ending, "
        f"CASE WHEN {is_first} THEN {seconds('d.at - d.due * 1000')} END AS late, "
        f"CASE WHEN d.state_before = {int(State.READY)} THEN {seconds('d.at - d.was * 1000')} END AS waited, "
        f"{seconds('f.at - d.at')} AS worked, d.worker, d.instance, f.reason, d.ms, d.seq, d.n "
        "FROM jq_event d LEFT JOIN jq_event f ON f.id = d.id AND f.source = d.source AND f.life = d.life "
        f"AND f.lease = d.lease AND f.ms >= d.ms AND f.state_before = {int(State.RESERVED)} "
        f"AND f.verb NOT IN {_UNMOVED} AND NOT {is_taken_back('f')} "
        f"WHERE d.verb IN {_DELIVERED} AND NOT {is_taken_back('d')}"
    )


def _life(kind: str) -> str:
    ended = (int(State.FINISHED), int(State.DELETED), 0)
    ends = f"e.state_after IN {ended}"
    gone = {Verb.EXPORT, Verb.ASIDE, Verb.VANISHED, Verb.PURGE, Verb.TRIM}
    endings = _words("e.verb", {verb: WORDS[verb] for verb in sorted(gone)}).removesuffix("END")
    ending = f"{endings} ELSE {_words_of('e.state_after', State, {})} END"
    first, total = f"e.verb IN {_DELIVERED} AND e.deliveries = 1", _SUM[kind].format
    is_lease_over = f"e.verb = {int(Verb.DUE)} AND e.state_before = {int(State.RESERVED)}"
    return (
        "SELECT l.source, l.shard, l.id, l.life, "
        f"{_TIMES[kind].format('(l.life * 1000)')} AS time, MAX(l.topic) AS topic, MIN(l.at) AS first_told, "
        f"MAX(l.first_popped) AS first_popped, MAX(l.late) AS late, {total('l.delivered')} AS deliveries, "
        f"{total('l.lease_over')} AS leases_over, {total('l.died')} AS deaths, MAX(l.ended) AS ended, "
        "MAX(l.ending) AS ending "
        f"FROM (SELECT e.source, e.shard, e.id, {_LIFE} AS life, e.topic, e.at, "
        f"CASE WHEN {first} THEN e.at END AS first_popped, "
        f"CASE WHEN {first} THEN {_SECONDS[kind].format('e.at - e.due * 1000')} END AS late, "
        f"CASE WHEN e.verb IN {_DELIVERED} THEN 1 WHEN e.verb = {int(Verb.UNPOP)} THEN -1 ELSE 0 END AS delivered, "
        f"CASE WHEN {is_lease_over} THEN 1 ELSE 0 END AS lease_over, "
        f"CASE WHEN e.state_after = {int(State.DEAD)} AND e.verb NOT IN {_REPEATED} THEN 1 ELSE 0 END AS died, "
        f"CASE WHEN {ends} THEN e.at END AS ended, CASE WHEN {ends} THEN {ending} END AS ending "
        f"FROM jq_event e WHERE e.id > '' AND e.id < '{SCHEDULE}' AND NOT {is_taken_back('e')}) l "
        "GROUP BY l.source, l.shard, l.id, l.life"
    )


_REPEATED = f"({', '.join(str(int(verb)) for verb in (Verb.WALK, Verb.RESTORE, Verb.IMPORT, Verb.MEND))})"
"""Verbs whose events repeat the state that a job already had."""


def _span(seconds: float) -> str:
    """A span as part of a column's name."""
    for unit, size in (("s", 1), ("ms", 0.001)):
        if seconds >= size:
            return f"{round(seconds / size)}{unit}"
    return f"{round(seconds * 1e6)}us"


def _timetable(kind: str) -> str:
    return (
        f"SELECT source, shard, name, {_TIMES[kind].format('revision')} AS time, topic, "
        "NULLIF(next, 0) AS next, NULLIF(last, 0) AS last, gone, definition, ms, seq, n FROM jq_schedule"
    )


def _lateness(kind: str) -> str:
    places, total = range(1, len(LATENESS_S) + 1), _SUM[kind].format
    over = ", ".join(
        f"{total(' + '.join(f'late_{place}' for place in places[number:]))} AS over_{_span(bound)}"
        for number, bound in enumerate(LATENESS_S)
    )
    return (
        f"SELECT source, minute, {_TIMES[kind].format('(minute * 60000000)')} AS time, topic, "
        f"{total('events')} AS deliveries, {total('firsts')} AS first_deliveries, "
        "CASE WHEN SUM(firsts) > 0 THEN SUM(late_sum) / SUM(firsts) END AS late_average, MAX(late_most) AS late_most, "
        f"{over} FROM jq_minute WHERE verb IN {_DELIVERED} GROUP BY source, minute, topic"
    )
