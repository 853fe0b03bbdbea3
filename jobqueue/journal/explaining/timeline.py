"""The timeline of a life: a line for each event, with the lateness or the waiting time of its step, and the sums of
these."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from buckets.job import Cause, State, Verb
from jobqueue.journal.explaining.told import (
    FORGOTTEN,
    LOST,
    WALKED,
    WORTH_US,
    Gap,
    History,
    Meanwhile,
    Place,
    Told,
    why,
)
from jobqueue.journal.explaining.words import clock, span

_DELIVERED = (Verb.POP, Verb.TAKE)
_STATES = {int(state): state.word for state in State} | {0: "gone"}
_DEADLY = (Verb.DUE, Verb.RELEASE)
_DEATHS = {Cause.TRIES: "its tries are used up", Cause.TTL: "its ttl is over"}


@dataclass(slots=True)
class Line:
    """A line of a timeline. Spans are in us, or None if they do not apply."""

    at: int
    """us"""
    what: str
    how: str = ""
    life: int = 0
    who: str = ""
    worker: str | None = None
    attempt: int | None = None
    late: int | None = None
    """How long after its time a timer moved the job."""
    waited: int | None = None
    """For how long the job was ready before this delivery."""
    worked: int | None = None
    """For how long a worker had the job."""
    backed_off: int | None = None
    """For how long the job was in back-off."""
    is_forgotten: bool = False


@dataclass(slots=True)
class Sums:
    """The sums of a life, in us."""

    timers_late: int = 0
    waited: int = 0
    worked: int = 0
    backed_off: int = 0
    deliveries: int = 0
    late: int | None = None
    """How long after its due time the job was first delivered."""


@dataclass(slots=True)
class Timeline:
    """The lines of a life, and their sums."""

    lines: list[Line] = field(default_factory=list)
    sums: Sums = field(default_factory=Sums)


class Wait(NamedTuple):
    """A time in which a job was ready, which ended with the event at `place`, or which still lasts if `place` is
    None."""

    place: Place | None
    topic: str
    priority: int
    begin: int
    """us"""
    end: int


def waits(events: Sequence[Told]) -> list[Wait]:
    """The waits of a life that have ended, and are long enough to be explained."""
    found = []
    before: Told | None = None
    for event in events:
        if event.verb in _DELIVERED and event.before == State.READY:
            found.append(Wait(event.place, event.topic, event.priority, _ready_since(event.was, before), event.at))
        before = event if event.after and event.verb != Verb.WALK else before
    return [wait for wait in found if wait.end - wait.begin >= WORTH_US]


def _ready_since(since_ms: int, before: Told | None) -> int:
    """Since when a job was ready, in us: the exact time of the previous event if that made the job ready."""
    if before is not None and before.after == State.READY and before.at // 1000 == since_ms:
        return before.at
    return since_ms * 1000


def timeline(history: History, life: int, explained: Mapping[Place, Meanwhile], tries: int | None = None) -> Timeline:
    """The timeline of a life. `explained`: what is known about its waits, by the places of the events that ended them;
    `tries`: how many tries the job has, or None if unknown."""
    events = history.of_life(life)
    made, teller = Timeline(), _Teller(explained, tries, history.occurred)
    marks = _marks(history.gaps, events, history.until)
    for event in events:
        while marks and _is_behind(event, marks[0]):
            made.lines.append(_mark(marks.pop(0), life))
        line = teller.line(event)
        line.is_forgotten = history.is_forgotten(event)
        made.lines.append(line)
        if not history.is_taken_back(event):
            _add(made.sums, event, line)
    made.lines += [_mark(gap, life) for gap in marks]
    return made


def _add(sums: Sums, event: Told, line: Line) -> None:
    sums.timers_late += line.late or 0
    sums.waited += line.waited or 0
    sums.worked += line.worked or 0
    sums.backed_off += line.backed_off or 0
    if event.verb in _DELIVERED:
        sums.deliveries += 1
        if event.deliveries == 1:
            sums.late = event.at - event.due * 1000
    elif event.verb == Verb.UNPOP:
        sums.deliveries -= 1
        sums.late = sums.late if event.deliveries else None


def _marks(gaps: Sequence[Gap], events: Sequence[Told], until: int | None) -> list[Gap]:
    """The gaps in a life, in the order of their ends: the line of a gap stands after the events up to its end."""
    if not events:
        return []
    last = events[-1]
    has_ended = last.after in (State.FINISHED, State.DELETED)
    end_ms = last.ms if has_ended else (until or last.at) // 1000
    between = [gap for gap in gaps if gap.kind in (LOST, FORGOTTEN) and gap.overlaps(events[0].ms, end_ms)]
    return sorted(between, key=lambda gap: gap.end)


def _is_behind(event: Told, gap: Gap) -> bool:
    """Returns True if an event comes after the line of a gap. The place of a walked record is the last entry of the
    stream at that time, which may be the last missing entry, or one before it if events were off, so the time of the
    record decides."""
    if event.branch == WALKED and (gap.kind == LOST or event.place == gap.end):
        return event.at >= gap.found
    return event.place > gap.end


def _mark(gap: Gap, life: int) -> Line:
    begin, end = gap.begin[0] * 1000, gap.end[0] * 1000
    between = f"between {clock(begin, end)} and {clock(end, end)}" if begin else f"until {clock(end, end)}"
    if gap.is_emptied:
        return Line(end, "emptied", f"Redis was emptied or replaced, and lost what was recorded {between}", life)
    if gap.kind == FORGOTTEN:
        how = f"Redis went back, as in a failover, and lost what was recorded {between}"
        return Line(end, "went back", how, life)
    if not gap.entries:
        return Line(end, "gap", f"events were off {between}: what happened to the job then is not known", life)
    how = f"{gap.entries:,} entries of its shard {between} are missing: what happened to the job then is not known"
    return Line(end, "gap", how, life)


class _Teller:
    """Turns the events of a life into lines, one after the other."""

    def __init__(self, explained: Mapping[Place, Meanwhile], tries: int | None, occurred: Mapping[Place, str]) -> None:
        self._explained = explained
        self._tries = tries
        self._occurred = occurred
        self._before: Told | None = None

    def line(self, event: Told) -> Line:
        line = Line(event.at, "moved", life=event.life, who=_who(event))
        _TELL.get(event.verb, _Teller._other)(self, event, line)
        self._back_off(event, line)
        if event.after == State.DEAD and event.verb in _DEADLY:
            line.how = _joined(line.how, f"dead: {_DEATHS.get(Cause(event.cause), 'for an unknown reason')}")
        if event.reason and event.verb not in _KEEP_REASON and line.what != "lease over":  # says so already
            line.how = f"{line.how}: {event.reason}" if line.how else event.reason
        if event.after and event.verb != Verb.WALK:
            self._before = event
        return line

    def _back_off(self, event: Told, line: Line) -> None:
        """Set how long the job was in back-off, if this event ends the back-off."""
        before = self._before
        if event.before == State.DELAYED and before is not None and before.before == State.RESERVED:
            line.backed_off = max(min(event.at, before.next * 1000) - before.at, 0)

    def _added(self, event: Told, line: Line) -> None:
        line.what = {Verb.ADD: "added", Verb.REPLACE: "replaced"}.get(Verb(event.verb), "moved here")
        line.how = _state(event)
        if event.verb == Verb.IMPORT:
            line.how = f"from another Redis, {line.how}"
        elif event.place in self._occurred:
            line.how = f"made by the schedule {self._occurred[event.place]}, {line.how}"

    def _restored(self, event: Told, line: Line) -> None:
        run = f"by restore, run {event.actor.removeprefix('restore:')}, " if event.actor else ""
        line.what, line.how, line.who = "restored", run + _state(event), event.instance

    def _due(self, event: Told, line: Line) -> None:
        line.what = "fell due" if event.after != State.DEAD else "ttl over"
        if event.before == State.READY:
            return  # the event does not say when the ttl was over
        line.late = max(event.at - event.was * 1000, 0)
        if event.before == State.RESERVED:
            self._lease_over(event, line)
        else:
            line.how = f"+{span(line.late)} after its time"

    def _lease_over(self, event: Told, line: Line) -> None:
        line.what, line.worked = "lease over", max(event.was * 1000 - event.lease, 0)
        late = f"{span(line.worked)}, {span(line.late or 0)} after its end"
        again = {
            State.DELAYED: f"again by its back-off at {clock(event.next * 1000, event.at)}",
            State.READY: "ready again at once",
        }.get(State(event.after))
        line.how = f"{late}; {again}" if again else late

    def _delivered(self, event: Told, line: Line) -> None:
        line.what = "delivered" if event.verb == Verb.POP else "taken"
        line.worker, line.attempt = event.worker, event.attempts
        worker = f"worker {event.worker}, " if event.worker else ""
        line.who = f"{worker}attempt {event.attempts}" + (f" of {self._tries}" if self._tries else "")
        if event.before == State.READY:
            line.waited = max(event.at - _ready_since(event.was, self._before), 0)
            line.how = self._waited(event, line.waited)
        elif event.verb == Verb.TAKE:
            line.how = f"by its id; it was {_STATES[event.before]}"
        if event.after == State.FINISHED:
            line.how = _joined(line.how, "at most once: finished with it")

    def _waited(self, event: Told, waited: int) -> str:
        reason = why(self._explained[event.place]) if event.place in self._explained else ""
        return f"waited {span(waited)}: {reason}" if reason else f"waited {span(waited)}"

    def _unpopped(self, event: Told, line: Line) -> None:
        line.what, line.how = "delivery undone", "it did not reach its worker; this delivery does not count"

    def _touched(self, event: Told, line: Line) -> None:
        line.what, line.how = "touched", f"its lease lasts until {clock(event.next * 1000, event.at)}"

    def _released(self, event: Told, line: Line) -> None:
        line.what, line.worked = "released", _worked(event)
        line.how = f"after {span(line.worked)}"
        if event.after != State.DEAD:
            line.how += f", {_state(event, 'again')}"

    def _buried(self, event: Told, line: Line) -> None:
        line.what, line.worked = "buried", _worked(event)
        line.how = f"after {span(line.worked)}"

    def _finished(self, event: Told, line: Line) -> None:
        line.what = "finished"
        if event.before == State.RESERVED:
            line.worked = _worked(event)
            line.how = f"worked {span(line.worked)}"
        else:
            line.how = f"by a worker whose lease was over; it was {_STATES[event.before]}"

    def _deleted(self, event: Told, line: Line) -> None:
        line.what = {Verb.PURGE: "purged", Verb.TRIM: "trimmed"}.get(Verb(event.verb), "deleted")
        line.how = f"it was {_STATES.get(event.before, 'gone')}"
        if event.verb == Verb.TRIM:
            line.how += ", beyond what its topic keeps"
        if event.before == State.RESERVED:
            line.worked = _worked(event)

    def _kicked(self, event: Told, line: Line) -> None:
        line.what, line.how = "kicked", f"it had been dead for {span(max(event.at - event.was * 1000, 0))}"

    def _run(self, event: Told, line: Line) -> None:
        early = event.was * 1000 - event.at
        line.what, line.how = "made due", f"{span(early)} before its time" if early > 0 else ""

    def _updated(self, event: Told, line: Line) -> None:
        line.what, line.how = "updated", _state(event)

    def _rewritten(self, event: Told, line: Line) -> None:
        line.what, line.how = "rewritten", f"a new body, {_state(event)}"

    def _exported(self, event: Told, line: Line) -> None:
        line.what, line.how = "moved away", "to another Redis"

    def _mended(self, event: Told, line: Line) -> None:
        line.what, line.how = "mended", f"by fsck, {_state(event)}"

    def _aside(self, event: Told, line: Line) -> None:
        line.what, line.how = "set aside", "its record could not be read"

    def _walked(self, event: Told, line: Line) -> None:
        line.what, line.how, line.who = "seen", f"by a walk of the journal: {_state(event)}", ""

    def _vanished(self, event: Told, line: Line) -> None:
        line.what, line.how, line.who = "vanished", "a walk did not find it in Redis: how it ended is not known", ""

    def _other(self, event: Told, line: Line) -> None:
        line.how = f"{_STATES.get(event.before, 'gone')} to {_STATES.get(event.after, 'gone')}"


_KEEP_REASON = (Verb.POP, Verb.TAKE, Verb.UPDATE, Verb.REWRITE)
"""Verbs whose events repeat the reason of an earlier release: these moves write the record, which keeps the reason."""

_TELL: dict[int, Callable[[_Teller, Told, Line], None]] = {
    Verb.ADD: _Teller._added,
    Verb.REPLACE: _Teller._added,
    Verb.IMPORT: _Teller._added,
    Verb.RESTORE: _Teller._restored,
    Verb.DUE: _Teller._due,
    Verb.POP: _Teller._delivered,
    Verb.TAKE: _Teller._delivered,
    Verb.UNPOP: _Teller._unpopped,
    Verb.TOUCH: _Teller._touched,
    Verb.RELEASE: _Teller._released,
    Verb.BURY: _Teller._buried,
    Verb.FINISH: _Teller._finished,
    Verb.DELETE: _Teller._deleted,
    Verb.PURGE: _Teller._deleted,
    Verb.TRIM: _Teller._deleted,
    Verb.KICK: _Teller._kicked,
    Verb.RUN: _Teller._run,
    Verb.UPDATE: _Teller._updated,
    Verb.REWRITE: _Teller._rewritten,
    Verb.EXPORT: _Teller._exported,
    Verb.MEND: _Teller._mended,
    Verb.ASIDE: _Teller._aside,
    Verb.WALK: _Teller._walked,
    Verb.VANISHED: _Teller._vanished,
}


def _who(event: Told) -> str:
    return f"{event.actor} ({event.instance})" if event.actor and event.instance else event.actor or event.instance


def _worked(event: Told) -> int:
    """For how long the worker had the job: the number of a lease is the time of its delivery."""
    return max(event.at - event.lease, 0)


def _state(event: Told, due: str = "due") -> str:
    """The state that an event left the job in, with its time."""
    at = clock(event.next * 1000, event.at)
    return {
        State.DELAYED: f"{due} {'at ' if due != 'due' else ''}{at}",
        State.READY: "ready at once",
        State.RESERVED: f"reserved until {at}",
        State.DEAD: "dead",
    }.get(State(event.after) if event.after else State.DELETED, _STATES[event.after])


def _joined(first: str, second: str) -> str:
    return ", ".join(part for part in (first, second) if part)
