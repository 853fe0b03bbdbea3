"""The readers: jobs, in parallel by topic, state and shard; or the statistics of topics; or a history (history.py).

Answers of the service become Arrow batches.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import orjson
import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition

from pyspark_jobqueue.connector.columns import Column, arrow_schema
from pyspark_jobqueue.connector.history import HistoryOptions, HistoryReader
from pyspark_jobqueue.connector.read_options import ReadOptions, columns, is_history
from pyspark_jobqueue.connector.service import Answer, Service
from pyspark_jobqueue.errors import BadOption, meant

if TYPE_CHECKING:
    from pyspark.sql.types import StructType


# Columns whose name differs from the field of the answer.
_FIELDS = {"due_at": "due", "created_at": "created", "delayed_until": "until", "body": "value"}


class AnswerBatches:
    """Makes batches with the columns of one query."""

    def __init__(self, columns: Sequence[Column]) -> None:
        self._schema = arrow_schema(columns)
        self._fields = [_FIELDS.get(each.field, each.field) for each in columns]
        self._values = [
            _body if field == "value" else _VALUES.get(each.kind, _unchanged)
            for each, field in zip(columns, self._fields, strict=True)
        ]

    def of(self, answers: Sequence[Mapping[str, Any]]) -> pa.RecordBatch:
        """Jobs or topics as a batch."""
        arrays = [
            pa.array(values(answer.get(field) for answer in answers), type=each.type)
            for each, field, values in zip(self._schema, self._fields, self._values, strict=True)
        ]
        return pa.RecordBatch.from_arrays(arrays, schema=self._schema)


def _unchanged(values: Iterable[Any]) -> list[Any]:
    return list(values)


def _lists(values: Iterable[list[Any] | None]) -> list[list[Any] | None]:
    """Empty lists, which mean no backoff, become None, so that a job that was read can be written back."""
    return [value or None for value in values]


def _body(values: Iterable[Any]) -> list[str]:
    return list(map(_text, values))


def _text(body: Any) -> str:
    try:
        return orjson.dumps(body).decode()
    except orjson.JSONEncodeError:  # orjson writes 254 levels at most; the service accepts 500
        return json.dumps(body, ensure_ascii=False, separators=(",", ":"))


def _instants(values: Iterable[float | None]) -> list[int | None]:
    """Unix seconds as microseconds, rounded to the service's milliseconds, since a double is inexact."""
    return [None if value is None else round(value * 1000) * 1000 for value in values]


def _pairs(values: Iterable[Mapping[str, Any] | None]) -> list[list[tuple[str, Any]] | None]:
    return [None if value is None else list(value.items()) for value in values]


_VALUES: Mapping[str, Callable[[Iterable[Any]], list[Any]]] = {
    "timestamp": _instants,
    "array<double>": _lists,
    "map<string,string>": _pairs,
    "map<string,bigint>": _pairs,
}


_JOBS_A_PAGE = 1000
_TOPICS_A_TASK = 500
# Somebody may be waiting while a query is planned: a wrong url is reported after seconds, not after a minute.
_RETRIES_WHILE_PLANNING = 4


class Walk(NamedTuple):
    """The part of a queue that one task walks over. `shard` is None if the service has only one."""

    number: int
    topic: str
    state: str
    shard: int | None


def reader(options: Mapping[str, str], schema: StructType) -> DataSourceReader:
    """The reader for a query. Raises BadOption, also for a column that such a read does not have."""
    if is_history(options):
        return HistoryReader(HistoryOptions.of(options), _wanted(schema, columns(options)))
    read = ReadOptions.of(options)
    wanted = _wanted(schema, columns(options))
    return TopicsReader(read, wanted) if read.what == "stats" else JobsReader(read, wanted)


class _Reader(DataSourceReader):
    """What both readers share: the options, and the columns that the query wants."""

    def __init__(self, options: ReadOptions, wanted: list[Column]) -> None:
        self._options = options
        self._wanted = wanted

    def read(self, partition: InputPartition | None) -> Iterator[pa.RecordBatch]:
        """The rows of a partition. Spark also calls a reader that has no partitions: with an empty partition, or in
        Spark 4.0 with None."""
        value = partition.value if partition else None
        if value is not None:
            yield from self._batches(value)

    def _batches(self, value: Any) -> Iterator[pa.RecordBatch]:
        """The rows for the value of a partition."""
        raise NotImplementedError


