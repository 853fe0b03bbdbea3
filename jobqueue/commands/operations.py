"""What the command `operation` does."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from buckets import Operation, State
from jobqueue.access.grants import Grant
from jobqueue.access.tokens import right_for
from jobqueue.commands.answers import Answer, in_seconds, success
from jobqueue.commands.table import Handover
from jobqueue.engine.operating import Operating
from jobqueue.errors import Forbidden
from jobqueue.schema import params

_COMMAND_OF = {"kick": "kick", "delete": "delete", "run": "run", "reschedule": "update", "find": "find"}
"""For each kind of operation, the command that does the same to one job."""


async def carry_out(operating: Operating, command: params.Operation, handover: Handover) -> Answer:
    """The answer to `operation`. Raises Forbidden, NotFound, WrongState, NoRoom."""
    grant, within = handover.grant, handover.within
    if command.do == "list":
        return success(operations=[shown(each, within) for each in await operating.newest(within)])
    if command.do == "plan":
        _check_may(grant, command.kind or "")
        planned = await operating.plan(command, within)
        return success(**shown(planned, within), plan=planned.id, samples=planned.samples)
    name = command.plan or command.operation or ""
    known = await operating.get(name, within)
    if command.do != "get":
        _check_may(grant, known.asked.kind)
        known = await _steered(operating, command, name, within)
    return success(**shown(known, within), samples=known.samples)


async def _steered(operating: Operating, command: params.Operation, name: str, within: str) -> Operation:
    if command.do == "start":
        return await operating.start(name, command.expect or 0, command.rate, within)
    steer = {"pause": operating.pause, "resume": operating.resume, "cancel": operating.cancel}[command.do]
    return await steer(name, within)


def check_may_operate(grant: Grant) -> None:
    """Raises Forbidden for a token that may not begin an operation."""
    if not grant.may("operation"):
        raise Forbidden("the token lacks the right operate, which find without a topic needs", right="operate")


def _check_may(grant: Grant, kind: str) -> None:
    command = _COMMAND_OF[kind]
    if not grant.may(command):
        right = right_for(command)
        raise Forbidden(f"the token lacks the right {right}, which an operation of the kind {kind} needs", right=right)


def shown(operation: Operation, within: str) -> dict[str, Any]:
    """An operation as answers show it, without its samples. With `within`, `looked` is None: it would tell the client
    how many entries are out of its reach."""
    asked = operation.asked
    spans = {"shift": asked.shift_ms, "at": asked.at_ms, "spread": asked.spread_ms or None}
    return {
        "operation": operation.id,
        "kind": asked.kind,
        "state": operation.state,
        "filter": _filter(asdict(asked.filter)),
        "count": operation.count,
        "exact": operation.exact,
        "looked": None if within else operation.looked,
        "done": operation.done,
        "skipped": operation.skipped,
        "rate": operation.rate or None,
        "speed": operation.speed,
        "slowed": operation.slowed,
        "left": _left(operation),
        "begun": asked.begun / 1000,
        "by": asked.by,
        "started": in_seconds(operation.started or None),
        "started_by": operation.started_by,
        "ended": in_seconds(operation.ended or None),
        **{name: value / 1000 for name, value in spans.items() if value is not None},
        **({"error": operation.error} if operation.error else {}),
    }


def _filter(given: dict[str, Any]) -> dict[str, Any]:
    return {name: _value(value) for name, value in given.items() if value not in ("", None)}


def _value(value: Any) -> Any:
    if isinstance(value, State):
        return value.word
    return value / 1000 if isinstance(value, int) else value


def _left(operation: Operation) -> float | None:
    if operation.state != "running" or not operation.speed:
        return None
    return round(max(operation.count - operation.done - operation.skipped, 0) / operation.speed, 1)
