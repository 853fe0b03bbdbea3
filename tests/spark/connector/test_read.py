"""Reads: jobs, dead letters and statistics as Spark tables."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql.types import DoubleType, StringType, StructField, StructType, TimestampType
from pyspark_jobqueue.connector.columns import JOBS, READ_ONLY
from pyspark_jobqueue.connector.reader import reader
from pyspark_jobqueue.errors import BadOption
from pyspark_jobqueue.pipelines.parts.command_line import sentence

from tests.kit.ports import free_port
from tests.spark.serving import Serving

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

TIMES = {
    "due_at": "due",
    "created_at": "created",
    "delayed_until": "until",
    **{name: name for name in ("ready_since", "reserved_until", "dead_since")},
}
SAME = set(JOBS) - set(TIMES) - {"body", "backoff"}
TWO = StructType([StructField("id", StringType()), StructField("due_at", TimestampType())])


def read(spark: SparkSession, serving: Serving, **options: str) -> DataFrame:
    return spark.read.format("jobqueue").options(url=serving.url, **options).load()


def expected(job: dict[str, Any]) -> dict[str, Any]:
    """The row of a job, made from the answer of `get`."""
    instants = {name: job.get(field) for name, field in TIMES.items()}
    return {
        **{name: job.get(name) for name in SAME},
        **{name: at and datetime.fromtimestamp(round(at * 1000) / 1000, UTC) for name, at in instants.items()},
        "body": json.dumps(job["value"], separators=(",", ":"), ensure_ascii=False),
        "backoff": job["backoff"] or None,
    }


def in_utc(row: dict[str, Any]) -> dict[str, Any]:
    return {name: each.astimezone(UTC) if isinstance(each, datetime) else each for name, each in row.items()}


def test_a_job_in_each_state_has_in_its_columns_what_get_tells(
    spark: SparkSession, serving: Serving, topic: str
) -> None:
    full = {"priority": 7, "tries": 9, "ttr": 2.5, "ttl": 100_000, "retention": 5, "backoff": [1.5, 1000]}
    deep = json.loads("[" * 500 + "]" * 500)  # as deep as the service accepts
    full |= {"headers": {"trace": "a", "x": "b"}, "tags": ["p", "q"], "body": {"text": "é ☂", "list": [1.0, None]}}
    serving.ask("add", topic=topic, id="full", delay=86_400, key="7", **full)
    for name in ("dead", "released", "reserved", "ready"):
        serving.ask("add", topic=topic, id=name, body=deep if name == "ready" else None, ttr=3600)
    for _ in range(3):
        serving.ask("pop", topic=topic, worker="w-1")
    serving.ask("bury", id="dead", reason="no such shop")
    serving.ask("release", id="released", delay=3600)
    rows = {row["id"]: in_utc(row.asDict()) for row in read(spark, serving, topic=topic).collect()}
    states = {name: row["state"] for name, row in rows.items()}
    assert states == {
        **{"full": "delayed", "released": "delayed", "ready": "ready"},
        **{"reserved": "reserved", "dead": "dead"},
    }
    for name, row in rows.items():
        assert row == expected(serving.ask("get", id=name))
    assert rows["released"]["due_at"] < rows["released"]["delayed_until"]
    assert (rows["dead"]["cause"], rows["dead"]["reason"]) == ("buried", "no such shop")
    assert list(rows["dead"]) == list(JOBS)


def test_topics_and_states_are_chosen_and_each_of_many_jobs_is_met_once(
    spark: SparkSession, serving: Serving, topic: str
) -> None:
    for number, name in enumerate((f"{topic}.a", f"{topic}.b", f"other.{topic}")):
        for at in range(0, 2500, 500):
            ids = [f"{name}:{at + place}" for place in range(500)]
            delay = number * 86_400  # the jobs of the first topic are ready
            serving.batch([{"command": "add", "topic": name, "id": each, "body": 1, "delay": delay} for each in ids])
    serving.ask("pop", topic=f"{topic}.a")
    serving.ask("bury", id=f"{topic}.a:0")

    def counts(**options: str) -> dict[tuple[str, str], int]:
        rows = read(spark, serving, **options).groupBy("topic", "state").count().collect()
        return {(row["topic"].removeprefix(topic), row["state"]): row["count"] for row in rows}

    assert counts(topic=f"{topic}*") == {(".a", "ready"): 2499, (".a", "dead"): 1, (".b", "delayed"): 2500}
    assert counts(topic=f"{topic}.a, nothing", state="Dead") == {(".a", "dead"): 1}
    assert counts(topic=f"{topic}.?", what="dead") == {(".a", "dead"): 1}
    assert read(spark, serving, topic=f"{topic}.b").select("id").distinct().count() == 2500


def test_the_figures_of_a_topic_are_a_row(spark: SparkSession, serving: Serving, topic: str) -> None:
    jobs = [
        {"command": "add", "topic": topic, "id": f"{topic}:{place}", "body": 1, "delay": place} for place in (0, 900)
    ]
    serving.batch(jobs)
    serving.ask("pause", topic=topic, seconds=3600)
    (row,) = read(spark, serving, topic=f"{topic}*", what="stats").collect()
    assert (row["topic"], row["delayed"], row["ready"], row["reserved"], row["dead"]) == (topic, 1, 1, 0, 0)
    assert row["totals"] == serving.totals(topic)
    assert row["oldest_ready"] >= 0
    assert row["paused"]
    assert row["paused_until"].timestamp() > datetime.now(UTC).timestamp() + 1000


def test_a_query_may_name_its_columns(spark: SparkSession, serving: Serving, topic: str) -> None:
    serving.ask("add", topic=topic, id="named", body=[1, 2], delay=900)
    made = spark.read.format("jobqueue").options(url=serving.url, topic=topic, bodyColumn="payload")
    rows = made.schema("payload STRING, STATE STRING").load().collect()
    assert [row.asDict() for row in rows] == [{"payload": "[1,2]", "STATE": "delayed"}]


def test_what_fits_nothing_is_an_empty_table_with_its_columns(spark: SparkSession, serving: Serving) -> None:
    jobs, stats = read(spark, serving, topic="no-such-*"), read(spark, serving, topic="no-such-*", what="stats")
    assert (jobs.columns, jobs.collect(), stats.collect()) == (list(JOBS), [], [])


def test_an_unreachable_service_is_reported_in_a_sentence(spark: SparkSession) -> None:
    url = f"http://127.0.0.1:{free_port()}"
    frame = spark.read.format("jobqueue").options(url=url, retryWaitMs="1").load()
    with pytest.raises(Exception, match="gave up") as caught:
        frame.count()
    assert sentence(caught.value).startswith(f"gave up after 4 retries: {url} does not answer: ConnectionRefused")


def test_a_wrong_option_is_reported_when_the_read_is_planned(subtests: pytest.Subtests) -> None:
    cases: list[tuple[dict[str, str], str]] = [
        ({"what": "job"}, "option what must be one of jobs, dead, stats, history, not 'job'"),
        ({"state": "ready,gone"}, "option state must be one of delayed, ready, reserved, dead with what=jobs"),
        ({"what": "dead", "state": "ready"}, "option state must be one of dead with what=dead, not 'ready'"),
        ({"what": "stats", "state": "ready"}, "option state is only for reading jobs: what=stats counts all states"),
        ({"topic": "a b"}, "'a b' is not"),
        ({"topik": "a"}, "unknown option 'topik'; did you mean topic?"),
        ({"url": ""}, "option url is empty"),
    ]
    for options, words in cases:
        with subtests.test(options=options, words=words):
            schema = StructType([StructField("topic", StringType())])
            with pytest.raises(BadOption) as caught:
                reader({"url": "http://127.0.0.1:1", **options}, schema)
            assert words in str(caught.value)


@pytest.mark.parametrize(
    ("field", "words"),
    [
        (StructField("due", TimestampType()), "unknown column 'due' in a read; did you mean due_at? Available: id,"),
        (StructField("delay", DoubleType()), "unknown column 'delay' in a read"),
        (StructField("Due_At", StringType()), "column Due_At has type timestamp in a read, not string"),
    ],
)
def test_an_unknown_column_is_reported_when_the_read_is_planned(field: StructField, words: str) -> None:
    with pytest.raises(BadOption) as caught:
        reader({"url": "http://127.0.0.1:1"}, StructType([field]))
    assert words in str(caught.value)


def test_the_options_of_a_write_may_stand_beside_those_of_a_read() -> None:
    options = {"url": "http://127.0.0.1:1", "batchSize": "7", "onError": "skip", "bodyFormat": "json", "ttrColumn": "t"}
    assert reader(options, TWO)


def test_what_nobody_writes_is_a_column_of_a_read() -> None:
    assert set(READ_ONLY) < set(JOBS)


@contextmanager
def two_shards(asked: list[dict[str, Any]]) -> Iterator[str]:
    """The URL of a service with two shards, as on a Cluster, whose first pages are empty."""
    job = {"id": "a", "state": "ready", "topic": "t", "value": 1, "due": 1.5, "created": 1, "backoff": []}

    class Answers(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            (command,) = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            asked.append(command)
            more = "more" if command.get("cursor") is None else None
            answers: dict[str, dict[str, Any]] = {
                "topics": {"topics": [{"topic": "t"}] if more is None else [], "cursor": more},
                "stats": {"shards": 2},
                "peek": {"jobs": [job] if more is None else [], "cursor": more},
            }
            data = json.dumps([{"success": True, **answers[command["command"]]}]).encode()
            self.send_response(200)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, *_: Any) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Answers) as server:
        threading.Thread(target=server.serve_forever).start()
        yield f"http://127.0.0.1:{server.server_address[1]}"
        server.shutdown()


def test_each_shard_is_walked_over_to_its_end_though_a_page_is_empty() -> None:
    asked: list[dict[str, Any]] = []
    with two_shards(asked) as url:
        made = reader({"url": url, "state": "ready"}, TWO)
        batches: list[Any] = [batch for part in made.partitions() for batch in made.read(part)]
    rows = [row for batch in batches for row in batch.to_pylist()]
    assert rows == [{"id": "a", "due_at": datetime(1970, 1, 1, 0, 0, 1, 500_000, UTC)}] * 2
    walks = [(each["shard"], each["state"], each["cursor"]) for each in asked if each["command"] == "peek"]
    assert walks == [(0, "ready", None), (0, "ready", "more"), (1, "ready", None), (1, "ready", "more")]
