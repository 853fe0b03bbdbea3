"""stream: events of orders, as Kafka has them, add, delete and update jobs, for as long as they come."""

from __future__ import annotations

import argparse
import contextlib
import signal
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import Future

from pyspark.errors import PySparkException, StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.streaming.readwriter import DataStreamWriter

from pyspark_jobqueue.errors import BadOption, JobQueueError
from pyspark_jobqueue.pipelines.parts import events, expressions, flags, inputs, jobs, micro_batch, writes
from pyspark_jobqueue.pipelines.parts.report import Report

FIGURES = ("events", "ignored", "unreadable", "added", "existing", "changed", "gone", "refused", "retries")
_LOOK_S = 1
# Files say nothing of their columns before they are there. JSON and CSV have no bytes.
_KAFKA = "key {0}, value {0}, topic STRING, partition INT, offset BIGINT, timestamp TIMESTAMP"
_OF_FILES = {"parquet": "BINARY", "orc": "BINARY", "json": "STRING", "csv": "STRING"}


def parser() -> argparse.ArgumentParser:
    """All flags of stream."""
    made = flags.parser("stream", __doc__ or "")
    group = made.add_argument_group("input")
    group.add_argument("--from", dest="source", metavar="PATH", help="a folder, where the format is one of files")
    inputs.add_format(group, "kafka", "kafka, or a format of files that hold Kafka's columns [%(default)s]")
    events.add_flags(made)
    jobs.add_flags(made)
    group = made.add_argument_group("run")
    group.add_argument("--checkpoint", required=True, metavar="FOLDER", help="where Spark keeps how far it came")
    group.add_argument("--bad-rows", metavar="FOLDER", help="for rows that are unreadable or refused [such one fails]")
    either = group.add_mutually_exclusive_group()
    either.add_argument("--once", action="store_true", help="end when what is there now is done")
    either.add_argument(
        "--every", type=flags.positive, default=1.0, metavar="SECONDS", help="a micro-batch [%(default)s]"
    )
    writes.add_flags(made)
    return made


def stream(arguments: argparse.Namespace) -> Report:
    """Run until SIGTERM or SIGINT, or with --once until all is done. The report has the sums of all micro-batches."""
    jobs.check(arguments)
    events.rules(arguments.on)
    inputs.options(arguments)
    report = Report("stream")
    spark = flags.begin(arguments)
    run = Run(arguments)
    rows = events.parsed(_source(spark, arguments), arguments.value_schema)
    events.judged(rows, arguments)  # its errors come before the first micro-batch
    run.follow(rows)
    report.note(topic=arguments.topic, micro_batches=run.batches, **{name: run.sums[name] for name in FIGURES})
    return report


class _Left(JobQueueError):
    """A micro-batch was not begun, because the stream stops."""


class Run:
    """One query: its micro-batches, their sums, and its end."""

    def __init__(self, arguments: argparse.Namespace) -> None:
        self._arguments = arguments
        self._stopping = threading.Event()
        self._failure: Exception | None = None  # of a micro-batch
        self._query: Future[StreamingQuery] = Future()
        self.sums: Counter[str] = Counter()
        self.batches = 0

    def follow(self, rows: DataFrame) -> None:
        """Send micro-batches until the end. Raises what a micro-batch raised, or Spark beside them."""
        writer = rows.writeStream.foreachBatch(self._send).option("checkpointLocation", self._arguments.checkpoint)
        with _told_to_stop(self._stopping):
            query = _triggered(writer, self._arguments).start()
            self._query.set_result(query)
            try:
                while not query.awaitTermination(_LOOK_S):
                    if self._stopping.is_set() and not query.status["isTriggerActive"]:
                        query.stop()  # it would break off a micro-batch, but there is none now
            except StreamingQueryException as error:
                failure = self._failure or error  # Spark's own has the trace of Python in place of a sentence
                if not isinstance(failure, _Left):
                    raise failure from None

    def _send(self, rows: DataFrame, batch: int) -> None:
        """One micro-batch. What fails here ends the query; the micro-batch is repeated when it begins again."""
        try:
            self._send_one(rows, batch)
        except Exception as error:
            self._failure = error
            raise

    def _send_one(self, rows: DataFrame, batch: int) -> None:
        if self._stopping.is_set():
            raise _Left("the stream stops, and leaves this micro-batch to its next run")
        began = time.monotonic()
        figures = micro_batch.send(rows, f"{self._query.result().id}-{batch}", self._arguments)
        self.sums += figures
        self.batches += 1
        told = ", ".join(f"{figures[name]:,} {name}" for name in FIGURES if figures[name] or name == "events")
        print(f"micro-batch {batch}: {told} in {time.monotonic() - began:.1f} s", file=sys.stderr, flush=True)


@contextlib.contextmanager
def _told_to_stop(stopping: threading.Event) -> Iterator[None]:
    """SIGTERM and SIGINT set the event meanwhile."""
    before = {number: signal.signal(number, lambda *_: stopping.set()) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _source(spark: SparkSession, arguments: argparse.Namespace) -> DataFrame:
    reader = spark.readStream.format(arguments.format).options(**inputs.options(arguments))
    if bytes_type := _OF_FILES.get(arguments.format.lower()):
        reader = reader.schema(_KAFKA.format(bytes_type))
    try:
        return reader.load(arguments.source) if arguments.source else reader.load()
    except PySparkException as error:
        raise BadOption(f"--format {arguments.format}: {expressions.first_line(error)}") from None


def _triggered(writer: DataStreamWriter, arguments: argparse.Namespace) -> DataStreamWriter:
    if arguments.once:
        return writer.trigger(availableNow=True)
    return writer.trigger(processingTime=f"{round(arguments.every * 1000)} milliseconds")


if __name__ == "__main__":
    flags.run(stream, parser().parse_args())
