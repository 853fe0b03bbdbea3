"""Findings: which invariant was broken, for which job, and the lines of the history that show it."""

from __future__ import annotations

from dataclasses import dataclass, field

INVARIANTS = {
    "lost": "I1: an acknowledged job is delivered until someone ends it",
    "stuck": "I1: after the faults, the queue drains",
    "revived": "I2, I15: a job is not delivered after an acknowledged finish or delete",
    "unknown": "I3: only what was added is delivered, as it was added",
    "early": "I4: no job is delivered before it is due, nor before the time that a release set",
    "late": "I5: lateness is within its bound",
    "broken": "I6, I10: fsck finds nothing",
    "overlap": "I7: leases of one id do not overlap",
    "lease": "I7: lease numbers increase",
    "stale": "I7: the holder of an older lease cannot end or move a job that another one holds",
    "tries": "I8: attempts increase, and stay within the tries",
    "count": "I9: the counts balance, and agree with the answers",
    "refusal": "I11: nothing is refused without a reason",
    "created": "I12: an id is created once",
    "order": "I13: within a topic, a priority and a shard, the first job to be ready is delivered first",
    "together": "jobs of a key do not run at the same time",
    "turn": "jobs of a key run in the order of their due times, and one that comes back runs before the next",
    "skipped": "each time of a schedule has its occurrence",
    "caught up": "of what a schedule missed, its catch_up says what is made",
    "overlapping": "with overlap skip, no occurrence is made while the last one is not done",
    "lie": "what counts as replicated is on a replica",
    "leak": "I14: resources return to their former level",
    "load": "there was load, and something was broken",
    "log": "no instance writes a traceback, nor meets an occurrence where it is about to make it",
    "run": "the run itself completed",
}
"""The invariants by name, and what each means."""


@dataclass(slots=True, frozen=True)
class Finding:
    """`excused`: a fault was allowed to forget what was acknowledged; counted, but not a failure."""

    invariant: str
    says: str
    id: str | None = None
    lines: tuple[int, ...] = ()
    excused: bool = False

    def __str__(self) -> str:
        where = f" (lines {', '.join(map(str, self.lines))})" if self.lines else ""
        return f"{self.invariant}: {self.id + ': ' if self.id else ''}{self.says}{where}"


@dataclass(slots=True)
class Figures:
    """The figures of a run. Lateness in ms, of first deliveries; None without any."""

    adds: int = 0  # acknowledged
    occurrences: int = 0  # of schedules, made
    late_made: dict[str, float | None] = field(default_factory=dict)  # after their times: p50, p99, max
    deliveries: int = 0
    errors: int = 0  # answers that meant "later", and requests without an answer
    late_outside: dict[str, float | None] = field(default_factory=dict)  # p50, p99, max
    late_inside: dict[str, float | None] = field(default_factory=dict)
    late_all: dict[str, float | None] = field(default_factory=dict)
    # Inside of faults, on shards that they did not affect.
    late_elsewhere: dict[str, float | None] = field(default_factory=dict)
    late_beyond_s: float = 0.0  # the latest first delivery, beyond what faults explain
    latest: str = ""  # the job
    memory_mb: tuple[float, float] = (0.0, 0.0)  # of the largest instance, before the attack and at the end
    outage_s: float = 0.0  # the longest time a participant was without an answer, from the beginning of a fault
    outage_of: str = ""  # the nemesis of that fault


@dataclass(slots=True)
class Report:
    """The findings and the figures."""

    found: list[Finding] = field(default_factory=list)
    figures: Figures = field(default_factory=Figures)

    @property
    def findings(self) -> list[Finding]:
        """The findings that are failures."""
        return [each for each in self.found if not each.excused]

    def count(self, *invariants: str, excused: bool | None = None) -> int:
        """The number of findings for some invariants: failures and excused ones, or only one kind."""
        return sum(each.invariant in invariants and excused in (None, each.excused) for each in self.found)
