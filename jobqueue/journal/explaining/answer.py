"""The answer to `explain`: everything that is known about a job, in the wire format. Times are unix seconds, spans are
seconds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from buckets.errors import NotFound
from buckets.job import Job, State, Tag
from buckets.pool.standing import MOST_BEFORE, Standing
from buckets.topics.within import reaches
from jobqueue.commands.answers import Answer, described
from jobqueue.journal.explaining.sentence import Now, reasons, sentence
from jobqueue.journal.explaining.timeline import Line, Sums, Timeline, timeline
from jobqueue.journal.explaining.told import History, Meanwhile, Place
from jobqueue.journal.explaining.words import moment
from jobqueue.tracing import trace_of

ALL = "all"
Life = float | str | None
"""Which life is asked for: its number (from 1 on), its creation time (unix seconds), `ALL`, or None for the newest."""
_MOST_LIVES = 1_000_000  # a larger number is a time


def unknown(history: History | None, *, is_asked: bool = True) -> NotFound:
    """The error for an unknown id. `is_asked`: True if Redis was asked, too."""
    redis = "neither in Redis nor in the journal" if is_asked else "not in the journal"
    if history is None:
        return NotFound("no such job: neither does it live, nor is it remembered; no journal was read")
    if history.since is None:
        return NotFound(f"no such job: {redis}, which is empty")
    return NotFound(f"no such job: {redis}, which goes back to {moment(history.since)} UTC")


def within_reach(history: History, within: str) -> History:
    """The part of a history that the caller may know: the lives whose topics are within reach."""
    if within:
        lives = {event.life: event.topic for event in history.events if event.life}
        reached = {life for life, topic in lives.items() if reaches(within, topic)}
        history.take([event for life in history.lives() if life in reached for event in history.of_life(life)])
        if history.newest and not reaches(within, history.newest.topic):
            history.newest = None
    return history


def chosen(life: Life, standing: Standing | None, history: History | None) -> tuple[list[int], list[int]]:
    """The lives that were asked for, and all known lives, each as its creation time (ms). Raises NotFound."""
    job = standing.job if standing else None
    known = sorted({*(history.lives() if history else []), *([job.created] if job else [])})
    if life is None:
        return known[-1:], known
    if life == ALL:
        return known, known
    return [_life(float(life), known)], known


def _life(asked: float, known: Sequence[int]) -> int:
    """The life that is asked for by its number or its creation time. Raises NotFound."""
    if asked in range(1, _MOST_LIVES):
        if asked > len(known):
            lives = "1 life" if len(known) == 1 else f"{len(known):,} lives"
            raise NotFound(f"this job has no life {asked:g}: {lives} of it {'is' if len(known) == 1 else 'are'} known")
        return known[int(asked) - 1]
    created = round(asked * 1000)
    if created not in known:
        raise NotFound("no life of this job that was created then is known")
    return created


def answer(
    job_id: str,
    lives: tuple[Sequence[int], Sequence[int]],
    now: Now,
    history: History | None,
    explained: Mapping[Place, Meanwhile],
) -> Answer:
    """The answer about a job. `lives`: the chosen ones and all of them, as `chosen` returns them."""
    asked, known = lives
    told = _alone(history, asked, known)
    is_newest = not known or known[-1] in asked
    unkept = history.unkept_of(asked) if history else []
    now.notes.extend(each.words for each in unkept)
    shown = now if is_newest else Now(None, notes=now.notes)
    job = shown.standing.job if shown.standing else None
    lines = [timeline(told, life, explained, _tries(life, job, told)) for life in asked] if told else []
    return {
        "success": True,
        "id": job_id,
        "sentence": sentence(shown, told),
        "facts": _facts(shown, told, asked, known),
        "timeline": [_line(line) for each in lines for line in each.lines] if history else None,
        "sums": _sums(lines) if lines and not unkept else None,
        "since": _s(history.since) if history else None,
    }


def _tries(life: int, job: Job | None, history: History) -> int | None:
    """How many tries a life has, or None if unknown."""
    newest = history.newest
    if job is not None and job.created == life:
        return job.tries
    return newest.tries if newest is not None and newest.life == life else None


def _alone(history: History | None, asked: Sequence[int], known: Sequence[int]) -> History | None:
    """The history up to the last life that is asked for."""
    if history is None or not asked or asked[-1] == known[-1]:
        return history
    events = [event for life in known if life <= asked[-1] for event in history.of_life(life)]
    return History(
        *(events, history.gaps, None, history.since, history.until, history.is_cut),
        unkept=history.unkept,
        occurred=history.occurred,
    )


def _facts(now: Now, history: History | None, asked: Sequence[int], known: Sequence[int]) -> Answer:
    standing = now.standing
    job = standing.job if standing else None
    newest = history.newest if history else None
    last = history.events[-1] if history and history.events else None
    headers = job.optional.get(Tag.HEADERS) if job else newest.headers if newest else None
    trace = trace_of(headers)
    topic = job.topic if job else newest.topic if newest else last.topic if last else None
    return {
        "state": _state(now, history),
        "topic": topic or None,
        "life": asked[-1] / 1000 if asked else None,
        "lives": [life / 1000 for life in known],
        "now": standing.now_us / 1e6 if standing else None,
        "until": _s(history.until) if history else None,
        "job": described(job, with_body=False, is_whole=False) if job else None,
        **({"trace_id": trace} if trace else {}),
        **(_standing(standing, now) if standing else {}),
        "reasons": reasons(now),
        "notes": now.notes,
    }


def _state(now: Now, history: History | None) -> str:
    standing = now.standing
    if standing and standing.job:
        return standing.job.state.word
    if standing and (standing.is_aside or standing.is_unreadable):
        return "aside" if standing.is_aside else "unreadable"
    newest = history.newest if history else None
    last = history.events[-1] if history and history.events else None
    state = newest.state if newest else last.after if last else 0
    return State(state).word if state else "gone"


def _standing(standing: Standing, now: Now) -> Answer:
    """What keeps a job in its state. Facts that do not apply to that state are left out."""
    job = standing.job
    if job is None:
        return {}
    facts: dict[str, Any] = {"shard": standing.shard}
    if standing.timer is not None:
        is_due = job.next * 1000 <= standing.now_us
        facts |= {"bucket": job.bucket, "timer": now.timer or standing.timer or None, "listed": standing.is_listed}
        facts |= {"late": (standing.now_us - job.next * 1000) / 1e6, "behind": standing.behind} if is_due else {}
    if standing.paused_us is not None:
        facts["paused"] = standing.paused_us != -1
        if standing.paused_us >= 0:
            facts["paused_until"] = (standing.now_us + standing.paused_us) / 1e6
    if standing.before is not None:
        facts |= {"before": MOST_BEFORE if standing.before < 0 else standing.before, "above": standing.above}
        facts |= {"waiting": now.waiting, "last_delivery": _s(now.last_delivery)}
        facts |= {"limited": now.closed.limit} if now.closed else {}
    if standing.ahead is not None:
        facts |= {"ahead": standing.ahead, "holder": standing.holder or None}
        facts |= {"opens_at": standing.opens_ms / 1000} if standing.opens_ms is not None else {}
    if job.state is State.DEAD and now.bounds:
        facts |= {"deleted_at": (job.next + now.bounds.age_ms) / 1000, "newer": standing.newer}
        facts["max_dead"] = now.bounds.most or None
    return facts


def _s(us: int | None) -> float | None:
    return None if us is None else us / 1e6


_SPANS = ("late", "waited", "worked", "backed_off")


def _line(line: Line) -> Answer:
    shown: Answer = {"at": line.at / 1e6, "what": line.what, "how": line.how, "who": line.who, "life": line.life / 1000}
    shown |= {name: value / 1e6 for name in _SPANS if (value := getattr(line, name)) is not None}
    shown |= {name: value for name in ("worker", "attempt") if (value := getattr(line, name)) is not None}
    return shown | ({"forgotten": True} if line.is_forgotten else {})


def _sums(lines: Sequence[Timeline]) -> Answer:
    """The sums of one life or several. How late the first delivery was is only known for one life."""
    all_sums: list[Sums] = [each.sums for each in lines]
    return {
        "late": _s(all_sums[0].late) if len(all_sums) == 1 else None,
        "timers_late": sum(sums.timers_late for sums in all_sums) / 1e6,
        "waited": sum(sums.waited for sums in all_sums) / 1e6,
        "worked": sum(sums.worked for sums in all_sums) / 1e6,
        "backed_off": sum(sums.backed_off for sums in all_sums) / 1e6,
        "deliveries": sum(sums.deliveries for sums in all_sums),
    }
