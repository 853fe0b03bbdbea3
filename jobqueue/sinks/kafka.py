"""Kafka: a record is confirmed when its partition's leader and all of its in-sync replicas have it."""

from __future__ import annotations

import asyncio
import contextlib
from typing import Annotated, Any, Literal
from urllib.parse import unquote, urlsplit

from aiokafka import AIOKafkaProducer, errors  # type: ignore[import-untyped]
from msgspec import Meta

from jobqueue.sinks import Common, Down, Events, Message, Poison, Refused, Template, WrongDestination

_POISON = (errors.MessageSizeTooLargeError, errors.RecordListTooLargeError, errors.CorruptRecordException)
_REFUSED = (errors.NotEnoughReplicasError, errors.NotEnoughReplicasAfterAppendError)
_LOGIN = (errors.AuthenticationFailedError, errors.SaslAuthenticationFailed, errors.UnsupportedSaslMechanismError)
_LOGIN_S = 60.0
_FIND_S = 3.0  # how long to wait for a topic that is just being created
_WRONG = (errors.UnknownTopicOrPartitionError, errors.TopicAuthorizationFailedError, errors.InvalidTopicError)


class Settings(Common, frozen=True, kw_only=True):
    url: Annotated[str, Meta(min_length=1)]
    """kafka:// or, with TLS, kafkas://; with user and password if it requires SASL; several hosts are separated by
    commas."""
    topic: Annotated[str, Meta(min_length=1)] = "{topic}"
    key: str = ""
    """The key of the record, or empty for none."""
    partition_key: str = ""
    """Records with the same partition key go to the same partition. If it is empty, `key` decides; without a key, the
    partition is random."""
    sasl: Literal["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"] = "PLAIN"
    compression: Literal["none", "gzip", "snappy", "lz4", "zstd"] = "none"
    linger_ms: Annotated[int, Meta(ge=0, le=1000)] = 5
    max_bytes: Annotated[int, Meta(ge=1024, le=1 << 30)] = 1 << 20
    """The most bytes of a record; the topic must accept as many."""
    templates = ("topic", "key", "partition_key")
    routed_by = "topic"
    schemes = ("kafka", "kafkas")


class Sink:
    """One idempotent producer; the pump makes a new one after a failure."""

    def __init__(self, settings: Settings, events: Events) -> None:
        self._settings = settings
        self._topic, self._key = Template(settings.topic), Template(settings.key)
        self._partition_key = Template(settings.partition_key)
        self._producer: AIOKafkaProducer | None = None

    async def connect(self) -> None:
        settings = self._settings
        self._producer = producer = AIOKafkaProducer(
            **_servers(settings),
            acks="all",
            enable_idempotence=True,
            linger_ms=settings.linger_ms,
            max_request_size=settings.max_bytes,
            compression_type=None if settings.compression == "none" else settings.compression,
            request_timeout_ms=round(settings.timeout_s * 1000),
            client_id="jobqueue-deliver",
        )
        try:
            await producer.start()
        except _LOGIN:
            raise Down("the login was refused", _LOGIN_S) from None
        except (errors.KafkaError, OSError) as error:
            raise _down(error) from None

    async def send(self, message: Message) -> None:
        producer = self._producer
        if producer is None:
            raise Down("no connection")
        topic = self._topic.of(message)
        headers = [(name, value.encode()) for name, value in message.headers.items()]
        key = self._key.of(message).encode() or None
        try:
            await self._find(producer, topic)
            partition = await self._partition(producer, topic, message)
            sent = await producer.send(topic, message.body, key, partition, headers=headers)
            await sent
        except _POISON:
            raise Poison("it is larger than a record may be, or was refused as corrupt") from None
        except _WRONG as error:
            raise _wrong(error, topic) from None
        except _REFUSED:
            raise Refused("not enough replicas are in sync") from None
        except errors.KafkaTimeoutError:
            raise TimeoutError from None
        except (errors.KafkaError, OSError) as error:
            raise _down(error) from None

    async def check(self) -> list[str]:
        assert self._producer
        lines = []
        for topic in self._settings.topics:
            with contextlib.suppress(Poison):
                name = self._topic.of(Message("example", topic, "", 0.0, 1, {}, b"", is_json=True))
                try:
                    partitions = await self._find(self._producer, name)
                except _WRONG as error:
                    raise _wrong(error, name) from None
                except errors.KafkaError as error:
                    raise _down(error) from None
                lines.append(f"{topic}: topic {name}, {len(partitions)} partitions")
        return lines

    async def close(self) -> None:
        producer, self._producer = self._producer, None
        if producer is None:
            return
        with contextlib.suppress(Exception):  # whatever its state, it is no longer needed
            # Not `stop`, which would first send the records it still has: their jobs have been returned.
            await asyncio.gather(producer._sender.close(), return_exceptions=True)
            await producer.client.close()
            producer._closed = True

    async def _find(self, producer: AIOKafkaProducer, topic: str) -> set[int]:
        """The partitions of a topic. Raises UnknownTopicOrPartitionError after a short wait, because the library would
        look for a missing topic for as long as a confirmation may take."""
        if known := producer.client.cluster.partitions_for_topic(topic):
            return set(known)
        try:
            async with asyncio.timeout(min(_FIND_S, self._settings.timeout_s / 2)):
                return set(await producer.partitions_for(topic))
        except TimeoutError:
            raise errors.UnknownTopicOrPartitionError from None

    async def _partition(self, producer: AIOKafkaProducer, topic: str, message: Message) -> int | None:
        """The partition of a record, or None if the producer chooses it."""
        if not self._settings.partition_key:
            return None
        key = self._partition_key.of(message).encode()
        known = sorted(await producer.partitions_for(topic))
        return int(producer._partitioner(key, known, known))


def _servers(settings: Settings) -> dict[str, Any]:
    """Where the brokers are, and how to log in."""
    scheme, _, rest = settings.url.partition("://")
    first = urlsplit(f"//{rest.partition(',')[0]}")
    hosts = rest.rpartition("@")[2].rstrip("/").split(",")
    has_tls, has_login = scheme == "kafkas", first.username is not None
    protocol = ("SASL_" if has_login else "") + ("SSL" if has_tls else "PLAINTEXT")
    found: dict[str, Any] = {"bootstrap_servers": hosts, "security_protocol": protocol}
    if has_tls:
        found["ssl_context"] = settings.tls()
    if has_login:
        found["sasl_mechanism"] = settings.sasl
        found["sasl_plain_username"] = unquote(first.username or "")
        found["sasl_plain_password"] = unquote(first.password or "")
    return found


def _wrong(error: BaseException, topic: str) -> WrongDestination:
    words = {
        errors.UnknownTopicOrPartitionError: f"the topic {topic} is not there",
        errors.TopicAuthorizationFailedError: f"the topic {topic} may not be written to",
        errors.InvalidTopicError: f"the topic {topic} has a name that Kafka does not take",
    }
    return WrongDestination(words[type(error)])


def _down(error: BaseException) -> Down:
    words = {
        errors.ClusterAuthorizationFailedError: "it may not write to this cluster",
        errors.KafkaConnectionError: "no broker answers",
        errors.NoBrokersAvailable: "no broker answers",
    }
    return Down(words.get(type(error), type(error).__name__))
