"""Jobs by key: those of a key run one after the other, in the order of their due times.

A job has its key from before its delivery until its holder gives it up, and through a back-off. A lease that ends, or a
release without a delay, puts the job back at its old place, so it is next unless one that is due earlier waits. Of two
jobs the order is certain if one was seen ready before the other could be, or before the other's lease could have ended.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise

from tests.chaos.judges.findings import Finding
from tests.chaos.judges.lives import Act, Delivery, Faults, Life, until

_ROUNDING_S = 0.001  # of due times
_Taken = tuple[Delivery, Life]


def check_keys(known: Mapping[str, Life], trouble: Faults) -> Iterator[Finding]:
    """No two jobs of a key run at the same time, and none runs before its turn."""
    by_key: defaultdict[tuple[str, str], list[Life]] = defaultdict(list)
    for life in known.values():
        if life.key:
            by_key[life.key].append(life)
    for own in by_key.values():
        taken = sorted(((each, life) for life in own for each in life.deliveries), key=lambda pair: pair[0].lease)
        for before, after in pairwise(taken):
            if before[1] is not after[1]:
                yield from _check_next(before, after, trouble)
        yield from _check_first(own, taken, trouble)


def _check_next(before: _Taken, after: _Taken, trouble: Faults) -> Iterator[Finding]:
    """After a delivery, the next one of the key is of another job only if the first job left the key."""
    (held, life), (new, other) = before, after
    touches, releases = (until(new, life.of(held, command)) for command in ("touch", "release"))
    acts: list[Act | Delivery] = [held, new, *touches, *releases]
    lines = tuple(sorted({line for act in acts for line in act.lines}))
    excused = any(trouble.excuse(act) for act in acts)
    if new.lease // 1000 < life.end_ms(held, new) and not life.gave_up(held, new):
        yield Finding("together", f"delivered while {life.id} was reserved", other.id, lines, excused)
    elif _may_be_over(life, new):
        return
    elif any(new.lease // 1000 < _due_ms(release) for release in releases):
        yield Finding("turn", f"delivered while {life.id} had a back-off", other.id, lines, excused)
    elif (held.answer.due or 0) < (new.answer.due or 0):
        yield Finding("turn", f"delivered although {life.id} came back", other.id, lines, excused)


def _may_be_over(life: Life, after: Delivery) -> bool:
    """Whether a job may have ended before a delivery was heard of."""
    return life.may_die or any(act.perhaps for act in until(after, life.ends))


def _due_ms(release: Act) -> int:
    return round((release.answer.due or 0) * 1000) if release.ok and release.answer else 0


def _check_first(own: Sequence[Life], taken: Sequence[_Taken], trouble: Faults) -> Iterator[Finding]:
    """No delivery before the first one of a job that was ready before, and is due earlier."""
    for life in own:
        seen = min((act for act in (*life.acts["add"], *life.acts["get"]) if act.shows_ready), key=_at, default=None)
        for delivery, other in taken:
            if other is life:
                break
            if seen is None or _may_be_over(life, delivery) or not _is_before(seen, delivery, other):
                continue
            acts: list[Act | Delivery] = [seen, *(each for each in other.deliveries if each.lease <= delivery.lease)]
            excused = any(trouble.excuse(act) for act in acts)
            lines = tuple(sorted({*seen.lines, *delivery.lines}))
            yield Finding("turn", f"delivered although {life.id} was ready before it", other.id, lines, excused)
            break


def _at(act: Act) -> float:
    return act.answer.at if act.answer else float("inf")


def _is_before(seen: Act, delivery: Delivery, other: Life) -> bool:
    """Whether a job that was seen ready was to be delivered before another one."""
    is_earlier = seen.answer is not None and (seen.answer.due or 0) < (delivery.answer.due or 0)
    return is_earlier and _at(seen) < _since(other, delivery)


def _since(life: Life, delivery: Delivery) -> float:
    """The time, in s on the machine's clock, before which a job did not become ready, the last time before a delivery;
    0 if it may have had its key then."""
    if before := [each for each in life.deliveries if each.lease < delivery.lease]:
        return 0.0 if life.of(before[-1], "release") else before[-1].invoke.at + (before[-1].answer.ttr or 0)
    adds = [act for act in life.acts["add"] if act.perhaps]
    return min((act.earliest - (_ROUNDING_S if act.invoke.delay else 0) for act in adds), default=0.0)
