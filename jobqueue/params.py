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
from itertools import groupby, takewhile
from typing import Any, get_args

import msgspec
import orjson
from msgspec import Raw, Struct

from jobqueue import bodies, fields
from jobqueue.errors import BadField, BadJson, BadRequest, TooMany, UnknownCommand, UnknownField
from jobqueue.fields import EXPECTED, TEN_YEARS_S, are_names, is_name, must_be

MOST = 1000  # commands in a request
_FEW = 4  # of them are not worth sorting
_MS = 1000
_LONGEST_NAME = 64  # of an unknown name that is said again
_SHORT = 65_536  # bytes of a request in which there is no room for commands that would take long to read
_MOST_TO_EXPLAIN = 65_536  # bytes: a longer request is not read twice to say more exactly what is wrong


class _Kind(Struct, tag_field="command", forbid_unknown_fields=True, gc=False):
    """What all commands are to msgspec. None holds anything that could hold it, so the collector need not look."""


class Add(_Kind, tag="add"):
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


class Pop(_Kind, tag="pop"):
    """Reserve the next ready jobs."""

    topic: fields.PoppedTopic | None = None
    topics: fields.PoppedTopics | None = None
    count: fields.Count | None = None
    wait: fields.Wait | None = None
    ttr: fields.PopTtr | None = None
    TTR: fields.UpperTtr | None = None
    worker: fields.Worker | None = None


class Finish(_Kind, tag="finish"):
    """The job is done."""

    id: fields.Id
    lease: fields.Lease | None = None
    durability: fields.Durability | None = None


class Delete(_Kind, tag="delete"):
    """Cancel a job in any live state."""

    id: fields.Id
    durability: fields.Durability | None = None


class Touch(_Kind, tag="touch"):
    """The lease runs anew from now."""

    id: fields.Id
    lease: fields.Lease | None = None
    ttr: fields.TouchTtr | None = None
    TTR: fields.UpperTouchTtr | None = None


class Release(_Kind, tag="release"):
    """Give a job back."""

    id: fields.Id
    lease: fields.Lease | None = None
    delay: fields.ReleaseDelay | None = None
    attempt: fields.Attempt | None = None
    reason: fields.Reason | None = None


class Bury(_Kind, tag="bury"):
    """To the dead letters now."""

    id: fields.Id
    lease: fields.Lease | None = None
    reason: fields.Reason | None = None


class Leave(_Kind, tag="leave"):
    """The waiting pops of a worker end now."""

    worker: fields.LeavingWorker


class Kick(_Kind, tag="kick"):
    """Dead letters are ready again."""

    id: fields.KickedId | None = None
    topic: fields.KickedTopic | None = None
    count: fields.KickCount | None = None


class Run(_Kind, tag="run"):
    """A delayed job is due now."""

    id: fields.Id


class Update(_Kind, tag="update"):
    """Change a job that is delayed or ready."""

    id: fields.Id
    delay: fields.Delay | None = None
    at: fields.At | None = None
    body: fields.NewBody = msgspec.field(default_factory=Raw)  # empty: none was given
    priority: fields.Priority | None = None
    ttl: fields.Ttl | None = None
    durability: fields.Durability | None = None


class Get(_Kind, tag="get"):
    """Look a job up."""

    id: fields.Id


class Stats(_Kind, tag="stats"):
    """The figures of a topic, or of all."""

    topic: fields.StatsTopic | None = None


class Peek(_Kind, tag="peek"):
    """Look at jobs without reserving them."""

    topic: fields.Topic
    state: fields.State | None = None
    cursor: fields.Cursor | None = None
    count: fields.PeekCount | None = None
    shard: fields.Shard | None = None


class Topics(_Kind, tag="topics"):
    """Names and counts of topics."""

    pattern: fields.Pattern | None = None
    cursor: fields.Cursor | None = None


class Pause(_Kind, tag="pause"):
    """Pops of a topic find nothing."""

    topic: fields.Topic
    seconds: fields.Seconds | None = None


class Resume(_Kind, tag="resume"):
    """End the pause of a topic."""

    topic: fields.Topic


class Purge(_Kind, tag="purge"):
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
_KEY = b'"command"'  # of which each member has one, unless it is written in a strange way
_PATH = re.compile(r"`\$\.(\w+)")
_QUOTED = re.compile(r"(?:unknown|required) field `(.*)`")


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
    commands = _read_at_once(data, max_body_bytes)
    return [*commands] or [_parsed(bytes(part), max_body_bytes) for part in _parts(data)]


