"""What is written for a message: our own fields in a stream, or the keys that lisa's consumers read."""

from __future__ import annotations

import json

from buckets.redis.client import Redis
from jobqueue.sinks import Message, Poison, Template


class Plain:
    """One entry with the headers and the body."""

    def __init__(self, stream: str, maxlen: int | None) -> None:
        self._stream = Template(stream)
        self._cut = ("MAXLEN", "~", maxlen) if maxlen else ()

    def stream_of(self, message: Message) -> str:
        """Raises Poison."""
        return self._stream.of(message)

    async def append(self, redis: Redis, stream: str, message: Message) -> bytes | None:
        """Write it; the id of its entry. Raises JobQueueError."""
        fields = (each for pair in message.headers.items() for each in pair)
        entry: bytes = await redis.ask(stream, "XADD", stream, *self._cut, "*", *fields, "body", message.body)
        return entry

    def body_of(self, message: Message) -> str:
        """The key that a consumer deletes when it is done; empty: it only acknowledges."""
        return ""

    async def settled(self, redis: Redis, stream: str, entry: bytes, message: Message) -> None:
        """It was acknowledged."""

    async def gave_up(self, redis: Redis, message: Message) -> None:
        """No consumer has acknowledged it in time; its entry is out."""


# KEYS: the stream, the body, the set of ids that were sent, that of garbage. ARGV: the id, the field, the body.
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
        """Write it; None: it has been done since it was last sent. Raises Poison, JobQueueError."""
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
        """It was done: nothing is left of it."""
        await redis.ask(stream, "SREM", f"set:jobqueue_sent:{message.topic}", message.id)
        await redis.ask(stream, "XDEL", stream, entry)

    async def gave_up(self, redis: Redis, message: Message) -> None:
        """After the last try it is garbage."""
        if message.is_last:
            stream = self.stream_of(message)
            await redis.ask(stream, "SADD", f"set:garbage_key:{message.topic}", message.id)
