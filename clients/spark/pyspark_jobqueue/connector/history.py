"""The reader of what=history: the events of a journal, in parallel by shard and hour."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.datasource import DataSourceReader, InputPartition

from pyspark_jobqueue.connector.answer_batches import TYPES, arrow_schema
from pyspark_jobqueue.connector.journal import Page
from pyspark_jobqueue.connector.read_options import HistoryOptions
from pyspark_jobqueue.connector.read_schema import Column
from pyspark_jobqueue.errors import BadOption

_HOUR_MS = 3_600_000
_MOVES = "branch >= 0"  # what walks have read is in the other branch


class Hour(NamedTuple):
    """The part of a history that one task reads."""

    source: str
    shard: int
    begin_ms: int
    end_ms: int


class HistoryReader(DataSourceReader):
    """Reads events, one row each."""

    def __init__(self, options: HistoryOptions, wanted: Sequence[Column]) -> None:
        self._options, self._wanted = options, wanted

    def partitions(self) -> list[InputPartition]:
        """One partition for each hour with events and each shard, in this order. Raises BadOption, Unreachable."""
        shards = self._shards()
        return [InputPartition(Hour(*shard, *hour)) for hour in self._hours() for shard in shards] if shards else []

    def _shards(self) -> list[tuple[str, int]]:
        rows = self._options.journal.all("SELECT source, shard FROM jq_position ORDER BY source, shard")
        source = self._options.source
        if source is not None and source not in {row[0] for row in rows}:
            there = ", ".join(sorted({row[0] for row in rows})) or "none yet"
            raise BadOption(f"the journal has no source {source!r}; its sources: {there}")
        return [(row[0], row[1]) for row in rows if source in (None, row[0])]

    def _hours(self) -> Iterator[tuple[int, int]]:
        """The begin and the end of each hour that has events, in ms."""
        query = f"SELECT ms FROM jq_event WHERE ms >= ? AND ms < ? AND {_MOVES} ORDER BY ms LIMIT 1"  # noqa: S608
        at, until = self._options.since_ms, self._options.until_ms
        while found := self._options.journal.all(query, at, until):
            begin = found[0][0] // _HOUR_MS * _HOUR_MS
            yield max(begin, self._options.since_ms), min(begin + _HOUR_MS, until)
            at = begin + _HOUR_MS

    def read(self, partition: InputPartition | None) -> Iterator[pa.RecordBatch]:
        """The events of a partition; see `_Reader.read` of the other readers for None."""
        hour: Hour | None = partition.value if partition else None
        if hour is None:
            return
        schema = arrow_schema(self._wanted)
        for page in self._options.journal.pages(*self._query(hour)):
            yield _batch(page, self._wanted, schema)

    def _query(self, hour: Hour) -> tuple[Any, ...]:
        names = ", ".join("at" if each.field == "time" else each.field for each in self._wanted) or "n"
        topics, values = _of_topics(self._options.journal.kind, self._options.topics)
        where = f"source = ? AND shard = ? AND ms >= ? AND ms < ? AND {_MOVES}{topics}"
        return f"SELECT {names} FROM jq_timeline WHERE {where}", *hour, *values  # noqa: S608 - our own words


def _of_topics(kind: str, topics: Sequence[str]) -> tuple[str, list[str]]:
    """A condition, and its values. Patterns compare by bytes, which LIKE does in servers and GLOB in SQLite."""
    if not topics:
        return "", []
    if kind == "sqlite":
        condition, values = "topic GLOB ?", list(topics)
    else:
        condition = "topic LIKE ? ESCAPE '!'"
        values = [topic.translate({37: "!%", 95: "!_", 42: "%", 63: "_"}) for topic in topics]
    return f" AND ({' OR '.join([condition] * len(values))})", values


def _batch(page: Page, columns: Sequence[Column], schema: pa.Schema) -> pa.RecordBatch:
    if not columns:  # only their number is asked for
        return pa.RecordBatch.from_struct_array(pa.array([{}] * len(page), pa.struct([])))
    arrays = [_array(each, values) for each, values in zip(columns, zip(*page, strict=True), strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def _array(column: Column, values: Sequence[Any]) -> pa.Array:
    if column.kind == "boolean":
        return pa.array(map(bool, values))
    if column.kind != "timestamp":
        return pa.array(values, TYPES[column.kind])
    numbers = pa.array(values, pa.int64())  # us, of all but `time` ms; 0: none
    known = pc.if_else(pc.equal(numbers, 0), None, numbers)
    return (known if column.field == "time" else pc.multiply(known, 1000)).cast(TYPES[column.kind])
