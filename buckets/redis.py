"""The way to Redis: one small interface, so that its transport can be replaced.

`Redis.call` runs a script, `Redis.read` a plain command, `Redis.listen` hears channels. All callers share one
connection (buckets/link.py). A lost one is taken up again by itself; a call waits for it, up to its deadline.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from redis.asyncio import ConnectionPool
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import RedisError

from buckets.errors import JobQueueError, NoRoom, Refused, Unanswered, Unavailable, from_reply
from buckets.link import Ear, ErrorReply, Link, Orphan, Wire, hang_up
from buckets.meter import Meter
from buckets.scripts import SCRIPTS, Script, Value

log = logging.getLogger(__name__)

# Redis refused without doing anything, and will do it soon: it loads its data, fails over, or is being asked too
# early. The texts are those of Redis 7 to 8 and Valkey 7 to 9.
_PASSING = ("LOADING", "BUSY", "NOREPLICAS", "READONLY", "MASTERDOWN", "CLUSTERDOWN", "TRYAGAIN")
_LOADED = ("add", "finish", "pop")  # scripts that Redis knows from the beginning of a connection
_LONGEST_PAUSE = 0.5  # s between two tries to connect

T = TypeVar("T")
W = TypeVar("W", bound=Wire)


def _judge(error: ErrorReply) -> JobQueueError:
    """What an error reply means to the caller."""
    text = str(error)
    if text.startswith("OOM"):
        return NoRoom()
    if text.startswith("MISCONF"):
        return NoRoom("Redis cannot write its data to the disk, and takes no change until it can")
    if text.startswith(_PASSING):
        return Unavailable(f"Redis refuses for now: {text}")
    return from_reply(text) or JobQueueError(text)


def judge_all(replies: list[Any]) -> list[Any]:
    """A list of replies with the errors in it turned into ours."""
    return [_judge(reply) if isinstance(reply, ErrorReply) else reply for reply in replies]


async def _within(deadline: float, waited: asyncio.Future[T]) -> T:
    """Wait for it until then (loop time), without ending it. Raises Unavailable."""
    try:
        async with asyncio.timeout_at(deadline):
            return await asyncio.shield(waited)
    except TimeoutError:
        raise Unavailable() from None


async def _answer_to(reply: asyncio.Future[Any], orphan: Orphan | None) -> Any:
    """Wait for the reply. One that came in the same turn in which the caller was cancelled is an orphan too."""
    try:
        return await reply
    except asyncio.CancelledError:
        if orphan and not reply.cancelled() and not reply.exception():
            orphan(reply.result())
        raise


class Redis:
    """A standalone Redis at a URL: `redis://`, `rediss://` or `unix://`.

    `timeout_s` is the deadline of a call: no answer by then raises Unavailable. `meter` is told of what goes on.
    A URL that is none raises ValueError or TypeError, whose words may hold its password.
    """

    def __init__(self, url: str, timeout_s: float = 5.0, meter: Meter | None = None) -> None:
        self.timeout_s = timeout_s
        self.meter = meter or Meter()
        self._pool: Any = ConnectionPool.from_url(
            url,
            protocol=2,
            socket_timeout=None,
            socket_connect_timeout=timeout_s,
            retry=Retry(NoBackoff(), 0),
            client_name="jobqueue",
        )
        # What a URL may say, and we build on being otherwise.
        self._pool.connection_kwargs.update(decode_responses=False, protocol=2, socket_timeout=None)
        # What the URL says too much is told here, not at the first call.
        self._pool.make_connection()  # type: ignore[no-untyped-call]
        self._link: Link | None = None
        self._connecting: asyncio.Task[Link] | None = None
        self.trouble = ""
        """Why the last try to connect failed; for an operator."""

    async def call(
        self,
        name: str,
        rest: Sequence[Value] = (),
        *,
        repeat: bool | None = None,
        orphan: Orphan | None = None,
        **arguments: Value,
    ) -> Any:
        """Run a script by the names of its arguments; errors inside a list of results are left in their places.

        `repeat`: whether to run it again when it is not known if it ran; the script's own word by default. `orphan` is
        called with the answer that comes when the caller was cancelled and does not hear it.
        """
        script = SCRIPTS[name]
        command = ("EVALSHA", script.sha, *script.arguments(arguments, rest))
        repeat = script.repeatable if repeat is None else repeat
        return await self._metered(name, command, repeat, script, orphan)

    async def read(self, *command: Value) -> Any:
        """Run a plain command that changes nothing (or that may be repeated)."""
        return await self._metered(str(command[0]).lower(), command, True, None, None)

    async def link_to(self, key: str) -> Link:
        """The connection that a call on this key goes over now; another one once it is lost, or the key is served
        elsewhere. For who must know that two things were asked of one server. Raises Unavailable."""
        link = self._link
        if link is None or link.lost:
            return await self._connected(asyncio.get_running_loop().time() + self.timeout_s)
        return link

    async def _metered(
        self, name: str, command: Sequence[Value], repeat: bool, script: Script | None, orphan: Orphan | None
    ) -> Any:
        begun = time.perf_counter()
        try:
            reply = await self._ask(command, repeat, script, orphan)
            if isinstance(reply, ErrorReply):
                raise _judge(reply)
        except JobQueueError as error:
            code = None if isinstance(error, Refused) else error.code
            self.meter.called(name, time.perf_counter() - begun, code)
            raise
        self.meter.called(name, time.perf_counter() - begun, None)
        return reply

    async def _ask(self, command: Sequence[Value], repeat: bool, script: Script | None, orphan: Orphan | None) -> Any:
        deadline = asyncio.get_running_loop().time() + self.timeout_s
        while True:
            link = self._link
            if link is None or link.lost:
                link = await self._connected(deadline)
            if link.room:
                await _within(deadline, link.room)
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
            elif isinstance(_judge(reply), Unavailable):
                await self._pause(deadline, _judge(reply))
            else:
                return reply

    async def _pause(self, deadline: float, error: JobQueueError | None = None) -> None:
        if asyncio.get_running_loop().time() + 0.05 > deadline:
            raise error or Unavailable()
        await asyncio.sleep(0.05)

    async def _connected(self, deadline: float) -> Link:
        if self._connecting is None or self._connecting.done():
            self._connecting = asyncio.create_task(self._connect())
        return await _within(deadline, self._connecting)

    async def _connect(self) -> Link:
        """Try until there is a connection."""
        pause = 0.02
        while True:
            try:
                self._link = await self._linked()
            except (RedisError, OSError, Unanswered) as error:
                self.trouble = str(error)
                if pause == 0.02:
                    log.warning("redis.lost", extra={"error": str(error)})
                await asyncio.sleep(pause)
                pause = min(pause * 2, _LONGEST_PAUSE)
                continue
            if pause > 0.02:
                log.info("redis.found")
            return self._link

    async def _linked(self) -> Link:
        link = await self._open(lambda connection: Link(connection, self.timeout_s, self.meter))
        try:  # a script that Redis does not know yet would be told again, behind what was asked after it
            await asyncio.gather(*(link.ask(("SCRIPT", "LOAD", SCRIPTS[name].text)) for name in _LOADED))
        except BaseException:
            link.lose()
            raise
        return link

    async def _open(self, wire: Callable[[Any], W]) -> W:
        """A new connection. Raises RedisError or OSError (a time-out is one)."""
        connection = self._pool.make_connection()
        try:
            async with asyncio.timeout(self.timeout_s):  # the handshake too
                await connection.connect()
            return wire(connection)
        except BaseException:
            hang_up(connection)
            raise

    async def listen(
        self, channels: Sequence[str], heard: Callable[[str, str], None], connected: Callable[[], None]
    ) -> None:
        """Hear channels as long as the connection lasts: `heard(channel, message)` for each message, `connected()` when
        the subscription begins. Raises Unavailable at its end; what was said then and until the next one is lost."""
        ear: Ear | None = None
        try:
            ear = await self._open(lambda connection: Ear(connection, heard))
            await ear.subscribe(channels, self.timeout_s)
            connected()
            await ear.ended(self.timeout_s)
        except (RedisError, OSError) as error:
            raise Unavailable(f"the subscription is lost: {error}") from None
        finally:
            if ear:
                ear.lose()

    async def close(self) -> None:
        if self._connecting:
            self._connecting.cancel()
            await asyncio.gather(self._connecting, return_exceptions=True)
        if self._link:
            self._link.lose()
        await asyncio.sleep(0)  # sockets are closed a turn later
