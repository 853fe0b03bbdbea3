"""The native protocol, `POST /command`: one JSON object or an array of 1 to 1,000 of them.

Reads the request into commands and renders their answers; what goes wrong in between is told by `Commands.answer`.
"""

from __future__ import annotations

import orjson
from msgspec import Struct

from buckets import Job
from jobqueue.answers import Answer
from jobqueue.commands import Commands
from jobqueue.errors import STATUS, BadField, BadJson, BadRequest
from jobqueue.protocols.command import reading
from jobqueue.schema import params
from jobqueue.schema.params import Pop


class Reply(Struct, gc=False):
    """What goes back: the HTTP status, the JSON, and when to ask again (s) where that helps."""

    status: int
    body: bytes
    retry_after: int | None = None


def _read(data: bytes, max_body_bytes: int) -> tuple[list[params.Command | BadRequest], bool]:
    """The commands of a request, and whether it is an array. Raises BadRequest."""
    try:
        data.decode()
    except UnicodeDecodeError:
        raise BadJson("the request is not UTF-8") from None
    begin = data[:1] if data[:1] in (b"{", b"[") else data.lstrip()[:1]
    if not begin:
        raise BadJson("the request is empty; it must be a JSON object or an array of them")
    if begin != b"[":
        return [reading.parse(data, max_body_bytes)], False
    commands = reading.parse_many(data, max_body_bytes)
    if Pop in map(type, commands[:-1]):
        for place, command in enumerate(commands[:-1]):
            if isinstance(command, Pop) and command.wait:
                commands[place] = BadField("wait is allowed in the last command of an array only", field="wait")
    return commands, True


def _single(told: Answer) -> Reply:
    if told["success"]:
        return Reply(200, orjson.dumps(told))
    return Reply(STATUS[told["code"]], orjson.dumps(told), told.get("retry_after"))


def refuse(commands: Commands, error: Exception) -> Reply:
    """The answer to a request that is not looked into."""
    return _single(commands.refuse(error))


async def handle(commands: Commands, data: bytes, max_body_bytes: int, reserved: list[Job]) -> Reply:
    """Answer a request. `reserved`: see `Commands.answer`."""
    try:
        parsed, many = _read(data, max_body_bytes)
    except Exception as error:
        return refuse(commands, error)
    answers = await commands.answer(parsed, reserved)
    return Reply(200, orjson.dumps(answers)) if many else _single(answers[0])
