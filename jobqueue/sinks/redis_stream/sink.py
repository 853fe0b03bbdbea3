"""The sink `redis-stream`, and its settings.

A message becomes an entry of a stream with our own fields, or the keys that lisa's consumers read. WAIT reports how
many replicas have it.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
from typing import Annotated, Literal

from msgspec import Meta

from buckets.errors import JobQueueError, NoRoom, Unavailable
from buckets.redis.client import Redis
from buckets.redis.link import ErrorReply, Link
from jobqueue.sinks import Common, Down, Events, Message, Poison, Refused, Template, WrongDestination
from jobqueue.sinks.redis_stream.acks import Acks, Trimming


class Plain:
    """One entry with the headers and the body."""

    def __init__(self, stream: str, maxlen: int | None) -> None:
        self._stream = Template(stream)
        self._cut = ("MAXLEN", "~", maxlen) if maxlen else ()

    def stream_of(self, message: Message) -> str:
        """Raises Poison."""
        return self._stream.of(message)

    async def append(self, redis: Redis, stream: str, message: Message) -> bytes | None:
        """Write a message. Returns the id of its entry. Raises JobQueueError."""
        fields = (each for pair in message.headers.items() for each in pair)
        entry: bytes = await redis.ask(stream, "XADD", stream, *self._cut, "*", *fields, "body", message.body)
        return entry

    def body_of(self, message: Message) -> str:
        """The key that a consumer deletes when it is done, or empty if it only acknowledges."""
        return ""

    async def settled(self, redis: Redis, stream: str, entry: bytes, message: Message) -> None:
        """Called when the message was acknowledged."""

    async def gave_up(self, redis: Redis, message: Message) -> None:
        """Called when no consumer has acknowledged the message in time; its entry has been removed."""


# KEYS: the stream, the body, the sets of sent and of garbage ids. ARGV: the id, the field, the body.
# An id that was sent and whose body is gone has been done since: nothing is sent.
_SEND = """
if redis.call('SISMEMBER', KEYS[3], ARGV[1]) == 1 and redis.call('EXISTS', KEYS[2]) == 0 then
  redis.call('SREM', KEYS[3], ARGV[1])
  return false
end
redis.call('SET', KEYS[2], ARGV[3])
redis.call('SADD', KEYS[3], ARGV[1])
redis.call('SREM', KEYS[4], ARGV[1])
return redis.call('XADD', KEYS[1], '*', 'msg', ARGV[2])
"""


class Lisa:
    """The keys of lisa's ready queue. Its consumers delete the body of a message that they are done with."""

    def __init__(self, clazz: str) -> None:
        self._clazz = clazz

    def stream_of(self, message: Message) -> str:
        return f"stream:ready_queue:{message.topic}"

    async def append(self, redis: Redis, stream: str, message: Message) -> bytes | None:
        """Write a message. Returns the id of its entry, or None if the message has been done since it was last sent.
        Raises Poison, JobQueueError."""
        topic, job_id = message.topic, message.id
        if "|" in job_id:
            raise Poison("its id has a |, at which lisa's consumers end it")
        clazz = json.dumps(message.headers.get("clazz", self._clazz), ensure_ascii=False)
        body = b'{"body":' + message.body + b',"clazz":' + clazz.encode() + b"}"
        keys = (stream, self.body_of(message), f"set:jobqueue_sent:{topic}", f"set:garbage_key:{topic}")
        field = f"{job_id}|{round(message.due * 1000)}"
        entry: bytes | None = await redis.ask(stream, "EVAL", _SEND, len(keys), *keys, job_id, field, body)
        return entry

    def body_of(self, message: Message) -> str:
        return f"message:body:{message.topic}:{message.id}"

    async def settled(self, redis: Redis, stream: str, entry: bytes, message: Message) -> None:
        """Called when the message was done: removes everything that is left of it."""
        await redis.ask(stream, "SREM", f"set:jobqueue_sent:{message.topic}", message.id)
        await redis.ask(stream, "XDEL", stream, entry)

    async def gave_up(self, redis: Redis, message: Message) -> None:
        """After the last try, mark the message as garbage."""
        if message.is_last:
            stream = self.stream_of(message)
            await redis.ask(stream, "SADD", f"set:garbage_key:{message.topic}", message.id)


