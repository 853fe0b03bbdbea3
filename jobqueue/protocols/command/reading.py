"""Reading a request into commands: by msgspec, and then what no type says.

Nearly all commands are sound, so they are looked at together; only what is refused is looked at again, for the words.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from itertools import groupby
from typing import Any

import msgspec
from msgspec import Raw

from jobqueue.errors import BadField, BadRequest, TooMany
from jobqueue.protocols.command.faults import NAMED, bad, told
from jobqueue.schema import bodies
from jobqueue.schema.fields import TEN_YEARS_S, are_names, is_name
from jobqueue.schema.params import Add, Command, Delete, Finish, Kick, Pop, Touch, Update, at_ms

MOST = 1000  # commands in a request
_FEW = 4  # of them are not worth sorting
_SHORT = 65_536  # bytes of a request in which there is no room for commands that would take long to read
_ONE = msgspec.json.Decoder(Command)
_MANY = msgspec.json.Decoder(list[Command])
_PARTS = msgspec.json.Decoder(list[Raw])


def parse(data: bytes, max_body_bytes: int) -> Command:
    """Read one command. Raises BadRequest."""
    try:
        command: Command = _ONE.decode(data)
        _check(command, max_body_bytes)
    except (msgspec.DecodeError, RecursionError, BadRequest) as error:
        raise told(error, data) from None
    return command


def parse_many(data: bytes, max_body_bytes: int) -> list[Command | BadRequest]:
    """Read an array of commands; what is wrong with a member stands in its place. Raises BadRequest for the whole."""
    commands = _read_at_once(data, max_body_bytes)
    return [*commands] or [_parsed(bytes(part), max_body_bytes) for part in _parts(data)]


def _read_at_once(data: bytes, max_body_bytes: int) -> list[Command]:
    """The members of an array, if all are sound; else none, for one may spoil the reading of the others."""
    if len(data) > _SHORT:
        _parts(data)  # a million of them, good or bad, would hold the process
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
        raise told(error, data) from None
    if not 1 <= len(parts) <= MOST:
        raise TooMany(f"the request has {len(parts)} commands; 1 to {MOST} are allowed")
    return parts


def _parsed(data: bytes, max_body_bytes: int) -> Command | BadRequest:
    try:
        return parse(data, max_body_bytes)
    except BadRequest as error:
        return error


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
    for field in NAMED[kind]:
        name = getattr(command, field)
        if name is not None and not is_name(name):
            raise bad(field)
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
        raise bad("ttr")


def _check_due(command: Add | Update) -> None:
    if command.delay is not None and command.at is not None:
        raise BadField("delay and at exclude each other", field="at")
    if command.at is not None and not at_ms(command.at) <= (time.time() + TEN_YEARS_S) * 1000:
        raise bad("at")
