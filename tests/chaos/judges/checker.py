"""The checker: which invariants of a queue a history breaks, after Jepsen's total-queue and set-full.

It is a pure function of the events, and believes nothing that they do not prove: without an answer, a command may have
been done, may not have been, or may be done later. Order in time comes from a single clock each: a command that was
sent after an answer arrived came after it; a lease is the time of its delivery on Redis's clock; two leases of one job
are in the order of their numbers.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise

from tests.chaos.history import Event
from tests.chaos.judges.durability_claims import check_honest
from tests.chaos.judges.final_counts import LIVE, check_counts, check_whole
from tests.chaos.judges.findings import Finding, Report
from tests.chaos.judges.keys import check_keys
from tests.chaos.judges.lateness import figures
from tests.chaos.judges.leaks import check_leaks
from tests.chaos.judges.lives import Act, Delivery, Faults, Life, faults, lives, until
from tests.chaos.judges.occurrences import agendas, check_schedules
from tests.chaos.judges.order import check_order
from tests.chaos.judges.redis_time import RedisTime
from tests.chaos.judges.refusals import check_answers, check_refused

_ROUNDING_S = 0.002


def check(events: Sequence[Event]) -> Report:
    """Judge a whole history, numbered and ordered by time."""
    trouble, known = faults(events), lives(events)
    plans = agendas(events, known)
    clock = RedisTime(events)
    report = Report(figures=figures(events, known, trouble))
    for life in known.values():
        report.found += check_lost(life, trouble)
        report.found += check_created(life, trouble)
        report.found += check_known(life)
        report.found += check_early(life, trouble)
        report.found += check_revived(life, trouble, clock)
        report.found += check_leases(life, trouble)
        report.found += check_stale(life, trouble)
        report.found += check_tries(life, trouble)
        report.found += check_refused(life, trouble)
        report.found += check_honest(life, trouble)
    report.found += check_answers(events)
    report.found += check_whole(events)
    report.found += check_counts(events, known, trouble)
    report.found += check_order(events, known, trouble)
    report.found += check_keys(known, trouble)
    report.found += check_schedules(events, plans, trouble)
    report.found += check_leaks(events)
    return report


def _lines(*parts: Act | Delivery | None) -> tuple[int, ...]:
    return tuple(sorted({line for part in parts if part for line in part.lines}))


def check_lost(life: Life, trouble: Faults) -> Iterator[Finding]:
    """An acknowledged job was ended by someone or still exists, and is in no state that nobody put it in."""
    added = life.added
    if added is None:
        return
    asked = [act for act in life.ends if act.perhaps]
    last = life.acts["get"][-1] if life.acts["get"] else None
    excused = trouble.excuse(added)  # not an end: forgetting it leaves the job as it was
    if last is None or last.answer is None or last.answer.kind == "info":
        if not asked:
            yield Finding("lost", "nobody ended it, and nobody saw it last", life.id, _lines(added), excused)
    elif last.answer.kind == "fail":
        says = f"acknowledged as {(added.answer and added.answer.durability) or 'local'}, and gone"
        yield Finding("lost", says, life.id, _lines(added, last), excused)
    elif last.answer.state in LIVE:
        yield Finding("stuck", f"still {last.answer.state} at the end", life.id, _lines(added, last))
    elif last.answer.state == "dead" and not life.may_die:
        says = "dead, and nobody buried it, and it has no ttl and no end of tries"
        yield Finding("lost", says, life.id, _lines(added, last))
    elif last.answer.state in ("finished", "deleted") and not asked:
        says = f"{last.answer.state}, and nobody asked for it"
        yield Finding("lost", says, life.id, _lines(added, last), excused)


def check_created(life: Life, trouble: Faults) -> Iterator[Finding]:
    """A repeated add finds the existing job."""
    created = [act for act in life.acts["add"] if act.answer and act.answer.result == "created"]
    for first, second in pairwise(created):
        yield Finding("created", "created twice", life.id, _lines(first, second), trouble.excuse(first))


def check_known(life: Life) -> Iterator[Finding]:
    """A delivered job is one that someone tried to add, with its topic and body."""
    tried = [act for act in life.acts["add"] if act.perhaps]
    for delivery in life.deliveries:
        got = delivery.answer
        before = [act.invoke for act in tried if act.invoke.at <= got.at]
        if not before:
            yield Finding("unknown", "delivered, and never added", life.id, _lines(delivery))
        elif not any((add.topic, add.body) == (got.topic, got.body) for add in before):
            yield Finding("unknown", "delivered with another topic or body", life.id, _lines(delivery))


def check_early(life: Life, trouble: Faults) -> Iterator[Finding]:
    """Nothing is delivered before its due time: as the add said, as the pop said, and by its delay on the machine's
    clock."""
    adds = [act for act in life.acts["add"] if act.perhaps]
    told = [act.answer.due for act in adds if act.ok and act.answer and act.answer.due is not None]
    asked = min((act.earliest for act in adds), default=0.0)
    for delivery in life.deliveries:
        at_ms = delivery.lease // 1000
        own_ms = round((delivery.answer.due or 0) * 1000)
        if at_ms < (due_ms := max([own_ms, *(round(due * 1000) for due in told)])):
            # The due time of a life that was forgotten before the job was added again.
            excused = at_ms >= own_ms and trouble.excuse(delivery)
            yield Finding("early", f"{due_ms - at_ms} ms before it was due", life.id, _lines(delivery), excused)
        elif delivery.answer.at < asked - _ROUNDING_S:
            early_ms = (asked - delivery.answer.at) * 1000
            yield Finding("early", f"{early_ms:.0f} ms before its delay was over", life.id, _lines(delivery))
    for before, after in pairwise(life.deliveries):
        for release in until(after, life.of(before, "release")):
            due = release.answer.due if release.ok and release.answer else None
            is_early = after.answer.at < release.earliest - _ROUNDING_S
            if due is not None and (after.lease // 1000 < round(due * 1000) or is_early):
                says, excused = "delivered before it was released to", trouble.excuse(release)
                yield Finding("early", says, life.id, _lines(release, after), excused)


def check_revived(life: Life, trouble: Faults, clock: RedisTime) -> Iterator[Finding]:
    """No delivery after an acknowledged end."""
    for end in life.ends:
        for delivery in life.deliveries if end.ok else ():
            forgotten = trouble.excuse(end)
            by_lease = _outran(end, delivery, life)
            if by_lease or clock.is_after(delivery, end):
                forgotten = forgotten or (by_lease and trouble.excuse(delivery))
                says = f"delivered after its {end.invoke.command} was acknowledged"
                yield Finding("revived", says, life.id, _lines(end, delivery), forgotten)
                break


def _outran(end: Act, delivery: Delivery, life: Life) -> bool:
    """Whether a finish was accepted for a lease that was then the newest, and a newer one was delivered all the same.

    A finish of a finished job succeeds too, whatever its lease. So no holder of a lease as new as the delivery's may
    have asked before.
    """
    if end.invoke.command != "finish" or end.answer is None or delivery.answer.at < end.invoke.at:
        return False
    return delivery.lease > (end.invoke.lease or 0) and not _was_finished(life, delivery.lease, end.answer.at)


def _was_finished(life: Life, lease: int, until: float) -> bool:
    """Whether a holder of that lease or a newer one may have finished the job by then."""
    asked = [act.invoke for act in life.acts["finish"] if act.perhaps]
    return any((invoke.lease or 0) >= lease and invoke.at <= until for invoke in asked)


def check_stale(life: Life, trouble: Faults) -> Iterator[Finding]:
    """No command was accepted for a lease older than one that was known before."""
    for command in ("finish", "touch", "release", "bury"):
        for act in life.acts[command]:
            known = [each for each in life.deliveries if act.ok and each.answer.at < act.invoke.at]
            newest = known[-1] if known else None
            if newest is None or act.answer is None or newest.lease <= (act.invoke.lease or 0):
                continue
            if command != "finish" or not _was_finished(life, newest.lease, act.answer.at):
                says = f"{command} was taken from an older lease"
                yield Finding("stale", says, life.id, _lines(newest, act), trouble.excuse(newest))


def check_leases(life: Life, trouble: Faults) -> Iterator[Finding]:
    """Leases increase with time, none is given twice, and one begins only when the one before it is over."""
    heard = float("inf")  # the earliest time at which a higher lease was known
    for delivery in reversed(life.deliveries):
        if delivery.invoke.at > heard:
            excused = any(trouble.excuse(each) for each in life.deliveries if each.lease > delivery.lease)
            yield Finding("lease", "lower than one that was given before", life.id, _lines(delivery), excused)
        heard = min(heard, delivery.answer.at)
    for before, after in pairwise(life.deliveries):
        excused = trouble.excuse(before)
        if before.lease == after.lease:
            yield Finding("lease", "given twice", life.id, _lines(before, after), excused)
        elif after.lease // 1000 < (end_ms := life.end_ms(before, after)) and not life.gave_up(before, after):
            touches = until(after, life.of(before, "touch"))
            excused = excused or any(trouble.excuse(each) for each in touches)
            says = f"delivered {end_ms - after.lease // 1000} ms before the lease before it was over"
            yield Finding("overlap", says, life.id, _lines(before, after, *touches), excused)


def check_tries(life: Life, trouble: Faults) -> Iterator[Finding]:
    """No more attempts than tries; every attempt counts, except one released as not counting."""
    for delivery in life.deliveries:
        tries, attempt = delivery.answer.tries or 0, delivery.answer.attempt or 0
        if tries and attempt > tries:
            yield Finding("tries", f"attempt {attempt} of {tries}", life.id, _lines(delivery))
    for before, after in pairwise(life.deliveries):
        uncounted = any(act.invoke.attempt == 0 for act in life.of(before, "release"))
        least = (before.answer.attempt or 0) + (0 if uncounted else 1)
        if (after.answer.attempt or 0) < least:
            says = f"attempt {after.answer.attempt} after {before.answer.attempt}"
            yield Finding("tries", says, life.id, _lines(before, after), trouble.excuse(before))
