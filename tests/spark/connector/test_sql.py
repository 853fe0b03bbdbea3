"""A queue as an SQL table: one table serves SELECT and INSERT INTO."""

# ruff: noqa: S608 - the statements are the test's own

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import pyspark
import pytest
from pyspark.errors import PySparkException
from pyspark_jobqueue.pipelines.parts.command_line import sentence

from tests.kit.service import ROOT
from tests.spark.serving import Serving

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

DUE = "timestamp'2031-05-06 07:08:09+00:00'"
UNIX = datetime(2031, 5, 6, 7, 8, 9, tzinfo=UTC).timestamp()

leaves_columns_out = pytest.mark.xfail(
    pyspark.__version__.startswith("4.0."), reason="Spark 4.0 wants every column in an INSERT", strict=True
)


@pytest.fixture(autouse=True)
def tables(spark: SparkSession) -> Iterator[None]:
    """Drops the tables that a test made."""
    yield
    for table in spark.sql("SHOW TABLES").collect():
        spark.sql(f"DROP {'VIEW' if table['isTemporary'] else 'TABLE'} {table['tableName']}")


def view(spark: SparkSession, serving: Serving, name: str, options: str, columns: str = "") -> None:
    spark.sql(f"CREATE TEMPORARY VIEW {name} {columns} USING jobqueue OPTIONS (url '{serving.url}', {options})")


@leaves_columns_out
def test_a_view_is_read_and_written_with_all_columns_or_with_some(
    spark: SparkSession, serving: Serving, topic: str
) -> None:
    view(spark, serving, "jobs", f"topic '{topic}', bodyFormat 'json', ifExists 'reject'")
    spark.sql(f"""INSERT INTO jobs (id, due_at, body) VALUES ('a', {DUE}, '{{"x": 1}}'), ('b', {DUE}, NULL)""")
    spark.sql(f"INSERT INTO jobs BY NAME SELECT 3 AS priority, {DUE} AS due_at, array('t') AS tags, 'c' AS id")
    rows = spark.sql("SELECT id, topic, state, due_at = delayed_until, body, priority, tags FROM jobs ORDER BY id")
    assert [tuple(row) for row in rows.collect()] == [
        ("a", topic, "delayed", True, '{"x":1}', 4, None),
        ("b", topic, "delayed", True, "null", 4, None),
        ("c", topic, "delayed", True, "null", 3, ["t"]),
    ]
    jobs = serving.jobs(topic)
    assert (jobs["a"]["due"], jobs["a"]["value"], jobs["c"]["tags"]) == (UNIX, {"x": 1}, ["t"])


def test_a_view_may_have_columns_of_its_own_under_other_names(
    spark: SparkSession, serving: Serving, topic: str
) -> None:
    options = f"topic '{topic}', dueAtColumn 'pay_until', bodyColumn 'order'"
    view(spark, serving, "closings", options, "(id STRING, pay_until TIMESTAMP, order STRING)")
    spark.sql(f"INSERT INTO closings VALUES ('own', {DUE}, 'text')")
    assert serving.jobs(topic)["own"]["value"] == "text"
    rows = spark.sql("SELECT *, unix_timestamp(pay_until) FROM closings").drop("pay_until").collect()
    assert [tuple(row) for row in rows] == [("own", '"text"', int(UNIX))]


@leaves_columns_out
def test_a_table_is_told_with_each_statement_where_the_service_is(
    spark: SparkSession, serving: Serving, topic: str
) -> None:
    at = f"WITH (url = '{serving.url}', topic = '{topic}')"
    spark.sql(f"CREATE TABLE kept USING jobqueue OPTIONS (url '{serving.url}')")
    spark.sql(f"INSERT INTO kept {at} (id, due_at) VALUES ('t', {DUE})")
    assert [tuple(row) for row in spark.sql(f"SELECT id, state FROM kept {at}").collect()] == [("t", "delayed")]
    with pytest.raises(Exception, match="option url is missing") as caught:
        spark.sql("SELECT * FROM kept").collect()
    assert "add WITH (url = '…') to the statement" in sentence(caught.value)


@leaves_columns_out
def test_what_was_read_is_written_anew_without_the_columns_that_are_only_read(
    spark: SparkSession, serving: Serving, topic: str
) -> None:
    serving.ask(
        "add", topic=topic, id="old", body={"a": [1.0, "é"]}, at=UNIX, key="7", headers={"h": "v"}, ttl=9, ttr=0
    )
    view(spark, serving, "old_jobs", f"topic '{topic}'")
    view(spark, serving, "new_jobs", f"topic '{topic}.new', bodyFormat 'json'")
    columns = "due_at, body, priority, ttr, ttl, retention, tries, backoff, key, headers, tags"
    spark.sql(f"INSERT INTO new_jobs (id, {columns}) SELECT concat('new:', id), {columns} FROM old_jobs")
    old, new = serving.ask("get", id="old"), serving.ask("get", id="new:old")
    others = {"created": 0, "size": 0}  # Spark writes its JSON without blanks
    assert new | others == old | {"id": "new:old", "topic": f"{topic}.new"} | others
    with pytest.raises(Exception, match="state can only be read"):
        spark.sql("INSERT INTO new_jobs SELECT * FROM old_jobs")


@pytest.mark.parametrize("what", ["dead", "stats"])
def test_what_is_no_queue_cannot_be_written(spark: SparkSession, serving: Serving, what: str) -> None:
    view(spark, serving, "read_only", f"what '{what}'")
    with pytest.raises(Exception, match="can only be read") as refused:
        spark.sql("INSERT INTO read_only SELECT * FROM read_only")
    assert sentence(refused.value) == f"what={what} can only be read, not written to"


def test_what_spark_itself_refuses_is_in_the_readme_with_its_cure(spark: SparkSession, serving: Serving) -> None:
    view(spark, serving, "all_columns", "topic 'refused'")
    row = spark.sql(f"SELECT 'a' AS id, {DUE} AS due_at")
    write = row.write.format("jobqueue").options(url=serving.url, topic="refused")
    refused = (
        (write.save, "UNSUPPORTED_DATA_SOURCE_SAVE_MODE"),
        (lambda: spark.sql(f"INSERT INTO all_columns SELECT 'a', {DUE}"), "INSERT_COLUMN_ARITY_MISMATCH"),
    )
    readme = (ROOT / "clients" / "spark" / "README.md").read_text()
    for attempt, code in refused:
        with pytest.raises(PySparkException, match=code):
            attempt()
        assert f"| {code} " in readme
    assert serving.jobs("refused") == {}
