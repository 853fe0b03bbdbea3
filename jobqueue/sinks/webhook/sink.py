"""The kind `http`: posts messages to one URL, with the code of `jobqueue callbacks`."""

from __future__ import annotations

import re
import time
from ipaddress import ip_network
from typing import Annotated, Literal

from jobqueue_client import Bury, Retry
from msgspec import Meta

from jobqueue.access.secret_values import read_secret
from jobqueue.errors import SettingsError
from jobqueue.sinks import Common, Down, Events, Message, Poison, Refused
from jobqueue.sinks.webhook import signature
from jobqueue.sinks.webhook.addresses import Guard
from jobqueue.sinks.webhook.callback import Callback, judge, target
from jobqueue.sinks.webhook.caller import Caller, HostSlots, NoConnection

_KEPT = re.compile(
    "host|content-length|content-type|transfer-encoding|connection|keep-alive|te|trailer|upgrade|expect"
    "|(?:webhook|proxy)-.*"
)
_VALUE = re.compile(r"[\t\x20-\x7e]*")
_CONNECT_S = 3.0
_BEYOND_S = 1.0  # the pump's time-out comes first


class Settings(Common, frozen=True, kw_only=True):
    url: Annotated[str, Meta(min_length=1)]
    method: Literal["POST", "PUT", "PATCH"] = "POST"
    secret: str = ""
    """Signing secrets, the newest first, separated by spaces."""
    secret_file: str = ""
    networks: tuple[str, ...] = ()
    """Networks that may be called in addition to public addresses."""
    schemes = ("http", "https")

    def __post_init__(self) -> None:
        target(self.url)
        for network in self.networks:
            ip_network(network)
        if self.secret and self.secret_file:
            raise ValueError("secret and secret_file exclude each other")
        self.keys()

    def keeps(self, header: str) -> bool:
        return bool(_KEPT.fullmatch(header.lower()))

    def keys(self) -> list[bytes]:
        """The keys that sign messages. Raises ValueError."""
        try:
            text = read_secret(self.secret_file, "secret_file") if self.secret_file else self.secret
        except SettingsError as error:
            raise ValueError(str(error)) from None
        return signature.secrets_of(text) if text else []


class Sink:
    """A caller for one URL."""

    def __init__(self, settings: Settings, events: Events) -> None:
        self._settings, self._events = settings, events
        self._url, self._keys = target(settings.url), settings.keys()
        self._guard = Guard([ip_network(each) for each in settings.networks])
        self._caller: Caller | None = None

    async def connect(self) -> None:
        """Open a connection, and close it again: calls have their own."""
        settings = self._settings
        slots = HostSlots(settings.most_in_flight, settings.most_in_flight)
        tls = settings.tls() if self._url.scheme == "https" else None
        timeout_s = settings.timeout_s
        caller = Caller(self._guard, slots, timeout_s + _BEYOND_S, min(_CONNECT_S, timeout_s), tls)
        self._caller = await caller.__aenter__()
        try:
            await caller.reach(self._url)
        except (Retry, Bury) as error:
            raise Down(_in_our_words(error.reason or "no connection")) from None

    async def send(self, message: Message) -> None:
        if self._caller is None:
            raise Down("no connection")
        for name, value in message.headers.items():
            if not _VALUE.fullmatch(value):
                raise Poison(f"the header {name} is not printable ASCII")
        headers = {"content-type": "application/json" if message.is_json else "text/plain; charset=utf-8"}
        callback = Callback(self._settings.method, self._url, {**headers, **message.headers}, message.body)

        def signed() -> dict[str, str]:
            return signature.headers(message.key, int(time.time()), message.body, self._keys)

        try:
            answer = await self._caller.call(callback, signed, once=message.once)
            judge(answer, callback.method, time.time())
        except NoConnection as error:
            raise Down(error.reason or "no connection") from None
        except Retry as again:
            raise Refused(again.reason or "it failed", again.after) from None
        except Bury as end:
            raise Poison(_in_our_words(end.reason or "it was refused")) from None

    async def check(self) -> list[str]:
        return ["signed" if self._keys else "not signed: it has no secret"]

    async def close(self) -> None:
        caller, self._caller = self._caller, None
        if caller is not None:
            await caller.__aexit__(None, None, None)


def _in_our_words(reason: str) -> str:
    """The reason, with the setting of a sink in place of an option of `jobqueue callbacks`."""
    return re.sub("--allow-(?:network|port)", "networks", reason)
