"""How many pending jobs fall due when, by topic: counted in Spark, small here."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

WIDTHS = {"minute": 60, "hour": 3600, "day": 86_400}
"""What a slot may be, and its seconds."""
OTHERS = "(others)"
_MOST_SLOTS = 3000  # with jobs in them: so a histogram of ten years fits, by the day
_MOST_TOPICS = 10
_PARTITIONS = 8  # of what is kept: it is small, and Spark would cut it into 200


@dataclass(frozen=True)
class Histogram:
    """Jobs by topic and slot. Days and hours are those of UTC."""

    by: str
    now: float
    """Unix seconds."""
    topics: Mapping[str, Mapping[int, int]]
    """By topic the jobs by the start of their slot, in unix seconds. Those with the most jobs come first; behind them
    come all others as one."""
    due_now: Mapping[str, int]
    """By topic: jobs that are due already. They stand in no slot."""
    later: int = 0
    """Jobs beyond the time that was asked for."""

    @property
    def width(self) -> int:
        """Seconds of a slot."""
        return WIDTHS[self.by]

    def begin(self, start: int) -> float:
        """From when on the jobs of a slot fall due: of one that began before now, in what is left of it (in its last
        minute, a minute)."""
        return min(max(start, self.now), start + self.width - WIDTHS["minute"])

    def rate(self, start: int, jobs: float) -> float:
        """Jobs of a slot as jobs a second."""
        return jobs / (start + self.width - self.begin(start))

    def together(self) -> dict[int, int]:
        """The jobs of all topics by slot, in order."""
        total: dict[int, int] = {}
        for slots in self.topics.values():
            for start, jobs in slots.items():
                total[start] = total.get(start, 0) + jobs
        return dict(sorted(total.items()))


def histogram(jobs: DataFrame, by: str, now: float, hours: float | None = None) -> Histogram:
    """Of the delayed and ready jobs of a read, by minute, hour or day, or by the next longer one that keeps it small;
    with `hours`, only so far ahead of `now`."""
    minutes = _minutes(jobs, now, hours).coalesce(_PARTITIONS).persist()  # the queue is walked over once
    try:
        by = _fitting(minutes, by)
        sums = minutes.groupBy("topic").agg(F.sum("jobs").alias("jobs"))
        names = [row["topic"] for row in sums.orderBy(F.desc("jobs"), "topic").limit(_MOST_TOPICS).collect()]
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
    """Jobs by topic, kind (now, due or later) and, of those that are due, minute since 1970."""
    end = "false" if hours is None else f"due >= {_micros(now + hours * 3600)}"
    # In microseconds and not as timestamps: the session's time zone has no say in it.
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
    """`by`, or the next longer one that has not too many slots."""
    widths = {each: f"count(DISTINCT minute * 60 div {seconds})" for each, seconds in WIDTHS.items()}
    (slots,) = minutes.selectExpr(*(f"{count} AS {each}" for each, count in widths.items())).collect()
    names = list(WIDTHS)
    return next((each for each in names[names.index(by) :] if slots[each] <= _MOST_SLOTS), names[-1])


def _micros(seconds: float) -> str:
    return f"{round(seconds * 1e6)}L"
