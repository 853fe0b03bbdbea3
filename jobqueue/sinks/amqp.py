"""AMQP 0-9-1, as RabbitMQ speaks it: a message is confirmed by basic.ack, and was not returned."""

from __future__ import annotations

import asyncio
import contextlib
import time
from typing import Annotated, Any

import aio_pika
import aiormq.exceptions as errors
from aio_pika.abc import AbstractChannel, AbstractConnection, AbstractExchange
from msgspec import Meta

from jobqueue.sinks import Common, Down, Events, Message, Poison, Refused, Template, WrongDestination

_MOST_KEY = 255  # bytes of a routing key
_MOST_HEADERS = 100 << 10  # bytes; all of them must fit into a frame, which has 128 KiB
_KEPT = ("cc", "bcc")  # RabbitMQ routes by them
_LOGIN = (errors.AuthenticationError, errors.ProbableAuthenticationError)
_LOGIN_S = 60.0
_LOOK_S = 0.25
_STARTING_S, _AGAIN_S = 3.0, 0.3  # a broker that has just started has its exchanges before its queues


class Settings(Common, frozen=True, kw_only=True):
    url: Annotated[str, Meta(min_length=1)]
    """amqp:// or amqps://, with user, password and virtual host."""
    exchange: str = ""
    """Empty for the default exchange, which uses the routing key as the name of a queue."""
    routing_key: str = "{topic}"
    declare: bool = False
    """True to create the exchange (topic, durable), a queue (quorum) with its name, and a binding for all keys."""
    templates = ("routing_key",)
    routed_by = "routing_key"
    schemes = ("amqp", "amqps")

    def __post_init__(self) -> None:
        if self.declare and not self.exchange:
            raise ValueError("declare needs an exchange: the default one is there")

    def keeps(self, header: str) -> bool:
        return header.lower() in _KEPT or header.lower().startswith("x-")


class Sink:
    """One connection and one channel. The pump makes new ones after a failure; the library never does."""

    def __init__(self, settings: Settings, events: Events) -> None:
        self._settings, self._events = settings, events
        self._routing_key = Template(settings.routing_key)
        self._connection: AbstractConnection | None = None
        self._exchange: AbstractExchange | None = None
        self._watching: asyncio.Task[None] | None = None

    async def connect(self) -> None:
        settings = self._settings
        tls: dict[str, Any] = {"ssl_context": settings.tls()} if settings.url.startswith("amqps") else {}
        try:
            self._connection = connection = await aio_pika.connect(settings.url, timeout=settings.timeout_s, **tls)
            connection.close_callbacks.add(self._closed)
            channel = await connection.channel(publisher_confirms=True, on_return_raises=True)
            channel.close_callbacks.add(self._closed)
            self._exchange = await self._exchange_of(channel)
        except _LOGIN:
            raise Down("the login was refused", _LOGIN_S) from None
        except errors.AMQPError as error:
            raise _down(error) from None
        except OSError as error:
            raise Down(f"no connection: {error.strerror or type(error).__name__}") from None
        except RuntimeError:  # raised by the library if the connection ends while it is being made
            raise Down("the connection was closed") from None
        self._connected_at = time.monotonic()
        self._watching = asyncio.create_task(self._watch(connection))

    async def send(self, message: Message) -> None:
        if self._exchange is None:
            raise Down("no connection")
        key = self._routing_key.of(message)
        if len(key.encode()) > _MOST_KEY:
            raise Poison(f"its routing key is longer than {_MOST_KEY} bytes")
        if sum(len(name) + len(value.encode()) for name, value in message.headers.items()) > _MOST_HEADERS:
            raise Poison("its headers are larger than a frame may be")
        published = aio_pika.Message(
            message.body,
            headers=dict(message.headers),
            message_id=message.key,
            content_type="application/json" if message.is_json else "text/plain",
            delivery_mode=aio_pika.DeliveryMode.PERSISTENT,
        )
        while not await self._routed(self._exchange, published, key):  # noqa: ASYNC110 - of the broker
            await asyncio.sleep(_AGAIN_S)

    async def _routed(self, exchange: AbstractExchange, published: aio_pika.Message, key: str) -> bool:
        """Publish a message. Returns False if no queue accepted it, but one may exist soon. Raises Refused,
        WrongDestination, Down."""
        try:
            await exchange.publish(published, key, mandatory=True, timeout=None)
        except errors.PublishError:
            if not self._settings.is_by_topic and time.monotonic() - self._connected_at < _STARTING_S:
                return False
            raise WrongDestination(f"no queue took it: the routing key {key} was not routed") from None
        except errors.DeliveryError:
            raise Refused("the broker refused it (basic.nack)") from None
        except errors.ChannelAccessRefused as error:
            raise _access_refused(error, key) from None
        except errors.AMQPError as error:
            raise _down(error) from None
        except (errors.ChannelInvalidStateError, RuntimeError, OSError):
            raise Down("the channel is closed") from None
        return True

    async def check(self) -> list[str]:
        name = self._settings.exchange
        return [f"exchange {name}" if name else "the default exchange: routing keys are names of queues"]

    async def close(self) -> None:
        watching, self._watching = self._watching, None
        if watching is not None:
            watching.cancel()
            await asyncio.gather(watching, return_exceptions=True)
        connection, self._connection, self._exchange = self._connection, None, None
        if connection is not None:
            with contextlib.suppress(Exception):  # whatever its state, it is no longer needed
                async with asyncio.timeout(1):
                    await connection.close()

    async def _exchange_of(self, channel: AbstractChannel) -> AbstractExchange:
        settings = self._settings
        if not settings.exchange:
            return channel.default_exchange
        if not settings.declare:
            return await channel.get_exchange(settings.exchange, ensure=True)
        exchange = await channel.declare_exchange(settings.exchange, aio_pika.ExchangeType.TOPIC, durable=True)
        kind: dict[str, Any] = {"x-queue-type": "quorum"}
        queue = await channel.declare_queue(settings.exchange, durable=True, arguments=kind)
        await queue.bind(exchange, "#")
        return exchange

    def _closed(self, _: object, error: BaseException | None) -> None:
        if self._connection is not None:
            self._events.lost(_down(error) if error else Down("the connection was closed"))

    async def _watch(self, connection: AbstractConnection) -> None:
        """Report when the broker blocks this connection, as it does when it is short of memory or disk."""
        assert connection.transport
        inner = connection.transport.connection
        while True:
            await asyncio.sleep(_LOOK_S)
            try:
                async with asyncio.timeout(0.01):
                    await inner.ready()
            except TimeoutError:
                self._events.blocked("the broker is short of memory or disk")
                await inner.ready()
                self._events.blocked("")


def _access_refused(error: BaseException, key: str) -> WrongDestination | Down:
    """RabbitMQ closes the channel at a routing key that the user may not write to, and names the key."""
    down = _down(error)
    return WrongDestination(str(down)) if f"topic '{key}'" in str(down) else down


def _down(error: BaseException) -> Down:
    """The error, without texts that may contain a password; the texts of replies name exchanges, queues and virtual
    hosts."""
    words = [each for each in error.args if isinstance(each, str) and "%" not in each]
    return Down(words[-1] if words else type(error).__name__)
