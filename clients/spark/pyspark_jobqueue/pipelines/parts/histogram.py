"""A histogram of due times by topic, and the backlog if jobs fall due faster than they are worked off.

Spark counts the jobs, so the result is small; the backlog is computed from the counts.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

WIDTHS = {"minute": 60, "hour": 3600, "day": 86_400}
"""The possible widths of a slot, in seconds."""
OTHERS = "(others)"
MOST_SLOTS = 3000
"""The most slots that are not empty; eight years of days."""
MOST_TOPICS = 10
_PARTITIONS = 8  # of the cached counts, which are small; Spark's default is 200


@dataclass(frozen=True)
class Histogram:
    """Jobs by topic and slot. Days and hours are in UTC."""

    by: str
    now: float
    """Unix seconds."""
    topics: Mapping[str, Mapping[int, float]]
    """For each topic, the jobs by the start of their slot (unix seconds). Topics with the most jobs come first; all
    topics after the first ten are merged into one at the end."""
    due_now: Mapping[str, int]
    """By topic: jobs that are already due. These are in no slot."""
    later: int = 0
    """Jobs due beyond the requested time."""

    @property
    def width(self) -> int:
        """Length of a slot, in seconds."""
        return WIDTHS[self.by]

    def begin(self, start: int) -> float:
        """When the jobs of a slot start to fall due, in unix seconds: now, for a slot that is in progress, but at least
        a minute before its end."""
        return min(max(start, self.now), start + self.width - WIDTHS["minute"])

    def rate(self, start: int, jobs: float) -> float:
        """Jobs of a slot as jobs per second."""
        return jobs / (start + self.width - self.begin(start))

    def together(self) -> dict[int, float]:
        """The jobs of all topics by slot, in order of time."""
        total: dict[int, float] = {}
        for slots in self.topics.values():
            for start, jobs in slots.items():
                total[start] = total.get(start, 0) + jobs
        return dict(sorted(total.items()))


def histogram(jobs: DataFrame, by: str, now: float, hours: float | None = None) -> Histogram:
    """The histogram of the delayed and ready jobs of a read. `by` is a minute, hour or day; a longer width is used
    if there would be too many slots. `hours`: how far ahead of `now` to look, or None for no limit."""
    minutes = _minutes(jobs, now, hours).coalesce(_PARTITIONS).persist()  # so that the queue is walked only once
    try:
        by = _fitting(minutes, by)
        sums = minutes.groupBy("topic").agg(F.sum("jobs").alias("jobs"))
        names = [row["topic"] for row in sums.orderBy(F.desc("jobs"), "topic").limit(MOST_TOPICS).collect()]
        topic = F.when(F.col("topic").isin(names), F.col("topic")).otherwise(OTHERS).alias("topic")
        slot = F.expr(f"minute * 60 div {WIDTHS[by]} * {WIDTHS[by]} AS slot")
        rows = minutes.groupBy(topic, slot, "kind").agg(F.sum("jobs").alias("jobs")).collect()
    finally:
        minutes.unpersist()
    topics: dict[str, dict[int, int]] = {name: {} for name in [*names, OTHERS]}
    for row in rows:
        if row["kind"] == "due":
            topics[row["topic"]][row["slot"]] = row["jobs"]
    due_now = {row["topic"]: row["jobs"] for row in rows if row["kind"] == "now"}
    later = sum(row["jobs"] for row in rows if row["kind"] == "later")
    return Histogram(by, now, {name: slots for name, slots in topics.items() if slots}, due_now, later)


def _minutes(jobs: DataFrame, now: float, hours: float | None) -> DataFrame:
    """Job counts by topic, kind (now, due or later) and, for kind due, minute since 1970."""
    end = "false" if hours is None else f"due >= {_micros(now + hours * 3600)}"
    # In microseconds instead of timestamps, so that the session's time zone does not matter.
    due = jobs.selectExpr(
        "topic", f"greatest(if(state = 'ready', NULL, unix_micros(delayed_until)), {_micros(now)}) AS due"
    )
    kinds = due.selectExpr(
        "topic", "due", f"CASE WHEN due <= {_micros(now)} THEN 'now' WHEN {end} THEN 'later' ELSE 'due' END AS kind"
    )
    return (
        kinds.selectExpr("topic", "kind", "if(kind = 'due', due div 60000000, NULL) AS minute")
        .groupBy("topic", "kind", "minute")
        .agg({"*": "count"})
        .withColumnRenamed("count(1)", "jobs")
    )


def _fitting(minutes: DataFrame, by: str) -> str:
    """`by`, or the next longer width with few enough slots."""
    widths = {each: f"count(DISTINCT minute * 60 div {seconds})" for each, seconds in WIDTHS.items()}
    (slots,) = minutes.selectExpr(*(f"{count} AS {each}" for each, count in widths.items())).collect()
    names = list(WIDTHS)
    return next((each for each in names[names.index(by) :] if slots[each] <= MOST_SLOTS), names[-1])


def _micros(seconds: float) -> str:
    return f"{round(seconds * 1e6)}L"


@dataclass(frozen=True)
class Backlog:
    """Jobs due but not yet worked off, for workers that finish jobs at a steady rate whenever any are due."""

    points: tuple[tuple[float, float], ...]
    """Times (unix seconds) and jobs; between two points the backlog changes linearly."""
    worked_off_at: float | None
    """When the backlog is gone for the last time, in unix seconds; None if there is never a backlog."""

    @property
    def most(self) -> tuple[float, float]:
        """When the backlog is first at its largest, and its number of jobs then."""
        return max(self.points, key=lambda point: point[1])


def backlog(due: Mapping[int, float], width: int, rate: float, now: float, due_now: int) -> Backlog:
    """Compute the backlog from `due`: jobs by the start of their slot (unix seconds). Slots are `width` seconds long;
    the first may have begun before `now`. Within a slot, jobs fall due evenly. `due_now` jobs are waiting already.
    `rate`: jobs per second, above 0.
    """
    left = float(due_now)
    points = [(now, left)]
    worked_off_at = None
    for begin, end, jobs in _spans(due, width, now):
        gain = rate * (end - begin) - jobs  # by how much the backlog can shrink
        if gain >= left > 0:
            worked_off_at = begin + (end - begin) * left / gain
            points.append((worked_off_at, 0.0))
        left = max(0.0, left - gain)
        points.append((end, left))
    if left > 0:
        worked_off_at = points[-1][0] + left / rate
        points.append((worked_off_at, 0.0))
    return Backlog(tuple(points), worked_off_at)


def _spans(due: Mapping[int, float], width: int, now: float) -> Iterator[tuple[float, float, float]]:
    """Start, end and jobs of each slot from now on, and of the gaps between slots."""
    clock = now
    for start in sorted(due):
        if start > clock:
            yield clock, start, 0
        begin, clock = max(start, clock), max(start + width, clock)
        yield begin, clock, due[start]
