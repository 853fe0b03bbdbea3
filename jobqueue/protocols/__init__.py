"""The contract of the dialects, and the table of them.

A protocol turns the bytes of a request into commands, and their answers into a reply in its own form, errors included.
It is one file or folder here and knows none of the others. The native one, `command`, is always there; the others are
dialects: the protocols of other systems, over HTTP or on connections of their own, which the settings open.
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
"""The import string of each dialect by its name in the settings. One that is off is not imported."""

JSON = "application/json"


class Reply(Struct, gc=False):
    """What goes back to the client."""

    status: int
    body: bytes
    retry_after: int | None = None
    """Seconds after which the client should try again, where that helps."""
    content_type: str = JSON


@dataclass(frozen=True, slots=True)
class Tools:
    """What a dialect works with."""

    commands: Commands
    """Counts under the dialect's name."""
    settings: Settings
    limits: ConnectionLimits
    """Holds the connections of all protocols together to `max_connections`, and to `client_timeout_s`."""
    give_back: Callable[[Sequence[Job]], None]
    """Returns jobs that reached nobody, so that the next pop gets them."""
    entry: Entry
    """Says what a request may do. Over HTTP that is asked for the dialect; on a connection of its own it asks."""
    is_ready: Callable[[], bool]
    """Whether this process can do its work: what `/readyz` says."""
    redis_s: Callable[[], float]
    """The time by the queue's clock, in Unix seconds. Times of jobs are compared with it, never with this host's."""


Options = TypeVar("Options", bound=DialectSettings)


class Dialect(ABC, Generic[Options]):
    """The protocol of another system. It catches nothing: the answers of commands are reports, errors included."""

    def __init__(self, tools: Tools, options: Options) -> None:
        self.tools = tools
        self.options = options
        """Replaced when the settings are reloaded; its port stays."""
        self.refuses_jobs = False
        """Whether it takes no more jobs, where its own server can do that: the service got SIGUSR1."""

    async def ask(
        self,
        command: Inner | Command | BadRequest,
        reserved: list[Job] | None = None,
        *,
        within: str = "",
        by_number: bool = False,
    ) -> Answer:
        """The answer to a command, or to what refuses one, as far as the request may do that: whoever let it in has set
        `GRANT`. `reserved` receives the jobs that it hands out; `within`, `by_number`: see `Commands.answer`."""
        taken = [] if reserved is None else reserved
        return (await self.tools.commands.answer([command], taken, within=within, by_number=by_number))[0]

    def drain(self) -> None:
        """The service begins to stop. No further connections come."""


class Request(Struct, gc=False):
    """An HTTP request to a dialect."""

    method: str
    path: str
    """Below that of the dialect, from a `/` on; not decoded; repeated slashes are one; without a token's segment."""
    query: str
    """Not decoded; without a parameter `token`."""
    headers: Mapping[str, str]
    """Names in any case."""
    body: bytes


class HttpDialect(Dialect[Options]):
    """A dialect over HTTP, on its own port or below its path."""

    @abstractmethod
    async def handle(self, request: Request, reserved: list[Job]) -> Reply:
        """The reply to a request. Cancelled when the client is gone; then the jobs of `reserved` go back."""

    @abstractmethod
    def refuse(self, error: Exception, request: Request) -> Reply:
        """The reply to a request that is not handled, because of its origin, token, size or damage, or because the
        service is stopping; or whose handling failed. It counts and logs that by `tools.commands.refuse`. The status of
        Unauthorized is 401, that of Forbidden 403. The body of `request` may be missing."""

    def pause_s(self, request: Request) -> float:
        """How long its refusal waits, because the client would ask again at once."""
        return 0.0

    def is_open(self, request: Request) -> bool:
        """Whether a request needs no token."""
        return False

    def token_in(self, given: str) -> str:
        """The token in what a client gives as one."""
        return given


class SocketDialect(Dialect[Options]):
    """A dialect on a TCP port of its own, and maybe on the same UDP port. Its connections ask `allow` themselves (see
    jobqueue/wires/)."""

    @abstractmethod
    def connection(self) -> asyncio.Protocol:
        """A new connection."""

    def datagrams(self) -> asyncio.DatagramProtocol | None:
        """The UDP side, if it has one."""
        return None

    @abstractmethod
    async def close(self, grace_s: float) -> None:
        """Wait until the connections are closed; close those left after `grace_s`."""


def load_dialect(name: str) -> type[Dialect[Any]]:
    """A dialect of the table."""
    module, _, member = DIALECTS[name].partition(":")
    return cast(type[Dialect[Any]], getattr(importlib.import_module(module), member))