class Replicas:
    """Waits for replicas in rounds: one WAIT serves all entries that were appended over its connection before it."""

    def __init__(self, redis: Redis, number: int, timeout_s: float) -> None:
        """`timeout_s`: for a confirmation. A round gets a quarter of it: an entry may have to wait for the round before
        its own, because WAIT holds up the commands after it."""
        self._redis, self._number = redis, number
        self._ms = max(1, round(timeout_s * 250))
        self._turn = asyncio.Lock()
        self._next: dict[Link, asyncio.Task[int]] = {}

    async def wait(self, stream: str, link: Link) -> None:
        """Wait until enough replicas have everything that was appended over this connection. Raises Refused, Down."""
        if await self._redis.link_to(stream) is not link:
            raise Down("the connection was lost")  # the entry may have gone over the other one
        coming = self._next.get(link)
        if coming is None:
            coming = self._next[link] = asyncio.create_task(self._round(link))
        reached = await asyncio.shield(coming)
        if reached < self._number:
            raise Refused(f"{reached} of {self._number} replicas have it")

    async def _round(self, link: Link) -> int:
        async with self._turn:
            del self._next[link]
            try:
                return int(await link.ask(("WAIT", self._number, self._ms)))
            except ErrorReply as error:
                raise Down(str(error)) from None


_LOGIN = ("NOAUTH", "WRONGPASS", "NOPERM", "ERR ACL failure in script")
# Errors about one key, in the words of Redis 6 to 8 and Valkey 7 to 9; scripts put other words before them.
_OF_A_KEY = ("WRONGTYPE", "permissions to access a key", "permissions to access one of the keys")
_LOGIN_S = 60.0
_FIRST_TRY_S = 1.0
_IN_TIME = 0.9  # of `timeout_s`
_MOST_BYTES = 512 << 20  # of a value
_LOOKS = 20  # how many another process has to see an acknowledgement before the entry is trimmed


class Settings(Common, frozen=True, kw_only=True):
    url: Annotated[str, Meta(min_length=1)]
    """Like the service's: redis, rediss, redis+sentinel, redis+cluster."""
    stream: Annotated[str, Meta(min_length=1)] = "jobqueue:{topic}"
    done: Literal["appended", "acked"] = "appended"
    """When a message is confirmed."""
    group: str = ""
    """The group whose acknowledgement counts. It is created at the beginning of a stream."""
    poll_ms: Annotated[int, Meta(ge=10, le=60_000)] = 200
    ack_timeout_s: Annotated[float, Meta(ge=0.1, le=86_400)] = 30.0
    """An entry that a consumer has had for this long is removed."""
    deletes: bool = False
    """Whether consumers delete the entries that they have acknowledged; otherwise, if one is gone, its message is sent
    again."""
    maxlen: Annotated[int, Meta(ge=1)] | None = None
    """The approximate maximum number of entries. Older ones are removed: with `appended`, whether read or not; with
    `acked`, only those that the group is done with."""
    replicas: Annotated[int, Meta(ge=0, le=10)] = 0
    """How many replicas must have an entry before it is confirmed."""
    layout: Literal["plain", "lisa"] = "plain"
    clazz: str = ""
    """The `clazz` of lisa's bodies if a job has no header `clazz`."""
    templates = ("stream",)
    routed_by = "stream"
    schemes = ("redis", "rediss", "redis+sentinel", "rediss+sentinel", "redis+cluster", "rediss+cluster")

    def __post_init__(self) -> None:
        if bool(self.group) != (self.done == "acked"):
            raise ValueError('group and done = "acked" go together')
        if self.deletes and self.done != "acked":
            raise ValueError('deletes needs done = "acked"')
        if self.replicas and self.done == "acked":
            raise ValueError('replicas needs done = "appended": an acknowledgement comes from a consumer')
        if self.layout == "lisa" and (self.done != "acked" or "cluster" in self.url.partition(":")[0]):
            raise ValueError('layout = "lisa" needs done = "acked", and no Redis Cluster')

    @property
    def confirm_s(self) -> float | None:
        return None if self.done == "acked" else self.timeout_s

    def keeps(self, header: str) -> bool:
        return header == "body"


