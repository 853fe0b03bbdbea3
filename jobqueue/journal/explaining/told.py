"""What a journal knows of a job, wherever it was read: in SQL, or in the stream after the part that SQL has; and why a
ready job waited, as far as the journal shows it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from jobqueue.journal.explaining.words import clock, jobs, span

if TYPE_CHECKING:
    from jobqueue.journal.choices import Unkept


LOST, FORGOTTEN = 1, 2
"""The kinds of a gap."""
WALKED = -1
"""The branch of an event that a walk has read."""

Place = tuple[int, int]
"""An entry of a stream: its ms and its number."""


class Told(NamedTuple):
    """An event of a job. Times are ms since the epoch; `at` and `lease` are us."""

    ms: int
    seq: int
    n: int
    branch: int
    life: int
    topic: str
    verb: int
    before: int
    after: int
    at: int
    was: int
    due: int
    next: int
    priority: int
    cause: int
    attempts: int
    deliveries: int
    lease: int
    instance: str
    actor: str
    worker: str | None
    reason: str | None

    @property
    def place(self) -> Place:
        return self.ms, self.seq

    @property
    def order(self) -> tuple[int, ...]:
        """What a walk has read stands behind the entry that was the last one then."""
        return self.ms, self.seq, int(self.branch == WALKED), self.branch, self.n


class Gap(NamedTuple):
    """Entries of a shard that are not here (lost), or that Redis has forgotten (see `jq_gap`); those behind `begin` up
    to `end`."""

    kind: int
    epoch: int
    begin: Place
    end: Place
    entries: int
    found: int
    """us"""
    is_emptied: bool = False
    """Of what Redis has forgotten: whether it was emptied, and not set back to an earlier state (see `taken_back`)."""

    def has(self, place: Place) -> bool:
        return self.begin < place <= self.end

    def forgets(self, event: Told) -> bool:
        return self.kind == FORGOTTEN and event.branch < self.epoch and self.has(event.place)

    def overlaps(self, begin_ms: int, end_ms: int) -> bool:
        return self.begin[0] <= end_ms and begin_ms <= self.end[0]


class Pause(NamedTuple):
    """A pause of a topic, in us; `end` None: it lasts."""

    begin: int
    end: int | None


@dataclass(slots=True)
class Meanwhile:
    """What is known of a time in which a job was ready."""

    begin: int
    """us"""
    end: int
    pauses: Sequence[Pause] | None = None
    """Of its topic, within that time; None: not known."""
    delivered: int | None = None
    """Jobs of its topic that were delivered in it; None: not known."""
    is_least: bool = False
    """Whether there may be more of them."""
    of_any_priority: bool = False
    """Whether those of a lower priority are among them."""
    known_until: int | None = None
    """us: what was delivered is only known until then; None: for all of the time."""
    is_gap: bool = False
    """Whether events of that time are not here."""


@dataclass(slots=True)
class Newest:
    """The newest life of a job as the journal's table of jobs has it, which may be kept longer than events."""

    life: int
    topic: str
    state: int
    priority: int
    cause: int
    due: int
    next: int
    tries: int
    attempts: int
    deliveries: int
    worker: str | None
    reason: str | None
    at: int
    ended: int | None


