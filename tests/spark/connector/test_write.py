"""Writes: rows of Spark become jobs."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from pyspark.errors import AnalysisException
from pyspark_jobqueue.pipelines.parts.command_line import sentence

from tests.spark.connector.writing import counts, write
from tests.spark.serving import Serving

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


DUE = datetime(2031, 5, 6, 7, 8, 9, 124_000, UTC).timestamp()


def test_every_column_arrives_as_its_field(spark: SparkSession, serving: Serving, topic: str, folder: Path) -> None:
    rows = spark.sql(
        """
        SELECT 'full' AS id, timestamp'2031-05-06 07:08:09.123001+00:00' AS due_at,
          named_struct('order', 7, 'total', 12.30BD, 'at', timestamp'2026-01-02 03:04:05.678901+00:00',
            'day', date'2026-01-02', 'raw', X'00ff', 'none', CAST(NULL AS INT),
            'list', array(1.5D, NULL), 'map', map('a', array(timestamp'2026-01-02 00:00:00+00:00'))) AS body,
          12.5D AS ttr, 86400BD AS ttl, 300 AS retention, 7 AS priority, 3S AS tries, array(15, 30) AS backoff,
          'customer:7' AS key, map('trace', 'x') AS headers, array('a', 'b') AS tags, 'ADD' AS action
        UNION ALL
        SELECT 'bare', timestamp'1969-12-31 23:59:59+00:00', NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL,
          NULL
        """
    )
    assert counts(write(rows, serving, folder, topic=topic)) == {"rows": 2, "accepted": 2}
    full, bare = serving.ask("get", id="full"), serving.ask("get", id="bare")
    assert full["value"] == {
        "order": 7,
        "total": 12.3,
        "at": "2026-01-02T03:04:05.678901Z",
        "day": "2026-01-02",
        "raw": "AP8=",
        "none": None,
        "list": [1.5, None],
        "map": {"a": ["2026-01-02T00:00:00Z"]},
    }
    given = {"topic": topic, "state": "delayed", "due": DUE, "ttr": 12.5, "ttl": 86400, "retention": 300}
    more = {"priority": 7, "tries": 3, "backoff": [15, 30], "key": "customer:7"}
    more |= {"headers": {"trace": "x"}, "tags": ["a", "b"]}
    assert {name: full[name] for name in (given | more)} == given | more
    assert bare["value"] is None
    assert (bare["state"], bare["ttr"], bare["priority"], bare["tries"]) == ("ready", 60, 4, 16)


@pytest.mark.parametrize("parts", [1, 3])
def test_many_rows_and_all_of_them_again(
    spark: SparkSession, serving: Serving, topic: str, folder: Path, parts: int
) -> None:
    rows = spark.range(0, 5000, 1, parts).selectExpr(
        f"'{topic}:' || id AS id", "3600 AS delay", "'text ' || id AS body"
    )
    assert counts(write(rows, serving, folder, topic=topic)) == {"rows": 5000, "accepted": 5000}
    assert counts(write(rows, serving, folder, topic=topic)) == {"rows": 5000, "existing": 5000}
    assert serving.totals(topic)["created"] == 5000


def test_rows_of_one_id_take_effect_in_their_order(
    spark: SparkSession, serving: Serving, topic: str, folder: Path
) -> None:
    steps = "stack(4, 0, 'add', 'CREATED', 1, 'update', 'EXTENDED', 2, 'delete', 'PAID', 3, 'add', 'AGAIN')"
    rows = (
        spark.range(0, 300, 1, 1)
        .selectExpr("id AS number", f"{steps} AS (step, action, body)")
        .sort("step", "number")
        .coalesce(1)
        .selectExpr(f"'{topic}:' || number AS id", "3600 AS delay", "body", "action", "0 AS retention")
    )
    assert counts(write(rows, serving, folder, topic=topic, batchSize=100)) == {"rows": 1200, "accepted": 1200}
    jobs = serving.jobs(topic).values()
    assert [job["value"] for job in jobs] == ["AGAIN"] * 300


def test_deletes_that_find_nothing_are_gone_and_finished_jobs_are_too(
    spark: SparkSession, serving: Serving, topic: str, folder: Path
) -> None:
    serving.ask("add", topic=topic, id=f"{topic}:0", body=1)
    lease = serving.ask("pop", topic=topic)["lease"]
    serving.ask("finish", id=f"{topic}:0", lease=lease)
    rows = spark.range(0, 5, 1, 1).selectExpr(f"'{topic}:' || id AS id", "'delete' AS action")
    assert counts(write(rows, serving, folder)) == {"rows": 5, "gone": 5}


def test_rows_of_dead_jobs_are_counted_as_dead_and_stop_no_write(
    spark: SparkSession, serving: Serving, topic: str, folder: Path
) -> None:
    serving.ask("add", topic=topic, id=f"{topic}:0", body=1)
    popped = serving.ask("pop", topic=topic)
    serving.ask("bury", id=popped["id"], lease=popped["lease"])
    rows = spark.range(0, 2, 1, 1).selectExpr(f"'{topic}:' || id AS id", "3600 AS delay")
    assert counts(write(rows, serving, folder, topic=topic)) == {"rows": 2, "accepted": 1, "dead": 1}
    assert serving.ask("get", id=f"{topic}:0")["state"] == "dead"
    again = write(rows, serving, folder, topic=topic, ifExists="renew")
    assert counts(again) == {"rows": 2, "accepted": 1, "existing": 1}


def test_rows_of_deleted_jobs_are_cancelled_and_begin_a_new_life_only_when_renewed(
    spark: SparkSession, serving: Serving, topic: str, folder: Path
) -> None:
    ids = [f"{topic}:{number}" for number in range(5)]
    for each in ids[:4]:  # the last one is new
        serving.ask("add", topic=topic, id=each, body=1)
    for each in ids[:2]:
        serving.ask("delete", id=each)
    finished = serving.ask("pop", topic=topic)
    serving.ask("finish", id=finished["id"], lease=finished["lease"])
    rows = spark.range(0, 5, 1, 1).selectExpr(f"'{topic}:' || id AS id", "3600 AS delay")
    first = write(rows, serving, folder, topic=topic)
    assert counts(first) == {"rows": 5, "accepted": 1, "existing": 2, "cancelled": 2}
    assert serving.ask("get", id=ids[0])["state"] == "deleted"
    again = write(rows, serving, folder, topic=topic, ifExists="renew")
    assert counts(again) == {"rows": 5, "accepted": 3, "existing": 2}
    assert {serving.ask("get", id=each)["state"] for each in ids} == {"delayed", "ready"}


def test_rows_of_deleted_jobs_are_refused_where_ids_must_be_new(
    spark: SparkSession, serving: Serving, topic: str, folder: Path
) -> None:
    serving.ask("add", topic=topic, id=topic, body=1)
    serving.ask("delete", id=topic)
    rows = spark.range(1).selectExpr(f"'{topic}' AS id")
    reported = write(rows, serving, folder, topic=topic, ifExists="reject", onError="skip")
    assert counts(reported) == {"rows": 1, "refused": 1}


def test_rows_of_one_time_are_spread_and_later_rows_move_their_jobs(
    spark: SparkSession, serving: Serving, topic: str, folder: Path
) -> None:
    rows = spark.range(0, 50, 1, 1).selectExpr(f"'{topic}:' || id AS id", "3600 AS delay", "1800 AS spread")
    assert counts(write(rows, serving, folder, topic=topic)) == {"rows": 50, "accepted": 50}
    first = {job["id"]: job["due"] for job in serving.jobs(topic).values()}
    assert 900 < max(first.values()) - min(first.values()) <= 1800
    serving.ask("run", id=f"{topic}:7")
    later = rows.selectExpr("id", "7200 AS delay", "spread")
    moved = write(later, serving, folder, topic=topic, ifExists="later", onError="skip")
    assert counts(moved) == {"rows": 50, "accepted": 49, "refused": 1}
    assert counts(write(rows, serving, folder, topic=topic, ifExists="later", onError="skip")) == {
        "rows": 50,
        "existing": 49,
        "refused": 1,
    }


def test_dead_letters_are_kicked(spark: SparkSession, serving: Serving, topic: str, folder: Path) -> None:
    serving.ask("add", topic=topic, id=topic, body=1)
    serving.ask("pop", topic=topic)
    serving.ask("bury", id=topic)
    rows = spark.range(1).selectExpr(f"'{topic}' AS id", "'kick' AS action")
    assert counts(write(rows, serving, folder)) == {"rows": 1, "accepted": 1}
    assert serving.ask("get", id=topic)["state"] == "ready"


def test_columns_of_other_names_json_text_and_replacing(
    spark: SparkSession, serving: Serving, topic: str, folder: Path
) -> None:
    rows = spark.sql(
        f"""SELECT '{topic}:1' AS order, timestamp'2031-05-06 07:08:09.124+00:00' AS pay_until, '{topic}' AS topic,
          '{{"total": 1.50}}' AS note, '15, 30' AS backoff"""
    )
    serving.ask("add", topic=topic, id=f"{topic}:1", body="old", delay=60)
    options = {"idColumn": "order", "dueAtColumn": "pay_until", "bodyColumn": "note", "bodyFormat": "json"}
    assert counts(write(rows, serving, folder, ifExists="replace", **options)) == {"rows": 1, "accepted": 1}
    job = serving.ask("get", id=f"{topic}:1")
    assert (job["due"], job["value"], job["backoff"]) == (DUE, {"total": 1.5}, [15, 30])


@pytest.mark.parametrize(
    ("column", "options", "mode", "reported"),
    [
        ("raise_error('a row was read') AS body", {"batchsise": "1"}, "append", "unknown option"),
        ("raise_error('a row was read') AS text", {}, "append", "unknown column 'text'"),
        ("raise_error('a row was read') AS body", {}, "overwrite", "a queue cannot be overwritten"),
    ],
)
def test_a_write_that_cannot_work_is_refused_before_a_row_is_read(
    spark: SparkSession, serving: Serving, column: str, options: dict[str, str], mode: str, reported: str
) -> None:
    rows = spark.range(3).selectExpr("'a' AS id", column)
    writing = rows.write.format("jobqueue").options(url=serving.url, topic="t", **options).mode(mode)
    with pytest.raises(AnalysisException) as caught:
        writing.save()
    assert reported in sentence(caught.value)