def _read_at_once(data: bytes, max_body_bytes: int) -> list[Command]:
    """The members of an array, if all are sound; else none, for one may spoil the reading of the others."""
    if len(data) > _SHORT and data.count(_KEY) > MOST:  # a million of them, good or bad, would hold the process
        return []
    try:
        commands: list[Command] = _MANY.decode(data)
        if len(commands) <= MOST:
            _check_all(commands, max_body_bytes)
            return commands
    except (msgspec.DecodeError, RecursionError, BadRequest):
        pass
    return []


def _parts(data: bytes) -> list[Raw]:
    """The members of an array as they came. Raises BadRequest."""
    try:
        parts = _PARTS.decode(data)
    except (msgspec.DecodeError, RecursionError) as error:
        raise _told(error, data) from None
    if not 1 <= len(parts) <= MOST:
        raise TooMany(f"the request has {len(parts)} commands; 1 to {MOST} are allowed")
    return parts


def _parsed(data: bytes, max_body_bytes: int) -> Command | BadRequest:
    try:
        return parse(data, max_body_bytes)
    except BadRequest as error:
        return error


def _told(error: Exception, data: bytes) -> BadRequest:
    """What is wrong with a command, in our words, and the id that it named."""
    read = _fields_of(data)
    told = error if isinstance(error, BadRequest) else _translated(error, data)
    told = _bad_name_before(told.field, read) or told
    job_id = read.get("id")
    told.job_id = job_id if isinstance(job_id, str) and len(job_id) <= 255 else None
    return told


def _bad_name_before(field: str | None, read: dict[str, Any]) -> BadField | None:
    """Of two faults the first is told. Names are looked at last, but may stand before what msgspec found."""
    kind = BY_NAME.get(str(read.get("command")))
    if kind is None:
        return None
    before = takewhile(lambda name: name != field, read)
    bad = (name for name in before if name in _NAMED[kind] and isinstance(read[name], str) and not is_name(read[name]))
    return next((_bad(name) for name in bad), None)


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


def _check_all(commands: list[Command], max_body_bytes: int) -> None:
    """As `_check` for each, but many that are alike are looked at together."""
    if len(commands) <= _FEW:
        for command in commands:
            _check(command, max_body_bytes)
        return
    for kind, run in groupby(commands, type):
        alike = list(run)
        if kind not in _SOUND or not _SOUND[kind](alike, max_body_bytes):
            for command in alike:
                _check(command, max_body_bytes)


def _check(command: Command, max_body_bytes: int) -> None:
    """What no type says. Raises BadField, TooLarge."""
    kind = type(command)
    for field in _NAMED[kind]:
        name = getattr(command, field)
        if name is not None and not is_name(name):
            raise _bad(field)
    check = _CHECKS.get(kind)
    if check:
        check(command, max_body_bytes)


def _check_add(command: Add, max_body_bytes: int) -> None:
    if command.ttr is not None or command.TTR is not None or command.at is not None:
        _check_times(command)
    bodies.check(bytes(command.body), max_body_bytes)


def _check_update(command: Update, max_body_bytes: int) -> None:
    _check_due(command)
    bodies.check(bytes(command.body), max_body_bytes)


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
_NAMED = {kind: [field for field in ("topic", "id") if field in kind.__struct_fields__] for kind in BY_NAME.values()}


def _are_sound_adds(adds: list[Add], max_body_bytes: int) -> bool:
    """Whether `_check` takes all of them, by looks at them together. False is a doubt, no refusal. Raises BadField."""
    names = [add.id for add in adds if add.id is not None]
    names += {add.topic for add in adds}
    if not are_names(names) or not bodies.are_sound([add.body for add in adds], max_body_bytes):
        return False
    for add in adds:
        if add.ttr is not None or add.TTR is not None or add.at is not None:
            _check_times(add)
    return True


def _are_sound_ends(ends: list[Finish | Delete], max_body_bytes: int) -> bool:
    """As `_are_sound_adds`."""
    return are_names([end.id for end in ends])


_SOUND: dict[type[Any], Callable[[list[Any], int], bool]] = {
    Add: _are_sound_adds,
    Finish: _are_sound_ends,
    Delete: _are_sound_ends,
}


def _check_times(command: Add) -> None:
    _check_ttr(command)
    _check_due(command)


def _check_ttr(command: Add | Pop | Touch) -> None:
    if command.TTR is not None:
        if command.ttr is not None:
            raise BadField("ttr and TTR are one field; give it once", field="ttr")
        command.ttr, command.TTR = command.TTR, None  # it may be looked at again
    if command.ttr is not None and 0 < command.ttr < 0.1:
        raise _bad("ttr")


def _check_due(command: Add | Update) -> None:
    if command.delay is not None and command.at is not None:
        raise BadField("delay and at exclude each other", field="at")
    if command.at is not None and not at_ms(command.at) <= (time.time() + TEN_YEARS_S) * _MS:
        raise _bad("at")
