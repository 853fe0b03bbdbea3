"""Reads of what=history: the events of a journal."""

from __future__ import annotations

import asyncio
import pickle
import sys
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.dataset
import pytest
from pyspark.sql.types import LongType, StringType, StructField, StructType
from pyspark_jobqueue.connector.history import HistoryOptions, HistoryReader, Journal
from pyspark_jobqueue.connector.read_options import columns
from pyspark_jobqueue.connector.reader import reader
from pyspark_jobqueue.errors import BadOption, Unreachable

from buckets.job import State, Verb
from tests.jobqueue.journal.conftest import (  # noqa: F401 - fixtures
    journal_database,
    journal_url,
    mariadb,
    postgresql,
    sqlite_url,
)
from tests.jobqueue.journal.export.exporting import export, lives
from tests.jobqueue.journal.filling import DAY, Values, event_of, fill, found, life_of, position_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

HOUR_MS = 3_600_000


def journal(url: str, events: list[Values], shards: int = 1) -> None:
    asyncio.run(found(url))
    positions = [position_of(DAY + 9 * HOUR_MS, shard) for shard in range(shards)]
    asyncio.run(fill(url, events=events, positions=positions))


def read(url: str, **options: str) -> list[dict[str, Any]]:
    """What the tasks of a read yield, without Spark."""
    given = {"what": "history", "journal": url, **options}
    made = HistoryReader(HistoryOptions.of(given), columns(given))
    made = pickle.loads(pickle.dumps(made))  # noqa: S301 - our own
    batches = [batch for partition in made.partitions() for batch in made.read(partition)]
    return list(pa.Table.from_batches(batches).to_pylist()) if batches else []


