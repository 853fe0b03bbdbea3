"""Findings about jobs and schedules: why some may be late or dead, and what to type next.

They are made from the service's answers to `topics`, `workers`, `stats` and `schedules`, no matter who asked for them.
"""

from __future__ import annotations

import math
import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from jobqueue.health import words
from jobqueue.health.findings import Finding, Level

Fields = Mapping[str, Any]

MOST_DEADLY = 20
"""Topics whose dead letters are looked at."""
SCHEDULE_LATE_S = 30.0
"""A schedule that has made no job is late this long after its time."""
_LATE_S = 5.0  # for how long a job may be ready before it is reported
_ALONE_S = 1.0  # the same, where nobody polls
_ABANDONED_S = 60.0
"""After this, a topic that nobody polls is bad: its jobs are not delivered. docs/late.md names it."""
_NEARLY = 0.9  # of a limit


class Look(NamedTuple):
    """What was seen at one time: topics as `topics` lists them, and the answer to `workers`."""

    topics: Sequence[Fields]
    polling: Fields


def ready_jobs(topics: Iterable[Fields]) -> dict[str, int]:
    """How many jobs of each topic are ready, to be compared later."""
    return {topic["topic"]: topic["counts"]["ready"] for topic in topics}


def judge_topics(look: Look, ready_before: Mapping[str, int], passed_s: float) -> Iterator[Finding]:
    """Findings about topics; first those whose jobs have waited longest. `ready_before`: how many jobs of each topic
    were ready `passed_s` ago, to see what grows."""
    for topic in sorted(look.topics, key=lambda each: -(each["oldest_ready_s"] or 0)):
        grown = topic["counts"]["ready"] - ready_before.get(topic["topic"], math.inf)
        for level, sentence in of_topic(topic, grown / passed_s if grown > 0 else 0.0, look.polling):
            yield Finding(level, f"topic {topic['topic']}", sentence)


def deadly(look: Look) -> list[str]:
    """The names of the topics that have dead letters."""
    return [topic["topic"] for topic in look.topics if topic["counts"]["dead"]]


def no_trouble(look: Look) -> Finding:
    """The finding if there is no other about topics or schedules."""
    sentence = f"topics: {len(look.topics)}; none waits for workers, is full, or has dead letters"
    return Finding("ok", "jobs", sentence)


def more_deadly(number: int) -> Finding:
    """A finding that further topics have dead letters."""
    return Finding("warn", "topics", f"more topics with dead letters: {number}: jobqueue topics")


def deaths(topic: str, number: int, newest: Fields | None) -> Finding:
    """A finding that a topic has dead letters, and how the newest died."""
    sentence = "1 dead letter" if number == 1 else f"{number:,} dead letters"
    death = words.death(newest) if newest else ""
    if newest:
        sentence += f"; the newest died {words.ahead(newest['dead_since'])}: {death}"
    return Finding("warn", f"topic {topic}", f"{sentence}: jobqueue peek {shlex.quote(topic)} --state dead", death)


def judge_schedules(late: Mapping[str, float]) -> Iterator[Finding]:
    """A finding about overdue schedules that have made no job. `late`: when each was due, in Unix seconds."""
    if not late:
        return
    name = min(late, key=late.__getitem__)
    others = f", and {len(late) - 1:,} more" if len(late) > 1 else ""
    yield Finding(
        "warn",
        "schedules",
        f"{name}{others} should have added a job, {words.ahead(late[name])}: its topic or Redis is full, or no timer"
        f" runs (the log has schedule.waits or occurrences.failed): jobqueue schedules {shlex.quote(name)}",
    )