class JobsReader(_Reader):
    """Reads jobs, one row each."""

    def partitions(self) -> list[InputPartition]:
        """One partition for each topic, state and shard, in this order. Raises Refused and Unreachable."""
        with _planning(self._options) as service:
            topics = sorted(_listed(service, self._options.topics))
            shards = _shards(service, topics[0]) if topics else []
        places = [(topic, state, shard) for topic in topics for state in self._options.states for shard in shards]
        return [InputPartition(Walk(number, *place)) for number, place in enumerate(places)]

    def _batches(self, walk: Walk) -> Iterator[pa.RecordBatch]:
        """The pages of a walk, one batch each."""
        batches = AnswerBatches(self._wanted)
        where = {"topic": walk.topic, "state": walk.state, "shard": walk.shard}
        with contextlib.closing(Service(self._options.target, walk.number)) as service:
            for page in _pages(service, "peek", count=_JOBS_A_PAGE, **where):
                if page["jobs"]:
                    yield batches.of(page["jobs"])


class TopicsReader(_Reader):
    """Reads the statistics of topics, one row each."""

    def partitions(self) -> list[InputPartition]:
        """The current topics, up to 500 in a partition. Raises Refused and Unreachable."""
        with _planning(self._options) as service:
            listed = list(_listed(service, self._options.topics).values())
        return [InputPartition(listed[at : at + _TOPICS_A_TASK]) for at in range(0, len(listed), _TOPICS_A_TASK)]

    def _batches(self, listed: list[Answer]) -> Iterator[pa.RecordBatch]:
        """The statistics of some topics."""
        with contextlib.closing(Service(self._options.target)) as service:
            yield AnswerBatches(self._wanted).of(_statistics(service, listed))


def _wanted(schema: StructType, columns: list[Column]) -> list[Column]:
    """The columns that a query asks for. Raises BadOption for an unknown name or a wrong type."""
    known = {column.name.lower(): column for column in columns}
    wanted = []
    for field in schema.fields:
        column = known.get(field.name.lower())
        if column is None:
            names = [each.name for each in columns]
            near = meant(field.name, names)
            raise BadOption(f"unknown column {field.name!r} in a read{near} Available: {', '.join(names)}")
        if field.dataType.simpleString() != column.kind:
            raise BadOption(
                f"column {field.name} has type {column.kind} in a read, not {field.dataType.simpleString()}"
            )
        wanted.append(column._replace(name=field.name, nullable=field.nullable))
    return wanted


def _planning(options: ReadOptions) -> contextlib.closing[Service]:
    """The service, with the few retries that planning a query allows."""
    retries = min(options.target.max_retries, _RETRIES_WHILE_PLANNING)
    return contextlib.closing(Service(dataclasses.replace(options.target, max_retries=retries)))


def _pages(service: Service, command: str, **fields: Any) -> Iterator[Answer]:
    """All pages of a walk; any of them may be empty."""
    cursor = None
    while True:
        page = service.ask({"command": command, **fields, "cursor": cursor})
        yield page
        cursor = page["cursor"]
        if cursor is None:
            return


def _listed(service: Service, topics: Iterable[str]) -> dict[str, Answer]:
    """The existing topics that match some names and patterns, as the command `topics` lists them."""
    pages = (page for topic in topics for page in _pages(service, "topics", pattern=topic))
    return {each["topic"]: each for page in pages for each in page["topics"]}


def _shards(service: Service, topic: str) -> Iterable[int | None]:
    """The shards to walk over. An older service has one shard, and does not report the number."""
    shards = service.ask({"command": "stats", "topic": topic}).get("shards")
    return range(shards) if shards else [None]


def _statistics(service: Service, listed: list[Answer]) -> list[Answer]:
    """The answers of `topics` and `stats`, merged."""
    answers = service.batch([orjson.dumps({"command": "stats", "topic": each["topic"]}) for each in listed])
    return [
        {**each, **each["counts"], **figures, **figures["counts"]}
        for each, figures in zip(listed, answers, strict=True)
    ]
