"""What the stores have in common: which rows a batch writes, and statements that write them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from sqlalchemy import Table

from jobqueue.journal import tables
from jobqueue.journal.rows import less
from jobqueue.journal.store import Batch, Position, Row


def columns(table: Table) -> list[str]:
    """The names of a table's columns, except for `number`, which the database assigns."""
    return [column.name for column in table.columns if column.name != "number"]


EVENT = columns(tables.event)
JOB = columns(tables.job)
SCHEDULE = columns(tables.schedule)
MINUTE = columns(tables.minute)
MINUTE_KEY = [column.name for column in tables.minute.primary_key]
_PLACE = [EVENT.index(name) for name in ("ms", "seq", "n")]
_BRANCH, _CHECKSUM = EVENT.index("branch"), EVENT.index("checksum")
_LIFE, _BODY, _KEPT = JOB.index("life"), JOB.index("body"), JOB.index("body_kept")


class Jobs(NamedTuple):
    """The rows of jobs in a batch, by how they are written."""

    told: list[Row]
    """Written if they are newer than the existing row."""
    bodiless: list[Row]
    """The rows of `told` whose job has a new body that the journal missed."""
    aside: list[Row]
    """Jobs that were set aside: the rest of the row stays, as nothing else is known."""


def split(jobs: Sequence[Row]) -> Jobs:
    told = [row for row in jobs if row[_LIFE]]
    aside = [row for row in jobs if not row[_LIFE]] if len(told) < len(jobs) else []
    return Jobs(told, [row for row in told if row[_KEPT] == 2 and row[_BODY] is None], aside)


def of_job(row: Row, *names: str) -> Row:
    """Some columns of a job's row."""
    return tuple(row[JOB.index(name)] for name in names)


def job_changes(new: str) -> dict[str, str]:
    """What a new row of a job changes in the existing row, by column. `new`: a pattern for the name of a column of the
    new row in the statement; the new row has 2 in `body_kept` if it does not know the body."""
    same = f"{new} = jq_job.life".format("life")
    changes = {name: new.format(name) for name in JOB if name not in ("source", "id")}
    for name in ("options", "worker", "reason"):
        # A death because of an ended lease has a reason of its own, and its event has no options.
        unknown = f"{new.format('options')} IS NULL AND {new.format(name)} IS NULL"
        changes[name] = f"CASE WHEN {unknown} AND {same} THEN jq_job.{name} ELSE {changes[name]} END"
    for name in ("body", "body_kept"):
        changes[name] = (
            f"CASE WHEN {new.format('body_kept')} = 2 AND {same} THEN jq_job.{name} ELSE {new.format(name)} END"
        )
    return changes


def schedule_changes(new: str) -> dict[str, str]:
    """What a new row of a schedule changes in the existing row, by column."""
    return {name: new.format(name) for name in SCHEDULE if name not in ("source", "name")}


def minute_changes(new: str, greatest: str) -> dict[str, str]:
    """What new sums change in the existing ones, by column. `greatest`: the database's function for the larger of two
    values."""
    names = [name for name in MINUTE if name not in MINUTE_KEY]
    changes = {name: f"jq_minute.{name} + {new.format(name)}" for name in names}
    changes["late_most"] = f"{greatest}(jq_minute.late_most, {new.format('late_most')})"
    return changes


def assignments(changes: dict[str, str]) -> str:
    return ", ".join(f"{name} = {value}" for name, value in changes.items())


