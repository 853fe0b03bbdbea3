"""What a run of restore is asked for, and what it tells."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from typing import Any, Literal, NamedTuple, Self

from buckets.job import State

PENDING = (State.RESERVED, State.READY, State.DELAYED)
"""The states of jobs that come back unless others are named, in the order in which they come."""
ENDED = (State.FINISHED, State.DELETED)
Overdue = Literal["run", "skip", "dead"]


@dataclass(frozen=True, slots=True)
class Choice:
    """Which jobs come back, and how."""

    ids: tuple[str, ...] = ()
    """Empty: those of the topics."""
    topics: str = "*"
    """Patterns (buckets/topics/within.py)."""
    states: tuple[int, ...] = PENDING
    """Of live jobs. Tombstones that last come back, too. Jobs that are named come back in any state."""
    overdue: Overdue = "run"
    """What becomes of jobs whose time has passed, delayed and ready: they are ready; stay away; or are dead letters."""
    spread_s: float = 0.0
    """Overdue jobs become due over so many seconds, evenly, in the order of their time."""
    as_of: int | None = None
    """us since the epoch: jobs come back as they were then."""

    @property
    def has_schedules(self) -> bool:
        """Whether schedules come back, too: where neither ids nor fewer states were named."""
        return not self.ids and set(PENDING) <= set(self.states)

    def stored(self) -> dict[str, Any]:
        """As it is kept with the run."""
        return asdict(self)

    @classmethod
    def read(cls, stored: dict[str, Any]) -> Self:
        lists = {name: tuple(stored[name]) for name in ("ids", "states")}
        return cls(**{**stored, **lists})


LEFT = ("without_body", "unreadable", "unsure", "changed", "unknown", "taken")
"""Counts of jobs, or tokens, that should have come back, and did not."""


@dataclass(slots=True)
class Sums:
    """What a run has done."""

    counts: Counter[str] = field(default_factory=Counter)
    """`looked`; of these `known` to Redis, `ended` meanwhile, `put` (of these `schedules`, `tombstones`, `overdue`,
    `expired`: dead as their ttl is over, `buried`: dead as they are overdue), `skipped` as they are overdue, `absent`
    at the time that was asked for, `over`: tokens that were revoked or have expired; and those of LEFT."""
    named: dict[str, list[str]] = field(default_factory=dict)
    """Ids by count: those of LEFT, and `older`."""
    tokens: dict[str, str] | None = None
    """The tokens that came back, by id their names; None: this run was not for tokens."""

    def name(self, why: str, job_id: str) -> None:
        """Count a job that its user should know of, and remember its id."""
        self.counts[why] += 1
        self.named.setdefault(why, []).append(job_id)

    @property
    def left(self) -> int:
        """How many should have come back, and did not."""
        return sum(self.counts[why] for why in LEFT)


class Progress(NamedTuple):
    """How far a run is."""

    sums: Sums
    total: int
    """How many jobs and schedules come into question."""


Report = Callable[[Progress], None]


class NotBegun(Exception):
    """A run that cannot begin; the message says why, and what helps."""


class Stopped(Exception):
    """A run that could not go on, for the reason that the message gives. It may be repeated or resumed."""
