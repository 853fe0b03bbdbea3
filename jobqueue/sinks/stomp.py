"""STOMP 1.2, as RabbitMQ and ActiveMQ speak it: a message is confirmed by the RECEIPT of its own id."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator
from typing import Annotated
from urllib.parse import unquote, urlsplit

import stompman
from msgspec import Meta
from stompman.connection import Connection

from jobqueue.sinks import Common, Down, Events, Message, Poison, Refused, Template, WrongDestination

_PORT, _TLS_PORT = 61613, 61614
_LOGIN_S = 60.0
_NEVER_S = 86_400.0  # the pump has a time-out of its own
_HEARTBEAT_MS = 10_000
# The headers of STOMP, and those that the two brokers read from a message: if a job could set them, they would cause an
# error of the connection (user-id), another queue (durable), or a delayed message (AMQ_SCHEDULED_DELAY).
_KEPT = frozenset(
    (
        *("destination", "content-length", "content-type", "content-encoding", "receipt", "receipt-id", "transaction"),
        *("persistent", "priority", "expires", "expiration", "reply-to", "correlation-id", "message-id", "type"),
        *("timestamp", "redelivered", "subscription", "ack", "id", "selector", "transformation"),
        *("durable", "auto-delete", "exclusive", "user-id", "app-id", "cluster-id"),
    )
)
_KEPT_STARTS = ("x-", "jms", "amq-", "amq_", "amqp-")


class Settings(Common, frozen=True, kw_only=True):
    url: Annotated[str, Meta(min_length=1)]
    """stomp:// or, with TLS, stomps://, with user and password."""
    destination: Annotated[str, Meta(min_length=1)] = "/queue/{topic}"
    vhost: str = "/"
    """The header `host` of CONNECT: RabbitMQ's virtual host; ActiveMQ ignores it."""
    amq_text: bool = False
    """For ActiveMQ: True to send text messages; otherwise consumers get bytes."""
    forms = (*Common.forms, "mykit")
    templates = ("destination",)
    routed_by = "destination"
    schemes = ("stomp", "stomps")

    def keeps(self, header: str) -> bool:
        lower = header.lower()
        return lower in _KEPT or lower.startswith(_KEPT_STARTS)


class Sink:
    """One connection; the pump makes a new one after a failure."""

    def __init__(self, settings: Settings, events: Events) -> None:
        self._settings, self._events = settings, events
        self._destination = Template(settings.destination)
        self._client: stompman.Client | None = None
        self._holding: asyncio.Task[None] | None = None

    async def connect(self) -> None:
        self._closing = asyncio.Event()
        self._greeting = _Greeting()
        connected = asyncio.Event()
        client = self._new_client()
        # In a task of its own: when the connection fails, the library cancels the task that opened the client.
        self._holding = holding = asyncio.create_task(self._hold(client, connected))
        waiting = asyncio.create_task(connected.wait())
        try:
            await asyncio.wait({holding, waiting}, return_when=asyncio.FIRST_COMPLETED)
        except BaseException:
            holding.cancel()
            await asyncio.gather(holding, return_exceptions=True)
            raise
        finally:
            waiting.cancel()
        if not connected.is_set():
            error = None if holding.cancelled() else holding.exception()
            refusal = self._greeting.refusal
            raise Down(refusal, _LOGIN_S) if refusal else _unconnected(error)
        self._client = client
        holding.add_done_callback(self._ended)

    async def send(self, message: Message) -> None:
        client = self._client
        if client is None:
            raise Down("no connection")
        headers = {**message.headers, "persistent": "true"}
        if any("\0" in value or "\r" in value for value in headers.values()):
            raise Poison("a header has a null character or a carriage return")  # the library would leave them out
        destination = self._destination.of(message, self._greeting.escaped)
        try:
            await client.send(
                message.body,
                destination,
                content_type="application/json" if message.is_json else "text/plain;charset=utf-8",
                add_content_length=not self._settings.amq_text,
                headers=headers,
                receipt_timeout=_NEVER_S,
            )
        except stompman.errors.SendReceiptError as error:
            raise _unconfirmed(error, destination) from None
        except stompman.errors.Error as error:
            raise Down(type(error).__name__) from None
        except OSError:
            raise Down("the connection was closed") from None

    async def check(self) -> list[str]:
        return []

    async def close(self) -> None:
        holding, self._holding, self._client = self._holding, None, None
        if holding is not None:
            holding.cancel()
            with contextlib.suppress(Exception):
                await asyncio.wait({holding}, timeout=1)

    def _new_client(self) -> stompman.Client:
        settings = self._settings
        parts = urlsplit(settings.url)
        has_tls = parts.scheme == "stomps"
        server = stompman.ConnectionParameters(
            parts.hostname or "localhost",
            parts.port or (_TLS_PORT if has_tls else _PORT),
            unquote(parts.username or ""),
            parts.password or "",
        )
        return stompman.Client(
            [server],
            on_error_frame=None,
            heartbeat=stompman.Heartbeat(_HEARTBEAT_MS, _HEARTBEAT_MS),
            ssl=settings.tls() if has_tls else None,
            connection_class=_connection_class(settings.vhost, self._greeting),
            connect_retry_attempts=1,
            write_retry_attempts=1,
            connect_timeout=max(1, round(settings.timeout_s)),
            connection_confirmation_timeout=max(1, round(settings.timeout_s)),
            disconnect_confirmation_timeout=1,
            no_message_restart_interval=None,
        )

    async def _hold(self, client: stompman.Client, connected: asyncio.Event) -> None:
        async with client:
            connected.set()
            await self._closing.wait()

    def _ended(self, holding: asyncio.Task[None]) -> None:
        error = None if holding.cancelled() else holding.exception()
        if self._client is not None:
            self._events.lost(_unconnected(error))


