"""Checks of commands that no type expresses: names, bodies, cursors, and fields that depend on each other.

Many commands of one kind are checked together if that is faster: by the same rules, and if there is any doubt, each of
them is checked alone. A cursor is the position at which a listing continues, as text that is opaque to clients. A body
is JSON that is passed on without being parsed, but that every reader must be able to parse.
"""

from __future__ import annotations

import base64
import binascii
import re
import time
from collections.abc import Callable, Sequence
from itertools import accumulate, groupby
from typing import Any, TypeVar

import msgspec
import orjson
from msgspec import Raw, Struct

from jobqueue.errors import BadField, TooLarge
from jobqueue.schema.fields import DEEPEST_BODY, TEN_YEARS_S, are_names, is_id, is_name, is_ttr
from jobqueue.schema.params import (
    BY_NAME,
    Add,
    Command,
    Filter,
    Kick,
    Operation,
    Peek,
    Pop,
    Schedule,
    Token,
    Touch,
    Update,
    at_ms,
    bad_value,
    ms,
)

_STRING = re.compile(rb'"(?:[^"\\]++|\\.)*+"')
_STEPS = bytes.maketrans(b"[{]}", b"\2\2\0\0")
_NO_BRACKETS = bytes(set(range(256)) - set(b"[]{}"))
_DIGITS = bytes.maketrans(b"123456789E", b"000000000e")
_ENDLESS = re.compile(rb"\d[eE]\+?\d{3}")  # a number that may be too large for any reader


def too_large(body: bytes, max_body_bytes: int) -> TooLarge:
    """The refusal of a body that is too long."""
    return TooLarge(f"body has {len(body)} bytes; at most {max_body_bytes} are allowed", field="body")


def check_body(body: bytes, max_body_bytes: int) -> None:
    """Raises TooLarge, BadField."""
    if len(body) > max_body_bytes:
        raise too_large(body, max_body_bytes)
    if _may_be_unreadable(body):
        try:  # a lone surrogate or 1e999: well formed, but no reader could decode the answer that hands it out
            orjson.loads(body)
        except orjson.JSONDecodeError:
            raise BadField("body has a number that is too large to be read back", field="body") from None
    if len(body) > DEEPEST_BODY and body.count(b"[") + body.count(b"{") > DEEPEST_BODY and _depth(body) > DEEPEST_BODY:
        raise BadField(f"body is nested too deeply; at most {DEEPEST_BODY} levels are allowed", field="body")


def are_clear(bodies: Sequence[Raw], max_body_bytes: int) -> bool:
    """Returns True if one look at many bodies shows that `check_body` accepts each of them. False is not certain."""
    if max(map(len, bodies)) > min(max_body_bytes, DEEPEST_BODY):  # a shorter one cannot be too deep
        return False
    return not _may_be_unreadable(b"\n".join(bodies))


def _may_be_unreadable(json: bytes) -> bool:
    # The first test of each pair is the cheaper one, and most bodies pass it.
    return (b"\\" in json and b"\\u" in json) or (
        b"0e" in json.translate(_DIGITS) and _ENDLESS.search(json) is not None
    )


def _depth(body: bytes) -> int:
    """How many levels of arrays and objects a body has. This has no Python loop, because a body may consist of brackets
    only."""
    brackets = _STRING.sub(b"", body).translate(_STEPS, _NO_BRACKETS)
    return max(accumulate(map((-1).__add__, brackets)), default=0)


NAMED: dict[type[Struct], list[str]] = {
    kind: [field for field in ("topic", "id") if field in kind.__struct_fields__] for kind in BY_NAME.values()
}
"""The fields of each command that are names."""
IS_NAME = {"topic": is_name, "id": is_id}
"""The function that checks each of these fields."""
_WITH_BODY = (Add, Schedule, Update)
_CHANGES = ("delay", "at", "priority", "ttl")  # what an update may change besides the body
KEEPS_BODY = ("later", "sooner")
"""With these values of `if_exists`, an add without a body keeps the existing body."""
_FEW = 4  # so few commands are checked faster one by one


def check(command: Command, max_body_bytes: int) -> None:
    """Raises BadField or TooLarge for a command that is not allowed. The value of `TTR` is moved to `ttr`."""
    kind = type(command)
    for field in NAMED[kind]:
        name = getattr(command, field)
        if name is not None and not IS_NAME[field](name):
            raise bad_value(field, value=name)
    rule = _RULES.get(kind)
    if rule:
        rule((command,))
        if kind in _WITH_BODY:
            check_body(bytes(command.body), max_body_bytes)  # type: ignore[union-attr,arg-type]  # which these have


