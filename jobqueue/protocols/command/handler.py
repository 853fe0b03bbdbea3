"""The native protocol: reads a request into commands and renders their answers."""

from __future__ import annotations

import orjson

from jobqueue.commands.answers import Answer
from jobqueue.errors import STATUS, BadField, BadJson, BadRequest
from jobqueue.protocols import Protocol, Reply
from jobqueue.protocols.command import reading
from jobqueue.schema.params import Command, Pop


class CommandProtocol(Protocol[bool]):
    """One JSON object or an array of them. Of a request, its answers need to know whether it was an array."""

    path = "/command"

    def parse(self, data: bytes) -> tuple[list[Command | BadRequest], bool]:
        """The commands of a request, and whether it is an array."""
        try:
            data.decode()
        except UnicodeDecodeError:
            raise BadJson("the request is not UTF-8") from None
        start = data[:1] if data[:1] in (b"{", b"[") else data.lstrip()[:1]
        if not start:
            raise BadJson("the request is empty; it must be a JSON object or an array of them")
        if start != b"[":
            return [reading.parse(data, self._max_body_bytes)], False
        commands = reading.parse_many(data, self._max_body_bytes)
        if Pop in map(type, commands[:-1]):
            _refuse_early_waits(commands)
        return commands, True

    def render(self, answers: list[Answer], form: bool) -> Reply:
        """An array for an array; else the one answer, with the HTTP status of its code."""
        if form:
            return Reply(200, orjson.dumps(answers))
        answer = answers[0]
        return Reply(200, orjson.dumps(answer)) if answer["success"] else self.render_error(answer)

    def render_error(self, answer: Answer) -> Reply:
        """The answer with the HTTP status of its code."""
        return Reply(STATUS[answer["code"]], orjson.dumps(answer), answer.get("retry_after"))


def _refuse_early_waits(commands: list[Command | BadRequest]) -> None:
    """Refuse the pops that would let the commands behind them wait."""
    for position, command in enumerate(commands[:-1]):
        if isinstance(command, Pop) and command.wait:
            commands[position] = BadField("wait is allowed in the last command of an array only", field="wait")
