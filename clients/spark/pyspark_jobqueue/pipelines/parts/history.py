"""The history that a pipeline reads: events from a journal, or from the files of `jobqueue journal export`.

The history also predicts which jobs are yet to be added, and how fast the workers are.
"""

from __future__ import annotations

import argparse
import os
import re
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime

from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from pyspark_jobqueue.connector.history import VARIABLE, Journal, is_url
from pyspark_jobqueue.connector.options import moment
from pyspark_jobqueue.errors import BadOption
from pyspark_jobqueue.pipelines.parts import command_line
from pyspark_jobqueue.pipelines.parts.histogram import MOST_TOPICS, OTHERS, Histogram

_DAY_S = 86_400


def add_flags(parser: argparse.ArgumentParser, since: str, about: str | None = None) -> None:
    """Add --history, --history-file, --since and --until. `since`: the default of --since. `about`: the purpose of the
    history if it is optional, or None if it is required."""
    group = parser.add_argument_group("history", about)
    default = "" if about else f" [{VARIABLE}]"
    either = group.add_mutually_exclusive_group()
    either.add_argument("--history", metavar="URL|FOLDER", help=f"a journal, or the folder of its export{default}")
    either.add_argument("--history-file", metavar="FILE", help="file with the URL of a journal")
    group.add_argument(
        "--since", default=since, metavar="WHEN", help="from when: 2026-11-21T10:00Z, or 90m, 24h, 7d ago [%(default)s]"
    )
    group.add_argument("--until", metavar="WHEN", help="until when [now]")


def is_given(arguments: argparse.Namespace) -> bool:
    return bool(arguments.history or arguments.history_file)


def span(arguments: argparse.Namespace) -> tuple[float, float]:
    """The start and the end of the history to read, in unix seconds. Raises BadOption."""
    now = time.time()
    since = moment(arguments.since, now, "--since")
    until = moment(arguments.until, now, "--until") if arguments.until else now
    if since >= until:
        raise BadOption("--since must be before --until")
    return since, until


def read(spark: SparkSession, arguments: argparse.Namespace, topics: str = "*") -> DataFrame:
    """The events from --since to --until, except events that a failover took back. `topics`: names or patterns,
    separated by commas. Raises BadOption, Unreachable."""
    since, until = span(arguments)
    where = arguments.history
    if where and not is_url(where):
        events = _files(spark, where, since, until).filter(_is_of(F.col("topic"), topics))
    else:
        if where and Journal(where).shown != where:
            print("warning: everybody on this machine can see the password in --history", file=sys.stderr)
        file = arguments.history_file
        named = {"journal": where or (None if file else os.environ.get(VARIABLE)), "journalFile": file}
        options = {"topic": topics, "since": _shown(since), "until": _shown(until), **named}
        given = {name: text for name, text in options.items() if text}
        events = spark.read.format("jobqueue").options(what="history", **given).load()
    at = F.unix_micros("time")  # so that the session's time zone does not matter
    return events.filter((at >= round(since * 1e6)) & (at < round(until * 1e6)) & ~F.col("forgotten"))


def _files(spark: SparkSession, folder: str, since: float, until: float) -> DataFrame:
    try:
        events = spark.read.parquet(f"{folder.rstrip('/')}/events")
    except PySparkException as error:
        cure = "; `jobqueue journal export --out FOLDER` writes one" if "PATH_NOT_FOUND" in str(error) else ""
        raise BadOption(f"--history: {command_line.first_line(error)}{cure}") from None
    # An event is in the folder of the day in its entry's id, which is later than its time if Redis's clock went back.
    first, last = (datetime.fromtimestamp(each, UTC).date() for each in (since, until + _DAY_S))
    return events.filter((F.col("date") >= F.lit(first)) & (F.col("date") <= F.lit(last)))


def _is_of(topic: Column, topics: str) -> Column:
    """True where a topic matches one of some names and patterns."""
    if topics == "*":
        return F.lit(True)
    parts = [re.escape(each.strip()).replace(r"\*", ".*").replace(r"\?", ".") for each in topics.split(",")]
    return topic.rlike(f"^(?:{'|'.join(parts)})$")