def check_all(commands: Sequence[Command], max_body_bytes: int) -> None:
    """Like `check`, for each of the commands."""
    if len(commands) <= _FEW:
        for command in commands:
            check(command, max_body_bytes)
        return
    for kind, run in groupby(commands, type):
        alike: list[Any] = list(run)
        if not _are_clear(kind, alike, max_body_bytes):
            for command in alike:
                check(command, max_body_bytes)
        elif kind in _RULES:
            _RULES[kind](alike)


def _are_clear(kind: type[Any], alike: Sequence[Any], max_body_bytes: int) -> bool:
    """Returns True if one look at the names of many commands and one at their bodies find no fault. False is not
    certain."""
    names: list[str] = []
    if "topic" in NAMED[kind]:
        names += {command.topic for command in alike} - {None}
    if "id" in NAMED[kind]:
        names += [command.id for command in alike if command.id is not None]
    if names and not are_names(names):
        return False
    return kind not in _WITH_BODY or are_clear([command.body for command in alike], max_body_bytes)


def _check_adds(commands: Sequence[Add]) -> None:
    for command in commands:
        if not command.body and command.if_exists not in KEEPS_BODY:
            raise BadField("body is missing", field="body")
        if command.ttr is not None or command.TTR is not None or command.at is not None:
            _check_ttr(command)
            _check_due(command)


def _check_schedules(commands: Sequence[Schedule]) -> None:
    for command in commands:
        _check_ttr(command)
        if (command.every is None) == (command.cron is None):
            raise BadField("schedule takes either every or cron", field="every")
        for field, other in (("zone", "cron"), ("start", "every")):
            if getattr(command, field) is not None and getattr(command, other) is None:
                raise BadField(f"{field} goes with {other}", field=field)
        if command.start is not None and not 0 <= at_ms(command.start) <= (time.time() + TEN_YEARS_S) * 1000:
            raise bad_value("start", "schedule", command.start)


def _check_updates(commands: Sequence[Update]) -> None:
    for command in commands:
        _check_due(command)
        if all(getattr(command, field) is None for field in _CHANGES) and not command.body:
            raise BadField(f"update changes nothing; give at least one of {', '.join(_CHANGES)} or body", field="delay")


def _check_pops(commands: Sequence[Pop]) -> None:
    for command in commands:
        _check_ttr(command)
        if [command.topic, command.topics, command.id].count(None) != 2:
            raise BadField("pop takes one of topic, topics and id", field="topic")
        if command.id is not None and (command.count is not None or command.wait is not None):
            raise BadField("pop takes no count and no wait with id", field="id")


def _check_touches(commands: Sequence[Touch]) -> None:
    for command in commands:
        _check_ttr(command)


def _check_kicks(commands: Sequence[Kick]) -> None:
    for command in commands:
        if (command.topic is None) == (command.id is None):
            raise BadField("kick takes either id or topic", field="id")


def _check_peeks(commands: Sequence[Peek]) -> None:
    for command in commands:
        if command.from_ is not None and command.state in (None, "ready"):
            raise BadField("from needs a state that goes by time: delayed, reserved or dead", field="from")


_OF_TOKENS: dict[str, tuple[frozenset[str], frozenset[str]]] = {  # by action: the fields that it needs, and may have
    "create": (
        frozenset({"name", "rights"}),
        frozenset({"topics", "expires", "rate", "burst", "bytes", "waits", "own_ids", "certificate"}),
    ),
    "list": (frozenset(), frozenset()),
    "show": (frozenset({"id"}), frozenset()),
    "revoke": (frozenset({"id"}), frozenset()),
    "rotate": (frozenset({"id"}), frozenset({"keep"})),
    "test": (frozenset({"id", "right"}), frozenset({"topic"})),
}


def _check_tokens(commands: Sequence[Token]) -> None:
    for command in commands:
        _check_which(command, "token", command.action, *_OF_TOKENS[command.action])


def _check_which(command: Struct, name: str, action: str, needed: frozenset[str], allowed: frozenset[str]) -> None:
    """Raises BadField if a command lacks fields, or has others, than its first field, the action, requires."""
    for field in command.__struct_fields__[1:]:
        is_given = getattr(command, field) is not None
        if is_given and field not in needed | allowed:
            raise BadField(f"{name} takes no {field} to {action}", field=field)
        if field in needed and not is_given:
            raise BadField(f"{name} needs {field} to {action}", field=field)


