"""The commands as they come in: one typed struct each, read by msgspec with the body left as it travelled.

What msgspec refuses is told in our words, from `jobqueue.fields`.
"""

from __future__ import annotations

import difflib
import json
import math
import re
import time
from collections.abc import Callable
from datetime import datetime
from itertools import accumulate
from typing import Any, get_args

import msgspec
import orjson
from msgspec import Raw, Struct

from jobqueue import fields
from jobqueue.errors import BadField, BadJson, BadRequest, TooLarge, TooMany, UnknownCommand, UnknownField
from jobqueue.fields import EXPECTED, TEN_YEARS_S, must_be

MOST = 1000  # commands in a request
_MS = 1000
_LONGEST_NAME = 64  # of an unknown name that is said again
_MOST_TO_EXPLAIN = 65_536  # bytes: a longer request is not read twice to say more exactly what is wrong


class Add(Struct, tag="add", tag_field="command", forbid_unknown_fields=True):
    """Keep a job until it is due."""

    topic: fields.NewTopic
    body: fields.Body
    id: fields.NewId | None = None
    delay: fields.Delay | None = None
    at: fields.At | None = None
    ttr: fields.Ttr | None = None
    TTR: fields.UpperTtr | None = None
    priority: fields.Priority | None = None
    tries: fields.Tries | None = None
    backoff: fields.Backoff | None = None
    ttl: fields.Ttl | None = None
    retention: fields.Retention | None = None
    if_exists: fields.IfExists | None = None
    headers: fields.Headers | None = None
    tags: fields.Tags | None = None
    durability: fields.Durability | None = None


class Pop(Struct, tag="pop", tag_field="command", forbid_unknown_fields=True):
    """Reserve the next ready jobs."""

    topic: fields.PoppedTopic | None = None
    topics: fields.PoppedTopics | None = None
    count: fields.Count | None = None
    wait: fields.Wait | None = None
    ttr: fields.PopTtr | None = None
    TTR: fields.UpperTtr | None = None
    worker: fields.Worker | None = None


class Finish(Struct, tag="finish", tag_field="command", forbid_unknown_fields=True):
    """The job is done."""

    id: fields.Id
    lease: fields.Lease | None = None
    durability: fields.Durability | None = None


class Delete(Struct, tag="delete", tag_field="command", forbid_unknown_fields=True):
    """Cancel a job in any live state."""

    id: fields.Id
    durability: fields.Durability | None = None


class Touch(Struct, tag="touch", tag_field="command", forbid_unknown_fields=True):
    """The lease runs anew from now."""

    id: fields.Id
    lease: fields.Lease | None = None
    ttr: fields.TouchTtr | None = None
    TTR: fields.UpperTouchTtr | None = None


class Release(Struct, tag="release", tag_field="command", forbid_unknown_fields=True):
    """Give a job back."""

    id: fields.Id
    lease: fields.Lease | None = None
    delay: fields.ReleaseDelay | None = None
    attempt: fields.Attempt | None = None
    reason: fields.Reason | None = None


class Bury(Struct, tag="bury", tag_field="command", forbid_unknown_fields=True):
    """To the dead letters now."""

    id: fields.Id
    lease: fields.Lease | None = None
    reason: fields.Reason | None = None


class Leave(Struct, tag="leave", tag_field="command", forbid_unknown_fields=True):
    """The waiting pops of a worker end now."""

    worker: fields.LeavingWorker


class Kick(Struct, tag="kick", tag_field="command", forbid_unknown_fields=True):
    """Dead letters are ready again."""

    id: fields.KickedId | None = None
    topic: fields.KickedTopic | None = None
    count: fields.KickCount | None = None


class Run(Struct, tag="run", tag_field="command", forbid_unknown_fields=True):
    """A delayed job is due now."""

    id: fields.Id


class Update(Struct, tag="update", tag_field="command", forbid_unknown_fields=True):
    """Change a job that is delayed or ready."""

    id: fields.Id
    delay: fields.Delay | None = None
    at: fields.At | None = None
    body: fields.NewBody = msgspec.field(default_factory=Raw)  # empty: none was given
    priority: fields.Priority | None = None
    ttl: fields.Ttl | None = None
    durability: fields.Durability | None = None


class Get(Struct, tag="get", tag_field="command", forbid_unknown_fields=True):
    """Look a job up."""

    id: fields.Id


class Stats(Struct, tag="stats", tag_field="command", forbid_unknown_fields=True):
    """The figures of a topic, or of all."""

    topic: fields.StatsTopic | None = None


class Peek(Struct, tag="peek", tag_field="command", forbid_unknown_fields=True):
    """Look at jobs without reserving them."""

    topic: fields.Topic
    state: fields.State | None = None
    cursor: fields.Cursor | None = None
    count: fields.PeekCount | None = None
    shard: fields.Shard | None = None


class Topics(Struct, tag="topics", tag_field="command", forbid_unknown_fields=True):
    """Names and counts of topics."""

    pattern: fields.Pattern | None = None
    cursor: fields.Cursor | None = None


