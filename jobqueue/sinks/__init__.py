"""Sinks: where `jobqueue deliver` sends due jobs. This module has the contract of a kind of sink, and the table of
kinds.

A kind is one module or folder here, with a `Settings` and a `Sink`; it knows no other kind. The rules that apply to all
kinds are in `pump/`.
"""

from __future__ import annotations

import re
import ssl
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal, NamedTuple, Protocol

from msgspec import Meta, Struct

MOST_TOPICS = 100  # per sink
OUR_HEADERS = ("jobqueue-id", "jobqueue-key", "jobqueue-topic", "jobqueue-due", "jobqueue-attempt")
_TEXT = Annotated[str, Meta(max_length=1024)]


class Kind(NamedTuple):
    """Where a kind is, and what it needs."""

    module: str
    extra: str = ""
    """The extra of the package that includes its library, or empty if it needs none."""


KINDS = {
    "amqp": Kind("jobqueue.sinks.amqp", "sink-amqp"),
    "http": Kind("jobqueue.sinks.webhook.sink"),
    "kafka": Kind("jobqueue.sinks.kafka", "sink-kafka"),
    "nats": Kind("jobqueue.sinks.nats", "sink-nats"),
    "sql": Kind("jobqueue.sinks.sql", "sink-sql"),
    "stomp": Kind("jobqueue.sinks.stomp", "sink-stomp"),
    "redis-stream": Kind("jobqueue.sinks.redis_stream.sink"),
}


def delivered_at(lease: int) -> float:
    """When a job was handed out, in unix seconds by Redis's clock: its lease is that time in us. The clock of the host
    may differ."""
    return lease / 1e6


