"""Reading: jobs by topic, state and shard in parallel, or the figures of topics."""

from __future__ import annotations

import contextlib
import dataclasses
import difflib
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

import orjson
from pyspark.sql.datasource import DataSourceReader, InputPartition

from pyspark_jobqueue.connector.answer_batches import AnswerBatches
from pyspark_jobqueue.connector.read_options import ReadOptions, columns
from pyspark_jobqueue.connector.read_schema import Column
from pyspark_jobqueue.connector.service import Answer, Service
from pyspark_jobqueue.errors import BadOption

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType

_JOBS_A_PAGE = 1000
_TOPICS_A_TASK = 500
# While a query is planned somebody may wait for it: a wrong url is told after seconds, not after a minute.
_REPEATS_OF_PLANNING = 4


class Walk(NamedTuple):
    """What one task walks over. `shard` None: the service has one only, and need not be told which."""

    number: int
    topic: str
    state: str
    shard: int | None


def reader(options: Mapping[str, str], schema: StructType) -> DataSourceReader:
    """The reader of a query. Raises BadOption for what it cannot give."""
    read = ReadOptions.of(options)
    wanted = _wanted(schema, columns(options))
    return TopicsReader(read, wanted) if read.what == "stats" else JobsReader(read, wanted)


class _Reader(DataSourceReader):
    """What both have: the options, and the columns that are wanted."""

    def __init__(self, options: ReadOptions, wanted: list[Column]) -> None:
        self._options = options
        self._wanted = wanted

    def read(self, partition: InputPartition | None) -> Iterator[pa.RecordBatch]:
        """The rows of a partition. A reader without partitions is called too: with an empty one, by Spark 4.0 with
        None."""
        value = partition.value if partition else None
        if value is not None:
            yield from self._batches(value)

    def _batches(self, value: Any) -> Iterator[pa.RecordBatch]:
        """The rows of what a partition holds."""
        raise NotImplementedError


class JobsReader(_Reader):
    """A row a job."""

    def partitions(self) -> list[InputPartition]:
        """Topic by topic, state by state. Raises Refused and Unreachable."""
        with _planning(self._options) as service:
            topics = sorted(_listed(service, self._options.topics))
            shards = _shards(service, topics[0]) if topics else []
        places = [(topic, state, shard) for topic in topics for state in self._options.states for shard in shards]
        return [InputPartition(Walk(number, *place)) for number, place in enumerate(places)]

    def _batches(self, walk: Walk) -> Iterator[pa.RecordBatch]:
        """The pages of a walk."""
        batches = AnswerBatches(self._wanted)
        where = {"topic": walk.topic, "state": walk.state, "shard": walk.shard}
        with contextlib.closing(Service(self._options.target, walk.number)) as service:
            for page in _pages(service, "peek", count=_JOBS_A_PAGE, **where):
                if page["jobs"]:
                    yield batches.of(page["jobs"])


class TopicsReader(_Reader):
    """A row a topic."""

    def partitions(self) -> list[InputPartition]:
        """The topics that there are now. Raises Refused and Unreachable."""
        with _planning(self._options) as service:
            listed = list(_listed(service, self._options.topics).values())
        return [InputPartition(listed[at : at + _TOPICS_A_TASK]) for at in range(0, len(listed), _TOPICS_A_TASK)]

    def _batches(self, listed: list[Answer]) -> Iterator[pa.RecordBatch]:
        """The figures of some topics."""
        with contextlib.closing(Service(self._options.target)) as service:
            yield AnswerBatches(self._wanted).of(_figures(service, listed))


def _wanted(schema: StructType, columns: list[Column]) -> list[Column]:
    """The columns of a query, which are of those that there are. Raises BadOption."""
    known = {column.name.lower(): column for column in columns}
    wanted = []
    for field in schema.fields:
        column = known.get(field.name.lower())
        if column is None:
            near = difflib.get_close_matches(field.name.lower(), known, 1)
            meant = f"; did you mean {known[near[0]].name}?" if near else "."
            there_are = ", ".join(each.name for each in columns)
            raise BadOption(f"there is no column {field.name!r} to read{meant} There are: {there_are}")
        if field.dataType.simpleString() != column.kind:
            raise BadOption(f"column {field.name} is {column.kind} in a read, not {field.dataType.simpleString()}")
        wanted.append(column._replace(name=field.name, nullable=field.nullable))
    return wanted


def _planning(options: ReadOptions) -> contextlib.closing[Service]:
    """The service, while a query is planned."""
    patience = min(options.target.max_retries, _REPEATS_OF_PLANNING)
    return contextlib.closing(Service(dataclasses.replace(options.target, max_retries=patience)))


def _pages(service: Service, command: str, **fields: Any) -> Iterator[Answer]:
    """The answers of a walk to its end; any of them may be empty."""
    cursor = None
    while True:
        page = service.ask({"command": command, **fields, "cursor": cursor})
        yield page
        cursor = page["cursor"]
        if cursor is None:
            return


def _listed(service: Service, topics: Iterable[str]) -> dict[str, Answer]:
    """The topics that there are of some names and patterns, as `topics` lists them."""
    pages = (page for topic in topics for page in _pages(service, "topics", pattern=topic))
    return {each["topic"]: each for page in pages for each in page["topics"]}


def _shards(service: Service, topic: str) -> Iterable[int | None]:
    """The shards to walk over. An older service does not tell how many there are, and has one."""
    shards = service.ask({"command": "stats", "topic": topic}).get("shards")
    return range(shards) if shards else [None]


def _figures(service: Service, listed: list[Answer]) -> list[Answer]:
    """What `topics` and `stats` tell together."""
    told = service.batch([orjson.dumps({"command": "stats", "topic": each["topic"]}) for each in listed])
    return [
        {**each, **each["counts"], **figures, **figures["counts"]} for each, figures in zip(listed, told, strict=True)
    ]
