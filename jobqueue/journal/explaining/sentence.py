"""One sentence that says where a job stands and why, from facts alone."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from buckets.job import Cause, Job, State, Tag, Verb
from buckets.pool.limits import Closed, Limit
from buckets.pool.standing import MOST_BEFORE, Standing
from buckets.topics.topics import Bounds
from buckets.waiting.pollers import Polling
from jobqueue.journal.explaining.told import History, Meanwhile, Newest, Told, why
from jobqueue.journal.explaining.words import clock, jobs, moment, span

_SOON_US = 1_000_000
"""For how long a job may be ready while pops wait before that seems wrong."""


@dataclass(slots=True)
class Now:
    """What is known about the present, in addition to the history in the journal."""

    standing: Standing | None
    """None if Redis was not asked."""
    timer: str | None = None
    """The name of the instance that runs the job's timer, or None if there is none or its name is unknown."""
    polling: Sequence[Polling] | None = None
    """For a ready job, the workers that poll its topic, or None if unknown."""
    closed: Closed | None = None
    """For a ready job, the limit of its topic that holds it back, if any."""
    limit: Limit | None = None
    """For a ready job, all limits of its topic."""
    bounds: Bounds | None = None
    """For a dead job, the bounds of its topic's dead letters."""
    last_delivery: int | None = None
    """us: the start of the minute in which a job of its topic was last delivered, according to the journal."""
    since_ready: Meanwhile | None = None
    """For a ready job, what the journal knows about the time since it became ready."""
    notes: list[str] = field(default_factory=list)
    """What is missing from the answer, in words."""

    @property
    def waiting(self) -> int | None:
        """How many pops of its topic wait, or None if unknown."""
        return None if self.polling is None else sum(each.waiting for each in self.polling)


def sentence(now: Now, history: History | None) -> str:
    """Where the job stands, and why; for a ready job, what holds it back and what to do."""
    standing = now.standing
    if standing is None or not (standing.job or standing.is_unreadable or standing.is_aside):
        return _told_alone(history or History(), is_asked=standing is not None)
    if standing.is_unreadable:
        return "its record cannot be read; `jobqueue fsck --repair` sets it aside"
    if standing.is_aside or standing.job is None:
        return "set aside: its record could not be read; it is kept for an operator"
    return _SAY[standing.job.state](standing.job, standing, now, _last(history, standing.job))


def _last(history: History | None, job: Job) -> Told | None:
    """The event that brought the job into its present state, or None if the history does not have that event."""
    events = [event for event in history.of_life(job.created) if event.verb != Verb.WALK] if history else []
    last = events[-1] if events else None
    return last if last is not None and (last.after, last.next) == (job.state, job.next) else None


def _at(ms: int, standing: Standing) -> str:
    """A time and how far away it is: `2026-11-23 12:30:00.000 UTC (in 5 s)`."""
    away = ms * 1000 - standing.now_us
    return f"{moment(ms * 1000)} UTC ({f'in {span(away)}' if away >= 0 else f'{span(-away)} ago'})"


def _attempt(job: Job) -> str:
    return f"attempt {job.attempts}" + (f" of {job.tries}" if job.tries else "")


def _delayed(job: Job, standing: Standing, now: Now, last: Told | None) -> str:
    if job.next * 1000 <= standing.now_us:
        late = span(standing.now_us - job.next * 1000)
        return f"due since {moment(job.next * 1000)} UTC and not moved for {late}: {_timer(job, standing, now)}"
    paused = _paused(standing)
    until = f"delayed until {_at(job.next, standing)}: {_why_delayed(job, last)}"
    return f"{until}; {paused}" if paused else until


def _why_delayed(job: Job, last: Told | None) -> str:
    if job.lease_ended is not None:
        return f"{_back_off(job)}, since its lease ended at {moment(job.lease_ended * 1000)} UTC"
    if last is not None and last.verb in (Verb.UPDATE, Verb.REWRITE):
        return "its time was changed" + (f" by {last.actor}" if last.actor else "")
    if not job.deliveries:
        return "as it was added" if last is not None else "as it was added, or changed since"
    worker, reason = job.text(Tag.WORKER), job.text(Tag.REASON)
    given = f"given back by {f'worker {worker}' if worker else 'its worker'}, {_attempt(job)}"
    step = f", {_back_off(job)}" if job.kind.step and job.backoff else ""
    return f"{given}{step}{f': {reason}' if reason else ''}"


def _back_off(job: Job) -> str:
    steps, step = len(job.backoff), job.kind.step
    return f"in back-off, step {min(step, steps)} of {steps}" if steps else "in back-off"