def test_a_history_has_the_rows_and_the_columns_of_the_export(journal_url: str, tmp_path: Path) -> None:  # noqa: F811
    odd = {"id": "order:o", "life": DAY + 5000, "reason": 'a "b",\r\n\N{SNOWMAN}', "actor": "eve"}
    events = [
        *lives(40, DAY + 7, apart_ms=HOUR_MS // 7, shards=3),
        event_of(DAY + 9000, Verb.DUE, State.RESERVED, State.READY, cause=4, seq=1000, **odd),
        event_of(DAY + 9600, Verb.PAUSE, 0, 0, id="", life=0, due=0, next=0, was=DAY + 99, seq=1001),
        event_of(DAY + 9700, Verb.WALK, 0, State.DEAD, branch=-1, seq=1002, **odd),
    ]
    journal(journal_url, events, shards=3)
    asyncio.run(export(journal_url, tmp_path / "out"))
    files = pyarrow.dataset.dataset(tmp_path / "out" / "events").to_table()
    rows = read(journal_url)
    assert sorted(rows, key=repr) == sorted(files.to_pylist(), key=repr)
    assert len(rows) == 162
    assert list(rows[0]) == files.schema.names


def test_there_is_a_task_for_each_shard_and_each_hour_with_events(sqlite_url: str) -> None:  # noqa: F811
    journal(sqlite_url, [*lives(4, DAY, shards=2), *lives(4, DAY + 5 * HOUR_MS, shards=2)], shards=2)
    options = {"what": "history", "journal": sqlite_url}

    def hours(**more: str) -> list[tuple[int, int, int]]:
        made = HistoryReader(HistoryOptions.of({**options, **more}), columns(options))
        parts = (each.value for each in made.partitions())
        return [(each.shard, each.begin_ms - DAY, each.end_ms - DAY) for each in parts]

    assert hours() == [
        *((shard, 0, HOUR_MS) for shard in range(2)),
        *((shard, 5 * HOUR_MS, 6 * HOUR_MS) for shard in range(2)),
    ]
    assert hours(since="2026-11-21T05:00:01", until="2026-11-21T05:30Z") == [
        (shard, 5 * HOUR_MS + 1000, 5 * HOUR_MS + HOUR_MS // 2) for shard in range(2)
    ]
    assert hours(until="2026-11-21") == []


def test_topics_sources_and_columns_are_chosen(journal_url: str) -> None:  # noqa: F811
    topics = ["close", "close-late", "Close", "c_ose", "c%2Fose"]
    journal(journal_url, [event for name in topics for event in life_of(DAY, f"o:{name}", topic=name)])
    other = [{**each, "source": "other"} for each in life_of(DAY, "o:other", topic="close")]
    asyncio.run(fill(journal_url, events=other, positions=[position_of(DAY, 1, source="other")]))

    def ids(**options: str) -> list[str]:
        return sorted({row["id"] for row in read(journal_url, source="jq", **options)})

    assert ids(topic="close") == ["o:close"]
    assert ids(topic="close*, Close") == ["o:Close", "o:close", "o:close-late"]
    assert ids(topic="c_*") == ["o:c_ose"]
    assert ids(topic="c%2F*,nothing") == ["o:c%2Fose"]
    assert ids(topic="c?ose") == ["o:c_ose", "o:close"]
    assert len(read(journal_url, source="other")) == 0  # its shard is another one
    with pytest.raises(BadOption, match="the journal has no source 'none'; its sources: jq, other"):
        read(journal_url, source="none")
    two = StructType([StructField("LIFE", LongType()), StructField("id", StringType())])
    with pytest.raises(BadOption, match="column LIFE has type timestamp in a read, not bigint"):
        reader({"what": "history", "journal": journal_url}, two)


def test_spark_reads_a_history(spark: SparkSession, sqlite_url: str) -> None:  # noqa: F811
    journal(sqlite_url, lives(20, DAY, apart_ms=HOUR_MS // 15, shards=2), shards=2)

    def frame(**options: str) -> DataFrame:
        return spark.read.format("jobqueue").options(what="history", journal=sqlite_url, **options).load()

    counted = frame().groupBy("what").count().collect()
    assert {row["what"]: row["count"] for row in counted} == dict.fromkeys(
        ("added", "fell due", "delivered", "finished"), 20
    )
    assert frame(until="2026-11-01").count() == 0
    made = spark.read.format("jobqueue").options(what="history", journal=sqlite_url).schema("ID STRING, due TIMESTAMP")
    assert Counter(row["ID"] for row in made.load().collect())["order:7"] == 4
    with pytest.raises(Exception, match="there is no file /no/such"):
        spark.read.format("jobqueue").options(what="history", journal="sqlite:////no/such").load().count()


def test_the_password_of_a_journal_is_in_no_plan_and_no_error(
    spark: SparkSession, capfd: pytest.CaptureFixture[str]
) -> None:
    url = "postgresql://jobqueue:s3cret@127.0.0.1:1/journal?password=s3cret"
    frame = spark.read.format("jobqueue").options(what="history", journal=url).load()
    frame.explain("extended")
    frame.createOrReplaceTempView("of_a_journal")
    spark.sql("EXPLAIN FORMATTED SELECT id FROM of_a_journal").show(truncate=False)
    spark.sql("DESCRIBE EXTENDED of_a_journal").show(truncate=False)
    with pytest.raises(Exception, match=r"the journal postgresql://jobqueue:\*\*\*@127.0.0.1:1/") as error:
        frame.count()
    shown = capfd.readouterr()
    assert "s3cret" not in shown.out + shown.err + str(error.value)
    assert "jobqueue" in shown.out


def test_a_wrong_option_is_reported_in_a_sentence(subtests: pytest.Subtests) -> None:
    cases: list[tuple[dict[str, str], str]] = [
        ({}, "the journal is not named: set option journal or journalFile, or JOBQUEUE_JOURNAL of the driver"),
        ({"journal": "sqlite:///x", "journalFile": "y"}, "options journal and journalFile exclude each other"),
        (
            {"journal": "redis://:s3cret@h/x"},
            "option journal must be like sqlite:///PATH, .*; 'redis://:\\*\\*\\*@h/x' is not",
        ),
        ({"journal": "postgresql://u:s3cret@h"}, "option journal must be like"),
        ({"journalFile": "/no/such"}, "the file of option journalFile cannot be read: No such file"),
        ({"journal": "sqlite:///x", "since": "yesterday"}, "option since must be like 2026-11-21T10:00Z"),
        ({"journal": "sqlite:///x", "state": "dead"}, "unknown option 'state'"),
    ]
    for options, sentence in cases:
        with subtests.test(options=options, sentence=sentence):
            with pytest.raises(BadOption, match=sentence) as error:
                HistoryOptions.of({"what": "history", **options})
            assert "s3cret" not in str(error.value)


def test_a_journal_comes_from_its_option_its_file_or_the_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def url(**options: str) -> str:
        return HistoryOptions.of({"what": "history", "url": "http://h", **options}).journal.url

    file = tmp_path / "url"
    file.write_text("postgresql://h/filed\n")
    monkeypatch.setenv("JOBQUEUE_JOURNAL", "postgresql://h/environment")
    assert url() == "postgresql://h/environment"
    assert url(journal="mysql://h/given") == "mysql://h/given"
    assert url(journalFile=str(file)) == "postgresql://h/filed"


def test_a_driver_that_is_missing_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    for scheme, library in (("postgresql", "asyncpg"), ("mariadb", "asyncmy")):
        monkeypatch.setitem(sys.modules, library, None)
        with pytest.raises(BadOption, match=rf"a library on the driver and on all executors .* '{library}>="):
            Journal(f"{scheme}://h/d").all("SELECT 1")


def test_a_database_without_a_journal_is_told(tmp_path: Path) -> None:
    (tmp_path / "empty.db").touch()
    with pytest.raises(Unreachable, match=r"the journal sqlite:///.*empty.db: no such table: jq_position"):
        read(f"sqlite:///{tmp_path}/empty.db")
