"""forecast: what will fall due when, and the backlog that a rate leaves."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from pyspark_jobqueue.errors import BadOption
from pyspark_jobqueue.pipelines import forecast
from pyspark_jobqueue.pipelines.parts import histogram
from pyspark_jobqueue.pipelines.parts.command_line import Report, instant
from pyspark_jobqueue.pipelines.parts.histogram import backlog

from tests.spark.serving import Serving

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

DAY = 86_400


def run(serving: Serving, *flags: str) -> Report:
    return forecast.forecast(forecast.parser().parse_args(["--url", serving.url, *flags]))


def fill(serving: Serving, topic: str, times: list[float]) -> None:
    jobs = [{"command": "add", "topic": topic, "id": f"{topic}:{place}", "body": 1} for place in range(len(times))]
    serving.batch([{**job, "at": at} for job, at in zip(jobs, times, strict=True)])


def midnight(days: int) -> int:
    """Midnight UTC, a number of days from now, in unix seconds."""
    return (int(time.time()) // DAY + days) * DAY


@pytest.mark.parametrize(
    ("due", "rate", "due_now", "points", "worked_off_at"),
    [
        # Just as many as can be worked off: no backlog.
        ({1000: 600}, 10, 0, [(1000, 0), (1060, 0)], None),
        # Of 900 in a minute 300 remain, which are worked off in the next minute and a half, along with its own.
        ({1000: 900, 1060: 300, 1120: 0}, 10, 0, [(1000, 0), (1060, 300), (1120, 0), (1120, 0), (1180, 0)], 1120),
        # What is waiting already is gone after 5 s, in the gap before the slot.
        ({1060: 60}, 10, 50, [(1000, 50), (1005, 0), (1060, 0), (1120, 0)], 1005),
        # What is left at the end is worked off after the last slot.
        ({1000: 1200}, 10, 0, [(1000, 0), (1060, 600), (1120, 0)], 1120),
        # A slot in progress: all of its jobs fall due in what is left of it.
        ({960: 100}, 2, 0, [(1000, 0), (1020, 60), (1050, 0)], 1050),
        ({}, 2, 0, [(1000, 0)], None),
        ({}, 2, 10, [(1000, 10), (1005, 0)], 1005),
    ],
)
def test_a_backlog_grows_and_shrinks_by_what_is_due_and_what_is_done(
    due: dict[int, int], rate: float, due_now: int, points: list[tuple[float, float]], worked_off_at: float | None
) -> None:
    result = backlog(due, 60, rate, 1000, due_now)
    assert (list(result.points), result.worked_off_at) == (points, worked_off_at)


@pytest.mark.parametrize(
    ("by", "now", "start", "rate"),
    [
        ("hour", 7200, 7200, 1),
        ("hour", 0, 7200, 1),
        ("hour", 9000, 7200, 2),  # half an hour of it is left
        ("hour", 10_799.5, 7200, 60),  # its last minute
        ("minute", 7259.5, 7200, 60),
    ],
)
def test_a_slot_that_has_begun_has_its_jobs_in_what_is_left_of_it(by: str, now: float, start: int, rate: float) -> None:
    assert histogram.Histogram(by, now, {}, {}).rate(start, 3600) == rate


def test_pending_jobs_are_counted_by_topic_and_minute_with_peak_and_backlog(
    spark: SparkSession, serving: Serving, topic: str, folder: Path
) -> None:
    start = midnight(5)
    fill(serving, f"{topic}.a", [start + each for each in [0, 59.999, *[60] * 8, *[119.999] * 2]])
    fill(serving, f"{topic}.b", [start + 61, 1.0, 2.0])  # two are due already
    serving.ask("add", topic=f"{topic}.a", id="again", body=1, ttr=600)
    serving.ask("pop", topic=f"{topic}.a")
    serving.ask("release", id="again", delay=start - time.time() + 1800)  # delayed again, although it was due already
    serving.ask("add", topic=f"{topic}.a", id="held", body=1, ttr=600, priority=9)
    serving.ask("pop", topic=f"{topic}.a")
    plot = folder / "plot.svg"
    report = run(serving, "--topic", f"{topic}*", "--rate", "0.1", "--plot", str(plot))
    day = time.strftime("%Y-%m-%d", time.gmtime(start))
    result = report.figures
    assert {name: result[name] for name in ("jobs", "due_now", "by", "last", "peak_at", "peak_jobs")} == {
        **{"jobs": 16, "due_now": 2, "by": "minute", "last": f"{day}T00:30:00Z"},
        **{"peak_at": f"{day}T00:01:00Z", "peak_jobs": 11},
    }
    assert result["needed_jobs_per_s"] == 0.183  # 11 in a minute
    # At 6 per minute, 5 of the peak's 11 are left, which take 50 s.
    assert (result["backlog"], result["backlog_at"], result["worked_off_at"]) == (
        *(5, f"{day}T00:02:00Z"),
        f"{day}T00:02:50Z",
    )
    assert result["longest_wait_s"] == 50
    assert [each["jobs"] for each in result["busiest"]] == [11, 2, 1]
    assert result["histogram"] == [
        {"topic": f"{topic}.a", "at": f"{day}T00:00:00Z", "jobs": 2},
        {"topic": f"{topic}.a", "at": f"{day}T00:01:00Z", "jobs": 10},
        {"topic": f"{topic}.a", "at": f"{day}T00:30:00Z", "jobs": 1},
        {"topic": f"{topic}.b", "at": f"{day}T00:01:00Z", "jobs": 1},
    ]
    assert [(each["topic"], each["jobs"], each["due_now"]) for each in result["topics"]] == [
        *[(f"{topic}.a", 13, 0), (f"{topic}.b", 3, 2)]
    ]
    assert "histogram" not in report.table()
    assert "busiest" in report.table()
    assert "14 jobs fall due, and 2 are due already" in plot.read_text()


def test_beyond_its_hours_jobs_are_later_and_too_many_slots_make_longer_ones(
    spark: SparkSession, serving: Serving, topic: str, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    start = midnight(3)
    for number in range(12):
        fill(serving, f"{topic}.{number}", [start + 3600 * number + 60 * place for place in range(15 - number)])
    monkeypatch.setattr(histogram, "MOST_SLOTS", 5)
    result = run(serving, "--topic", f"{topic}*", "--plot", str(folder / "plot.png")).figures
    assert (result["by"], result["jobs"], result["peak_jobs"]) == ("day", 114, 114)
    assert [each["jobs"] for each in result["topics"]] == [15, 14, 13, 12, 11, 10, 9, 8, 7, 6, 9]
    assert result["topics"][-1]["topic"] == "(others)"
    assert (folder / "plot.png").read_bytes().startswith(b"\x89PNG")
    hours = (start + 2.5 * 3600 - time.time()) / 3600
    result = run(serving, "--topic", f"{topic}*", "--hours", str(hours), "--by", "hour").figures
    assert (result["by"], result["jobs"], result["later"], [each["jobs"] for each in result["busiest"]]) == (
        *("hour", 114, 72),
        [15, 14, 13],
    )


def test_by_the_hour_it_says_the_same_as_the_command_forecast(
    spark: SparkSession, serving: Serving, topic: str
) -> None:
    """The command has the bins of jobs that were added over a day ahead by the hour, and the others by the minute."""
    fill(serving, topic, [midnight(1) + ahead for ahead in (90, 3599, 3600, 2 * DAY, 2 * DAY + 60, 29 * DAY + 5)])
    serving.ask("add", topic=topic, id="ready", body=1)
    serving.ask("add", topic=topic, id="released", body=1, delay=0, priority=9)
    serving.ask("pop", topic=topic)
    serving.ask("release", id="released", delay=7200)
    told = serving.ask("forecast", topic=topic, hours=31 * 24)
    by_hour: Counter[str] = Counter()
    for each in told["bins"]:
        by_hour[instant(each["begin"] // 3600 * 3600)] += each["jobs"]
    result = run(serving, "--topic", topic, "--by", "hour").figures
    assert {each["at"]: each["jobs"] for each in result["histogram"]} == by_hour
    assert (result["jobs"], result["due_now"]) == (told["total"] + 1, 1)
    assert (told["total"], told["later"]) == (7, 0)


def test_an_empty_queue_has_a_forecast_and_a_picture_too(
    spark: SparkSession, serving: Serving, topic: str, folder: Path
) -> None:
    report = run(serving, "--topic", topic, "--rate", "5", "--plot", str(folder / "plot.png"))
    assert (report.figures["jobs"], report.figures["backlog"], report.figures["busiest"]) == (0, 0, [])
    assert json.dumps(report.figures)
    assert "jobs" in report.table()


def test_without_matplotlib_a_plot_is_refused_in_a_line(monkeypatch: pytest.MonkeyPatch, serving: Serving) -> None:
    monkeypatch.delitem(sys.modules, "pyspark_jobqueue.pipelines.parts.charts", raising=False)
    monkeypatch.delattr("pyspark_jobqueue.pipelines.parts.charts", raising=False)
    monkeypatch.setitem(sys.modules, "matplotlib.axes", None)
    with pytest.raises(BadOption, match=r"--plot needs matplotlib .*: pip install 'matplotlib>=3.10,<4'"):
        run(serving, "--plot", "x.png")


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (["--plot", "x.pdf"], "error: --plot must name a .png or .svg file, not 'x.pdf'\n"),
        (
            ["--rate", "0"],
            "--rate: invalid positive value: '0'; all flags: python -m pyspark_jobqueue.pipelines.forecast --help\n",
        ),
    ],
)
def test_a_wrong_flag_ends_the_program_with_code_2_and_a_line(flags: list[str], words: str) -> None:
    program = [sys.executable, "-m", "pyspark_jobqueue.pipelines.forecast", *flags]
    ran = subprocess.run(program, check=False, capture_output=True, text=True, timeout=60)
    assert ran.returncode == 2
    assert ran.stderr.endswith(words)
    assert "Traceback" not in ran.stderr
