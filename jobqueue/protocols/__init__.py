"""The contract of the protocols that the service speaks over HTTP, and the table of them.

A protocol turns the bytes of a request into commands, and their answers into a reply in its own form, errors included.
It is one file or folder here and knows none of the others.
"""

from __future__ import annotations

import importlib
from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import ClassVar, Generic, TypeVar, cast

from msgspec import Struct

from buckets import Job
from jobqueue.answers import Answer
from jobqueue.commands import Commands
from jobqueue.errors import BadRequest
from jobqueue.schema.params import Command
from jobqueue.settings import Settings

PROTOCOLS = {"command": "jobqueue.protocols.command.handler:CommandProtocol"}
"""The import string of each protocol by its name."""
OF_TESTS = PROTOCOLS | {"command": "jobqueue.protocols.command.of_tests:TestProtocol"}
"""Those of a test service."""
NATIVE = "command"
"""The protocol that has the fast path."""

JSON = "application/json"
Form = TypeVar("Form")


class Reply(Struct, gc=False):
    """What goes back to the client."""

    status: int
    body: bytes
    retry_after: int | None = None
    """Seconds after which the client should try again, where that helps."""
    content_type: str = JSON


class Protocol(ABC, Generic[Form]):
    """A protocol: its requests are POSTed to its path. `Form` is what `render` needs to know of a request."""

    path: ClassVar[str]

    def __init__(self, commands: Commands, settings: Settings) -> None:
        self._commands = commands
        self._max_body_bytes = settings.max_body_bytes

    async def handle(self, data: bytes, reserved: list[Job]) -> Reply:
        """The reply to a request with this body. `reserved`: see `Commands.answer`."""
        try:
            commands, form = self.parse(data)
        except Exception as error:
            return self.refuse(error)
        return self.render(await self._commands.answer(commands, reserved), form)

    def refuse(self, error: Exception) -> Reply:
        """The reply to a request that is not read, or cannot be."""
        return self.render_error(self._commands.refuse(error))

    @abstractmethod
    def parse(self, data: bytes) -> tuple[list[Command | BadRequest], Form]:
        """The commands of a request; an error takes the place of a refused one. Raises BadRequest for the whole."""

    @abstractmethod
    def render(self, answers: list[Answer], form: Form) -> Reply:
        """The reply with the answers to the commands of a request."""

    @abstractmethod
    def render_error(self, answer: Answer) -> Reply:
        """The reply to a request that was refused as a whole."""


def load(name: str, table: Mapping[str, str] = PROTOCOLS) -> type[Protocol[object]]:
    """A protocol of the table."""
    module, _, member = table[name].partition(":")
    return cast(type[Protocol[object]], getattr(importlib.import_module(module), member))
