"""What a checker finds: which invariant of attacks.md was broken, of which job, and the lines that show it."""

from __future__ import annotations

from dataclasses import dataclass, field

INVARIANTS = {
    "lost": "I1: an acknowledged add is delivered until someone ends it",
    "stuck": "I1: after the faults the queue drains",
    "revived": "I2, I15: after an acknowledged finish or delete a job is not delivered",
    "unknown": "I3: only what was added is delivered, as it was added",
    "early": "I4: no job is delivered before it is due, nor again before it was released to",
    "late": "I5: lateness is within its bound",
    "broken": "I6, I10: fsck finds nothing",
    "overlap": "I7: leases of one id do not overlap",
    "lease": "I7: the numbers of leases rise",
    "stale": "I7: who has an older lease cannot end or move what another has",
    "tries": "I8: attempts rise, and stay within the tries",
    "count": "I9: the books balance, and say what the answers said",
    "refusal": "I11: nothing is refused that there is no reason for",
    "created": "I12: an id is created once",
    "order": "I13: within a topic, a priority and a shard the first that is ready is the first to be handed out",
    "lie": "what is said to be replicated is with a replica",
    "leak": "I14: resources return to what they were before",
    "load": "there was load, and something was broken",
    "log": "no instance writes a traceback",
    "run": "the run itself came to its end",
}
"""The words of findings, and what each means."""


@dataclass(slots=True, frozen=True)
class Finding:
    """`excused`: a fault may have forgotten what was acknowledged; it is counted, and no failure."""

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
    """The numbers of a run. Lateness in ms of first deliveries; None where there were none."""

    adds: int = 0  # acknowledged
    deliveries: int = 0
    errors: int = 0  # answers that said "later", and those that never came
    late_outside: dict[str, float | None] = field(default_factory=dict)  # p50, p99, max
    late_inside: dict[str, float | None] = field(default_factory=dict)
    late_all: dict[str, float | None] = field(default_factory=dict)
    late_elsewhere: dict[str, float | None] = field(default_factory=dict)  # inside, on shards that it did not touch
    late_beyond_s: float = 0.0  # the latest first delivery, beyond what faults explain
    latest: str = ""  # the job
    memory_mb: tuple[float, float] = (0.0, 0.0)  # of the largest instance, before the attack and when all was over
    outage_s: float = 0.0  # the longest that a participant was without an answer, from the beginning of a fault
    outage_of: str = ""  # which fault that was


@dataclass(slots=True)
class Report:
    """What was found, and the numbers."""

    found: list[Finding] = field(default_factory=list)
    figures: Figures = field(default_factory=Figures)

    @property
    def findings(self) -> list[Finding]:
        """Those that are failures."""
        return [each for each in self.found if not each.excused]

    def count(self, *invariants: str, excused: bool | None = None) -> int:
        """How many there are of some invariants: failures and excused ones, or only the one kind."""
        return sum(each.invariant in invariants and excused in (None, each.excused) for each in self.found)