class Common(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The settings that every kind has."""

    kind: str
    topics: Annotated[tuple[Annotated[str, Meta(min_length=1)], ...], Meta(min_length=1, max_length=MOST_TOPICS)]
    in_flight: Annotated[int, Meta(ge=1, le=1000)] | None = None
    """The most messages without a confirmation, or None for the default: 100, or 1 in strict order."""
    in_flight_mb: Annotated[int, Meta(ge=1, le=1024)] = 64
    timeout_s: Annotated[float, Meta(ge=0.1, le=300)] = 10.0
    """The timeout for a confirmation, and for a connection."""
    order: Literal["none", "strict"] = "none"
    body: Literal["as-is", "text", "envelope", "mykit"] = "as-is"
    headers: dict[str, _TEXT] = {}
    tls_ca: str = ""
    tls_cert: str = ""
    tls_key: str = ""

    forms: ClassVar[Sequence[str]] = ("as-is", "text", "envelope")
    """The values that `body` may have."""
    templates: ClassVar[Sequence[str]] = ()
    """The names of settings that are templates."""
    schemes: ClassVar[Sequence[str]] = ()
    """The schemes that the setting `url` may have, or empty for any."""
    routed_by: ClassVar[str] = ""
    """The setting, a template, that names the destination of a message, or empty if all messages of the sink go to one
    place."""

    @property
    def most_in_flight(self) -> int:
        return self.in_flight or (1 if self.order == "strict" else 100)

    @property
    def confirm_s(self) -> float | None:
        """The most seconds that a confirmation may take, or None if the sink itself limits them."""
        return self.timeout_s

    @property
    def is_by_topic(self) -> bool:
        """Whether all messages of a topic go to one place."""
        return not self.routed_by or Template(getattr(self, self.routed_by)).is_by_topic

    def tls(self) -> ssl.SSLContext:
        """The TLS context for a connection to the broker; certificates are always checked. Raises Down."""
        try:
            context = ssl.create_default_context(cafile=self.tls_ca or None)
            if self.tls_cert:
                context.load_cert_chain(self.tls_cert, self.tls_key)
        except OSError as error:  # ssl.SSLError is one
            raise Down(f"tls_ca, tls_cert or tls_key cannot be read: {error.strerror or error}") from None
        return context

    def keeps(self, header: str) -> bool:
        """Whether the broker reserves the name of a header for itself."""
        return False


@dataclass(frozen=True, slots=True)
class Message:
    """The message that a broker gets for a job."""

    id: str
    topic: str
    key: str
    """The same on every repetition: `<id>:<created ms>`."""
    due: float
    """Unix seconds."""
    attempt: int
    """1 for the first."""
    headers: Mapping[str, str]
    """OUR_HEADERS, those of the settings, and the job's own."""
    body: bytes
    is_json: bool
    """True if the body is JSON, False if it is text."""
    is_last: bool = False
    """Whether this is the job's last try."""
    once: bool = False
    """True if the job is never delivered again, whatever happens."""


class Poison(Exception):
    """Sending this message again cannot help. The text of the exception says why, without the body or the values of
    headers."""


class Refused(Exception):
    """The broker does not accept this message now. `after_s`: the pause that the broker asked for, or None for the
    job's back-off."""

    def __init__(self, reason: str, after_s: float | None = None) -> None:
        super().__init__(reason)
        self.after_s = after_s


class WrongDestination(Exception):
    """The broker works, but the destination of this message is missing, or accepts nothing from us. The topic is
    paused, or, if messages of a topic go to several destinations, the job is refused; other messages are still sent."""


class Down(Exception):
    """The broker, the way to it, or the only destination of the sink's messages is down. `for_s`: for how many seconds
    trying again cannot help. `cure`: a statement or command that fixes it, which `deliver --check` prints."""

    def __init__(self, reason: str, for_s: float = 0.0, cure: str = "") -> None:
        super().__init__(reason)
        self.for_s = for_s
        self.cure = cure


class Events(Protocol):
    """What a sink reports to the pump on its own initiative."""

    def lost(self, down: Down) -> None:
        """The connection is gone: messages in flight will not be confirmed."""

    def blocked(self, reason: str) -> None:
        """The broker accepts no messages for now; if `reason` is empty, it accepts them again."""


class Sink(Protocol):
    """A way to one broker. Its constructor takes the settings and Events, and does not connect."""

    async def connect(self) -> None:
        """Connect, and check that messages can be sent. Raises Down."""

    async def send(self, message: Message) -> None:
        """Send, and wait until the broker has confirmed this very message. Raises Poison, Refused, WrongDestination,
        Down. May be cancelled: then nobody waits for the confirmation any longer."""

    async def check(self) -> list[str]:
        """What `deliver --check` prints after it has connected. Raises WrongDestination, Down."""

    async def close(self) -> None:
        """Close the connection, whatever its state; connect may follow. Raises nothing."""


_FIELD = re.compile(r"\{([^{}]*)\}")
_OF_A_JOB: dict[str, Callable[[Message], str]] = {
    "topic": lambda message: message.topic,
    "id": lambda message: message.id,
}


class Template:
    """A text with `{topic}`, `{id}` and `{header:NAME}`. Raises ValueError for any other name."""

    def __init__(self, text: str) -> None:
        *self._parts, self._end = _FIELD.split(text)
        if any(brace in part for part in (*self._parts[::2], self._end) for brace in "{}"):
            raise ValueError("has a brace without its other one")
        for name in self._parts[1::2]:
            if name not in _OF_A_JOB and not re.fullmatch("header:.+", name):
                raise ValueError(f"has {{{name[:64]}}}; it may have {{topic}}, {{id}} and {{header:NAME}}")

    @property
    def is_by_topic(self) -> bool:
        """Whether the text is the same for all messages of a topic."""
        return not {*self._parts[1::2]} - {"topic"}

    def of(self, message: Message, escape: Callable[[str], str] = str) -> str:
        """The text for a message, with each value passed through `escape`. Raises Poison for a header that the message
        does not have."""
        text = ""
        for before, name in zip(self._parts[::2], self._parts[1::2], strict=True):
            text += before + escape(_value(name, message))
        return text + self._end


def _value(name: str, message: Message) -> str:
    if read := _OF_A_JOB.get(name):
        return read(message)
    header = name.partition(":")[2]
    if header not in message.headers:
        raise Poison(f"the job has no header {header}")
    return message.headers[header]