def _timer(job: Job, standing: Standing, now: Now) -> str:
    """Why a job whose time has come was not moved."""
    where = f"bucket {job.bucket} of shard {standing.shard}"
    if standing.is_listed is False:
        return f"{where} does not list it; `jobqueue fsck --repair` mends that"
    if not standing.timer:
        return f"no instance runs the timer of {where}"
    others = (standing.behind or 1) - 1
    behind = f", and {jobs(others)} of it {'is' if others == 1 else 'are'} due with it or before" if others else ""
    name = now.timer or f"an instance of unknown name ({standing.timer})"
    return f"the timer of {where} is run by {name}{behind}"


def _ready(job: Job, standing: Standing, now: Now, last: Told | None) -> str:
    topic = shlex.quote(job.topic)
    if paused := _paused(standing):
        return f"{paused[:1].upper()}{paused[1:]}: jobqueue resume {topic}."
    if standing.ahead is not None:
        return _behind(job, standing)
    if now.closed and now.limit:
        return _closed(now.closed, now.limit, topic)
    if now.polling is None:
        return f"Ready for {_ready_for(job, standing)}, and not popped."
    if not now.polling:
        return f"Nobody has polled {job.topic} since {_unpolled_since(job, standing, now)}: start its workers."
    return _polled(job, standing, now.polling, topic)


def _behind(job: Job, standing: Standing) -> str:
    """Why a job waits for its key."""
    count = standing.ahead or 0
    are = "is" if count == 1 else "are"
    if standing.holder:
        return f"{jobs(count)} of its key {job.key} {are} before it; {standing.holder} has the key."
    if standing.opens_ms is not None:
        opens = f"The rate of its key {job.key} allows the next delivery at {_at(standing.opens_ms, standing)}"
        return f"{opens}; {jobs(count)} {are} before it." if count else f"{opens}."
    return f"Its key {job.key} is free, and it was not made ready for pops: jobqueue fsck --repair."


def _polled(job: Job, standing: Standing, polling: Sequence[Polling], topic: str) -> str:
    """Why a ready job waits although its topic is polled. `topic`: quoted for a shell."""
    if all(each.blocked for each in polling):
        return f"Its {polling[0].blocked}: mend what it delivers to; see jobqueue workers {topic}."
    if any(each.waiting for each in polling):
        if standing.before or standing.above or standing.now_us - job.next * 1000 < _SOON_US:
            return f"Workers of {job.topic} wait for jobs: it is delivered when its turn comes."
        return f"Workers of {job.topic} wait for jobs and do not get this one: jobqueue check."
    held = sum(each.jobs for each in polling)
    if held:
        return (
            f"The workers of {job.topic} are busy, with {jobs(held)} in hand: start more; see jobqueue workers {topic}."
        )
    return f"The workers of {job.topic} do not wait for jobs: see jobqueue workers {topic}."


def reasons(now: Now) -> list[str]:
    """What is known about why a ready job waits, in addition to the sentence, each fact in words."""
    standing = now.standing
    job = standing.job if standing else None
    if standing is None or job is None or job.state is not State.READY:
        return []
    ended = f", since its lease ended at {moment(job.lease_ended * 1000)} UTC" if job.lease_ended is not None else ""
    known = why(now.since_ready) if now.since_ready else ""
    return [
        f"ready for {_ready_for(job, standing)}{ended}",
        *([_place(standing)] if standing.before is not None else []),
        *([] if now.waiting is None else [_waiting(now.waiting)]),
        *([] if now.last_delivery is None else [_last_delivery(now.last_delivery)]),
        *([f"since it is ready: {known}"] if known else []),
    ]


def _ready_for(job: Job, standing: Standing) -> str:
    return span(standing.now_us - job.next * 1000)


def _unpolled_since(job: Job, standing: Standing, now: Now) -> str:
    """Since when the topic has not been polled: a poll would have found this job, which was ready by then, and no job
    of its topic was delivered later."""
    since = clock(max(job.next * 1000, now.last_delivery or 0), standing.now_us)
    return f"{since[:-7]} UTC"  # to the minute: the journal knows it no more precisely


def _last_delivery(minute_us: int) -> str:
    return f"a job of the topic was last delivered in the minute of {moment(minute_us)[:16]} UTC"


def _paused(standing: Standing) -> str:
    if standing.paused_us in (None, -1):
        return ""
    if standing.paused_us == -2:
        return "its topic is paused until somebody resumes it"
    end_us = standing.now_us + (standing.paused_us or 0)
    return f"its topic is paused until {moment(end_us)} UTC"