class _Greeting:
    """The server's answer to CONNECT."""

    refusal = ""
    server = ""

    def escaped(self, name: str) -> str:
        """A name as a part of a destination. RabbitMQ ends a part at a slash, and reads `%2F` as a slash; other brokers
        do neither."""
        return name.replace("/", "%2F") if self.server.startswith("RabbitMQ") else name


def _connection_class(vhost: str, greeting: _Greeting) -> type[Connection]:
    """A class of connections that send the virtual host, where the library would send the name of the server, and that
    end at an ERROR instead of CONNECTED, where the library would wait for more."""

    class Opened(Connection):
        async def write_frame(self, frame: stompman.AnyClientFrame) -> None:
            if isinstance(frame, stompman.ConnectFrame):
                frame.headers["host"] = vhost
            await super().write_frame(frame)

        async def read_frames(self) -> AsyncGenerator[stompman.AnyServerFrame, None]:
            is_first = True
            async for frame in super().read_frames():
                if is_first and isinstance(frame, stompman.ErrorFrame):
                    greeting.refusal = f"the login was refused: {_words(frame)}"
                    raise stompman.ConnectionLostError(reason="refused")
                if isinstance(frame, stompman.ConnectedFrame):
                    greeting.server, is_first = frame.headers.get("server", ""), False
                yield frame

    return Opened


def _unconnected(error: BaseException | None) -> Down:
    """Why there is no connection."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    if isinstance(error, stompman.FailedAllConnectAttemptsError):
        return Down("no server answers")
    return Down("the connection was closed" if error is None else type(error).__name__)


def _unconfirmed(error: stompman.errors.SendReceiptError, destination: str) -> Exception:
    """The error for a message without a RECEIPT."""
    if error.reason == "timeout":
        return TimeoutError()
    if error.frame is None:
        return Down("the connection was closed")
    words = _words(error.frame)
    if error.frame.headers.get("receipt-id") == error.receipt_id:
        is_forbidden = "not authorized" in words
        return WrongDestination(words) if is_forbidden else Refused(f"the broker refused it: {words}")
    if _names(error.frame, destination):
        return WrongDestination(f"{destination}: {words}")
    return Down(f"the broker reported an error: {words}")


def _names(frame: stompman.ErrorFrame, destination: str) -> bool:
    """Whether an error that names no message is about a destination: RabbitMQ puts the destination, its exchange or its
    queue in quotation marks."""
    parts = [part.replace("%2F", "/") for part in destination.split("/") if part]
    text = frame.body.decode(errors="replace")
    return any(f"'{part}'" in text for part in (destination, *parts))


def _words(frame: stompman.ErrorFrame) -> str:
    return str(frame.headers.get("message", "no reason"))[:200]
