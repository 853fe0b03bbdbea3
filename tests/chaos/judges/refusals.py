"""I11: nothing is refused without a reason.

A fault explains UNAVAILABLE and the like. If a job is in another state than the asker believes, the history must hold a
reason: somebody may have moved it meanwhile, its lease may have expired, or a fault forgot it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from tests.chaos.codes import FAULT
from tests.chaos.history import Event
from tests.chaos.judges.findings import Finding
from tests.chaos.judges.lives import Act, Delivery, Faults, Life

_OF_STATE = ("STALE_LEASE", "NOT_FOUND", "NOT_RESERVED", "WRONG_STATE")
_NEEDS_ROOM = ("add", "update")
_MOVES = ("finish", "delete", "bury", "release")


def check_answers(events: Iterable[Event]) -> Iterator[Finding]:
    """All errors are explained by a fault or a state; and full memory refuses only what needs room."""
    for event in events:
        if event.code is None or event.code in (*FAULT, *_OF_STATE):
            continue
        if event.code != "NO_ROOM" or event.command not in _NEEDS_ROOM:
            yield Finding("refusal", f"{event.command} was answered {event.code}", event.id, (event.line,))


def check_refused(life: Life, trouble: Faults) -> Iterator[Finding]:
    """An answer that a job is in another state, or with somebody else, has a reason."""
    for command in ("touch", *_MOVES):
        for act in life.acts[command]:
            answer = act.answer
            if answer and answer.kind == "fail" and answer.code in _OF_STATE and not _has_reason(act, life, trouble):
                says = f"{command} was answered {answer.code}, and nobody had moved the job"
                yield Finding("refusal", says, life.id, tuple(act.lines))


def _has_reason(act: Act, life: Life, trouble: Faults) -> bool:
    assert act.answer
    others = [other for name in _MOVES for other in life.acts[name] if other is not act and other.perhaps]
    moved = any(other.invoke.at < act.answer.at for other in others)
    own = next((each for each in life.deliveries if each.lease == act.invoke.lease), None)
    if moved or trouble.excuse(life.added):
        return True
    if own is None:  # a delete, or a lease that was never given
        return act.invoke.command == "delete" and not life.added
    return trouble.excuse(own) or act.answer.at >= _over(own, life, trouble)


def _over(own: Delivery, life: Life, trouble: Faults) -> float:
    """The earliest time at which a lease may be over, in s on the machine's clock: it began after its pop was sent.
    Only a touch that was certainly accepted, and not forgotten, extends it.
    """
    touches = [act.invoke.at for act in life.of(own, "touch") if act.ok and not trouble.excuse(act)]
    return max([own.invoke.at, *touches]) + (own.answer.ttr or 0)
