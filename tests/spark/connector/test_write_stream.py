"""Stream writes: rows become jobs, and a repeated micro-batch does no harm."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.errors import StreamingQueryException
from pyspark_jobqueue.connector.writer import StreamWriter, stream_writer
from pyspark_jobqueue.pipelines.parts.command_line import sentence

from tests.spark.connector.schemas import parsed
from tests.spark.connector.writing import counts
from tests.spark.serving import Serving

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

EVENTS = "id string, action string, delay int"


class Stream:
    """A folder of JSON files that a query reads to the end, with its checkpoint."""

    def __init__(self, spark: SparkSession, serving: Serving, topic: str, folder: Path) -> None:
        self._spark, self._folder, self._topic = spark, folder, topic
        self.options = {"url": serving.url, "topic": topic, "reportPath": str(folder / "reports")}
        self.input = folder / "input"
        self.input.mkdir()

    def events(self, name: str, *rows: dict[str, Any]) -> None:
        """Add a file."""
        lines = "".join(json.dumps(row) + "\n" for row in rows)
        (self.input / f"{name}.json").write_text(lines)

    def run(self, **options: Any) -> None:
        """Run the query until it has no more input."""
        rows: DataFrame = self._spark.readStream.schema(EVENTS).json(str(self.input))
        query = rows.writeStream.format("jobqueue").options(**{**self.options, **options})
        query = query.queryName(self._topic).option("checkpointLocation", str(self._folder / "checkpoint"))
        query.trigger(availableNow=True).start().awaitTermination()

    def crash(self, batch: int) -> None:
        """Make it look as if the driver had died after sending the rows of a micro-batch and before Spark recorded
        it."""
        for name in (f"{batch}", f".{batch}.crc"):
            (self._folder / "checkpoint" / "commits" / name).unlink()

    def report(self, batch: int) -> dict[str, int]:
        return counts(json.loads((self._folder / "reports" / f"batch-{batch}.json").read_text()))


@pytest.fixture
def stream(spark: SparkSession, serving: Serving, topic: str, folder: Path) -> Stream:
    return Stream(spark, serving, topic, folder)


def add(job_id: str) -> dict[str, Any]:
    return {"id": job_id, "action": "add", "delay": 3600}


def test_a_stream_goes_on_where_it_ended_and_a_repeated_micro_batch_finds_its_jobs(
    stream: Stream, serving: Serving, topic: str, folder: Path
) -> None:
    refused = folder / "refused"
    stream.events("a", add(f"{topic}:1"), add(f"{topic}:2"), add("bad id"))
    stream.run(onError=str(refused))
    stream.events("b", add(f"{topic}:3"), {"id": f"{topic}:1", "action": "delete"})
    stream.run(onError=str(refused))
    assert stream.report(0) == {"rows": 3, "accepted": 2, "refused": 1}
    assert stream.report(1) == {"rows": 2, "accepted": 2}
    stream.crash(1)
    stream.events("c", add(f"{topic}:4"))
    stream.run(onError=str(refused))
    assert stream.report(1) == {"rows": 2, "accepted": 1, "existing": 1}  # the delete counts as done again
    assert stream.report(2) == {"rows": 1, "accepted": 1}
    assert set(serving.jobs(topic)) == {f"{topic}:{number}" for number in (2, 3, 4)}
    assert serving.totals(topic)["created"] == 4
    (file,) = refused.glob("*/*.jsonl")
    assert file.parent.name.endswith("-0")
    assert json.loads(file.read_text())["id"] == "bad id"


def test_a_repeated_micro_batch_takes_the_place_of_its_refused_rows(
    stream: Stream, serving: Serving, topic: str, folder: Path
) -> None:
    refused = folder / "refused"
    stream.events("a", {"id": topic, "action": "update", "delay": 7200}, add("bad id"))
    stream.run(onError=str(refused))
    serving.ask("add", topic=topic, id=topic, body=1, delay=3600)
    stream.crash(0)
    stream.run(onError=str(refused))
    lines = [json.loads(line) for file in refused.glob("*/*") for line in file.read_text().splitlines()]
    assert [line["id"] for line in lines] == ["bad id"]


def test_a_refused_row_ends_the_query(stream: Stream) -> None:
    stream.events("a", add("bad id"))
    with pytest.raises(StreamingQueryException) as caught:
        stream.run()
    assert sentence(caught.value).startswith("row with id 'bad id', column id: id must be")


def test_a_write_within_for_each_batch_is_named_after_its_micro_batch(
    spark: SparkSession, stream: Stream, topic: str, folder: Path
) -> None:
    stream.events("a", add("bad id"))

    def write(rows: DataFrame, batch: int) -> None:
        options = {**stream.options, "onError": str(folder / "refused")}
        rows.write.format("jobqueue").options(**options).mode("append").save()

    rows = spark.readStream.schema(EVENTS).json(str(stream.input)).writeStream.foreachBatch(write)
    query = rows.option("checkpointLocation", str(folder / "each")).trigger(availableNow=True).start()
    query.awaitTermination()
    (file,) = (folder / "refused").glob("*/*.jsonl")
    assert file.parent.name == f"{query.id}-0"


def test_where_spark_has_no_arrow_for_streams_rows_do(spark: SparkSession, serving: Serving, topic: str) -> None:
    schema = parsed("id string, due_at timestamp")
    rows = spark.range(3).selectExpr(f"'{topic}:' || id AS id", "timestamp'2031-01-01 00:00:00.0005' AS due_at")
    writer = stream_writer({"url": serving.url, "topic": topic}, schema)
    plain = StreamWriter(writer._write)
    message: Any = plain.write(iter(rows.collect()))
    assert message.accepted == 3
    assert {job["due"] for job in serving.jobs(topic).values()} == {1924992000.001}
