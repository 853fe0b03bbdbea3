"""reconcile --history: expected jobs are compared with what a history tells of their lives."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyspark_jobqueue.errors import BadOption
from pyspark_jobqueue.pipelines import reconcile
from pyspark_jobqueue.pipelines.parts import lives
from pyspark_jobqueue.pipelines.parts.command_line import Report

from buckets.job import State, Verb
from tests.jobqueue.journal.filling import DAY, Values, event_of, life_of
from tests.spark.pipelines.histories import SPAN, exported, journal

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def run(history: str, *flags: str) -> Report:
    asked = ["--history", history, *SPAN, "--topic", "order-close", "--id", "id", *flags]
    return reconcile.reconcile(reconcile.parser().parse_args(asked))


def counts(report: Report) -> dict[str, int]:
    names = ("expected", *lives.KINDS, "duplicates", "without_id")
    return {name: report.figures[name] for name in names if report.figures[name]}


def rows(folder: Path, **due: float | None) -> list[str]:
    """Flags for rows of id and due time, in seconds after the begin of the day."""
    lines = [json.dumps({"id": name, "due": None if at is None else DAY / 1000 + at}) for name, at in due.items()]
    (folder / "rows.json").write_text("\n".join(lines))
    query = "SELECT id, timestamp_micros(bigint(due * 1000000)) AS due FROM input"
    return ["--from", str(folder / "rows.json"), "--sql", query]


def delivered(ms: int, number: int, job_id: str, **more: Any) -> Values:
    of = {"id": job_id, "life": DAY, "due": DAY + 1000, "was": DAY + 1000, "lease": (DAY + ms) * 1000}
    return event_of(DAY + ms, Verb.POP, State.READY, State.RESERVED, deliveries=number, **{**of, **more})


def then(ms: int, verb: Verb, before: State, after: State, job_id: str, **more: Any) -> Values:
    return event_of(DAY + ms, verb, before, after, id=job_id, **{"life": DAY, "due": DAY + 1000, **more})


def told() -> list[Values]:
    ready, reserved, gone = State.READY, State.RESERVED, State.DELETED

    def life(name: str, **more: Any) -> list[Values]:
        return life_of(DAY, name, **more)

    return [
        *life("fine"),
        *life("late", late_ms=5000),
        *life("retried")[:3],
        then(1500, Verb.RELEASE, reserved, ready, "retried"),
        delivered(1600, 2, "retried"),
        *life("twice")[:3],
        then(61_000, Verb.DUE, reserved, ready, "twice"),
        delivered(62_000, 2, "twice"),
        *life("undone")[:3],
        then(1500, Verb.UNPOP, reserved, ready, "undone"),
        delivered(1600, 1, "undone"),
        *life("cancelled")[:1],
        then(500, Verb.DELETE, State.DELAYED, gone, "cancelled"),
        *life("called")[:1],
        then(500, Verb.DELETE, State.DELAYED, gone, "called"),
        delivered(1600, 1, "called"),
        # Created again after its cancel, and delivered then.
        *life("again")[:1],
        then(500, Verb.DELETE, State.DELAYED, gone, "again"),
        *life_of(DAY + 600, "again"),
        *life("stuck")[:2],
        *life("waiting")[:1],
        *life("buried")[:3],
        then(1500, Verb.BURY, reserved, State.DEAD, "buried"),
        then(10, Verb.RESTORE, 0, State.DELAYED, "restored"),  # type: ignore[arg-type]  # none
        *life("restored")[1:],
    ]


def test_each_life_is_reported_by_its_kinds(spark: SparkSession, folder: Path) -> None:
    names = [
        "fine",
        "late",
        "retried",
        "twice",
        "undone",
        "cancelled",
        "called",
        "again",
        "stuck",
        "buried",
        "restored",
    ]
    wanted = rows(folder, **dict.fromkeys(names, 1.0), waiting=90_000.0, never=1.0)
    report = run(exported(folder, told()), *wanted, "--due-at", "due", "--out", str(folder / "out"))
    assert counts(report) == {
        **{"expected": 13, "ok": 4, "waiting": 1, "cancelled": 1, "restored": 1},
        **{"never_added": 1, "undelivered": 1, "late": 1, "twice": 1, "after_cancel": 1, "dead": 1},
    }
    assert not report.well
    kinds = {row["id"]: row["kind"] for row in spark.read.json(str(folder / "out")).collect()}
    assert kinds == {
        **{
            "late": "late",
            "twice": "twice",
            "cancelled": "cancelled",
            "called": "after_cancel",
            "stuck": "undelivered",
        },
        **{"waiting": "waiting", "never": "never_added", "buried": "dead", "restored": "restored"},
    }
    assert {row["id"] for row in report.figures["samples"]} == set(kinds) - {"waiting"}


def test_all_is_well_within_the_tolerance_and_by_the_jobs_own_due_times(spark: SparkSession, folder: Path) -> None:
    url = journal(folder, [*life_of(DAY, "a", late_ms=900), *life_of(DAY, "b", late_ms=2)])
    without_due = rows(folder, a=None, b=None)
    assert counts(run(url, *without_due)) == {"expected": 2, "ok": 2}
    assert run(url, *without_due).well
    report = run(url, *without_due, "--tolerance", "800")
    assert (counts(report), report.well) == ({"expected": 2, "ok": 1, "late": 1}, False)
    # Expected a second before they were due, and added late for that.
    early = rows(folder, a=0.0, b=-5.0)
    assert counts(run(url, *early, "--due-at", "due", "--tolerance", "1100")) == {"expected": 2, "ok": 1, "late": 1}
    with pytest.raises(BadOption, match="--repair and --history exclude each other"):
        run(url, *without_due, "--repair", "--delay", "1")
