"""sla: how late jobs were, and how long they waited."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyspark_jobqueue.errors import BadOption
from pyspark_jobqueue.pipelines import sla
from pyspark_jobqueue.pipelines.parts.command_line import Report

from buckets.job import State, Verb
from tests.jobqueue.journal.filling import DAY, Values, event_of, life_of
from tests.spark.pipelines.histories import HOUR_MS, SPAN, exported, journal

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def run(*flags: str) -> Report:
    return sla.sla(sla.parser().parse_args([*SPAN, *flags]))


def told() -> list[Values]:
    """In the first hour 100 jobs that are 1 to 100 ms late; in the next one a late one, one that is delivered again
    after its lease, and one of another topic that was taken before its time."""
    fine = [event for number in range(100) for event in life_of(DAY + number, f"a:{number}", late_ms=number + 1)]
    then = DAY + HOUR_MS
    same = {"id": "a:again", "life": then, "due": then}
    again = [
        event_of(then, Verb.POP, State.READY, State.RESERVED, was=then, deliveries=1, **same),
        event_of(then + 60_000, Verb.DUE, State.RESERVED, State.READY, was=then, deliveries=1, **same),
        event_of(then + 62_000, Verb.POP, State.READY, State.RESERVED, was=then + 60_000, deliveries=2, **same),
    ]
    taken = event_of(then, Verb.TAKE, State.DELAYED, State.RESERVED, id="b:1", topic="b", due=then + 9, deliveries=1)
    return [*fine, *life_of(then, "a:late", late_ms=5000), *again, taken]


def of(rows: list[dict[str, Any]], *names: str) -> list[tuple[Any, ...]]:
    return [tuple(row[name] for name in names) for row in rows]


def test_lateness_and_waiting_are_told_by_topic_and_hour(spark: SparkSession, folder: Path) -> None:
    history = exported(folder, told())
    report = run("--history", history, "--plot", str(folder / "plot.svg"))
    figures = report.figures
    assert {
        name: figures[name] for name in ("deliveries", "first_deliveries", "late_p50", "late_p99", "late_most")
    } == {
        **{"deliveries": 104, "first_deliveries": 103},
        **{"late_p50": 0.05, "late_p99": 0.1, "late_most": 5.0},
    }
    assert figures["waited_most"] == 5.0
    assert of(figures["topics"], "topic", "deliveries", "first_deliveries", "late_most", "waited_most", "worst") == [
        ("order-close", 103, 102, 5.0, 5.0, "a:late"),
        ("b", 1, 1, 0.0, None, "b:1"),
    ]
    assert of(figures["hours"], "topic", "hour", "deliveries", "late_p50", "late_p99", "waited_p99") == [
        ("b", "2026-11-21T01:00:00Z", 1, 0.0, 0.0, None),
        ("order-close", "2026-11-21T00:00:00Z", 100, 0.05, 0.099, 0.099),
        ("order-close", "2026-11-21T01:00:00Z", 3, 0.0, 5.0, 5.0),
    ]
    assert of(figures["worst_hours"], "hour", "worst")[0] == ("2026-11-21T01:00:00Z", "a:late")
    assert of(figures["worst"], "id", "due", "late_s", "worker")[:2] == [
        ("a:late", "2026-11-21T01:00:01Z", 5.0, "billing-1"),
        ("a:99", "2026-11-21T00:00:01Z", 0.1, "billing-1"),
    ]
    assert json.dumps(figures) and "worst hours" in report.table()
    assert "order-close, p99" in (folder / "plot.svg").read_text()
    of_one = run("--history", history, "--topic", "b*,c").figures
    assert (of_one["deliveries"], [row["topic"] for row in of_one["topics"]]) == (1, ["b"])


def test_a_journal_is_read_without_an_export_and_may_be_empty(
    spark: SparkSession, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = journal(folder, told())
    monkeypatch.setenv("JOBQUEUE_JOURNAL", url)
    figures = run("--topic", "b").figures
    assert (figures["deliveries"], figures["late_most"]) == (1, 0.0)
    (folder / "url").write_text(url)
    plot = str(folder / "plot.png")
    none = run("--history-file", str(folder / "url"), "--topic", "no-such", "--plot", plot)
    assert none.figures["deliveries"] == 0
    assert "deliveries" in none.table()


def test_a_history_that_is_not_there_is_told_in_a_line(spark: SparkSession, folder: Path) -> None:
    with pytest.raises(BadOption, match=r"--history: .*PATH_NOT_FOUND"):
        run("--history", str(folder / "nothing"))
    with pytest.raises(BadOption, match="--since must be before --until"):
        run("--history", str(folder), "--since", "2026-11-23")