class Statements:
    """Statements for databases with numbered placeholders and `ON CONFLICT`: SQLite and PostgreSQL.

    `mark` begins a placeholder, such as `$` in `$1`; `greatest` is the database's function for the larger of two
    values. The values of a statement are a row, or, in the statements of jobs, the columns that `of_job` selects.
    """

    def __init__(self, mark: str, greatest: str) -> None:
        def places(first: int, last: int) -> str:
            return ", ".join(f"{mark}{number}" for number in range(first, last + 1))

        def newer(table: str) -> str:
            return f"WHERE (excluded.ms, excluded.seq, excluded.n) > ({table}.ms, {table}.seq, {table}.n)"

        self._mark = mark
        new, insert = "excluded.{}", self.insert
        key = f"source = {mark}1 AND shard = {mark}2"
        self.position = f"SELECT {', '.join(Position._fields)} FROM jq_position WHERE {key}"
        self.found = f"{insert('jq_position', columns(tables.position))} ON CONFLICT DO NOTHING"
        moved = ", ".join(f"{name} = {mark}{number}" for number, name in enumerate(Position._fields, 3))
        before = " AND ".join(f"{name} = {mark}{number}" for number, name in enumerate(Position._fields[:5], 10))
        self.moved = f"UPDATE jq_position SET {moved} WHERE {key} AND {before}"
        self.known = (
            "SELECT ms, seq, n, branch, checksum FROM jq_event "
            f"WHERE ms BETWEEN {mark}1 AND {mark}2 AND source = {mark}3 AND shard = {mark}4"
        )
        self.changed_jobs = f"ON CONFLICT (source, id) DO UPDATE SET {assignments(job_changes(new))} {newer('jq_job')}"
        self.bodiless = (
            f"UPDATE jq_job SET body = NULL, body_kept = 2 WHERE source = {mark}1 AND id = {mark}2 "
            f"AND life = {mark}3 AND (ms, seq, n) < ({places(4, 6)})"
        )
        self.aside = (
            f"UPDATE jq_job SET state = 0, ms = {mark}3, seq = {mark}4, n = {mark}5, at = {mark}6, ended = {mark}6 "
            f"WHERE source = {mark}1 AND id = {mark}2 AND (ms, seq, n) < ({places(3, 5)})"
        )
        self.schedules = (
            f"{insert('jq_schedule', SCHEDULE)} ON CONFLICT (source, name) "
            f"DO UPDATE SET {assignments(schedule_changes(new))} {newer('jq_schedule')}"
        )
        self.minutes = (
            f"{insert('jq_minute', MINUTE)} ON CONFLICT ({', '.join(MINUTE_KEY)}) "
            f"DO UPDATE SET {assignments(minute_changes(new, greatest))}"
        )

    def insert(self, table: str, names: Sequence[str], instead: Mapping[str, str] | None = None) -> str:
        """Inserts a row, with a placeholder for each value. `instead`: by column, an expression in place of the
        placeholder."""
        values = [(instead or {}).get(name, f"{self._mark}{number}") for number, name in enumerate(names, 1)]
        return f"INSERT INTO {table} ({', '.join(names)}) VALUES ({', '.join(values)})"


class Known(NamedTuple):
    """An event that the database already has."""

    ms: int
    seq: int
    n: int
    branch: int
    checksum: int


def span(batch: Batch) -> tuple[int, int]:
    """The first and the last ms of the events of a batch."""
    times = [row[_PLACE[0]] for row in batch.events]
    return min(times), max(times)


def without_known(batch: Batch, known: Iterable[Known]) -> tuple[list[Row], list[Row]]:
    """The events and the minutes of a batch that may repeat events, without the events that the database already has,
    at the same place with the same checksum. An event that differs from the one at its place gets a branch of its
    own."""
    there: dict[tuple[int, ...], dict[int, int]] = defaultdict(dict)
    for each in known:
        there[each.ms, each.seq, each.n, each.branch < 0][each.branch] = each.checksum
    fresh: list[Row] = []
    repeated: list[Row] = []
    for row in batch.events:
        is_walk = row[_BRANCH] < 0
        taken = there.get((*(row[at] for at in _PLACE), is_walk), {})
        if row[_CHECKSUM] in taken.values():
            repeated.append(row)
        elif taken:
            branch = min(taken) - 1 if is_walk else batch.after.epoch
            fresh.append((*row[:_BRANCH], branch, *row[_BRANCH + 1 :]))
        else:
            fresh.append(row)
    return fresh, less(batch.minutes, repeated)
