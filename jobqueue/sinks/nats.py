"""NATS with JetStream: a message is confirmed when the stream has it; the stream drops repetitions of a key for a
while."""

from __future__ import annotations

import asyncio
import contextlib
import math
import re
from collections import defaultdict
from collections.abc import AsyncIterator
from typing import Annotated

import nats.errors
import nats.js.errors
from msgspec import Meta
from nats.aio.client import Client
from nats.js import JetStreamContext

from jobqueue.sinks import Common, Down, Events, Message, Poison, Refused, Template, WrongDestination

_OURS = "nats-"  # how the names of its own headers begin
_STREAM_FULL = (10047, 10077, 10122)  # the limit of its messages, of its bytes, or of a subject
_NO_STREAM = 503
_FORBIDDEN = re.compile('permissions violation for publish to "(.*)"', re.IGNORECASE)


class Settings(Common, frozen=True, kw_only=True):
    url: Annotated[str, Meta(min_length=1)]
    """nats:// or tls://, with user and password, or a token as the user; several, separated by commas."""
    subject: Annotated[str, Meta(min_length=1)] = "jobs.{topic}"
    templates = ("subject",)
    routed_by = "subject"
    schemes = ("nats", "tls")

    def keeps(self, header: str) -> bool:
        return header.lower().startswith(_OURS)


class Sink:
    """One connection. The pump makes a new one after a failure; the library never does."""

    def __init__(self, settings: Settings, events: Events) -> None:
        self._settings, self._events = settings, events
        self._subject = Template(settings.subject)
        self._client: Client | None = None
        self._stream: JetStreamContext | None = None
        self._under_way: defaultdict[str, set[asyncio.Timeout]] = defaultdict(set)
        """The timeouts of the messages that await a PubAck, by subject."""

    async def connect(self) -> None:
        try:
            self._client = client = Client()
            await client.connect(
                self._settings.url.split(","),
                allow_reconnect=False,
                connect_timeout=math.ceil(self._settings.timeout_s),
                tls=self._settings.tls() if self._has_tls else None,
                closed_cb=self._closed,
                error_cb=self._told,
                name="jobqueue deliver",
            )
            self._stream = client.jetstream(timeout=self._settings.timeout_s)
            await self._stream.account_info()
        except nats.errors.Error as error:
            raise _down(error) from None
        except OSError as error:
            raise Down(f"no connection: {error.strerror or error}") from None

    async def send(self, message: Message) -> None:
        if self._stream is None:
            raise Down("no connection")
        subject = self._subject.of(message)
        if not _is_subject(subject):
            raise Poison("the subject would have an empty or forbidden part")
        headers = {**message.headers, "Nats-Msg-Id": message.key}
        try:
            async with self._unless_forbidden(subject):
                await self._stream.publish(subject, message.body, headers=headers, timeout=self._settings.timeout_s)
        except nats.errors.MaxPayloadError:
            raise Poison("it is larger than max_payload of the server") from None
        except nats.js.errors.NoStreamResponseError:
            raise WrongDestination(f"no stream takes the subject {subject}") from None
        except nats.js.errors.APIError as error:
            raise _refused(error) from None
        except nats.errors.TimeoutError:
            raise TimeoutError from None
        except nats.errors.Error as error:
            raise _down(error) from None

    async def check(self) -> list[str]:
        assert self._stream
        lines = []
        for topic in self._settings.topics:
            sample = Message("example", topic, "", 0.0, 1, {}, b"", is_json=True)
            try:
                subject = self._subject.of(sample)
                name = await self._stream.find_stream_name_by_subject(subject)
                window_s = (await self._stream.stream_info(name)).config.duplicate_window or 0.0
            except Poison:
                lines.append(f"{topic}: its subject depends on headers")
                continue
            except nats.js.errors.NotFoundError:
                raise WrongDestination(f"no stream takes the subject {subject}") from None
            lines.append(f"{topic}: subject {subject}, stream {name}, drops repetitions for {window_s:g} s")
            if window_s < 3 * self._settings.timeout_s:
                lines.append(f"{topic}: that is short: let it be 3 x timeout_s at least")
        return lines

    async def close(self) -> None:
        client, self._client, self._stream = self._client, None, None
        if client is not None:
            try:
                await client.close()
            except Exception:  # whatever its state, it is no longer needed
                return

    @property
    def _has_tls(self) -> bool:
        return bool(self._settings.url.startswith("tls://") or self._settings.tls_ca or self._settings.tls_cert)

    @contextlib.asynccontextmanager
    async def _unless_forbidden(self, subject: str) -> AsyncIterator[None]:
        """Raises WrongDestination if the server reports meanwhile that the subject may not be published to."""
        try:
            async with asyncio.timeout(None) as under_way:
                self._under_way[subject].add(under_way)
                try:
                    yield
                finally:
                    self._under_way[subject].discard(under_way)
                    if not self._under_way[subject]:
                        del self._under_way[subject]
        except TimeoutError:
            if under_way.expired():
                raise WrongDestination(f"the subject {subject} may not be published to") from None
            raise

    async def _told(self, error: Exception) -> None:
        """Called for errors of the server that do not end the connection, and for errors that calls of the library
        raise as well."""
        if forbidden := _FORBIDDEN.search(str(error)):
            for under_way in self._under_way.get(forbidden[1], ()):
                under_way.reschedule(0)

    async def _closed(self) -> None:
        if self._client is not None:
            self._events.lost(Down("the connection is gone"))


def _is_subject(subject: str) -> bool:
    """Whether a subject may be published to: it has no empty part, no wildcard, and no white space."""
    return all(subject.split(".")) and not any(each in "*> \t\r\n" or not each.isprintable() for each in subject)


def _refused(error: nats.js.errors.APIError) -> Refused | Down:
    if error.err_code in _STREAM_FULL or "maximum" in (error.description or ""):
        return Refused(f"the stream is full: {error.description}")
    if error.code == _NO_STREAM:
        return Down(f"JetStream is not there: {error.description or 'no answer'}")
    return Refused(f"the stream refused it: {error.description}")


def _down(error: Exception) -> Down:
    words = str(error).removeprefix("nats: ") or type(error).__name__
    is_login = "authorization" in words.lower() or "permission" in words.lower()
    return Down(words, 60.0 if is_login else 0.0)
