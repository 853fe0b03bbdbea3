"""The native protocol: reads a request into commands and renders their answers.

Nearly all commands are correct, so a request is read and checked as a whole. If that fails, each member of an array is
read by itself: it becomes a command, or the reason why it is refused. A test service has two more commands. A real
service refuses them as unknown, and does not list them.
"""

from __future__ import annotations

import contextlib
from typing import Any, ClassVar

import msgspec
import orjson
from msgspec import Raw, Struct

from buckets import Job
from jobqueue.commands.answers import Answer
from jobqueue.commands.carrying_out import Commands
from jobqueue.errors import STATUS, BadField, BadJson, BadRequest, TooMany, UnknownCommand
from jobqueue.protocols import Reply
from jobqueue.protocols.command.faults import explained, misnamed
from jobqueue.schema.checks import check, check_all
from jobqueue.schema.fields import Advance, expected
from jobqueue.schema.mistakes import misfit
from jobqueue.schema.params import OF_TESTS, Clock, Command, Pop, Reset
from jobqueue.settings import Settings

MOST = 1000  # commands in a request
SHORT = 65_536  # bytes; a request up to this size is quick to read, however many commands it has
ONE = msgspec.json.Decoder(Command)
MANY = msgspec.json.Decoder(list[Command])
_PARTS = msgspec.json.Decoder(list[Raw])


Read = tuple[list[Command], bool]
"""A request as it was read: its commands, which are not checked yet, and whether it is an array."""


def read(data: bytes) -> Read | None:
    """Read a request. Returns None if something is wrong with it, or with one of its commands."""
    try:
        if not data.isascii():
            data.decode()
        if data[:1] == b"{" or not _is_array(data):
            return [ONE.decode(data)], False
        if len(data) > SHORT:
            parts(data)  # a million commands, good or bad, would hold up the process
        commands = MANY.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError, BadRequest):
        return None
    return (commands, True) if 0 < len(commands) <= MOST else None


def _is_array(data: bytes) -> bool:
    return (data[:1] if data[:1] in (b"{", b"[") else data.lstrip()[:1]) == b"["


def parse(data: bytes, max_body_bytes: int, found: Read | None = None) -> Command:
    """Read and check one command. `found`: what `read` returned. Raises BadRequest."""
    try:
        command: Command = found[0][0] if found else ONE.decode(data)
        check(command, max_body_bytes)
    except (msgspec.DecodeError, RecursionError, BadRequest) as error:
        raise explained(error, data) from None
    return command


def parse_many(data: bytes, max_body_bytes: int, found: Read | None = None) -> list[Command | BadRequest]:
    """Like `parse`, for an array; an error takes the place of a refused member. Raises BadRequest for the array as a
    whole."""
    found = found or read(data)
    if found:
        with contextlib.suppress(BadRequest):
            check_all(found[0], max_body_bytes)
            return [*found[0]]
    return [_parsed(bytes(part), max_body_bytes) for part in parts(data)]


def _parsed(data: bytes, max_body_bytes: int) -> Command | BadRequest:
    try:
        return parse(data, max_body_bytes)
    except BadRequest as error:
        return error


def parts(data: bytes) -> list[Raw]:
    """The members of an array, not yet decoded. Raises BadRequest."""
    try:
        members = _PARTS.decode(data)
    except (msgspec.DecodeError, RecursionError) as error:
        raise explained(error, data) from None
    if not members:
        raise TooMany("the array is empty; send at least one command")
    if len(members) > MOST:
        raise TooMany(f"the request has {len(members)} commands; 1 to {MOST} are allowed")
    return members


class CommandProtocol:
    """One JSON object or an array of them, POSTed to its path."""

    path: ClassVar[str] = "/command"

    def __init__(self, commands: Commands, settings: Settings) -> None:
        self._commands = commands
        self._max_body_bytes = settings.max_body_bytes

    async def handle(self, data: bytes, reserved: list[Job], found: Read | None = None) -> Reply:
        """The reply to a request with this body. `found`: what `read` returned; `reserved`: see `Commands.answer`."""
        try:
            commands, is_array = self.parse(data, found)
        except Exception as error:
            return self.refuse(error)
        return self.render(await self._commands.answer(commands, reserved), is_array)

    def refuse(self, error: Exception) -> Reply:
        """The reply to a request that is not read, or cannot be read."""
        return self.render_error(self._commands.refuse(error))

    def parse(self, data: bytes, found: Read | None = None) -> tuple[list[Any], bool]:
        """The commands of a request, and whether it is an array; an error takes the place of a refused command. Raises
        BadRequest for the request as a whole. `found`: what `read` returned."""
        if found is None:
            _check_text(data)
        if not _is_array(data):
            return [parse(data, self._max_body_bytes, found)], False
        commands = parse_many(data, self._max_body_bytes, found)
        if Pop in map(type, commands[:-1]):
            _refuse_early_waits(commands)
        return commands, True

    def render(self, answers: list[Answer], is_array: bool) -> Reply:
        """The reply: an array of answers for an array, otherwise the one answer with the HTTP status of its code."""
        if is_array:
            return Reply(200, orjson.dumps(answers))
        answer = answers[0]
        return Reply(200, orjson.dumps(answer)) if answer["success"] else self.render_error(answer)

    def render_error(self, answer: Answer) -> Reply:
        """The answer with the HTTP status of its code."""
        return Reply(STATUS[answer["code"]], orjson.dumps(answer), answer.get("retry_after"))


def _check_text(data: bytes) -> None:
    """Raises BadJson for a request that is empty or not UTF-8."""
    try:
        data.decode()
    except UnicodeDecodeError:
        raise BadJson("the request is not UTF-8") from None
    if data[:1] not in (b"{", b"[") and not data.strip():
        raise BadJson("the request is empty; it must be a JSON object or an array of them")


def _refuse_early_waits(commands: list[Command | BadRequest]) -> None:
    """Refuse the pops that would make the commands after them wait."""
    for position, command in enumerate(commands[:-1]):
        if isinstance(command, Pop) and command.wait:
            commands[position] = BadField("wait is allowed in the last command of an array only", field="wait")


_OF_TESTS = msgspec.json.Decoder(Clock | Reset)


class _Tag(Struct):
    command: str


_TAG = msgspec.json.Decoder(_Tag)


class TestProtocol(CommandProtocol):
    """The native protocol, with the commands that only a test service knows."""

    def parse(self, data: bytes, found: Read | None = None) -> tuple[list[Any], bool]:
        """Like the native protocol, but commands that it does not know are read again as those of a test service."""
        try:
            read, is_array = super().parse(data, found)
        except UnknownCommand as refused:
            return [_read(data, refused)], False
        if not any(isinstance(each, UnknownCommand) for each in read):
            return read, is_array
        members = map(bytes, parts(data))  # a refused command that is not in an array has raised above
        return [_read(*each) for each in zip(members, read, strict=True)], is_array


def _read(data: bytes, read: Command | BadRequest) -> Command | Clock | Reset | BadRequest:
    """Returns `read`, unless it refuses a command that only a test service knows: then that command, or its own
    refusal."""
    name = _TAG.decode(data).command if isinstance(read, UnknownCommand) else ""
    if name not in OF_TESTS:
        return read
    try:
        command: Clock | Reset = _OF_TESTS.decode(data)
        return command
    except msgspec.ValidationError as error:
        if "`$.advance`" in str(error):
            return BadField(f"advance must be {expected(Advance)}", field="advance")
        return misnamed(misfit(error), name, OF_TESTS[name].__struct_fields__)
