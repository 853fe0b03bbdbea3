"""The options of a read."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Self

from pyspark_jobqueue.connector.columns import FIELDS, HISTORY, JOBS, STATS, Column, option_of
from pyspark_jobqueue.connector.options import OF_WRITES, Given, Target
from pyspark_jobqueue.errors import BadOption

# In the order of a job's life. Tasks run in this order, so a job that changes state meanwhile is read twice
# rather than missed.
STATES = ("delayed", "ready", "reserved", "dead")
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
        what = what_of(given)
        made = cls(Target.of(given), what, topics_of(given.text("topic")), _states(given.text("state"), what))
        given.pass_over(*map(option_of, FIELDS))  # see `columns`
        given.pass_over(*OF_WRITES)
        given.done()
        return made


def is_history(options: Mapping[str, str]) -> bool:
    """True if the options are for reading a journal. Raises BadOption."""
    return what_of(Given(options)) == "history"


def columns(options: Mapping[str, str]) -> list[Column]:
    """The columns that a read with these options has. Raises BadOption."""
    given = Given(options)
    what = what_of(given)
    if what not in ("jobs", "dead"):
        return [Column(name, name, kind) for name, kind in (STATS if what == "stats" else HISTORY).items()]
    names = {field: given.text(option_of(field)) for field in FIELDS}
    return [Column(names.get(name) or name, name, kind) for name, kind in JOBS.items()]


def what_of(given: Given) -> str:
    """The option `what`: jobs, dead, stats or history. Raises BadOption."""
    return given.choice("what", "jobs", "jobs", "dead", "stats", "history")


def topics_of(text: str | None) -> tuple[str, ...]:
    """The topics and patterns in the option `topic`. Raises BadOption."""
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
