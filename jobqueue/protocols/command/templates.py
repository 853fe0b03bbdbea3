"""Answers of the fast path, written as bytes: the same bytes that the complete path writes for the same results.

Names of jobs and topics have no character that JSON escapes. What else is not a number comes from orjson.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import orjson

from buckets import Added, Job, Popped
from buckets.job import Kind
from buckets.layout import SPAN
from jobqueue.commands.answers import handed_out
from jobqueue.schema import params

_ORDER = ["id", "value", "state", "topic", "lease", "attempt", "tries", "due", "ttr", "headers", "created"]
_MOST_KINDS = 256  # remembered, of 4 KB at most each
_NOTHING = b'{"success":true,"id":null,"value":null}'

_Parts = tuple[bytes, bytes, bytes]

_parts: dict[Kind, _Parts] = {}
"""What is written behind the value, the lease and the due time of the jobs of a kind."""
_dumps, _whole = orjson.dumps, int.from_bytes
_TIMES = slice(SPAN["created"].start, SPAN["due"].stop)


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
        return b'{"success":true,"jobs":[%b]}' % b",".join(handed(jobs))
    return b'{"success":true,' + handed(jobs)[0][1:] if jobs else _NOTHING


def handed(jobs: Sequence[Job]) -> list[bytes]:
    """Jobs as a worker gets them: `handed_out`, as bytes."""
    written: list[bytes] = []
    kind: Kind | None = None
    lease = -1
    times = before_lease = before_due = behind = b""
    for job in jobs:
        raw, own_kind = job.raw, job.kind
        own = raw[_TIMES]
        if own != times or own_kind is not kind or job.lease != lease:  # else like the job before
            parts = _parts.get(own_kind) or _remember(job)
            if parts is None:
                written.append(orjson.dumps(handed_out(job)))
                continue
            kind, lease, times = own_kind, job.lease, own
            before_lease, before_due, behind = parts
            due, created = _dumps(job.due / 1000), _dumps(_whole(own[:6]) / 1000)
            behind = b"%b%d%b%b%b%b}" % (before_lease, lease, before_due, due, behind, created)
        written.append(b'{"id":%b,"value":%b%b' % (_dumps(job.id), raw[own_kind.body_at :] or b"null", behind))
    return written


def _remember(job: Job) -> _Parts | None:
    """The parts of an answer that are the same for all jobs of its kind; None if it was delivered before."""
    answer = handed_out(job)
    if [*answer] != _ORDER:
        return None
    if len(_parts) >= _MOST_KINDS:
        _parts.clear()
    texts = [b'"%b":%b' % (name.encode(), orjson.dumps(answer[name])) for name in _ORDER]
    parts = _parts[job.kind] = (
        b',%b,"lease":' % b",".join(texts[2:4]),
        b',%b,"due":' % b",".join(texts[5:7]),
        b',%b,"created":' % b",".join(texts[8:10]),
    )
    return parts
