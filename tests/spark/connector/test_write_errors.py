"""Writes when rows are bad, tasks fail, or the service is unreachable."""

from __future__ import annotations

import json
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from pyspark_jobqueue.pipelines.parts.command_line import sentence

from tests.kit.redis_server import RedisServer
from tests.spark.connector.breaking import Breaking
from tests.spark.connector.writing import counts, write
from tests.spark.serving import Serving, until

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

BAD = {
    "bad id": ("BAD_FIELD", "id"),
    "big": ("TOO_LARGE", "body"),
    "topic": ("BAD_FIELD", "topic"),
    "far": ("BAD_FIELD", "pay_until"),
    "late": ("BAD_FIELD", "pay_until"),
    "not there": ("BAD_FIELD", "id"),
    "moved": ("NOT_FOUND", None),
}
"""The ids of bad rows, with the code and the column of each refusal."""


def mixed(spark: SparkSession, topic: str) -> DataFrame:
    """30 good rows and seven bad ones, in two partitions."""
    kind = "id string, topic string, pay_until string, body string, action string"
    good = [(f"{topic}:{number}", topic, "2031-01-01 00:00:00", "text", None) for number in range(30)]
    bad = [
        ("bad id", topic, "2031-01-01 00:00:00", "secret", None),
        ("big", topic, "2031-01-01 00:00:00", "x" * 300_000, None),
        ("topic", "no topic", "2031-01-01 00:00:00", None, None),
        ("far", topic, "2131-01-01 00:00:00", None, None),
        ("late", topic, None, None, None),
        ("not there", topic, None, None, "delete"),
        ("moved", topic, "2031-01-01 00:00:00", None, "update"),
    ]
    rows = spark.createDataFrame([*good, *bad], kind).repartition(2)
    return rows.withColumn("pay_until", rows.pay_until.cast("timestamp"))


@pytest.fixture
def background() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(1) as executor:
        yield executor


def test_refused_rows_land_in_the_folder_and_the_others_in_the_queue(
    spark: SparkSession, serving: Serving, topic: str, folder: Path
) -> None:
    rows = mixed(spark, topic)
    refused = folder / "refused"
    reported = write(rows, serving, folder, onError=str(refused), dueAtColumn="pay_until")
    assert counts(reported) == {"rows": 37, "accepted": 30, "refused": 7}
    assert set(serving.jobs(topic)) == {f"{topic}:{number}" for number in range(30)}
    found = spark.read.json(str(refused / reported["run"])).collect()
    assert {line.id: (line.code, line.field) for line in found} == BAD
    lines = {line.id: line.asDict(recursive=True) for line in found}
    assert lines["bad id"]["row"] == {
        "id": "bad id",
        "topic": topic,
        "pay_until": "2031-01-01T00:00:00Z",
        "body": "secret",
        "action": None,
    }
    assert (lines["moved"]["action"], lines["late"]["topic"]) == ("update", topic)
    assert lines["late"]["error"] == "due_at is null, which would make the job due at once"


def test_refused_rows_are_counted_when_they_are_skipped(
    spark: SparkSession, serving: Serving, topic: str, folder: Path
) -> None:
    reported = write(mixed(spark, topic), serving, folder, onError="skip", dueAtColumn="pay_until")
    assert counts(reported) == {"rows": 37, "accepted": 30, "refused": 7}


def test_a_refused_row_fails_the_query_with_its_id_and_its_column_but_not_its_body(
    spark: SparkSession, serving: Serving, topic: str, folder: Path
) -> None:
    rows = mixed(spark, topic).where("id NOT IN ('big', 'topic', 'far', 'late', 'not there', 'moved')")
    with pytest.raises(Exception, match="bad id") as caught:
        write(rows, serving, folder, dueAtColumn="pay_until", token="geheim")  # noqa: S106
    assert sentence(caught.value) == (
        "row with id 'bad id', column id: id must be a string of 1 to 255 characters of "
        "A-Z a-z 0-9 . _ - : / @ # + = %XX; this one has a space (BAD_FIELD)"
    )
    assert "secret" not in str(caught.value)
    assert "geheim" not in str(caught.value)
    assert not list(folder.iterdir())


def test_a_dry_run_checks_and_sends_nothing(spark: SparkSession, topic: str, folder: Path, serving: Serving) -> None:
    options = {"url": "http://127.0.0.1:9", "onError": "skip", "dueAtColumn": "pay_until", "dryRun": "true"}
    assert counts(write(mixed(spark, topic), serving, folder, **options)) == {"rows": 37, "refused": 1}


