"""A Redis stream: a message is confirmed when it is in the stream."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

from buckets.errors import JobQueueError, NoRoom, Unavailable
from buckets.redis.client import Redis
from jobqueue.sinks import Common, Down, Events, Message, Poison, Refused, Template

_LOGIN = ("NOAUTH", "WRONGPASS", "NOPERM")
_MOST_BYTES = 512 << 20  # of a value


class Settings(Common, frozen=True, kw_only=True):
    url: Annotated[str, Meta(min_length=1)]
    """As of the service: redis, rediss, redis+sentinel, redis+cluster."""
    stream: Annotated[str, Meta(min_length=1)] = "jobqueue:{topic}"
    maxlen: Annotated[int, Meta(ge=1)] | None = None
    """Entries, about; older ones are cut off, read or not."""
    templates = ("stream",)
    schemes = ("redis", "rediss", "redis+sentinel", "rediss+sentinel", "redis+cluster", "rediss+cluster")

    def keeps(self, header: str) -> bool:
        return header == "body"


class Sink:
    """A client of its own."""

    def __init__(self, settings: Settings, events: Events) -> None:
        self._settings, self._events = settings, events
        self._stream = Template(settings.stream)
        self._redis: Redis | None = None

    async def connect(self) -> None:
        try:
            self._redis = Redis(self._settings.url, self._settings.timeout_s)
            await self._redis.read("XLEN", _sample(self._stream, self._settings.topics[0]))
        except (ValueError, TypeError):
            raise Down("url is not a valid Redis URL") from None
        except JobQueueError as error:
            raise self._down(error) from None

    async def send(self, message: Message) -> None:
        if self._redis is None:
            raise Down("no connection")
        stream = self._stream.of(message)
        if len(message.body) > _MOST_BYTES:
            raise Poison("it is larger than a value of Redis may be")
        cut = ("MAXLEN", "~", self._settings.maxlen) if self._settings.maxlen else ()
        fields = (each for pair in message.headers.items() for each in pair)
        try:
            await self._redis.ask(stream, "XADD", stream, *cut, "*", *fields, "body", message.body)
        except NoRoom as error:
            raise Refused(error.message) from None
        except JobQueueError as error:
            raise self._down(error) from None

    async def check(self) -> list[str]:
        assert self._redis
        lines = []
        for topic in self._settings.topics:
            stream = _sample(self._stream, topic)
            length = await self._redis.read("XLEN", stream)
            lines.append(f"{topic}: stream {stream}, {length:,} entries")
        return lines

    async def close(self) -> None:
        redis, self._redis = self._redis, None
        if redis is not None:
            await redis.close()

    def _down(self, error: JobQueueError) -> Down:
        trouble = self._redis.trouble if self._redis else ""
        words = trouble if isinstance(error, Unavailable) and trouble else error.message
        return Down(words, 60.0 if words.startswith(_LOGIN) else 0.0)


def _sample(stream: Template, topic: str) -> str:
    """The stream of a topic; that of another one where it depends on the job."""
    try:
        return stream.of(Message("example", topic, "", 0.0, 1, {}, b"", is_json=True))
    except Poison:
        return "jobqueue:example"
