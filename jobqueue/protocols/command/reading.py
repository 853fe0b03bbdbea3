"""Reads the bytes of a request into commands.

Nearly all commands are correct, so an array is read and checked as a whole. Where that fails, each member is read by
itself: it becomes a command, or the reason why it is refused.
"""

from __future__ import annotations

import msgspec
from msgspec import Raw

from jobqueue.errors import BadRequest, TooMany
from jobqueue.protocols.command.faults import explained
from jobqueue.schema.checks import check, check_all
from jobqueue.schema.params import Command

MOST = 1000  # commands in a request
SHORT = 65_536  # bytes of a request in which no number of commands would take long to read
ONE = msgspec.json.Decoder(Command)
MANY = msgspec.json.Decoder(list[Command])
_PARTS = msgspec.json.Decoder(list[Raw])


def parse(data: bytes, max_body_bytes: int) -> Command:
    """Read one command. Raises BadRequest."""
    try:
        command: Command = ONE.decode(data)
        check(command, max_body_bytes)
    except (msgspec.DecodeError, RecursionError, BadRequest) as error:
        raise explained(error, data) from None
    return command


def parse_many(data: bytes, max_body_bytes: int) -> list[Command | BadRequest]:
    """Read an array of commands; an error takes the place of a refused member. Raises BadRequest for the whole."""
    commands = _read_together(data, max_body_bytes)
    return [*commands] or [_parsed(bytes(part), max_body_bytes) for part in parts(data)]


def _read_together(data: bytes, max_body_bytes: int) -> list[Command]:
    """The members of an array if all of them are correct, else none: one may spoil the reading of the others."""
    if len(data) > SHORT:
        parts(data)  # a million commands, good or bad, would hold up the process
    try:
        commands: list[Command] = MANY.decode(data)
        if len(commands) <= MOST:
            check_all(commands, max_body_bytes)
            return commands
    except (msgspec.DecodeError, RecursionError, BadRequest):
        pass
    return []


def parts(data: bytes) -> list[Raw]:
    """The members of an array, unread. Raises BadRequest."""
    try:
        members = _PARTS.decode(data)
    except (msgspec.DecodeError, RecursionError) as error:
        raise explained(error, data) from None
    if not members:
        raise TooMany("the array is empty; send at least one command")
    if len(members) > MOST:
        raise TooMany(f"the request has {len(members)} commands; 1 to {MOST} are allowed")
    return members


def _parsed(data: bytes, max_body_bytes: int) -> Command | BadRequest:
    try:
        return parse(data, max_body_bytes)
    except BadRequest as error:
        return error