def _shown(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat()


COLUMNS = ("topic", "what", "time", "due", "state_before", "state_after", "lease")
"""The columns of the events that `arrivals` and `workers` need."""
_HOUR_S = 3600
_WEEK_S = 604_800
_ADDS = ("added", "replaced")
_LONGEST_WORK_S = _DAY_S  # longer deliveries belong to workers that were forgotten
_HOUR_US = _HOUR_S * 1_000_000


@dataclass(frozen=True)
class Arrivals:
    """How many jobs are due in each hour of the week, or of the day if the history covers less than a week."""

    period_s: int
    days: float
    """The length of the history that the numbers come from, in days."""
    now: float
    """Unix seconds; only jobs that are added later are expected."""
    seen: Mapping[int, int]
    """How often the history contains each hour of the period, by the start of the hour."""
    counts: Mapping[tuple[str, int], Mapping[int, int]] = field(default_factory=dict)
    """By topic and hour of the period: how many jobs were due in that hour, by the hours between add and due time."""

    def expected(self, topic: str, hour: int) -> float:
        """The number of jobs that are yet to be added and fall due in the hour that starts at `hour` (unix seconds)."""
        place = hour % self.period_s
        ahead = (hour - self.now // _HOUR_S * _HOUR_S) // _HOUR_S
        counts = self.counts.get((topic, place), {})
        # Of the jobs that were added `ahead` hours before they were due, half are added after now.
        jobs = sum(jobs for hours, jobs in counts.items() if hours < ahead) + counts.get(int(ahead), 0) / 2
        return jobs / self.seen[place] if self.seen.get(place) else 0.0


@dataclass(frozen=True)
class Workers:
    """The performance of the workers in a history."""

    busy: float
    """How many workers were busy at the same time, on average over the busiest minute."""
    work_s: float
    """How long a job took on average, in seconds."""

    @property
    def rate(self) -> float:
        """Jobs per second."""
        return self.busy / self.work_s


def arrivals(events: DataFrame, since: float, until: float, now: float) -> Arrivals:
    """Learn from the adds in a history. Raises BadOption for a history of less than a day."""
    adds = events.filter(F.col("what").isin(*_ADDS))
    (known,) = events.agg(*(each(F.unix_micros("time") / 1e6) for each in (F.min, F.max))).collect()
    begin = _next_hour(max(since, known[0] or since))
    end = int(min(until, known[1] or until) // _HOUR_S * _HOUR_S)  # an export may end before `until`
    period = _WEEK_S if end - begin >= _WEEK_S else _DAY_S
    if end - begin < _DAY_S:
        raise BadOption("--history: the history covers less than a day, too little to expect anything from")
    due = F.unix_micros("due")
    hours = adds.select(
        "topic",
        F.floor(due / _HOUR_US).alias("hour"),
        F.greatest(F.floor((due - F.unix_micros("time")) / _HOUR_US), F.lit(0)).alias("before"),
    ).filter((F.col("hour") >= begin // _HOUR_S) & (F.col("hour") < end // _HOUR_S))
    place = (F.col("hour") * _HOUR_S % period).alias("place")
    counts: dict[tuple[str, int], dict[int, int]] = {}
    for row in hours.groupBy("topic", place, "before").count().collect():
        counts.setdefault((row["topic"], row["place"]), {})[row["before"]] = row["count"]
    seen: dict[int, int] = {}
    for hour in range(begin, end, _HOUR_S):
        seen[hour % period] = seen.get(hour % period, 0) + 1
    return Arrivals(period, round((end - begin) / _DAY_S, 1), now, seen, counts)


def workers(events: DataFrame) -> Workers | None:
    """Learn from the deliveries in a history that have ended. Returns None if no job was finished."""
    ends = events.filter("state_before = 'reserved' AND state_after <> 'reserved' AND lease > 0")
    work = ends.selectExpr("lease / 1e6 AS begin", "unix_micros(time) / 1e6 AS end", "what")
    work = work.filter(f"end > begin AND end - begin <= {_LONGEST_WORK_S}").persist()
    try:
        finished = work.filter("what = 'finished'").selectExpr("avg(end - begin) AS work_s").collect()[0]["work_s"]
        minutes = work.selectExpr("begin", "end", "explode(sequence(floor(begin / 60), floor(end / 60))) AS minute")
        within = minutes.selectExpr("minute", "least(end, minute * 60 + 60) - greatest(begin, minute * 60) AS seconds")
        busiest = within.groupBy("minute").agg((F.sum("seconds") / 60).alias("busy")).agg(F.max("busy").alias("busy"))
        busy = busiest.collect()[0]["busy"]
    finally:
        work.unpersist()
    return Workers(busy, finished) if busy and finished else None


def with_arrivals(pending: Histogram, coming: Arrivals, hours: float) -> Histogram:
    """The histogram of the pending jobs, and of the jobs that are expected to be added and due within `hours`."""
    topics = {name: dict[int, float](slots) for name, slots in pending.topics.items() if name != OTHERS}
    others = dict[int, float](pending.topics.get(OTHERS, {}))
    added = {topic: _spread(pending, coming, topic, hours) for topic in {topic for topic, _ in coming.counts}}
    for topic, slots in sorted(added.items(), key=lambda item: (-sum(item[1].values()), item[0])):
        known = topic in topics or len(topics) < MOST_TOPICS
        into = topics.setdefault(topic, {}) if known else others
        for start, jobs in slots.items():
            into[start] = into.get(start, 0) + jobs
    return replace(pending, topics={name: slots for name, slots in {**topics, OTHERS: others}.items() if slots})


def _spread(pending: Histogram, coming: Arrivals, topic: str, hours: float) -> dict[int, float]:
    """The expected jobs of a topic by slot, spread evenly within each hour."""
    slots: dict[int, float] = {}
    first = int(coming.now // pending.width * pending.width)
    for hour in range(int(coming.now // _HOUR_S * _HOUR_S), int(coming.now + hours * _HOUR_S), _HOUR_S):
        begin = hour // pending.width * pending.width
        starts = range(max(begin, first), max(begin, hour + _HOUR_S - pending.width) + 1, pending.width)
        if jobs := coming.expected(topic, hour):
            for start in starts:
                slots[start] = slots.get(start, 0) + jobs / len(starts)
    return slots


def _next_hour(seconds: float) -> int:
    return int(-(-seconds // _HOUR_S) * _HOUR_S)