class Pause(Struct, tag="pause", tag_field="command", forbid_unknown_fields=True):
    """Pops of a topic find nothing."""

    topic: fields.Topic
    seconds: fields.Seconds | None = None


class Resume(Struct, tag="resume", tag_field="command", forbid_unknown_fields=True):
    """End the pause of a topic."""

    topic: fields.Topic


class Purge(Struct, tag="purge", tag_field="command", forbid_unknown_fields=True):
    """Delete the jobs of a topic."""

    topic: fields.Topic
    state: fields.State | None = None
    cursor: fields.Cursor | None = None


Command = (
    Add
    | Pop
    | Finish
    | Delete
    | Touch
    | Release
    | Bury
    | Leave
    | Kick
    | Run
    | Update
    | Get
    | Stats
    | Peek
    | Topics
    | Pause
    | Resume
    | Purge
)
BY_NAME: dict[str, type[Struct]] = {str(each.__struct_config__.tag): each for each in get_args(Command)}

_ONE = msgspec.json.Decoder(Command)
_MANY = msgspec.json.Decoder(list[Command])
_PARTS = msgspec.json.Decoder(list[Raw])
_PATH = re.compile(r"`\$\.(\w+)")
_QUOTED = re.compile(r"(?:unknown|required) field `(.*)`")
# PHP reads 512 levels by default, Python somewhat less than 1,000; and an answer has some around the body.
_DEEPEST = 500
_STRING = re.compile(rb'"(?:[^"\\]++|\\.)*+"')
_STEPS = bytes.maketrans(b"[{]}", b"\2\2\0\0")
_NO_BRACKETS = bytes(set(range(256)) - set(b"[]{}"))
_DIGITS = bytes.maketrans(b"123456789E", b"000000000e")
_ENDLESS = re.compile(rb"\d[eE]\+?\d{3}")  # a number that may be beyond all that a reader can hold


def ms(seconds: float) -> int:
    """Seconds of the wire in milliseconds, what is finer rounded up. (The inner rounding takes away what the
    binary fraction added: 16.1 s are 16,100 ms.)"""
    whole = int(seconds)
    return whole * _MS if whole == seconds else math.ceil(round(seconds * _MS, 4))


def at_ms(when: float | datetime) -> int:
    """An absolute time of the wire in milliseconds since the epoch, rounded up."""
    return ms(when if isinstance(when, float) else when.timestamp())


def parse(data: bytes, max_body_bytes: int) -> Command:
    """Read one command. Raises BadRequest."""
    try:
        command: Command = _ONE.decode(data)
        _check(command, max_body_bytes)
    except (msgspec.DecodeError, RecursionError, BadRequest) as error:
        raise _told(error, data) from None
    return command


def parse_many(data: bytes, max_body_bytes: int) -> list[Command | BadRequest]:
    """Read an array of commands; what is wrong with a member stands in its place. Raises BadRequest for the whole."""
    try:
        parts = _PARTS.decode(data)
    except (msgspec.DecodeError, RecursionError) as error:
        raise _told(error, data) from None
    if not 1 <= len(parts) <= MOST:  # before a member is looked at: a million bad ones would hold the process
        raise TooMany(f"the request has {len(parts)} commands; 1 to {MOST} are allowed")
    try:
        return [_checked(command, max_body_bytes) for command in _MANY.decode(data)]
    except (msgspec.DecodeError, RecursionError):  # one bad member spoils this reading, but not the others
        return [_parsed(bytes(part), max_body_bytes) for part in parts]


def _parsed(data: bytes, max_body_bytes: int) -> Command | BadRequest:
    try:
        return parse(data, max_body_bytes)
    except BadRequest as error:
        return error


def _checked(command: Command, max_body_bytes: int) -> Command | BadRequest:
    try:
        _check(command, max_body_bytes)
    except BadRequest as error:
        error.job_id = getattr(command, "id", None)
        return error
    return command


def _told(error: Exception, data: bytes) -> BadRequest:
    """What is wrong with a command, in our words, and the id that it named."""
    told = error if isinstance(error, BadRequest) else _translated(error, data)
    job_id = _fields_of(data).get("id")
    told.job_id = job_id if isinstance(job_id, str) and len(job_id) <= 255 else None
    return told


def _translated(error: Exception, data: bytes) -> BadRequest:
    if isinstance(error, RecursionError):
        return BadJson("the request is nested too deeply")
    if not isinstance(error, msgspec.ValidationError):
        endless = _endless_field(data)
        return _bad(endless) if endless else BadJson(f"the request is not JSON: {error}")
    return _misfit(str(error), data)


def _misfit(text: str, data: bytes) -> BadRequest:
    """Why JSON is not a command; `text` is what msgspec says."""
    if text.startswith("Expected `object`"):
        return BadJson("a command must be a JSON object")
    path = _PATH.search(text)
    name = _fields_of(data).get("command")
    if path and path[1] != "command":
        return _bad(path[1], name)
    if not isinstance(name, str):
        return BadField(f"command {'is missing' if name is None else 'must be a string'}", field="command")
    if name not in BY_NAME:
        return UnknownCommand(_unknown("command", name, list(BY_NAME)), field="command")
    return _misnamed(text, name)


