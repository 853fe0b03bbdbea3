"""The contract of the dialects, and the table of them.

A protocol turns the bytes of a request into commands, and their answers into a reply in its own form, errors included.
Each protocol is one file or folder here and does not know the others. The native one, `command`, is always there; the
others are dialects: the protocols of other systems, over HTTP or on connections of their own, which the settings turn
on.
"""

from __future__ import annotations

import asyncio
import importlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar, cast

from msgspec import Struct

from buckets import Job
from jobqueue.access.authentication import Entry
from jobqueue.access.connections import ConnectionLimits
from jobqueue.commands.answers import Answer
from jobqueue.commands.carrying_out import Commands
from jobqueue.dialect_settings import DialectSettings
from jobqueue.errors import BadRequest
from jobqueue.schema.inner import Inner
from jobqueue.schema.params import Command
from jobqueue.settings import Settings

DIALECTS = {
    "camellia": "jobqueue.protocols.camellia.dialect:CamelliaDialect",
    "mykit": "jobqueue.protocols.mykit:MykitDialect",
    "queue_server": "jobqueue.protocols.queue_server.dialect:QueueServerDialect",
    "beanstalkd": "jobqueue.protocols.beanstalkd.dialect:BeanstalkdDialect",
    "lmstfy": "jobqueue.protocols.lmstfy:LmstfyDialect",
}
"""The import string of each dialect by its name in the settings. A dialect that is off is not imported."""

JSON = "application/json"


class Reply(Struct, gc=False):
    """What goes back to the client."""

    status: int
    body: bytes
    retry_after: int | None = None
    """Seconds after which the client should try again, or None where a retry does not help."""
    content_type: str = JSON


@dataclass(frozen=True, slots=True)
class Tools:
    """What a dialect needs from the service."""

    commands: Commands
    """Carries out commands, and counts them under the dialect's name."""
    settings: Settings
    limits: ConnectionLimits
    """Limits the connections of all protocols together to `max_connections`, and each client to `client_timeout_s`."""
    give_back: Callable[[Sequence[Job]], None]
    """Returns jobs that did not reach their client, so that the next pop gets them."""
    entry: Entry
    """Says what a request may do. Over HTTP, the dialect's `Mount` asks it; a dialect with connections of its own asks
    it itself."""
    is_ready: Callable[[], bool]
    """Whether this process can do its work, as `/readyz` reports."""
    redis_s: Callable[[], float]
    """The time by the queue's clock, in Unix seconds. Times of jobs are compared with this clock, never with this
    host's."""


Options = TypeVar("Options", bound=DialectSettings)


class Dialect(ABC, Generic[Options]):
    """The protocol of another system. It catches no exceptions: the answers to commands report errors, too."""

    def __init__(self, tools: Tools, options: Options) -> None:
        self.tools = tools
        self.options = options
        """Replaced when the settings are reloaded, except for the port."""
        self.refuses_jobs = False
        """True if the service got SIGUSR1: the dialect then accepts no more jobs, if its original server has such a
        mode."""

    async def ask(
        self,
        command: Inner | Command | BadRequest,
        reserved: list[Job] | None = None,
        *,
        within: str = "",
        by_number: bool = False,
    ) -> Answer:
        """The answer to a command, or to the error that refuses one. `GRANT`, which the caller set when it let the
        request in, limits what the request may do. `reserved` receives the jobs that the answer hands out; `within`,
        `by_number`: see `Commands.answer`."""
        taken = [] if reserved is None else reserved
        return (await self.tools.commands.answer([command], taken, within=within, by_number=by_number))[0]

    def drain(self) -> None:
        """The service begins to stop. No more connections come after this."""


class Request(Struct, gc=False):
    """An HTTP request to a dialect."""

    method: str
    path: str
    """The part below the dialect's path, with a `/` at its start. It is not decoded, repeated slashes are merged, and
    the segment with a token is removed."""
    query: str
    """Not decoded; without the parameter `token`."""
    headers: Mapping[str, str]
    """Their names may be looked up in any case."""
    body: bytes


class HttpDialect(Dialect[Options]):
    """A dialect over HTTP, on its own port or below its path."""

    @abstractmethod
    async def handle(self, request: Request, reserved: list[Job]) -> Reply:
        """The reply to a request. Cancelled when the client is gone; the jobs in `reserved` are then returned."""

    @abstractmethod
    def refuse(self, error: Exception, request: Request) -> Reply:
        """The reply to a request whose handling failed, or that is not handled because of its origin, token, size or a
        damaged body, or because the service is stopping. It counts and logs the refusal by `tools.commands.refuse`. The
        status is 401 for Unauthorized and 403 for Forbidden. `request.body` may be empty."""

    def pause_s(self, request: Request) -> float:
        """How many seconds to delay the refusal of a request, for a client that would ask again at once."""
        return 0.0

    def is_open(self, request: Request) -> bool:
        """Whether a request needs no token."""
        return False

    def token_in(self, given: str) -> str:
        """The token itself, in the text that a client sends as its token."""
        return given


class SocketDialect(Dialect[Options]):
    """A dialect on a TCP port of its own, and perhaps on the UDP port with the same number. Its connections check
    `allow` themselves (see jobqueue/wires/)."""

    @abstractmethod
    def connection(self) -> asyncio.Protocol:
        """A new connection."""

    def datagrams(self) -> asyncio.DatagramProtocol | None:
        """The UDP side, or None if the dialect has none."""
        return None

    @abstractmethod
    async def close(self, grace_s: float) -> None:
        """Wait until the connections are closed; close those left after `grace_s`."""


def load_dialect(name: str) -> type[Dialect[Any]]:
    """Import a dialect of the table."""
    module, _, member = DIALECTS[name].partition(":")
    return cast(type[Dialect[Any]], getattr(importlib.import_module(module), member))
