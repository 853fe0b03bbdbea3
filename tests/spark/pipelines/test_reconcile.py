"""reconcile: expected jobs are compared with those in the queue."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyspark_jobqueue.connector.options import Given, Target
from pyspark_jobqueue.connector.service import Service
from pyspark_jobqueue.errors import BadOption
from pyspark_jobqueue.pipelines import reconcile
from pyspark_jobqueue.pipelines.parts import comparison
from pyspark_jobqueue.pipelines.parts.command_line import Report

from tests.spark.serving import Serving

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LATER = 2_000_000_000


def run(serving: Serving, topic: str, *flags: str) -> Report:
    return reconcile.reconcile(reconcile.parser().parse_args(["--url", serving.url, "--topic", topic, *flags]))


def counts(report: Report) -> dict[str, int]:
    names = ("expected", *comparison.KINDS, "duplicates", "without_id", "repaired")
    return {name: report.figures[name] for name in names if report.figures.get(name)}


def table(folder: Path, *rows: dict[str, Any]) -> list[str]:
    """Flags for rows of id and due time (seconds after LATER)."""
    lines = [json.dumps({**row, "due": LATER + row.get("due", 0)}) for row in rows]
    (folder / "orders.json").write_text("\n".join(lines))
    query = "SELECT id, timestamp_micros(bigint(due * 1000000)) AS due FROM input"
    return ["--from", str(folder / "orders.json"), "--sql", query, "--id", "id"]


def add(serving: Serving, topic: str, name: str, **more: Any) -> None:
    serving.ask("add", **{"topic": topic, "id": name, "body": 1, "at": LATER, "retention": 600, **more})


def test_each_kind_is_reported_and_what_is_missing_is_repaired(
    spark: SparkSession, serving: Serving, topic: str, folder: Path
) -> None:
    add(serving, topic, "c/fine")
    add(serving, topic, "c/rounded", at=LATER + 0.002)
    add(serving, topic, "c/late", at=LATER + 5)
    add(serving, topic, "c/stray")
    add(serving, f"{topic}.b", "c/astray")
    for name in ("c/done", "c/dead", "c/retried"):
        add(serving, topic, name, at=1)
        assert serving.ask("pop", topic=topic)["id"] == name
        serving.ask({"c/done": "finish", "c/dead": "bury", "c/retried": "release"}[name], id=name)
    add(serving, topic, "c/cancelled")
    serving.ask("delete", id="c/cancelled")
    names = ["fine", "late", "astray", "done", "dead", "retried", "cancelled", "lost"]
    dues = {"rounded": 0.001001, "lost": 7.0, "twice": 9.0, "retried": -LATER}
    rows = [{"id": f"c/{name}", "due": dues.get(name, 0.0)} for name in (*names, "rounded", "twice", "twice")]
    flags = [*table(folder, *rows, {"id": None}), "--due-at", "due", "--body", "struct(id AS order)"]
    found = {"expected": 10, "ok": 3, "finished": 1, "deleted": 1, "unexpected": 1, "wrong_due": 1, "wrong_topic": 1}
    found |= {"dead": 1, "duplicates": 1, "without_id": 1}
    report = run(serving, topic, *flags, "--out", str(folder / "out"))
    assert counts(report) == {**found, "missing": 2}
    assert not report.well
    assert {(row["kind"], row["id"]) for row in report.figures["samples"]} >= {
        *(("missing", "c/lost"), ("missing", "c/twice"), ("unexpected", "c/stray"), ("wrong_due", "c/late")),
        *(("wrong_topic", "c/astray"), ("dead", "c/dead"), ("deleted", "c/cancelled")),
    }
    written = {row["id"]: row for row in spark.read.json(str(folder / "out")).collect()}
    assert {each: row["kind"] for each, row in written.items()} == {
        **{"c/lost": "missing", "c/twice": "missing", "c/stray": "unexpected", "c/late": "wrong_due"},
        **{"c/astray": "wrong_topic", "c/dead": "dead", "c/cancelled": "deleted", "c/done": "finished"},
    }
    assert written["c/late"]["expected"] == ["2033-05-18T03:33:20.000Z"]
    assert written["c/late"]["found"] == "2033-05-18T03:33:25.000Z"
    report = run(serving, topic, *flags, "--repair")
    assert counts(report) == {**found, "missing": 2, "repaired": 2}
    assert not report.well  # the others are still wrong
    jobs = serving.jobs(topic)
    assert (jobs["c/lost"]["value"], jobs["c/lost"]["due"]) == ({"order": "c/lost"}, LATER + 7)
    assert jobs["c/twice"]["due"] == LATER + 9


def test_all_is_well_when_each_job_is_there_or_was_added_now(
    spark: SparkSession, serving: Serving, topic: str, folder: Path
) -> None:
    flags = table(folder, {"id": "w/1"}, {"id": "w/2"})
    add(serving, topic, "w/1", at=LATER + 0.004)
    report = run(serving, topic, *flags)  # without --due-at: by id only
    assert report.well is False
    assert counts(report) == {"expected": 2, "ok": 1, "missing": 1}
    due = ["--due-at", "due"]
    assert counts(run(serving, topic, *flags, *due, "--tolerance", "3"))["wrong_due"] == 1
    report = run(serving, topic, *flags, *due, "--tolerance", "4", "--repair")
    assert counts(report) == {"expected": 2, "ok": 1, "missing": 1, "repaired": 1}
    assert report.well
    assert counts(run(serving, topic, *flags, *due, "--tolerance", "4")) == {"expected": 2, "ok": 2}


def test_a_missing_job_that_cannot_be_added_stays_missing(
    spark: SparkSession, serving: Serving, topic: str, folder: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    flags = [*table(folder, {"id": "m 1"}, {"id": "m/2", "due": -LATER}), "--due-at", "due", "--repair"]
    report = run(serving, topic, *flags)
    assert counts(report) == {"expected": 2, "missing": 2, "repaired": 1}
    assert (report.figures["refused"], report.figures["missing_past_due"], report.well) == (1, 1, False)
    assert "1 of the missing jobs were due before now" in capfd.readouterr().err
    assert counts(run(serving, topic, *flags)) == {"expected": 2, "ok": 1, "missing": 1}
    with pytest.raises(BadOption, match="--repair needs --due-at or --delay"):
        run(serving, topic, *flags[:-3], "--repair")
    for several in ("orders-*", "orders,invoices"):
        with pytest.raises(BadOption, match="--topic must be 1 to 255 characters"):
            run(serving, several, *flags)
    with pytest.raises(BadOption, match="--tolerance must be 0 or more"):
        run(serving, topic, *flags, "--tolerance", "-1")


def test_what_changed_since_the_walk_is_reported_as_it_is_now(
    spark: SparkSession, serving: Serving, topic: str
) -> None:
    add(serving, topic, "n/moved")
    add(serving, topic, "n/gone", at=1)
    add(serving, topic, "n/twice")
    add(serving, topic, "n/moved-and-gone")
    names = ["n/moved", "n/never", "n/twice", "n/moved-and-gone"]
    seen = "state string, id string, due double, created double"
    walk = [("delayed", "n/gone", 1, 0), ("delayed", "n/twice", LATER, 0), ("ready", "n/twice", LATER, 0)]
    walk += [(state, "n/moved-and-gone", LATER, 0) for state in ("delayed", "ready")]
    for name in ("n/gone", "n/moved-and-gone"):
        serving.ask("delete", id=name)
    walked = spark.createDataFrame([(*each[:2], *map(float, each[2:])) for each in walk], seen).selectExpr(
        "state", "id", "timestamp_seconds(due) AS due_at", "timestamp_seconds(created) AS created_at"
    )
    rows = spark.createDataFrame([(name,) for name in names], "id string")
    wanted = comparison.expected(rows, rows["id"], None)
    result = comparison.compared(wanted, walked, topic, 0, {"url": serving.url}).collect()
    kinds = {"n/moved": "ok", "n/never": "missing", "n/twice": "ok", "n/moved-and-gone": "deleted"}
    assert {row["id"]: row["kind"] for row in result} == kinds


def test_many_large_bodies_are_looked_up_though_one_answer_cannot_hold_them(serving: Serving, topic: str) -> None:
    large = "x" * 200_000
    names = [f"l/{number}" for number in range(60)]
    serving.batch([{"command": "add", "topic": topic, "id": name, "body": large, "delay": 99} for name in names])
    service = Service(Target.of(Given({"url": serving.url})))
    began = time.time()
    found = comparison.answers(service, [*names, "l/none", names[0]])
    service.close()
    assert set(found) == set(names)
    assert all(answer["state"] == "delayed" and answer["due"] < began + 99 for answer in found.values())