class Sink:
    """A sink with a Redis client of its own."""

    def __init__(self, settings: Settings, events: Events) -> None:
        self._settings, self._events = settings, events
        cut = settings.maxlen if settings.done == "appended" else None  # otherwise, streams are trimmed
        self._layout = Lisa(settings.clazz) if settings.layout == "lisa" else Plain(settings.stream, cut)
        self._redis: Redis | None = None
        self._loops: list[asyncio.Task[None]] = []

    async def connect(self) -> None:
        settings = self._settings
        try:
            self._redis = redis = Redis(settings.url, settings.timeout_s)
            self._acks = self._made_acks(redis)
            self._replicas = Replicas(redis, settings.replicas, settings.timeout_s) if settings.replicas else None
            grace_s = settings.timeout_s + _LOOKS * settings.poll_ms / 1000
            self._trimming = Trimming(redis, self._acks, settings.maxlen, grace_s=grace_s)
            async with asyncio.timeout(_IN_TIME * settings.timeout_s):  # so that the reason is known
                await self._reach(redis)
        except (ValueError, TypeError):
            raise Down("url is not a valid Redis URL") from None
        except TimeoutError:
            raise Down(redis.trouble or "Redis does not answer") from None
        self._loops = [asyncio.create_task(self._trimming.run())]
        if self._acks:
            self._loops.append(asyncio.create_task(self._keep_looking(self._acks)))

    async def _reach(self, redis: Redis) -> None:
        """Wait for an answer. Raises Down as soon as it is known why there is none: the Redis client would keep
        trying."""
        asked = asyncio.create_task(self._length(redis, self._sample(self._settings.topics[0])))
        try:
            await asyncio.wait((asked,), timeout=_FIRST_TRY_S)
            if not asked.done() and redis.trouble:
                raise Down(redis.trouble)
            with contextlib.suppress(WrongDestination):  # other streams may work
                await asked
        finally:
            asked.cancel()

    def _made_acks(self, redis: Redis) -> Acks | None:
        settings = self._settings
        if not settings.group:
            return None
        return Acks(redis, settings.group, settings.ack_timeout_s, self._judged, deletes=settings.deletes)

    async def send(self, message: Message) -> None:
        if self._redis is None:
            raise Down("no connection")
        if len(message.body) > _MOST_BYTES:
            raise Poison("it is larger than a value of Redis may be")
        stream = self._layout.stream_of(message)
        try:
            if self._acks:
                await self._acks.make_group(stream)
            async with asyncio.timeout(self._settings.timeout_s):
                link = await self._redis.link_to(stream) if self._replicas else None
                entry = await self._layout.append(self._redis, stream, message)
            if self._replicas and link:
                await self._replicas.wait(stream, link)
            self._trimming.touch(stream)
            if self._acks and entry is not None:
                await self._until_acked(self._acks, stream, entry, message)
        except NoRoom:
            raise Refused("its Redis is full, or cannot write to its disk") from None
        except JobQueueError as error:
            raise self._judged(error) from None

    async def _until_acked(self, acks: Acks, stream: str, entry: bytes, message: Message) -> None:
        assert self._redis
        try:
            await acks.wait(stream, entry, self._layout.body_of(message))
        except Refused:
            await self._layout.gave_up(self._redis, message)
            raise
        await self._layout.settled(self._redis, stream, entry, message)

    async def check(self) -> list[str]:
        assert self._redis
        lines = []
        for topic in self._settings.topics:
            stream = self._sample(topic)
            length = await self._length(self._redis, stream)
            lines.append(f"{topic}: stream {stream}, {length:,} entries")
        return lines

    async def close(self) -> None:
        loops, self._loops = self._loops, []
        for loop in loops:
            loop.cancel()
        await asyncio.gather(*loops, return_exceptions=True)
        redis, self._redis = self._redis, None
        if redis is not None:
            await redis.close()

    async def _keep_looking(self, acks: Acks) -> None:
        while True:
            await asyncio.sleep(self._settings.poll_ms / 1000)
            try:
                await acks.look()
            except Down as down:
                self._events.lost(down)

    async def _length(self, redis: Redis, stream: str) -> int:
        """The number of a stream's entries. Raises WrongDestination, Down."""
        try:
            return int(await redis.read("XLEN", stream))
        except JobQueueError as error:
            raise self._judged(error) from None

    def _judged(self, error: JobQueueError) -> WrongDestination | Down:
        trouble = self._redis.trouble if self._redis else ""
        words = trouble if isinstance(error, Unavailable) and trouble else error.message
        if any(each in words for each in _OF_A_KEY):
            return WrongDestination(words)
        return Down(words, _LOGIN_S if words.startswith(_LOGIN) else 0.0)

    def _sample(self, topic: str) -> str:
        """The stream of a topic, or any stream if it depends on the job."""
        with contextlib.suppress(Poison):
            return self._layout.stream_of(Message("example", topic, "", 0.0, 1, {}, b"", is_json=True))
        return "jobqueue:example"