def test_a_task_that_fails_in_its_middle_and_is_repeated_loses_and_doubles_nothing(
    spark: SparkSession, serving: Serving, topic: str, folder: Path
) -> None:
    marker, url = folder / "failed", serving.url

    def fail_once(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for number, batch in enumerate(batches):
            if number == 5 and not marker.exists():
                ask = json.dumps({"command": "stats", "topic": topic}).encode()
                while not json.load(urllib.request.urlopen(url + "/command", ask))["totals"].get("created"):  # noqa: S310
                    pass
                marker.touch()
                raise RuntimeError("on purpose")
            yield batch

    spark.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", 500)
    try:
        ids = spark.range(0, 4000, 1, 1).selectExpr(f"'{topic}:' || id AS id").mapInArrow(fail_once, "id string")
        reported = write(ids, serving, folder, topic=topic, batchSize=100, onError=str(folder / "refused"))
    finally:
        spark.conf.unset("spark.sql.execution.arrow.maxRecordsPerBatch")
    assert marker.exists()
    assert reported["accepted"] + reported["existing"] == reported["rows"] == 4000
    assert reported["existing"] > 0
    assert serving.totals(topic)["created"] == 4000


def test_the_service_may_stop_and_start_in_the_middle_of_a_write(
    spark: SparkSession, serving: Serving, topic: str, folder: Path, background: ThreadPoolExecutor
) -> None:
    def interrupt() -> None:
        until(lambda: serving.totals(topic).get("created", 0) > 500)
        serving.stop()
        serving.start()

    interrupted = background.submit(interrupt)
    rows = spark.range(0, 6000, 1, 2).selectExpr(f"'{topic}:' || id AS id")
    reported = write(rows, serving, folder, topic=topic, rowsPerSecondPerTask=1500)
    interrupted.result(0)
    assert reported["accepted"] + reported["existing"] == reported["rows"] == 6000
    assert reported["retries"] > 0
    assert serving.totals(topic)["created"] == 6000


def test_answers_that_are_lost_and_instances_that_cannot_now(
    spark: SparkSession, serving: Serving, topic: str, folder: Path
) -> None:
    not_now = {
        "status": 503,
        "answer": {"success": False, "error": "stopping", "code": "SHUTTING_DOWN"},
        "headers": {"Retry-After": "1"},
    }
    rows = spark.range(0, 50, 1, 1).selectExpr(f"'{topic}:' || id AS id")
    with Breaking(serving.url, [not_now, "cut", "drop", "page"]) as proxy:
        urls = f"http://127.0.0.1:9,{proxy.url}"
        token = "geheim"  # noqa: S105
        reported = write(rows, serving, folder, topic=topic, url=urls, token=token, retryWaitMs=1)
    assert reported["accepted"] + reported["existing"] == reported["rows"] == 50
    assert reported["existing"] == 50  # the rows whose answer was lost
    first, second, *_ = proxy.requests
    assert second.when - first.when >= 1
    assert {request.headers["Authorization"] for request in proxy.requests} == {"Bearer geheim"}
    assert len(proxy.requests) == 5
    assert serving.totals(topic)["created"] == 50


def test_a_wrong_token_is_not_tried_again(spark: SparkSession, serving: Serving, topic: str, folder: Path) -> None:
    denied = {"status": 401, "answer": {"success": False, "error": "no such token", "code": "UNAUTHORIZED"}}
    with Breaking(serving.url, [denied] * 10) as proxy:
        rows = spark.range(1).selectExpr("'a' AS id")
        with pytest.raises(Exception, match="UNAUTHORIZED") as caught:
            write(rows, serving, folder, topic=topic, url=proxy.url)
    assert sentence(caught.value) == f"{proxy.url}: no such token (UNAUTHORIZED)"
    assert len(proxy.requests) == 3  # once per attempt of the task


def test_a_full_topic_is_waited_for(
    spark: SparkSession, redis_server: RedisServer, topic: str, folder: Path, background: ThreadPoolExecutor
) -> None:
    config = folder / "jobqueue.toml"
    config.write_text(f'[topics."{topic}"]\nmax_pending = 40\n')
    flags = ("--redis", redis_server.url, "--namespace", "full", "--config", str(config))
    with Serving(*flags) as serving:

        def drain() -> set[str]:
            popped: set[str] = set()
            while len(popped) < 100:
                jobs = serving.ask("pop", topic=topic, count=10, wait=1, ttr=0)["jobs"]
                popped |= {job["id"] for job in jobs}
            return popped

        popped = background.submit(drain)
        rows = spark.range(0, 100, 1, 1).selectExpr(f"'{topic}:' || id AS id")
        reported = write(rows, serving, folder, topic=topic, batchSize=20, retryWaitMs=10)
        assert len(popped.result(60)) == 100
    assert (reported["rows"], reported["accepted"]) == (100, 100)
    assert reported["retries"] > 0
