"""What an operation is, and what is known of it.

Its record is a hash of shard 0, `{ns:0}:op:<id>`, whose fields have the names of `FIELDS`; `asked` and `samples` are
JSON, the others text. How far it is in a shard stands in the hash of the same name of that shard: `position`, and the
numbers `moved` and `changed`, which the script that changes its jobs writes with them.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Literal, get_args

from buckets.job import LIVE, State

Kind = Literal["kick", "delete", "run", "reschedule", "find"]
KINDS: tuple[Kind, ...] = get_args(Kind)
STATES_OF: dict[Kind, tuple[State, ...]] = {
    "kick": (State.DEAD,),
    "delete": LIVE,
    "run": (State.DELAYED,),
    "reschedule": (State.DELAYED,),
    "find": LIVE,
}
"""The states of the jobs that each kind takes."""

PLANNING, PLANNED, WAITING, RUNNING = "planning", "planned", "waiting", "running"
PAUSED, DONE, CANCELLED, FAILED = "paused", "done", "cancelled", "failed"
ACTIVE = (PLANNING, WAITING, RUNNING)
"""The states in which there is something to do."""
PAUSABLE = (WAITING, RUNNING)
UNENDED = (PLANNING, PLANNED, WAITING, RUNNING, PAUSED)
"""The states in which it can be cancelled."""


@dataclass(frozen=True, slots=True)
class Filter:
    """Which jobs. Times are ms since the epoch, each a first and a last one; what is empty or None matches any job.
    `topic` is a pattern of `*` and `?`, `reason` a part of the text in any case, `due` when a delayed job falls due
    next."""

    topic: str = ""
    state: State | None = None
    cause: str = ""
    reason: str = ""
    prefix: str = ""
    tag: str = ""
    died_from: int | None = None
    died_to: int | None = None
    due_from: int | None = None
    due_to: int | None = None
    created_from: int | None = None
    created_to: int | None = None

    @property
    def is_plain(self) -> bool:
        """Whether it asks for nothing but topics and states, of which the counts are known."""
        return self == Filter(topic=self.topic, state=self.state)


@dataclass(frozen=True, slots=True)
class Asked:
    """What somebody wants to be done. Of a reschedule: `shift_ms` (later, or earlier if it is negative), or `at_ms`
    since the epoch with `spread_ms`, within which each job gets its time by a hash of its id."""

    kind: Kind
    filter: Filter
    begun: int
    """ms since the epoch: jobs that were added, delivered or died later are left alone."""
    within: str = ""
    """The topics that the asker reaches (see topics/within.py)."""
    by: str = ""
    """The actor; empty: not known."""
    shift_ms: int | None = None
    at_ms: int | None = None
    spread_ms: int = 0

    @property
    def states(self) -> tuple[State, ...]:
        """Of the jobs that it takes."""
        return (self.filter.state,) if self.filter.state else STATES_OF[self.kind]

    @property
    def goes_back(self) -> bool:
        """Whether it takes the latest jobs first: those that it makes later are then behind it, and not met again."""
        return self.shift_ms is not None and self.shift_ms > 0


@dataclass(slots=True)
class Operation:
    """An operation as its record says. Times are ms since the epoch, 0: not yet."""

    id: str
    asked: Asked
    state: str = PLANNING
    planned: int = 0
    started: int = 0
    ended: int = 0
    count: int = 0
    """Jobs that matched when it was planned; while it is being planned, so far."""
    exact: bool = True
    """Whether they were counted, not estimated."""
    looked: int = 0
    """Entries of indexes, or keys of a find by prefix, that were looked at."""
    samples: list[str] = field(default_factory=list)
    """Ids of some that matched; of a find, of all."""
    done: int = 0
    skipped: int = 0
    """Jobs that matched and were not changed: they were no longer as they had been."""
    rate: int = 0
    """Jobs a second, at most."""
    speed: float = 0.0
    """Jobs a second, lately."""
    slowed: bool = False
    """Whether the rate is halved, as other jobs came late."""
    started_by: str = ""
    error: str = ""
    """Why it failed, as a sentence."""

    @property
    def is_search(self) -> bool:
        """Whether it looks at the keys of all jobs, as it knows only the beginning of their ids."""
        return self.asked.kind == "find" and not self.asked.filter.topic


FIELDS = ("state", *(name for name in Operation.__dataclass_fields__ if name not in ("id", "state")))
"""The fields of a record."""


def write(**values: Any) -> list[str]:
    """Fields of a record with their values, one after the other."""
    return [text for name, value in values.items() for text in (name, _text(value))]


def _text(value: Any) -> str:
    if isinstance(value, Asked):
        return json.dumps(asdict(value))
    if isinstance(value, list):
        return json.dumps(value)
    return str(int(value)) if isinstance(value, bool) else str(value)


def read(operation: str, fields: Mapping[str, str]) -> Operation | None:
    """The operation of a record, or None where it is not one of ours."""
    try:
        asked = _asked(json.loads(fields["asked"]))
        known = {name: fields[name] for name in FIELDS if name in fields and name != "asked"}
        return Operation(operation, asked, **{name: _READ[name](text) for name, text in known.items()})
    except (ValueError, TypeError, LookupError, AttributeError):
        return None


def _asked(found: dict[str, Any]) -> Asked:
    given = dict(found.pop("filter"))
    state = given.pop("state")
    return Asked(filter=Filter(state=None if state is None else State(state), **given), **found)


def _flag(text: str) -> bool:
    return text == "1"


_READ: dict[str, Callable[[str], Any]] = {
    "state": str,
    "planned": int,
    "started": int,
    "ended": int,
    "count": int,
    "exact": _flag,
    "looked": int,
    "samples": json.loads,
    "done": int,
    "skipped": int,
    "rate": int,
    "speed": float,
    "slowed": _flag,
    "started_by": str,
    "error": str,
}