def _closed(closed: Closed, limit: Limit, topic: str) -> str:
    if closed.limit == "rate":
        return f"Its topic has reached its rate of {limit.rate:g} a second, for another {span(closed.opens_us)}."
    holders = f"jobqueue peek {topic} --state reserved shows who works"
    return f"Its topic has reached its concurrency of {limit.concurrency:,}: {holders}."


def _place(standing: Standing) -> str:
    before, above = standing.before or 0, standing.above or 0
    own = f"at least {MOST_BEFORE:,} jobs" if before < 0 else jobs(before) if before else "no job"
    higher = f" and {jobs(above)} of a higher one" if above else ""
    return f"{own} of its priority{higher} {'is' if before in (0, 1) and not above else 'are'} before it"


def _waiting(pops: int) -> str:
    if not pops:
        return "no pop of the topic waits"
    return "a pop of the topic waits" if pops == 1 else f"{pops:,} pops of the topic wait"


def _reserved(job: Job, standing: Standing, now: Now, last: Told | None) -> str:
    worker = job.text(Tag.WORKER)
    by = f"reserved by {f'worker {worker}' if worker else 'a worker without a name'} since {moment(job.lease)} UTC"
    if job.next * 1000 <= standing.now_us:
        late = span(standing.now_us - job.next * 1000)
        return f"{by}; its lease ended {late} ago and it was not moved: {_timer(job, standing, now)}"
    return f"{by}, until {_at(job.next, standing)}, {_attempt(job)}"


_CAUSES = {
    Cause.TRIES: "its tries are used up",
    Cause.TTL: "its ttl was over",
    Cause.BURIED: "its worker buried it",
}


def _dead(job: Job, standing: Standing, now: Now, last: Told | None) -> str:
    cause = _CAUSES.get(job.cause, "why is not known")
    said = f"dead since {_at(job.next, standing)}: {cause}{f' ({job.reason})' if job.reason else ''}"
    if now.bounds is None:
        return said
    ends = [f"at {moment((job.next + now.bounds.age_ms) * 1000)} UTC"]
    if now.bounds.most and standing.newer is not None:
        ends.append(f"once {jobs(max(now.bounds.most - standing.newer, 0))} more of the topic have died")
    return f"{said}; it will be deleted {' or '.join(ends)}"


def _ended(job: Job, standing: Standing, now: Now, last: Told | None) -> str:
    at = f" at {moment(last.at)} UTC" if last is not None else ""
    verb = {Verb.PURGE: " by a purge", Verb.TRIM: " as a dead letter beyond what its topic keeps"}
    how = verb.get(Verb(last.verb), "") if last is not None and job.state is State.DELETED else ""
    by = f" by {last.actor}" if last is not None and last.actor and not how else ""
    delivered = f", last delivered at {moment(job.lease)} UTC, {_attempt(job)}" if job.lease else ", never delivered"
    return f"{job.state.word}{how}{by}{at}{delivered}; it is remembered until {_at(job.next, standing)}"


_SAY: dict[State, Callable[[Job, Standing, Now, Told | None], str]] = {
    State.DELAYED: _delayed,
    State.READY: _ready,
    State.RESERVED: _reserved,
    State.DEAD: _dead,
    State.FINISHED: _ended,
    State.DELETED: _ended,
}


def _told_alone(history: History, *, is_asked: bool) -> str:
    """What the journal alone says. `is_asked`: True if Redis was asked and does not know the job."""
    newest = history.newest
    if newest is None:
        last = history.events[-1] if history.events else None
        if last is None:
            return "nothing was recorded about it"
        state, at, ended = last.after, last.at, last.at if last.after in (0, *_ENDS) else None
    else:
        state, at, ended = newest.state, newest.at, newest.ended
    if state in _ENDS:
        gone = ", and Redis no longer remembers it" if is_asked else ""
        return f"{State(state).word} at {moment(ended or at)} UTC{gone}"
    if not state:
        return f"gone since {moment(at)} UTC: set aside as unreadable, or missing from Redis when the journal looked"
    if is_asked:
        return f"by the journal it was {State(state).word} at {moment(at)} UTC, and Redis no longer knows it"
    return f"{State(state).word} since {moment(at)} UTC, by the journal{_time_of(newest)}"


_ENDS = (State.FINISHED, State.DELETED)


def _time_of(newest: Newest | None) -> str:
    if newest is None or newest.state not in (State.DELAYED, State.RESERVED):
        return ""
    word = "due" if newest.state == State.DELAYED else "reserved until"
    return f", {word} {moment(newest.next * 1000)} UTC"
