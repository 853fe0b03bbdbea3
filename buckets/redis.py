"""The way to Redis: one small interface, so that its transport can be replaced.

`Redis.call` runs a script, `Redis.read` a plain command, `Redis.listen` hears channels. All callers share one
connection: what they ask in one turn of the event loop leaves in one write, and the answers come back in order.
A lost connection is taken up again by itself; a call waits for it, up to its deadline.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
import time
from collections import deque
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any

from redis.asyncio import ConnectionPool
from redis.asyncio import Redis as Client
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import (
    BusyLoadingError,
    ClusterDownError,
    MasterDownError,
    NoScriptError,
    OutOfMemoryError,
    ReadOnlyError,
    RedisError,
    ResponseError,
    TryAgainError,
)

from buckets.errors import JobQueueError, NoRoom, Refused, Unanswered, Unavailable, from_reply
from buckets.meter import Meter
from buckets.scripts import SCRIPTS, Script, Value

log = logging.getLogger(__name__)

# Redis refused without doing anything, and will do it soon: it loads its data, fails over, or is being asked too
# early. The texts are those of Redis 7 to 8 and Valkey 7 to 9.
_PASSING = ("LOADING", "BUSY", "NOREPLICAS")
_PASSING_ERRORS = (ReadOnlyError, MasterDownError, ClusterDownError, TryAgainError)  # redis-py cuts their first word
_LONGEST_PAUSE = 0.5  # s between two tries to connect


class _Link:
    """One connection of redis-py (untyped there). `ask` writes and returns a future; a lost link fails them all."""

    def __init__(self, connection: Any, timeout_s: float, meter: Meter) -> None:
        self._connection = connection
        self._timeout_s = timeout_s
        self._meter = meter
        self._out: list[bytes] = []
        self._commands = 0  # in `_out`
        self._waiting: deque[tuple[float, asyncio.Future[Any]]] = deque()
        self._loop = asyncio.get_running_loop()
        self._filled = asyncio.Event()
        self.lost = False
        self._tasks = [self._loop.create_task(work()) for work in (self._write, self._read, self._watch)]

    def ask(self, command: Sequence[Value]) -> asyncio.Future[Any]:
        future = self._loop.create_future()
        self._out.extend(self._connection.pack_command(*command))
        self._commands += 1
        self._waiting.append((self._loop.time(), future))
        self._filled.set()
        return future

    async def _write(self) -> None:
        while True:
            await self._filled.wait()
            self._filled.clear()
            out, self._out = self._out, []
            commands, self._commands = self._commands, 0
            self._meter.wrote(commands)
            try:
                await self._connection.send_packed_command(out, check_health=False)
            except (RedisError, OSError):
                return self._lose()

    async def _read(self) -> None:
        while True:
            reply: Any
            try:
                reply = await self._connection.read_response(
                    disable_decoding=True, timeout=math.inf, disconnect_on_error=False
                )
            except ResponseError as error:
                reply = error
            except BusyLoadingError as error:  # an answer too, though redis-py takes it for a broken connection
                reply = ResponseError(f"LOADING {error}")
            except (RedisError, OSError):
                return self._lose()
            if not self._waiting:  # Redis says something unasked before it hangs up, "max number of clients" say
                return self._lose()
            _, future = self._waiting.popleft()
            if not future.done():
                future.set_result(reply)

    async def _watch(self) -> None:
        """Redis that says nothing for the whole time-out is as good as gone, whatever the socket says."""
        while True:
            await asyncio.sleep(self._timeout_s / 10)
            if self._waiting and self._loop.time() - self._waiting[0][0] > self._timeout_s:
                return self._lose()

    def _lose(self) -> None:
        self.lost = True
        for _, future in self._waiting:
            if not future.done():
                future.set_exception(Unanswered())
        self._waiting.clear()
        for task in self._tasks:
            if task is not asyncio.current_task():
                task.cancel()
        with contextlib.suppress(Exception):
            self._connection._close()  # without waiting; `disconnect` would

    async def close(self) -> None:
        self._lose()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._connection.disconnect(nowait=True)


def _judge(error: ResponseError) -> JobQueueError:
    """What an error reply means to the caller."""
    text = str(error)
    if isinstance(error, OutOfMemoryError) or text.startswith("OOM"):
        return NoRoom()
    if text.startswith("MISCONF"):
        return NoRoom("Redis cannot write its data to the disk, and takes no change until it can")
    if isinstance(error, _PASSING_ERRORS) or text.startswith(_PASSING):
        return Unavailable(f"Redis refuses for now: {text}")
    return from_reply(text) or JobQueueError(text)


def judge_all(replies: list[Any]) -> list[Any]:
    """A list of replies with the errors in it turned into ours."""
    return [_judge(reply) if isinstance(reply, ResponseError) else reply for reply in replies]


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
        self._link: _Link | None = None
        self._connecting: asyncio.Task[_Link] | None = None
        self.trouble = ""
        """Why the last try to connect failed; for an operator."""

    async def call(
        self, name: str, rest: Sequence[Value] = (), *, repeat: bool | None = None, **arguments: Value
    ) -> Any:
        """Run a script by the names of its arguments; errors inside a list of results are left in their places.

        `repeat`: whether to run it again when it is not known if it ran; the script's own word by default.
        """
        script = SCRIPTS[name]
        tail = script.arguments(arguments, rest)
        repeat = script.repeatable if repeat is None else repeat
        return await self._metered(name, ("EVALSHA", script.sha, *tail), repeat, script)

    async def read(self, *command: Value) -> Any:
        """Run a plain command that changes nothing (or that may be repeated)."""
        return await self._metered(str(command[0]).lower(), command, True, None)

    async def _metered(self, name: str, command: Sequence[Value], repeat: bool, script: Script | None) -> Any:
        begun = time.perf_counter()
        try:
            reply = await self._ask(command, repeat, script)
            if isinstance(reply, ResponseError):
                raise _judge(reply)
        except JobQueueError as error:
            code = None if isinstance(error, Refused) else error.code
            self.meter.called(name, time.perf_counter() - begun, code)
            raise
        self.meter.called(name, time.perf_counter() - begun, None)
        return reply

    async def _ask(self, command: Sequence[Value], repeat: bool, script: Script | None) -> Any:
        deadline = asyncio.get_running_loop().time() + self.timeout_s
        while True:
            link = self._link
            if link is None or link.lost:
                link = await self._connected(deadline)
            try:
                reply = await link.ask(command)
            except Unanswered:
                if not repeat:
                    raise
                await self._pause(deadline)
                continue
            if isinstance(reply, NoScriptError) and script:
                command = ("EVAL", script.text, *command[2:])
            elif isinstance(reply, ResponseError) and isinstance(_judge(reply), Unavailable):
                await self._pause(deadline, _judge(reply))
            else:
                return reply

    async def _pause(self, deadline: float, error: JobQueueError | None = None) -> None:
        if asyncio.get_running_loop().time() + 0.05 > deadline:
            raise error or Unavailable()
        await asyncio.sleep(0.05)

    async def _connected(self, deadline: float) -> _Link:
        if self._connecting is None or self._connecting.done():
            self._connecting = asyncio.create_task(self._connect())
        try:
            async with asyncio.timeout_at(deadline):
                return await asyncio.shield(self._connecting)
        except TimeoutError:
            raise Unavailable() from None

    async def _connect(self) -> _Link:
        """Try until there is a connection."""
        if self._link:
            await self._link.close()
        pause = 0.02
        while True:
            connection = self._pool.make_connection()
            try:
                async with asyncio.timeout(self.timeout_s):  # the handshake too
                    await connection.connect()
            except (RedisError, OSError) as error:
                await connection.disconnect(nowait=True)
                self.trouble = str(error)
                if pause == 0.02:
                    log.warning("redis.lost", extra={"error": str(error)})
                await asyncio.sleep(pause)
                pause = min(pause * 2, _LONGEST_PAUSE)
                continue
            if pause > 0.02:
                log.info("redis.found")
            self._link = _Link(connection, self.timeout_s, self.meter)
            return self._link

    async def listen(
        self, channels: Sequence[str], heard: Callable[[str, str], None], connected: Callable[[], None]
    ) -> None:
        """Hear channels as long as the connection lasts: `heard(channel, message)` for each message, `connected()` when
        the subscription begins. Raises Unavailable at its end; what was said then and until the next one is lost."""
        try:
            async with self._subscription(channels) as messages:
                connected()
                async for channel, message in messages:
                    heard(channel, message)
        except (RedisError, OSError, TimeoutError) as error:
            raise Unavailable(f"the subscription is lost: {error}") from None
        raise Unavailable("the subscription is silent")

    @contextlib.asynccontextmanager
    async def _subscription(self, channels: Sequence[str]) -> AsyncIterator[AsyncIterator[tuple[str, str]]]:
        client = Client(connection_pool=self._pool)
        async with client.pubsub() as pubsub:
            await pubsub.subscribe(*channels)
            if await pubsub.get_message(timeout=self.timeout_s) is None:
                raise TimeoutError
            yield self._messages(pubsub)

    async def _messages(self, pubsub: Any) -> AsyncIterator[tuple[str, str]]:
        quiet = 0
        while quiet < 2:  # a dead connection does not answer the ping
            message = await pubsub.get_message(timeout=self.timeout_s)
            if message is None:
                quiet += 1
                await pubsub.ping()
                continue
            quiet = 0
            if message["type"] == "message":
                yield message["channel"].decode(), message["data"].decode("utf-8", "replace")

    async def close(self) -> None:
        if self._connecting:
            self._connecting.cancel()
            await asyncio.gather(self._connecting, return_exceptions=True)
        if self._link:
            await self._link.close()
        await self._pool.disconnect()
