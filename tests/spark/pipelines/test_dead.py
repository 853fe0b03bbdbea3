"""dead: dead letters are grouped, and kicked on request."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from typing import TYPE_CHECKING, Any

import pytest
from pyspark_jobqueue.errors import BadOption
from pyspark_jobqueue.pipelines import dead
from pyspark_jobqueue.pipelines.parts.command_line import Report

from tests.spark.serving import Serving

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def run(serving: Serving, *flags: str) -> Report:
    return dead.dead(dead.parser().parse_args(["--url", serving.url, *flags]))


def bury(serving: Serving, topic: str, ids: list[str], reason: str | None) -> None:
    """Add jobs that a worker then buries."""
    serving.batch([{"command": "add", "topic": topic, "id": each, "body": "secret"} for each in ids])
    popped = serving.ask("pop", topic=topic, count=len(ids))["jobs"]
    assert sorted(job["id"] for job in popped) == sorted(ids)
    serving.batch([{"command": "bury", "id": each, "reason": reason} for each in ids])


def groups(report: Report) -> dict[tuple[str, str], tuple[int, str]]:
    return {(row["topic"], row["reason"]): (row["jobs"], row["samples"]) for row in report.figures["largest"]}


def test_dead_letters_are_reported_by_topic_hour_and_reason_with_samples_and_no_bodies(
    spark: SparkSession, serving: Serving, topic: str
) -> None:
    bury(serving, f"{topic}.a", [f"h{number}" for number in range(5)], "HTTP 410")
    bury(serving, f"{topic}.a", ["long1"], "x" * 80 + "1")
    bury(serving, f"{topic}.a", ["long2"], "x" * 80 + "2")
    bury(serving, f"{topic}.b", ["none"], None)
    serving.ask("add", topic=f"{topic}.b", id="alive", body=1)
    before = time.time()
    report = run(serving, "--topic", f"{topic}*", "--since", "2h")
    assert (report.figures["dead"], report.figures["groups"], report.well) == (8, 3, True)
    assert groups(report) == {
        (f"{topic}.a", "HTTP 410"): (5, "h0 h1 h2"),
        (f"{topic}.a", "x" * 80): (2, "long1 long2"),
        (f"{topic}.b", ""): (1, "none"),
    }
    first = report.figures["largest"][0]
    assert (first["cause"], first["hour"]) == ("buried", time.strftime("%Y-%m-%dT%H:00Z", time.gmtime(before)))
    assert "secret" not in report.table()
    assert groups(run(serving, "--topic", f"{topic}*", "--reason", "%x1")) == {(f"{topic}.a", "x" * 80): (1, "long1")}
    assert run(serving, "--topic", f"{topic}*", "--since", "2099-01-01").figures["dead"] == 0


def test_a_redrive_kicks_what_was_found_and_nothing_else_and_twice_is_harmless(
    spark: SparkSession, serving: Serving, topic: str
) -> None:
    bury(serving, topic, ["r1", "r2", "r3"], "timed out after 10 s")
    bury(serving, topic, ["other"], "HTTP 410")
    flags = ["--topic", topic, "--reason", "timed out%", "--redrive"]
    result = run(serving, *flags, "--rate", "100").figures
    assert (result["dead"], result["kicked"], result["refused"]) == (3, 3, 0)
    jobs = serving.jobs(topic)
    states = {name: (job["state"], job["attempt"]) for name, job in jobs.items()}
    assert states == {"other": ("dead", 1), **dict.fromkeys(("r1", "r2", "r3"), ("ready", 0))}
    result = run(serving, *flags).figures
    assert (result["dead"], result["kicked"], result["refused"]) == (0, 0, 0)


def test_who_is_alive_again_when_it_is_kicked_is_refused_and_counted(
    spark: SparkSession, serving: Serving, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    bury(serving, topic, ["k1", "k2"], "why")
    tell = dead._note

    def kicked_meanwhile(*arguments: Any) -> None:
        tell(*arguments)
        serving.ask("kick", id="k1")

    monkeypatch.setattr(dead, "_note", kicked_meanwhile)
    result = run(serving, "--topic", topic, "--redrive").figures
    assert (result["dead"], result["kicked"], result["refused"]) == (2, 1, 1)


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (["--since", "yesterday"], "--since must be like 2026-11-21T10:00Z, or like 90m, 24h or 7d, not 'yesterday'"),
        (["--rate", "5"], "--rate requires --redrive"),
        (["--redrive", "--rate", "0"], "--rate must be at least 1, not 0"),
    ],
)
def test_an_invalid_flag_is_reported_before_anything_is_read(flags: list[str], words: str) -> None:
    with pytest.raises(BadOption) as caught:
        dead.dead(dead.parser().parse_args(flags))
    assert str(caught.value) == words


@pytest.mark.slow
def test_as_a_program_it_prints_a_line_of_json(serving: Serving, topic: str) -> None:
    bury(serving, topic, ["p1"], "why")
    program = [sys.executable, "-m", "pyspark_jobqueue.pipelines.dead", "--topic", topic, "--master", "local[1]"]
    program += ["--conf", "spark.ui.enabled=false", "--conf", "spark.driver.host=127.0.0.1"]
    environment = {**os.environ, "JOBQUEUE_URL": serving.url}
    ran = subprocess.run(program, check=False, capture_output=True, text=True, env=environment, timeout=120)
    assert ran.returncode == 0, ran.stderr
    assert '"samples": "p1"' in ran.stdout
