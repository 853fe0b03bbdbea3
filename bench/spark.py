"""`make bench-spark`: rows per second of the batch writer on local[2], next to what one would write without it.

In rounds, these take turns to write to a service on the same machine: the connector; a plain loop of HTTP posts in
foreachPartition, one row each, over a kept connection; the same loop with 100 rows per request; and prepared commands
over eight connections without Spark, which shows what the service can take. Finally the connector writes to a sink that
keeps nothing, which shows what the connector can give. `python -m bench.spark 1 2000` sets other numbers of
rounds and rows.
"""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from pyspark_jobqueue import session
from pyspark_jobqueue.connector.options import Target
from pyspark_jobqueue.connector.service import Service

from tests.kit.redis_server import RedisServer
from tests.kit.service import ROOT
from tests.spark.conftest import CONF
from tests.spark.serving import Serving

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, Row, SparkSession

ROWS = 200_000
ROUNDS = 3
CONNECTIONS = 8


class Work(NamedTuple):
    """Rows that become jobs of a topic."""

    frame: DataFrame
    rows: int
    url: str
    topic: str


def connector(work: Work) -> None:
    options = {"url": work.url, "topic": work.topic}
    work.frame.write.format("jobqueue").options(**options).mode("append").save()


def loop(work: Work, rows_a_request: int) -> None:
    """What one would write without a connector: no retries, and answers are ignored."""
    url, topic = work.url, work.topic

    def send(rows: Iterable[Row]) -> None:
        import http.client  # noqa: PLC0415 - it travels to the tasks
        import json  # noqa: PLC0415 - as above

        connection = http.client.HTTPConnection(url.removeprefix("http://"))
        batch: list[dict[str, Any]] = []

        def post() -> None:
            connection.request("POST", "/command", json.dumps(batch if rows_a_request > 1 else batch[0]))
            connection.getresponse().read()
            batch.clear()

        for row in rows:
            at = row.due_at.timestamp()
            batch.append({"command": "add", "topic": topic, "id": row.id, "at": at, "body": row.body})
            if len(batch) == rows_a_request:
                post()
        if batch:
            post()

    work.frame.foreachPartition(send)


def bare(batches: list[list[bytes]], url: str) -> None:
    """Prepared commands, without Spark."""
    service = Service(Target((url,)))
    with ThreadPoolExecutor(CONNECTIONS) as threads:
        list(threads.map(service.batch, batches))
    service.close()


def batches_of(rows: int, topic: str) -> list[list[bytes]]:
    at, body = time.time() + 86_400, "x" * 100
    commands = [
        json.dumps({"command": "add", "topic": topic, "id": f"{topic}:{n:012}", "at": at, "body": body}).encode()
        for n in range(rows)
    ]
    return [commands[begin : begin + 1000] for begin in range(0, rows, 1000)]


@contextmanager
def sink() -> Iterator[str]:
    """The URL of a sink in a process of its own."""
    command = [sys.executable, "-m", "bench.programs.sink"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=ROOT) as process:
        assert process.stdout
        yield process.stdout.readline().strip()
        process.kill()


def rows_of(spark: SparkSession, folder: Path, rows: int) -> DataFrame:
    """Rows with an id of 20 characters, a due time a day from now and a body of 100 bytes, in a file of four parts."""
    file = f"{folder}/rows-{rows}"
    spark.range(0, rows, 1, 4).selectExpr(
        "concat('orders:', lpad(id, 13, '0')) AS id",
        "current_timestamp() + make_dt_interval(1, 0, 0, id / 1000) AS due_at",
        "repeat('x', 100) AS body",
    ).write.parquet(file)
    return spark.read.parquet(file)


Figures = dict[str, list[float]]
"""Rows per second by writer, one figure per round."""


def timed(figures: Figures, name: str, rows: int, run: Callable[[], None]) -> None:
    begun = time.perf_counter()
    run()
    figures.setdefault(name, []).append(rows / (time.perf_counter() - begun))


def one_round(figures: Figures, many: Work, few: Work, sink_url: str, number: int) -> None:
    """Let each write in turn; the slow one writes only `few` rows. Each round has its own ids and topics."""

    def named(work: Work, name: str, url: str) -> Work:
        topic = f"{name}{number}"
        return Work(work.frame.selectExpr(f"concat('{topic}:', id) AS id", "due_at", "body"), work.rows, url, topic)

    ready = batches_of(many.rows, f"bare{number}")
    timed(figures, "connector", many.rows, lambda: connector(named(many, "connector", many.url)))
    timed(figures, "posts of a row", few.rows, lambda: loop(named(few, "single", few.url), 1))
    timed(figures, "posts of 100 rows", many.rows, lambda: loop(named(many, "hundred", many.url), 100))
    timed(figures, "ready-made commands", many.rows, lambda: bare(ready, many.url))
    timed(figures, "connector into a sink", many.rows, lambda: connector(named(many, "sink", sink_url)))


def show(figures: Figures) -> None:
    base = statistics.median(figures["connector"])
    for name, rates in figures.items():
        middle = statistics.median(rates)
        spread = f"({min(rates):,.0f} to {max(rates):,.0f})"
        print(f"{name:22} {middle:9,.0f} rows/s {spread:22} the connector: x {base / middle:.2f}", flush=True)


def main(rounds: int = ROUNDS, rows: int = ROWS) -> None:
    figures: Figures = {}
    with tempfile.TemporaryDirectory(prefix="jq-") as name, RedisServer(Path(name)) as redis:
        spark = session.begin("bench", "local[2]", CONF)
        with Serving("--redis", redis.url) as serving, sink() as sink_url:
            many, few = (
                Work(rows_of(spark, Path(name), each), each, serving.url, "") for each in (rows, max(rows // 20, 1))
            )
            connector(few._replace(url=sink_url, topic="warm"))  # the first job starts the Python workers
            for number in range(rounds):
                one_round(figures, many, few, sink_url, number)
    show(figures)


if __name__ == "__main__":
    main(*map(int, sys.argv[1:3]))
