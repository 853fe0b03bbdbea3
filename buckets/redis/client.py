"""The client of Redis: one small interface, so that its transport can be replaced.

`Redis.call` runs a script, `Redis.read` a plain command, and `Redis.listen` listens to a channel. All callers share one
connection to each server (server.py, link.py). A lost connection is renewed automatically; a call waits for that, up to
its deadline. Errors are handled here: a command that Redis refused without running it is sent again, to another server
if necessary; a command that may have run is sent again only if that does no harm.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from typing import Any, Protocol

from buckets.errors import JobQueueError, NoRoom, Refused, Unanswered, Unavailable, from_reply
from buckets.meter import Meter
from buckets.redis.cluster import Cluster
from buckets.redis.link import LOST, ErrorReply, Link, Orphan
from buckets.redis.sentinels import Sentinels
from buckets.redis.server import SILENT_S, Retired, Server, Standalone, within
from buckets.redis.url import Kind, Url, read_url
from buckets.scripts import SCRIPTS, Script, Value

# Redis refused without doing anything, but will soon accept the command: it is loading its data, failing over, or
# moving a slot, or it was asked too early. The texts are those of Redis 7 to 8 and Valkey 7 to 9.
_PASSING = (
    *("LOADING", "BUSY ", "NOREPLICAS", "READONLY", "MASTERDOWN"),
    *("CLUSTERDOWN", "TRYAGAIN", "MOVED", "ASK"),
)
_PAUSE_S = 0.05
_MOST_REFUSALS = 1000  # keys remembered; the number of shards would be enough

Key = str | bytes


def judge(error: ErrorReply) -> JobQueueError:
    """The error to raise for an error reply."""
    text = str(error)
    if text.startswith("OOM"):
        return NoRoom()
    if text.startswith("MISCONF"):
        return NoRoom("Redis cannot write its data to disk, and accepts no changes until it can")
    if text.startswith(_PASSING):
        return Unavailable(f"Redis refuses for now: {text}")
    return from_reply(text) or JobQueueError(text)


def judge_all(replies: list[Any]) -> list[Any]:
    """A list of replies, with error replies replaced by errors for the caller."""
    return [judge(reply) if isinstance(reply, ErrorReply) else reply for reply in replies]


class Servers(Protocol):
    """The servers that a URL leads to."""

    def __init__(self, url: Url, timeout_s: float, meter: Meter) -> None: ...

    @property
    def trouble(self) -> str:
        """Why the last attempt to connect failed; for an operator."""

    def of(self, key: Key | None) -> Server | None:
        """The server of a key, or None if it is unknown. With None as the key, any server."""

    async def find(self, key: Key | None, deadline: float) -> Server:
        """As `of`, but waits until the server is known. Raises Unavailable at the deadline (loop time)."""

    async def all(self, deadline: float) -> list[Server]:
        """The servers that have keys. Raises Unavailable."""

    def refused(self, server: Server, error: str) -> Server | None:
        """Learn from an error reply of a server; returns the server to ask instead, if the reply names one."""

    async def close(self) -> None:
        """Hang up."""


_KINDS: dict[Kind, type[Servers]] = {"standalone": Standalone, "sentinel": Sentinels, "cluster": Cluster}


async def _answer_to(reply: asyncio.Future[Any], orphan: Orphan | None) -> Any:
    """Wait for the reply. A reply that came in the turn of the loop in which the caller was cancelled is an orphan
    too."""
    try:
        return await reply
    except asyncio.CancelledError:
        if orphan and not reply.cancelled() and not reply.exception():
            orphan(reply.result())
        raise


class Redis:
    """The Redis at a URL (buckets/redis/url.py).

    `timeout_s`: a call without an answer after this long raises Unavailable. `meter`: receives the reports. An invalid
    URL raises ValueError or TypeError, whose message may contain its password.
    """

    def __init__(self, address: str, timeout_s: float = 5.0, meter: Meter | None = None) -> None:
        self.timeout_s = timeout_s
        self.meter = meter or Meter()
        url = read_url(address, timeout_s)
        self.is_cluster = url.kind == "cluster"
        self._servers: Servers = _KINDS[url.kind](url, timeout_s, self.meter)
        self._refusals: dict[Key | None, tuple[float, float]] = {}
        """By key, the loop times of the first and the last of successive refusals, as while its slot moves."""

    @property
    def trouble(self) -> str:
        """Why the last attempt to connect failed; for an operator."""
        return self._servers.trouble

    def is_away(self, key: Key) -> bool:
        """Whether the server of a key cannot be asked now, refuses everything, or for a quarter of a second has been
        silent or has refused everything about this key."""
        server = self._servers.of(key)
        return server is None or server.is_away or self._is_refused(key)

    def _is_refused(self, key: Key) -> bool:
        first, last = self._refusals.get(key, (0.0, 0.0))
        return last - first > SILENT_S and asyncio.get_running_loop().time() - last < SILENT_S

    async def call(
        self,
        name: str,
        rest: Sequence[Value] = (),
        *,
        repeat: bool | None = None,
        orphan: Orphan | None = None,
        **arguments: Value,
    ) -> Any:
        """Run a script, with its arguments by name; errors inside a list of results stay in their places.

        `repeat`: whether to run the script again if it is unknown whether it ran; by default, the script's own setting.
        `orphan`: called with a reply that arrives after the caller was cancelled.
        """
        script = SCRIPTS[name]
        command = ("EVALSHA", script.sha, *script.arguments(arguments, rest))
        repeat = script.repeatable if repeat is None else repeat
        return await self._metered(name, str(arguments["meta"]), command, repeat, script, orphan)

    async def read(self, *command: Value) -> Any:
        """Run a plain command that changes nothing, or that may be repeated, on the server of its first argument, the
        key. A command without arguments runs on any server."""
        return await self._metered(str(command[0]).lower(), _key_of(command), command, True, None, None)

    async def ask(self, key: Key, *command: Value) -> Any:
        """Run a plain command once, on the server of a key that is not its first argument. Raises Unanswered if it is
        unknown whether the command ran."""
        return await self._metered(str(command[0]).lower(), key, command, False, None, None)

    async def servers(self) -> list[One]:
        """The masters, one by one. Raises Unavailable."""
        deadline = asyncio.get_running_loop().time() + self.timeout_s
        return [One(self, server) for server in await self._servers.all(deadline)]

    def server_of(self, key: Key) -> str | None:
        """The name of the server of a key, as in `servers`, or None if the server is unknown at the moment."""
        server = self._servers.of(key)
        return server.name if server else None

    async def link_to(self, key: str) -> Link:
        """The connection that a call on this key uses now. The result changes once the connection is lost or another
        server has the key, so callers can check that two commands went to the same server. Raises Unavailable."""
        deadline = asyncio.get_running_loop().time() + self.timeout_s
        while True:
            server = self._servers.of(key) or await self._servers.find(key, deadline)
            try:
                return await server.connected(deadline)
            except Retired:
                if self._servers.of(key) is server:
                    raise Unavailable(f"{server.name} no longer serves this") from None

    def open_link(self, key: Key) -> Link | None:
        """The connection to the server of a key, or None unless it is open and Redis reads from it."""
        server = self._servers.of(key)
        link = server.link if server else None
        return None if link is None or link.lost or link.room else link

    async def _metered(
        self,
        name: str,
        key: Key | None,
        command: Sequence[Value],
        repeat: bool,
        script: Script | None,
        orphan: Orphan | None,
        only: Server | None = None,
    ) -> Any:
        begun = time.perf_counter()
        try:
            reply = await self._ask(key, command, repeat, script, orphan, only)
            if isinstance(reply, ErrorReply):
                raise judge(reply)
            if self._refusals:
                self._refusals.pop(key, None)
        except JobQueueError as error:
            code = None if isinstance(error, Refused) else error.code
            self.meter.called(name, time.perf_counter() - begun, code)
            raise
        self.meter.called(name, time.perf_counter() - begun, None)
        return reply

    async def _ask(
        self,
        key: Key | None,
        command: Sequence[Value],
        repeat: bool,
        script: Script | None,
        orphan: Orphan | None,
        only: Server | None,
    ) -> Any:
        deadline = asyncio.get_running_loop().time() + self.timeout_s
        instead: Server | None = None
        while True:
            server = only or instead or self._servers.of(key) or await self._servers.find(key, deadline)
            link = server.link
            if link is None or link.lost:
                try:
                    link = await server.connected(deadline)
                except Retired:
                    if only or self._servers.of(key) is server:
                        raise Unavailable(f"{server.name} no longer serves this") from None
                    instead = None
                    continue
            if link.room:
                await within(deadline, link.room)
                continue
            try:
                reply = await _answer_to(link.ask(command, orphan), orphan)
            except Unanswered:
                if not repeat:
                    raise
                await self._pause(deadline)
                continue
            if not isinstance(reply, ErrorReply):
                return reply
            if script and str(reply).startswith("NOSCRIPT"):
                command = ("EVAL", script.text, *command[2:])
            elif not isinstance(judge(reply), Unavailable):
                return reply
            else:
                named = self._refused(server, key, str(reply))
                instead = None if instead else named
                if not instead:  # none was named, or two servers name each other, as in the middle of a slot's move
                    await self._pause(deadline, judge(reply))

    def _refused(self, server: Server, key: Key | None, error: str) -> Server | None:
        """Note that a server refused a command about a key for now; returns the server to ask instead, if it named
        one."""
        if key and len(self._refusals) < _MOST_REFUSALS:
            now = asyncio.get_running_loop().time()
            self._refusals[key] = (self._refusals.get(key, (now, now))[0], now)
        return self._servers.refused(server, error)

    async def _pause(self, deadline: float, error: JobQueueError | None = None) -> None:
        if asyncio.get_running_loop().time() + _PAUSE_S > deadline:
            raise error or Unavailable()
        await asyncio.sleep(_PAUSE_S)

    async def listen(self, channel: str, heard: Callable[[str], None], connected: Callable[[], None]) -> None:
        """Listen to the channel of a shard as long as the same server has it. `heard` is called with each message,
        `connected` when the subscription begins. Raises Unavailable when the subscription ends; messages between then
        and the next subscription are lost."""
        deadline = asyncio.get_running_loop().time() + self.timeout_s
        server = self._servers.of(channel) or await self._servers.find(channel, deadline)
        try:
            await server.hear(channel, heard, connected)
        except Unavailable as error:
            self._servers.refused(server, error.message.removeprefix(LOST))
            raise

    async def close(self) -> None:
        """Hang up; returns when all sockets are closed."""
        await self._servers.close()


class One:
    """One of several servers, for commands that are sent to each: INFO, CONFIG, SCAN."""

    def __init__(self, redis: Redis, server: Server) -> None:
        self._redis = redis
        self._server = server
        self.name = server.name

    async def read(self, *command: Value) -> Any:
        """As `Redis.read`, on this server."""
        name = str(command[0]).lower()
        return await self._redis._metered(name, None, command, True, None, None, only=self._server)


def _key_of(command: Sequence[Value]) -> Key | None:
    key = command[1] if len(command) > 1 else None
    return str(key) if isinstance(key, int) else key
