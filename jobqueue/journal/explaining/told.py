"""What a journal knows about a job, read from SQL or from the part of the stream that is not in SQL yet; and why a
ready job waited, as far as the journal shows it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from jobqueue.journal.explaining.words import clock, jobs, span

if TYPE_CHECKING:
    from jobqueue.journal.choices import Unkept


LOST, FORGOTTEN = 1, 2
"""The kinds of gaps."""
WALKED = -1
"""The branch of an event that a walk has read."""

Place = tuple[int, int]
"""An entry of a stream: its ms and its sequence number."""


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
        """The sort key of the event. A walked record comes after the entry that was the last one at that time."""
        return self.ms, self.seq, int(self.branch == WALKED), self.branch, self.n


class Gap(NamedTuple):
    """Entries of a shard that the journal does not have (lost), or that Redis has forgotten (see `jq_gap`): those after
    `begin`, up to and including `end`."""

    kind: int
    epoch: int
    begin: Place
    end: Place
    entries: int
    found: int
    """us"""
    is_emptied: bool = False
    """For forgotten entries, True if Redis was emptied, and not set back to an earlier state (see `is_taken_back`)."""

    def has(self, place: Place) -> bool:
        return self.begin < place <= self.end

    def forgets(self, event: Told) -> bool:
        return self.kind == FORGOTTEN and event.branch < self.epoch and self.has(event.place)

    def overlaps(self, begin_ms: int, end_ms: int) -> bool:
        return self.begin[0] <= end_ms and begin_ms <= self.end[0]


class Pause(NamedTuple):
    """A pause of a topic, in us; `end` is None if the pause still lasts."""

    begin: int
    end: int | None


@dataclass(slots=True)
class Meanwhile:
    """What is known about a time in which a job was ready."""

    begin: int
    """us"""
    end: int
    pauses: Sequence[Pause] | None = None
    """The pauses of its topic within that time, or None if unknown."""
    delivered: int | None = None
    """How many jobs of its topic were delivered in that time, or None if unknown."""
    is_least: bool = False
    """True if more jobs may have been delivered."""
    of_any_priority: bool = False
    """True if jobs of a lower priority may be counted, too."""
    known_until: int | None = None
    """us: deliveries are only known up to this time; None if they are known for the whole time."""
    is_gap: bool = False
    """True if events of that time are missing."""


@dataclass(slots=True)
class Newest:
    """The newest life of a job, from the journal's table of jobs, which may be kept longer than the events."""

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
    headers: bytes | None = None
    """The job's headers, as JSON; None without any."""


@dataclass(slots=True)
class History:
    """What a journal and the stream know about a job."""

    events: list[Told] = field(default_factory=list)
    """The events of all lives, in order."""
    gaps: list[Gap] = field(default_factory=list)
    """The gaps in the job's shard."""
    newest: Newest | None = None
    since: int | None = None
    """us: nothing older is known; None if the journal is empty."""
    until: int | None = None
    """us: everything that happened to the job until then is in this history, or in a gap."""
    is_cut: bool = False
    """True if there are more events than were read: the oldest ones are left out."""
    shard: int | None = None
    is_kept: bool = False
    """True if SQL has any event of the job. Then SQL also has the pauses of topics, except for times in which no events
    were kept."""
    unkept: list[Unkept] = field(default_factory=list)
    """The periods in which the journal does not keep all events of the job's shard."""
    occurred: dict[Place, str] = field(default_factory=dict)
    """The name of the schedule that made the job, by entry."""
    _by_life: dict[int, list[Told]] | None = field(default=None, init=False, repr=False, compare=False)

    def is_forgotten(self, event: Told) -> bool:
        """Whether Redis has forgotten the event."""
        return any(gap.forgets(event) for gap in self.gaps)

    def is_taken_back(self, event: Told) -> bool:
        """Returns True if the event does not count, because Redis went back to a state before it. Events still count if
        Redis was emptied."""
        return any(gap.forgets(event) and not gap.is_emptied for gap in self.gaps)

    def unkept_of(self, lives: Sequence[int]) -> list[Unkept]:
        """The periods of some lives in which not all events are kept. `lives`: their creation times, in ms and in
        order."""
        later = [life for life in self.lives() if lives and life > lives[-1]]
        ended = self.newest.ended if self.newest and lives[-1:] == [self.newest.life] else None
        begin, end = lives[0] * 1000 if lives else 0, min(later) * 1000 if later else ended
        return [
            each
            for each in self.unkept
            if (each.until is None or each.until > begin) and each.since < (end or each.since + 1)
        ]

    def lives(self) -> list[int]:
        """The creation times of the job's known lives, in order."""
        known = {event.life for event in self.events if event.life}
        return sorted(known | ({self.newest.life} if self.newest and self.newest.life else set()))

    def of_life(self, life: int) -> list[Told]:
        """The events of a life. An event that does not name its life belongs to the life of the event before it."""
        if self._by_life is None:
            self._by_life, current = {}, 0
            for event in self.events:
                current = event.life or current
                self._by_life.setdefault(current, []).append(event)
        return self._by_life.get(life, [])

    def take(self, events: list[Told]) -> None:
        """Replace the events. `events` must be in order."""
        self.events, self._by_life = events, None


WORTH_US = 100_000
"""A shorter wait is not explained."""


def why(meanwhile: Meanwhile) -> str:
    """Why the job waited, in words that follow how long it waited; empty if nothing is known."""
    if meanwhile.is_gap:
        return "why is not known, events of that time are missing"
    return ", ".join(part for part in (_delivered(meanwhile), _paused(meanwhile)) if part)


def paused_us(meanwhile: Meanwhile) -> int:
    """For how long the topic was paused in that time, in us."""
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