@dataclass(slots=True)
class History:
    """What a journal and the stream tell of a job."""

    events: list[Told] = field(default_factory=list)
    """In their order, of all lives."""
    gaps: list[Gap] = field(default_factory=list)
    """Of its shard."""
    newest: Newest | None = None
    since: int | None = None
    """us: nothing older is here; None: the journal is empty."""
    until: int | None = None
    """us: all that happened to the job until then is here, or in a gap."""
    is_cut: bool = False
    """Whether there are more events than were read, the oldest of which are left out."""
    shard: int | None = None
    is_kept: bool = False
    """Whether SQL has any event of the job. Then it has the pauses of topics, too, unless no events were kept then."""
    unkept: list[Unkept] = field(default_factory=list)
    """The times in which the journal does not keep all events of its shard."""
    occurred: dict[Place, str] = field(default_factory=dict)
    """By entry, the schedule that made the job."""
    _by_life: dict[int, list[Told]] | None = field(default=None, init=False, repr=False, compare=False)

    def is_forgotten(self, event: Told) -> bool:
        """Whether Redis has forgotten it."""
        return any(gap.forgets(event) for gap in self.gaps)

    def is_taken_back(self, event: Told) -> bool:
        """Whether it does not count, as Redis went back to before it; one that was emptied took nothing back."""
        return any(gap.forgets(event) and not gap.is_emptied for gap in self.gaps)

    def unkept_of(self, lives: Sequence[int]) -> list[Unkept]:
        """The times of some lives (their beginnings, in ms, in their order) of which not all events are kept."""
        later = [life for life in self.lives() if lives and life > lives[-1]]
        ended = self.newest.ended if self.newest and lives[-1:] == [self.newest.life] else None
        begin, end = lives[0] * 1000 if lives else 0, min(later) * 1000 if later else ended
        return [
            each
            for each in self.unkept
            if (each.until is None or each.until > begin) and each.since < (end or each.since + 1)
        ]

    def lives(self) -> list[int]:
        """When the lives of the job that are known here were created, in their order."""
        known = {event.life for event in self.events if event.life}
        return sorted(known | ({self.newest.life} if self.newest and self.newest.life else set()))

    def of_life(self, life: int) -> list[Told]:
        """The events of a life. One that does not name its life is of that before it."""
        if self._by_life is None:
            self._by_life, current = {}, 0
            for event in self.events:
                current = event.life or current
                self._by_life.setdefault(current, []).append(event)
        return self._by_life.get(life, [])

    def take(self, events: list[Told]) -> None:
        """Have other events, in their order."""
        self.events, self._by_life = events, None


WORTH_US = 100_000
"""A shorter wait is not explained."""


def why(meanwhile: Meanwhile) -> str:
    """The words behind how long it waited; empty: nothing is known."""
    if meanwhile.is_gap:
        return "why is not known, events of that time are missing"
    return ", ".join(part for part in (_delivered(meanwhile), _paused(meanwhile)) if part)


def paused_us(meanwhile: Meanwhile) -> int:
    """For how long its topic was paused in it."""
    return sum(_span_of(pause, meanwhile) for pause in meanwhile.pauses or ())


def _span_of(pause: Pause, meanwhile: Meanwhile) -> int:
    end = meanwhile.end if pause.end is None else min(pause.end, meanwhile.end)
    return max(end - max(pause.begin, meanwhile.begin), 0)


def _paused(meanwhile: Meanwhile) -> str:
    if meanwhile.pauses is None:
        return ""
    total = paused_us(meanwhile)
    if not total:
        return "no pause"
    if total == meanwhile.end - meanwhile.begin:
        return "the topic was paused throughout"
    last = next(pause for pause in reversed(meanwhile.pauses) if _span_of(pause, meanwhile))
    end = "" if last.end is None or last.end >= meanwhile.end else f", until {clock(last.end, meanwhile.begin)}"
    return f"the topic was paused for {span(total)} of that time{end}"


def _delivered(meanwhile: Meanwhile) -> str:
    count = meanwhile.delivered
    if count is None:
        return ""
    until = "" if meanwhile.known_until is None else f" until {clock(meanwhile.known_until, meanwhile.begin)}"
    if not count:
        nobody = meanwhile.pauses is not None and not paused_us(meanwhile)
        return f"no job of the topic was delivered{until}{': nobody popped it' if nobody else ''}"
    least = "at least " if meanwhile.is_least else ""
    if meanwhile.of_any_priority:
        return f"{least}{jobs(count)} of the topic, of any priority, were delivered{until}"
    return f"{least}{jobs(count)} of the topic went before it{until}"
