"""The writers, for batches and for streams. The driver creates them, and Spark pickles them to the tasks."""

from __future__ import annotations

import sys
import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import orjson
from pyspark import TaskContext
from pyspark.sql import datasource
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamWriter, WriterCommitMessage
from pyspark.sql.types import Row, StructType

from pyspark_jobqueue.connector.columns import Columns
from pyspark_jobqueue.connector.refused_rows import Folder
from pyspark_jobqueue.connector.row_batches import ArrowBatch, Batch, RowBatch
from pyspark_jobqueue.connector.write_options import WriteOptions
from pyspark_jobqueue.connector.write_task import WriteTask, WriteTotals, total
from pyspark_jobqueue.errors import BadOption

if TYPE_CHECKING:
    import pyarrow as pa

Messages = Sequence[WriterCommitMessage | None]


@dataclass(frozen=True)
class Write:
    """A planned write. Pickled to the tasks."""

    schema: StructType
    columns: Columns
    options: WriteOptions
    id: str = field(default_factory=lambda: uuid.uuid4().hex)

    @classmethod
    def plan(cls, options: Mapping[str, str], schema: StructType) -> Write:
        """Check options and schema. Raises BadOption."""
        made, named = WriteOptions.of(options)
        columns = Columns.of(schema, named, made.topic)
        if made.on_error not in ("fail", "skip"):
            Folder.check(made.on_error, "onError")
        if made.report_path:
            Folder.check(made.report_path, "reportPath")
        return cls(schema, columns, made)

    def send(self, batches: Iterator[Batch]) -> WriteTotals:
        """Send one task's share of the rows."""
        context = TaskContext.get()
        partition = context.partitionId() if context else 0
        return WriteTask(self.columns, self.options, self._run(context), partition).send(batches)

    def _run(self, context: TaskContext | None) -> str:
        """The name of this run. A repeated micro-batch keeps its name, and so does a write in its foreachBatch."""
        query = context and context.getLocalProperty("sql.streaming.queryId")
        batch = context and context.getLocalProperty("streaming.sql.batchId")
        return f"{query}-{batch}" if query and batch else self.id

    def report(self, messages: Messages, name: str, **more: Any) -> None:
        """Print the totals to the driver's standard error, and write them to the folder of reports."""
        done = total(messages)
        print(f"jobqueue: {'dry run, ' if self.options.dry_run else ''}{done}", file=sys.stderr, flush=True)
        if self.options.report_path:
            file = Folder(self.options.report_path).write(name)
            file.write(orjson.dumps({**more, **done.figures()}))
            file.keep()

    def report_failure(self, messages: Messages) -> None:
        """Print what a failed write leaves behind."""
        done = total(messages)
        print(
            f"jobqueue: the write failed; {done.accepted:,} rows were accepted from the tasks that finished, and stay. "
            "Run it again safely: jobs that are already there count as existing",
            file=sys.stderr,
            flush=True,
        )


class BatchWriter(DataSourceArrowWriter):
    """Writes a batch."""

    def __init__(self, write: Write) -> None:
        self._write = write

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        return self._write.send(map(ArrowBatch, iterator))

    def commit(self, messages: Messages) -> None:
        self._write.report(messages, f"write-{self._write.id}.json", run=self._write.id)

    def abort(self, messages: Messages) -> None:
        self._write.report_failure(messages)


class StreamWriter(DataSourceStreamWriter):
    """Writes a stream, from Spark's own rows."""

    def __init__(self, write: Write) -> None:
        self._write = write

    def write(self, iterator: Iterator[Row]) -> WriterCommitMessage:
        return self._write.send(RowBatch.several(iterator, self._write.schema))

    def commit(self, messages: Messages, batchId: int) -> None:
        self._write.report(messages, f"batch-{batchId}.json", batch=batchId)

    def abort(self, messages: Messages, batchId: int) -> None:
        self._write.report_failure(messages)


# Exists from Spark 4.1 on.
_ArrowBase: Any = getattr(datasource, "DataSourceStreamArrowWriter", DataSourceStreamWriter)


class ArrowStreamWriter(StreamWriter, _ArrowBase):  # type: ignore[misc]  # the base depends on the version of Spark
    """Writes a stream, from Arrow batches."""

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        return self._write.send(map(ArrowBatch, iterator))


def batch_writer(options: Mapping[str, str], schema: StructType, overwrite: bool) -> BatchWriter:
    """Raises BadOption."""
    if overwrite:
        raise BadOption('a queue cannot be overwritten: write with mode("append")')
    return BatchWriter(Write.plan(options, schema))


def stream_writer(options: Mapping[str, str], schema: StructType) -> StreamWriter:
    """The Arrow writer if this Spark supports it for streams. Raises BadOption."""
    kind = ArrowStreamWriter if _ArrowBase is not DataSourceStreamWriter else StreamWriter
    return kind(Write.plan(options, schema))
