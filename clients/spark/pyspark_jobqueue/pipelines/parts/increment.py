"""The rows of an input that are new since the last run: rows above a watermark, which is stored in a file.

The upper bound is determined first. The rows, the watermark and the ids at the watermark are all read up to this bound,
so rows that arrive during the run are left to the next run. A row that arrives after a row with a higher value is
missed: the column must never go backwards.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from pyspark_jobqueue.errors import BadOption, JobQueueError

_VERSION = 1


@dataclass(frozen=True)
class Watermark:
    """The highest value of a column that was sent.

    `ids` are the ids of the rows with exactly this value; they show which rows that arrive later with the same value
    are new. If there were too many ids to store, `ids` is empty, and all rows at the watermark are sent again, which
    their ids make harmless.
    """

    topic: str
    column: str
    type: str
    value: str
    ids: tuple[str, ...] = ()


@contextlib.contextmanager
def lock(path: str) -> Iterator[None]:
    """Lock a file against other runs. Raises BadOption if the lock file cannot be opened, JobQueueError while another
    run holds the lock."""
    import fcntl  # noqa: PLC0415 - Windows has none, and the other pipelines need none

    lock = f"{path}.lock"
    try:
        descriptor = os.open(lock, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o644)
    except OSError as error:
        raise BadOption(f"--state: {lock} cannot be opened: {error.strerror}") from None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)  # the kernel releases it when the process dies
        yield
    except BlockingIOError:
        raise JobQueueError(f"another run is using --state {path}; wait until it has ended") from None
    finally:
        os.close(descriptor)


def load_watermark(path: str, topic: str, column: str) -> Watermark | None:
    """The watermark of the last run, or None before the first run. Raises BadOption for a file that is invalid, or
    belongs to another topic or column."""
    try:
        stored = json.loads(Path(path).read_text())
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as error:
        raise BadOption(f"--state {path} cannot be read: {error}") from None
    if not isinstance(stored, dict) or stored.get("pipeline") != "emit":
        raise BadOption(f"--state {path} is not a state file of emit")
    if stored.get("version") != _VERSION:
        raise BadOption(f"--state {path} has version {stored.get('version')!r}; this emit supports {_VERSION}")
    try:
        texts = {name: str(stored[name]) for name in ("topic", "column", "type", "value")}
        mark = Watermark(**texts, ids=tuple(map(str, stored["ids"])))
    except (KeyError, TypeError):
        raise BadOption(f"--state {path} is damaged: it lacks a field") from None
    for flag, kept, now in (("--topic", mark.topic, topic), ("--watermark", mark.column, column)):
        if kept != now:
            raise BadOption(f"--state {path} belongs to {flag} {kept}, not {now}: use another file")
    return mark


def save_watermark(path: str, mark: Watermark) -> None:
    """Replace the file atomically."""
    text = json.dumps({"version": _VERSION, "pipeline": "emit", **dataclasses.asdict(mark)})
    fresh = Path(f"{path}.tmp")  # no other run writes this file, since this run holds the lock
    with fresh.open("w") as file:
        file.write(text + "\n")
        file.flush()
        os.fsync(file.fileno())
    fresh.replace(path)
    folder = os.open(Path(path).parent, os.O_RDONLY)
    try:
        os.fsync(folder)  # without it a power failure may lose the rename
    finally:
        os.close(folder)


MOST_IDS = 5_000
"""The most ids at the watermark that are stored."""
_TYPES = ("timestamp", "timestamp_ntz", "date", "byte", "short", "integer", "long", "decimal")


@dataclass(frozen=True)
class Increment:
    """`mark` is the watermark to store once the rows are sent, or None if there have never been any rows."""

    rows: DataFrame
    mark: Watermark | None
    without_mark: int
    """The number of rows in which the column is null: no run sends these rows."""
    too_many_ids: bool = False


def kind_of(frame: DataFrame, column: str) -> str:
    """The type of a watermark column. Raises BadOption if it is missing or unsuitable."""
    found = [field for field in frame.schema.fields if field.name.lower() == column.lower()]
    if len(found) != 1:
        raise BadOption(f"--watermark: unknown column {column!r}; available: {', '.join(frame.columns)}")
    kind = found[0].dataType
    if kind.typeName() not in _TYPES:
        # Numbers in strings would be compared as text (10 is below 9), and rows would silently be lost.
        raise BadOption(
            f"--watermark must be a timestamp, a date, an integer or a decimal, but {column} is {kind.simpleString()}: "
            "cast it in --sql"
        )
    return kind.simpleString()


def since(frame: DataFrame, identity: Column, topic: str, column: str, before: Watermark | None) -> Increment:
    """The rows since the watermark `before`, with `identity` as their id. Raises BadOption."""
    kind = kind_of(frame, column)
    if before is not None and before.type != kind:
        raise BadOption(f"--watermark: {column} was {before.type} when --state was written, but is {kind} now")
    value = frame[f"`{column}`"]
    low = None if before is None else F.lit(before.value).cast(kind)
    seen = frame if low is None else frame.filter((value >= low) | value.isNull())
    bounds = seen.agg(_text(F.max(value), kind).alias("highest"), F.count_if(value.isNull()).alias("nulls")).first()
    assert bounds is not None  # an aggregate over all rows has one row
    if bounds["highest"] is None:
        return Increment(frame.filter(F.lit(False)), before, bounds["nulls"])
    highest = _shown(bounds["highest"], kind)
    high = F.lit(highest).cast(kind)
    ids = [row["id"] for row in _ids_at(frame.filter(value == high), identity).limit(MOST_IDS + 1).collect()]
    too_many = len(ids) > MOST_IDS
    mark = Watermark(topic, column, kind, highest, () if too_many else tuple(sorted(ids)))
    rows = frame.filter(value <= high)
    return Increment(_above(rows, value, identity, before), mark, bounds["nulls"], too_many)


def _ids_at(rows: DataFrame, identity: Column) -> DataFrame:
    """The ids of rows. A row with a null id cannot be recognised: every run sends it, and it is refused."""
    return rows.select(identity.alias("id")).filter("id IS NOT NULL").distinct()


def _above(rows: DataFrame, value: Column, identity: Column, before: Watermark | None) -> DataFrame:
    if before is None:
        return rows.filter(value.isNotNull())
    low = F.lit(before.value).cast(before.type)
    known = F.coalesce(identity.isin(list(before.ids)), F.lit(False)) if before.ids else F.lit(False)
    return rows.filter((value > low) | ((value == low) & ~known))


def _text(value: Column, kind: str) -> Column:
    """A value as text; a timestamp as microseconds since 1970, which are the same in every time zone."""
    return (F.unix_micros(value) if kind == "timestamp" else value).cast("string")


def _shown(text: str, kind: str) -> str:
    """The text for the file: readable, and accepted by a cast."""
    if kind != "timestamp":
        return text
    return (datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=int(text))).isoformat()
