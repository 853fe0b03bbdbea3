"""Answers of the fast path, written as bytes: the same bytes that the complete path writes for the same results.

Names of jobs and topics have no character that JSON escapes. What else is not a number comes from orjson.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import orjson

from buckets import Added, Job, Popped
from buckets.job import Kind
from jobqueue.commands.answers import handed_out
from jobqueue.schema import params

_ORDER = ["id", "value", "state", "topic", "lease", "attempt", "tries", "due", "ttr", "headers"]
_MOST_KINDS = 256  # remembered, of 4 KB at most each
_NOTHING = b'{"success":true,"id":null,"value":null}'

_Parts = tuple[bytes, bytes, bytes]

_parts: dict[Kind, _Parts] = {}
"""What is written behind the value, the lease and the due time of the jobs of a kind."""


def added(commands: Sequence[params.Add], results: Sequence[Any]) -> bytes | None:
    """The answers to adds, without brackets; None if one of them failed."""
    parts: list[str] = []
    before: object = None
    tail = ""
    for command, result in zip(commands, results, strict=True):
        if result is not before:  # like jobs share their result
            if type(result) is not Added:
                return None
            before = result
            tail = f'","state":"{result[1]}","due":{result[2] / 1000},"result":"{result[0]}"}}'
        parts.append(f'{{"success":true,"id":"{command.id}{tail}')
    return ",".join(parts).encode()


def finished(commands: Sequence[params.Finish], states: Sequence[Any]) -> bytes | None:
    """The answers to finishes, without brackets; None if one of them failed."""
    parts: list[str] = []
    for command, state in zip(commands, states, strict=True):
        if type(state) is not str:
            return None
        parts.append(f'{{"success":true,"id":"{command.id}","state":"{state}"}}')
    return ",".join(parts).encode()


def popped(command: params.Pop, found: Popped) -> bytes | None:
    """The answer to a pop; None if it is to say why it found nothing."""
    jobs = found.jobs
    if not jobs and found.ask_why:
        return None
    if command.count is not None:
        return b'{"success":true,"jobs":[%b]}' % b",".join(map(handed, jobs))
    return b'{"success":true,' + handed(jobs[0])[1:] if jobs else _NOTHING


def handed(job: Job) -> bytes:
    """A job as a worker gets it: `handed_out`, as bytes."""
    parts = _parts.get(job.kind)
    if parts is None:
        answer = handed_out(job)
        if [*answer] != _ORDER:  # it was delivered before
            return orjson.dumps(answer)
        parts = _remember(job.kind, answer)
    behind_value, behind_lease, behind_due = parts
    return b'{"id":%b,"value":%b%b%d%b%b%b' % (
        orjson.dumps(job.id),
        job.body or b"null",
        behind_value,
        job.lease,
        behind_lease,
        orjson.dumps(job.due / 1000),
        behind_due,
    )


def _remember(kind: Kind, answer: dict[str, Any]) -> _Parts:
    """The parts of an answer that are the same for all jobs of its kind."""
    if len(_parts) >= _MOST_KINDS:
        _parts.clear()
    texts = [b'"%b":%b' % (name.encode(), orjson.dumps(answer[name])) for name in _ORDER]
    parts = _parts[kind] = (
        b',%b,"lease":' % b",".join(texts[2:4]),
        b',%b,"due":' % b",".join(texts[5:7]),
        b",%b}" % b",".join(texts[8:]),
    )
    return parts