_OF_OPERATIONS: dict[str, tuple[frozenset[str], frozenset[str]]] = {  # as `_OF_TOKENS`
    "plan": (frozenset({"kind", "filter"}), frozenset({"shift", "at", "spread"})),
    "start": (frozenset({"plan", "expect"}), frozenset({"rate"})),
    **dict.fromkeys(("pause", "resume", "cancel", "get"), (frozenset({"operation"}), frozenset[str]())),
    "list": (frozenset(), frozenset()),
}


def _check_operations(commands: Sequence[Operation]) -> None:
    for command in commands:
        _check_which(command, "operation", command.do, *_OF_OPERATIONS[command.do])
        if command.kind and command.filter:
            _check_plan(command, command.kind, command.filter)


_STATE_OF = {"kick": "dead", "run": "delayed", "reschedule": "delayed"}  # the only state whose jobs they accept


def _check_plan(command: Operation, kind: str, wanted: Filter) -> None:
    if wanted.topic is None and not (kind == "find" and wanted.prefix is not None):
        other = " or filter.prefix" if kind == "find" else ", which is * for all"
        raise BadField(f"a {kind} needs filter.topic{other}", field="filter.topic")
    state = _STATE_OF.get(kind)
    if state and wanted.state not in (None, state):
        raise BadField(f"filter.state must be {state}: a {kind} takes no other jobs", field="filter.state")
    for field in ("cause", "died_from", "died_to"):
        if getattr(wanted, field) is not None and (state or wanted.state) != "dead":
            raise BadField(f"filter.{field} goes with the state dead", field=f"filter.{field}")
    for name in ("died", "due", "created"):
        first, last = getattr(wanted, f"{name}_from"), getattr(wanted, f"{name}_to")
        if first is not None and last is not None and at_ms(first) > at_ms(last):
            raise BadField(f"filter.{name}_to is before filter.{name}_from", field=f"filter.{name}_to")
    _check_reschedule(command, kind)


def _check_reschedule(command: Operation, kind: str) -> None:
    for field in ("shift", "at", "spread"):
        if getattr(command, field) is not None and kind != "reschedule":
            raise BadField(f"{field} goes with a reschedule", field=field)
    if kind != "reschedule":
        return
    if (command.shift is None) == (command.at is None):
        raise BadField("a reschedule takes either shift or at", field="shift")
    if command.shift is not None and not ms(abs(command.shift)):
        raise bad_value("shift", value=command.shift)
    if command.at is not None and not at_ms(command.at) <= (time.time() + TEN_YEARS_S) * 1000:
        raise bad_value("at", value=command.at)
    if command.spread is not None and command.at is None:
        raise BadField("spread goes with at", field="spread")


# The fields that depend on each other.
_RULES: dict[type[Any], Callable[[Sequence[Any]], None]] = {
    Add: _check_adds,
    Schedule: _check_schedules,
    Update: _check_updates,
    Pop: _check_pops,
    Touch: _check_touches,
    Kick: _check_kicks,
    Peek: _check_peeks,
    Operation: _check_operations,
    Token: _check_tokens,
}


def _check_ttr(command: Add | Schedule | Pop | Touch) -> None:
    if command.TTR is not None:
        if command.ttr is not None:
            raise BadField("ttr and TTR are the same field; give only one", field="ttr")
        command.ttr, command.TTR = command.TTR, None
    if command.ttr is not None and not is_ttr(command.ttr):
        raise bad_value("ttr", value=command.ttr)


def _check_due(command: Add | Update) -> None:
    if command.delay is not None and command.at is not None:
        raise BadField("delay and at exclude each other", field="at")
    if command.at is not None and not at_ms(command.at) <= (time.time() + TEN_YEARS_S) * 1000:
        raise bad_value("at", value=command.at)


Position = TypeVar("Position", bound=tuple[Any, ...])


def write(position: tuple[Any, ...] | None) -> str | None:
    """The cursor of a position; None at the end."""
    return None if position is None else base64.urlsafe_b64encode(msgspec.json.encode(position)).decode().rstrip("=")


def read(cursor: str | None, kind: type[Position]) -> Position | None:
    """The position that a cursor stands for. Raises BadField for anything that is not a cursor of this kind."""
    if cursor is None:
        return None
    try:
        raw = base64.b64decode(cursor + "=" * (-len(cursor) % 4), altchars=b"-_", validate=True)
        position: Position = msgspec.json.decode(raw, type=kind)
    except (binascii.Error, ValueError, msgspec.DecodeError):
        raise refusal() from None
    if write(position) != cursor:  # such as one of another command, of which the first fields would do
        raise refusal()
    return position


def refusal() -> BadField:
    """The refusal of a cursor that this command did not return."""
    return bad_value("cursor")