def of_topic(topic: Fields, growth: float, polling: Fields) -> Iterator[tuple[Level, str]]:
    """The levels and sentences about a topic. `growth`: how many ready jobs it gains per second."""
    name, ready, oldest = shlex.quote(topic["topic"]), _deliverable(topic), topic["oldest_ready_s"]
    waiting = f"{words.jobs(ready)} ready" + ("" if oldest is None else f", the oldest for {_span(oldest)}")
    if blocked := topic.get("blocked"):
        waiting += f" ({blocked:,} more wait for their keys)"
    if topic["paused"]:
        until = topic["paused_until"]
        end = f"until {words.when(until)}" if until else "until it is resumed"
        if ready:
            yield "warn", f"paused {end}; {waiting}: jobqueue resume {name}"
    elif ready and (why := _blocked(topic, polling["workers"])):
        yield "bad", f"its {why}; {waiting}. Mend what it delivers to: jobqueue workers {name}"
    elif ready and not topic["workers"]:
        if oldest is None or oldest >= _ALONE_S:
            others = polling["others"]["parked"]
            nobody = "none of the listed workers polls it" if others else "no worker polls it"
            level: Level = "bad" if not others and (oldest or 0) >= _ABANDONED_S else "warn"
            yield level, f"{nobody}; {waiting}. Start its workers; who polls: jobqueue workers {name}"
    elif ready and oldest is not None and oldest >= _LATE_S and (limit := _reached(topic)):
        yield (
            "warn",
            f"{waiting}; {limit}. If its workers and what they call can do more, raise it: jobqueue stats {name}",
        )
    elif ready and oldest is not None and oldest >= _LATE_S:
        yield "warn", f"{waiting}; {_at_work(topic, polling['workers'])}: jobqueue workers {name}"
    if growth > 0 and (oldest or 0) >= _ALONE_S:
        yield "warn", f"the backlog grows, by {growth:,.1f} ready jobs a second: jobqueue stats {name} --watch"
    yield from _limits(topic, name)


def _deliverable(topic: Fields) -> int:
    """How many of its ready jobs a pop may get: those that do not wait for their keys."""
    return int(topic["counts"]["ready"] - topic.get("blocked", 0))


def _blocked(topic: Fields, workers: Sequence[Fields]) -> str:
    """Why no worker of a topic accepts jobs now, as one of them reports; an empty string if some worker may accept
    jobs."""
    own = [worker for worker in workers if topic["topic"] in worker["topics"]]
    may_take = any(worker["state"] in ("parked", "busy") for worker in own)  # an idle worker may be a trial that ended
    reasons = [worker["blocked"] for worker in own if worker["state"] == "blocked"]
    return str(reasons[0]) if reasons and not may_take else ""


def _reached(topic: Fields) -> str:
    """The limit that keeps ready jobs back, in words; empty if none does, as far as the figures show."""
    concurrency, rate, ready = topic.get("concurrency"), topic.get("rate"), _deliverable(topic)
    if concurrency and topic["counts"]["reserved"] >= concurrency:
        return f"as many are reserved as may be (concurrency {concurrency:,})"
    if rate and ready > rate:
        return f"at most {rate:g} a second are delivered (rate), so these take {_span(ready / rate)}"
    return ""


def _at_work(topic: Fields, workers: Sequence[Fields]) -> str:
    own = [worker for worker in workers if topic["topic"] in worker["topics"]]
    in_hand = words.jobs(sum(worker["jobs"] for worker in own))
    parked = sum(worker["state"] == "parked" for worker in own)
    found = f"workers: {topic['workers']}, waiting for a job: {parked}, with {in_hand} in hand"
    if own and all(worker["state"] == "idle" for worker in own):  # they may have ended without reporting it
        found += f", last seen {words.ahead(max(worker['last_pop'] for worker in own))}"
    return found


def _limits(topic: Fields, name: str) -> Iterator[tuple[Level, str]]:
    counts, most = topic["counts"], topic.get("max_pending", 0)
    pending = counts["delayed"] + counts["ready"]
    if most and pending >= _NEARLY * most:
        sentence = f"{pending:,} of at most {most:,} pending jobs (max_pending); "
        if pending >= most:
            yield "bad", f"{sentence}adds are refused (TOPIC_FULL): jobqueue stats {name}"
        else:
            yield "warn", f"{sentence}beyond that add answers TOPIC_FULL: jobqueue stats {name}"
    if topic.get("max_dead") and counts["dead"] >= topic["max_dead"]:
        yield (
            "warn",
            f"as many dead letters as it may have (max_dead {topic['max_dead']:,}); "
            f"the oldest are being deleted: jobqueue peek {name} --state dead",
        )


def _span(seconds: float) -> str:
    return words.span(round(seconds, 1))
