"""The options of a read."""

from __future__ import annotations

import re
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Self

from pyspark_jobqueue.connector.columns import FIELDS, option_of
from pyspark_jobqueue.connector.journal import Journal
from pyspark_jobqueue.connector.options import OF_SERVICE, OF_WRITES, Given, Target
from pyspark_jobqueue.connector.read_schema import HISTORY, JOBS, STATS, Column
from pyspark_jobqueue.connector.times import moment
from pyspark_jobqueue.errors import BadOption

# In the order of a job's life. Tasks run in this order, so a job that moves on meanwhile is met twice rather than
# missed.
STATES = ("delayed", "ready", "reserved", "dead")
_END_MS = 2**62  # of a history without an end
_TOPIC = re.compile(r"[A-Za-z0-9._\-:/@#+=%*?]{1,255}")


@dataclass(frozen=True)
class ReadOptions:
    """What to read. Pickled to the tasks."""

    target: Target
    what: str
    topics: tuple[str, ...]
    """Names or patterns with `*` and `?`."""
    states: tuple[str, ...]

    @classmethod
    def of(cls, options: Mapping[str, str]) -> Self:
        """Raises BadOption."""
        given = Given(options)
        what = _what(given)
        made = cls(Target.of(given), what, _topics(given.text("topic")), _states(given.text("state"), what))
        given.pass_over(*map(option_of, FIELDS))  # see `columns`
        given.pass_over(*OF_WRITES)
        given.done()
        return made


@dataclass(frozen=True)
class HistoryOptions:
    """Which events to read. Pickled to the tasks."""

    journal: Journal
    source: str | None
    topics: tuple[str, ...]
    """Names or patterns; none: all."""
    since_ms: int
    until_ms: int

    @classmethod
    def of(cls, options: Mapping[str, str]) -> Self:
        """Raises BadOption."""
        given = Given(options)
        _what(given)
        now, topic = time.time(), given.text("topic")

        def ms(name: str, default: int) -> int:
            text = given.text(name)
            return default if text is None else round(moment(text, now, f"option {name}") * 1000)

        made = cls(
            Journal.chosen(given.text("journal"), given.text("journalFile")),
            given.text("source"),
            () if topic in (None, "*") else _topics(topic),
            ms("since", 0),
            ms("until", _END_MS),
        )
        given.pass_over(*OF_SERVICE, *OF_WRITES, *map(option_of, FIELDS))  # as other reads do
        given.done()
        return made


def is_history(options: Mapping[str, str]) -> bool:
    """Whether a read is of a journal. Raises BadOption."""
    return _what(Given(options)) == "history"


def columns(options: Mapping[str, str]) -> list[Column]:
    """The columns that a read with these options has. Raises BadOption."""
    given = Given(options)
    what = _what(given)
    if what not in ("jobs", "dead"):
        return [Column(name, name, kind) for name, kind in (STATS if what == "stats" else HISTORY).items()]
    names = {field: given.text(option_of(field)) for field in FIELDS}
    return [Column(names.get(name) or name, name, kind) for name, kind in JOBS.items()]


def _what(given: Given) -> str:
    return given.choice("what", "jobs", "jobs", "dead", "stats", "history")


def _topics(text: str | None) -> tuple[str, ...]:
    topics = tuple(dict.fromkeys(each.strip() for each in (text or "*").split(",")))
    for topic in topics:
        if not _TOPIC.fullmatch(topic):
            raise BadOption(
                "option topic must be a topic (up to 255 characters from A-Z a-z 0-9 . _ - : / @ # + = %XX), a pattern "
                f"with * and ?, or several of these with commas; {topic!r} is not"
            )
    return topics


def _states(text: str | None, what: str) -> tuple[str, ...]:
    allowed = STATES if what == "jobs" else ("dead",)
    if text is None:
        return allowed
    if what == "stats":
        raise BadOption("option state is only for reading jobs: what=stats counts all states")
    states = [each.strip().lower() for each in text.split(",")]
    for state in states:
        if state not in allowed:
            raise BadOption(f"option state must be one of {', '.join(allowed)} with what={what}, not {state!r}")
    return tuple(state for state in STATES if state in states)