def _misnamed(text: str, command: str) -> BadRequest:
    """Which field of a command is unknown or missing."""
    quoted = _QUOTED.search(text)
    if not quoted:
        return BadField(f"the command is not understood: {text}", field="command")
    field = quoted[1]
    if "unknown field" in text:
        return UnknownField(
            _unknown(f"field of {command}", field, BY_NAME[command].__struct_fields__), field=field[:_LONGEST_NAME]
        )
    return BadField(f"{field} is missing", field=field)


def _endless_field(data: bytes) -> str | None:
    """The field with a NaN or an Infinity, which JavaScript and Python write although JSON has none."""
    if not re.search(rb"NaN|Infinity", data) or len(data) > _MOST_TO_EXPLAIN:
        return None
    try:
        read = json.loads(data)
    except (ValueError, RecursionError):
        return None
    if not isinstance(read, dict):
        return None
    found = (name for name, value in read.items() if isinstance(value, float) and not math.isfinite(value))
    return next((name for name in found if name.lower() in EXPECTED), None)


def _bad(field: str, command: object = None) -> BadField:
    return BadField(f"{field} {must_be(field, command)}", field=field)


def _unknown(kind: str, name: str, known: tuple[str, ...] | list[str]) -> str:
    near = difflib.get_close_matches(name.lower(), known, 1)
    return f"there is no {kind} {name[:_LONGEST_NAME]!r}" + (f"; did you mean {near[0]}?" if near else "")


def _fields_of(data: bytes) -> dict[str, Any]:
    try:
        read = orjson.loads(data)
    except orjson.JSONDecodeError:
        return {}
    return read if isinstance(read, dict) else {}


def _check(command: Command, max_body_bytes: int) -> None:
    """What no type says. Raises BadField, TooLarge."""
    check = _CHECKS.get(type(command))
    if check:
        check(command, max_body_bytes)


def _check_add(command: Add, max_body_bytes: int) -> None:
    if command.ttr is not None or command.TTR is not None:
        _check_ttr(command)
    if command.at is not None:
        _check_time(command)
    _check_body(bytes(command.body), max_body_bytes)


def _check_update(command: Update, max_body_bytes: int) -> None:
    _check_time(command)
    _check_body(bytes(command.body), max_body_bytes)


def _check_pop(command: Pop, max_body_bytes: int) -> None:
    _check_ttr(command)
    if (command.topic is None) == (command.topics is None):
        raise BadField("pop takes either topic or topics", field="topic")


def _check_touch(command: Touch, max_body_bytes: int) -> None:
    _check_ttr(command)


def _check_kick(command: Kick, max_body_bytes: int) -> None:
    if (command.topic is None) == (command.id is None):
        raise BadField("kick takes either id or topic", field="id")


_CHECKS: dict[type[Any], Callable[[Any, int], None]] = {
    Add: _check_add,
    Update: _check_update,
    Pop: _check_pop,
    Touch: _check_touch,
    Kick: _check_kick,
}


def _check_ttr(command: Add | Pop | Touch) -> None:
    if command.TTR is not None:
        if command.ttr is not None:
            raise BadField("ttr and TTR are one field; give it once", field="ttr")
        command.ttr = command.TTR
    if command.ttr is not None and 0 < command.ttr < 0.1:
        raise _bad("ttr")


def _check_time(command: Add | Update) -> None:
    if command.delay is not None and command.at is not None:
        raise BadField("delay and at exclude each other", field="at")
    if command.at is not None and not at_ms(command.at) <= (time.time() + TEN_YEARS_S) * _MS:
        raise _bad("at")


def _check_body(body: bytes, max_body_bytes: int) -> None:
    if len(body) > max_body_bytes:
        raise TooLarge(f"body has {len(body)} bytes; at most {max_body_bytes} are allowed", field="body")
    # A digit before an e is rare, and sooner found than a number with an exponent.
    if b"\\u" in body or (b"0e" in body.translate(_DIGITS) and _ENDLESS.search(body)):
        try:  # a lone surrogate or 1e999: well formed, but no reader could decode the answer that hands it out
            orjson.loads(body)
        except orjson.JSONDecodeError:
            raise BadField("body has a character or a number that cannot be read back", field="body") from None
    if len(body) > _DEEPEST and body.count(b"[") + body.count(b"{") > _DEEPEST and _depth(body) > _DEEPEST:
        raise BadField(f"body is nested too deeply; at most {_DEEPEST} levels are allowed", field="body")


def _depth(body: bytes) -> int:
    """How many levels of arrays and objects a body has. Without a loop of Python: a body may be all brackets."""
    brackets = _STRING.sub(b"", body).translate(_STEPS, _NO_BRACKETS)
    return max(accumulate(map((-1).__add__, brackets)), default=0)
