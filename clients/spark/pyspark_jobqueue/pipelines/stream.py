"""stream: events of orders, as Kafka has them, add, delete and update jobs, for as long as they come."""

from __future__ import annotations

import argparse
import signal
import sys
import threading
import time
from collections import Counter
from typing import TYPE_CHECKING

from pyspark_jobqueue.errors import BadOption, JobQueueError
from pyspark_jobqueue.pipelines import events, expressions, flags, inputs, jobs, micro_batch, writing
from pyspark_jobqueue.pipelines.report import Report

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming import StreamingQuery
    from pyspark.sql.streaming.readwriter import DataStreamWriter

FIGURES = ("events", "ignored", "unreadable", "added", "existing", "changed", "gone", "refused", "retries")
_LOOK_S = 0.2
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
    either.add_argument("--every", type=float, default=1.0, metavar="SECONDS", help="a micro-batch [%(default)s]")
    writing.add_flags(made)
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


class Run:
    """One query, its sums, and its end."""

    def __init__(self, arguments: argparse.Namespace) -> None:
        self._arguments = arguments
        self._stopping = threading.Event()
        self._query: StreamingQuery | None = None
        self._begun = threading.Event()
        self.sums: Counter[str] = Counter()
        self.batches = 0

    def follow(self, rows: DataFrame) -> None:
        """Send micro-batches until the end. Raises what Spark raises."""
        for number in (signal.SIGTERM, signal.SIGINT):
            if threading.current_thread() is threading.main_thread():
                signal.signal(number, lambda *_: self._stopping.set())
        writer = rows.writeStream.foreachBatch(self._send).option("checkpointLocation", self._arguments.checkpoint)
        self._query = _triggered(writer, self._arguments).start()
        self._begun.set()
        try:
            while not self._query.awaitTermination(_LOOK_S):
                if self._stopping.is_set() and not self._query.status["isTriggerActive"]:
                    self._query.stop()  # nothing runs that it could interrupt
        except Exception:
            if not self._stopping.is_set() or not self._held_back:
                raise

    _held_back = False

    def _send(self, rows: DataFrame, batch: int) -> None:
        """One micro-batch. What fails here ends the query, and the micro-batch is repeated when it begins again."""
        if self._stopping.is_set():
            self._held_back = True
            raise JobQueueError("the stream stops: this micro-batch is for the next run")
        began = time.monotonic()
        self._begun.wait()
        assert self._query is not None
        figures = micro_batch.send(rows, f"{self._query.id}-{batch}", self._arguments)
        self.sums += figures
        self.batches += 1
        told = ", ".join(f"{figures[name]:,} {name}" for name in FIGURES if figures[name] or name == "events")
        print(f"micro-batch {batch}: {told} in {time.monotonic() - began:.1f} s", file=sys.stderr, flush=True)


def _source(spark: SparkSession, arguments: argparse.Namespace) -> DataFrame:
    from pyspark.errors import PySparkException  # noqa: PLC0415 - heavy

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
