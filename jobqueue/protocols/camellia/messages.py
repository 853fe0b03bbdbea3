"""Jobs as camellia's clients see them: messages of nine members."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from buckets import Cause, Job, State
from jobqueue.commands.answers import Answer
from jobqueue.protocols.camellia.space import Space
from jobqueue.schema import inner
from jobqueue.schema.fields import TEN_YEARS_S
from jobqueue.schema.params import ms
from jobqueue.wires import parameters

Shown = dict[str, Any]

_NO_LIMIT = 2**31 - 1
_NEVER_MS = TEN_YEARS_S * 1000
_EXPIRED, _EXHAUSTED = 5, 6
_STATUS = {
    State.DELAYED: 1,
    State.READY: 2,
    State.RESERVED: 3,
    State.FINISHED: 4,
    State.DEAD: _EXHAUSTED,
    State.DELETED: 7,
}


def shown(job: Job, space: Space) -> Shown:
    """A job, or what is left of an ended one."""
    return {
        "topic": space.their_topic(job.topic),
        "msgId": space.their_id(job),
        "msg": parameters.given_text(job) if job.body else None,
        "produceTime": job.created,
        "triggerTime": job.due,
        "expireTime": job.due + (_NEVER_MS if job.ttl is None else job.ttl),
        "maxRetry": _retries(job.tries),
        "retry": job.attempts,
        "status": _status(job),
    }


def sent(command: inner.Add, names: Mapping[str, str], msg: str, answer: Answer) -> Shown:
    """A message that was just sent. `names`: its topic and msgId."""
    due_ms = round(answer["due"] * 1000)
    return {
        **names,
        "msg": msg,
        "produceTime": due_ms - ms(command.delay or 0),
        "triggerTime": due_ms,
        "expireTime": due_ms + ms(command.ttl or 0),
        "maxRetry": _retries(command.tries or 0),
        "retry": 0,
        "status": _STATUS[State[answer["state"].upper()]],
    }


def _retries(tries: int) -> int:
    return tries - 1 if tries else _NO_LIMIT


def _status(job: Job) -> int:
    if job.state is State.DEAD and job.cause is Cause.TTL and not job.attempts:
        return _EXPIRED
    return _STATUS[job.state]
