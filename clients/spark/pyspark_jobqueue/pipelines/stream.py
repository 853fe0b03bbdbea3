"""stream: a stream of events, such as Kafka's, adds, deletes and updates jobs."""

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
from pyspark_jobqueue.pipelines.parts import command_line, events, inputs, jobs, micro_batch
from pyspark_jobqueue.pipelines.parts.command_line import Report

FIGURES = (
    *("events", "ignored", "unreadable", "added", "existing", "cancelled", "dead"),
    *("changed", "gone", "refused", "retries"),
)
_LOOK_S = 1
# Spark cannot infer the columns of files that do not exist yet. JSON and CSV have no binary type.
_KAFKA = "key {0}, value {0}, topic STRING, partition INT, offset BIGINT, timestamp TIMESTAMP"
_OF_FILES = {"parquet": "BINARY", "orc": "BINARY", "json": "STRING", "csv": "STRING"}


def parser() -> argparse.ArgumentParser:
    """All flags of stream."""
    made = command_line.parser("stream", __doc__ or "")
    group = made.add_argument_group("input")
    about = "the folder, for formats of files"
    group.add_argument("--from", dest="source", type=inputs.source, metavar="PATH", help=about)
    inputs.add_format(group, "kafka", "kafka, or a format of files with Kafka's columns [%(default)s]")
    events.add_flags(made)
    jobs.add_flags(made)
    group = made.add_argument_group("run")
    group.add_argument("--checkpoint", required=True, metavar="FOLDER", help="where Spark records its progress")
    group.add_argument("--bad-rows", metavar="FOLDER", help="for unreadable and refused rows [they end the stream]")
    either = group.add_mutually_exclusive_group()
    either.add_argument("--once", action="store_true", help="process what is there now, then end")
    either.add_argument(
        "--every",
        type=command_line.positive,
        default=1.0,
        metavar="SECONDS",
        help="interval between micro-batches [%(default)s]",
    )
    jobs.add_write_flags(made)
    return made


def stream(arguments: argparse.Namespace) -> Report:
    """Run until SIGTERM or SIGINT, or with --once until it has caught up. The report sums up all micro-batches."""
    jobs.check(arguments)
    events.rules(arguments.on)
    inputs.options(arguments)
    report = Report("stream")
    spark = command_line.begin(arguments)
    run = Run(arguments)
    rows = events.parsed(_source(spark, arguments), arguments.value_schema)
    events.judged(rows, arguments)  # reports its errors before the first micro-batch
    run.follow(rows)
    report.note(topic=arguments.topic, micro_batches=run.batches, **{name: run.sums[name] for name in FIGURES})
    return report


class _Skipped(JobQueueError):
    """A micro-batch was skipped, because the stream is stopping."""


class Run:
    """One query: its micro-batches, their totals, and how it ends."""

    def __init__(self, arguments: argparse.Namespace) -> None:
        self._arguments = arguments
        self._stopping = threading.Event()
        self._failure: Exception | None = None  # of a micro-batch
        self._query: Future[StreamingQuery] = Future()
        self.sums: Counter[str] = Counter()
        self.batches = 0

    def follow(self, rows: DataFrame) -> None:
        """Send micro-batches until the end. Raises the error of a micro-batch or of Spark."""
        writer = rows.writeStream.foreachBatch(self._send).option("checkpointLocation", self._arguments.checkpoint)
        with _stop_signals(self._stopping):
            query = _triggered(writer, self._arguments).start()
            self._query.set_result(query)
            try:
                while not query.awaitTermination(_LOOK_S):
                    if self._stopping.is_set() and not query.status["isTriggerActive"]:
                        query.stop()  # this would abort a micro-batch, but none is running
            except StreamingQueryException as error:
                failure = self._failure or error  # Spark's own error has a Python stack trace instead of a sentence
                if not isinstance(failure, _Skipped):
                    raise failure from None

    def _send(self, rows: DataFrame, batch: int) -> None:
        """Send one micro-batch. A failure ends the query; its next start repeats the micro-batch."""
        try:
            self._send_one(rows, batch)
        except Exception as error:
            self._failure = error
            raise

    def _send_one(self, rows: DataFrame, batch: int) -> None:
        if self._stopping.is_set():
            raise _Skipped("the stream is stopping, and leaves this micro-batch to its next run")
        began = time.monotonic()
        figures = micro_batch.send(rows, f"{self._query.result().id}-{batch}", self._arguments)
        self.sums += figures
        self.batches += 1
        counts = ", ".join(f"{figures[name]:,} {name}" for name in FIGURES if figures[name] or name == "events")
        print(f"micro-batch {batch}: {counts} in {time.monotonic() - began:.1f} s", file=sys.stderr, flush=True)


@contextlib.contextmanager
def _stop_signals(stopping: threading.Event) -> Iterator[None]:
    """Within this context, SIGTERM and SIGINT set the event."""
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
        raise BadOption(f"--format {arguments.format}: {command_line.first_line(error)}") from None


def _triggered(writer: DataStreamWriter, arguments: argparse.Namespace) -> DataStreamWriter:
    if arguments.once:
        return writer.trigger(availableNow=True)
    return writer.trigger(processingTime=f"{round(arguments.every * 1000)} milliseconds")


if __name__ == "__main__":
    command_line.run(stream, parser().parse_args())
