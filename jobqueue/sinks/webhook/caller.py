"""The caller: sends a callback's request, follows its redirects, and returns the answer. A failure is a request that
got no answer.

A slow host must not keep others from being called: each host has a number of slots for concurrent requests. A request
to a host without a free slot waits a moment if few others are waiting; then its job is returned to the queue, with a
delay after which its turn should have come. The delays of a host's jobs are spaced at the pace of its answers, so the
jobs of a long backlog are not popped again and again.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import ssl
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Self

import aiohttp
from jobqueue_client import Bury, Retry
from yarl import URL

from jobqueue import __version__
from jobqueue.sinks.webhook import callback as callbacks
from jobqueue.sinks.webhook.addresses import Guard, NotAllowed, Resolver
from jobqueue.sinks.webhook.callback import Answer, Callback, follows


class NoConnection(Retry):
    """Nothing was sent: the host, or the way to it, is down."""


def failure(error: Exception) -> Retry | Bury:
    """The outcome of an error for the job. Its reason never shows the URL, nor which address was refused."""
    inner = error.os_error if isinstance(error, aiohttp.ClientConnectorError) else error
    if isinstance(inner, NotAllowed):
        return Bury(inner.reason)
    if isinstance(error, aiohttp.InvalidURL):
        return Bury("url must have a host that is a name, or an address in its usual spelling")
    reason = next(tell(error) for kind, tell in _FAILURES if isinstance(error, kind))
    return NoConnection(reason=reason) if isinstance(error, _UNSENT) else Retry(reason=reason)


def _certificate(error: Any) -> str:
    return getattr(error.certificate_error, "verify_message", None) or "the certificate is not trusted"


def words(error: Exception) -> str:
    """Why a connection failed."""
    number = error.errno if isinstance(error, OSError) else None
    return os.strerror(number).lower() if number and number > 0 else "it failed"


_UNSENT = (aiohttp.ClientConnectorError, ssl.SSLError)
# The first match counts.
_FAILURES: tuple[tuple[type[Exception], Callable[[Any], str]], ...] = (
    (aiohttp.ClientConnectorCertificateError, lambda error: f"TLS failed: {_certificate(error)}"),
    (aiohttp.ClientConnectorSSLError, lambda error: "TLS failed"),
    (ssl.SSLError, lambda error: "TLS failed"),
    (aiohttp.ClientConnectorDNSError, lambda error: "the name of the host was not found"),
    (aiohttp.ClientConnectorError, lambda error: f"no connection: {words(error.os_error)}"),
    (aiohttp.ClientResponseError, lambda error: "the answer is not HTTP"),
    (Exception, lambda error: "the connection broke before the answer"),
)


_WAIT_S = 1.0
_SOONEST_S, _LATEST_S = 1.0, 60.0  # the delay of a job that is returned
_FIRST_GUESS_S = 0.1  # for the answer of a host that has not answered yet
_WEIGHT = 0.3  # of the newest answer in the mean


class Full(Exception):
    """The host has no free slot; there should be one after `after_s`."""

    def __init__(self, after_s: float) -> None:
        super().__init__()
        self.after_s = after_s


@dataclass(slots=True)
class _Slots:
    """The slots of one host."""

    free: asyncio.Semaphore
    here: int = 0  # requests that have a slot or wait for one
    answer_s: float = _FIRST_GUESS_S
    turn: float = 0.0  # when the next job that is turned away should return (s, monotonic)


class HostSlots:
    """`per_host` slots at each host. Of the `total - per_host` jobs that one host cannot occupy, up to half may wait
    for slots."""

    def __init__(self, per_host: int, total: int) -> None:
        self._per_host = per_host
        self._may_wait = max(0, (total - per_host) // 2)
        self._waiting = 0
        self._hosts: dict[str, _Slots] = {}

    @contextlib.asynccontextmanager
    async def at(self, host: str, *, patient: bool) -> AsyncIterator[None]:
        """A slot at a host. Raises Full if none becomes free in time; with `patient`, waits for as long as it takes."""
        slots = self._hosts.setdefault(host, _Slots(asyncio.Semaphore(self._per_host)))
        slots.here += 1
        try:
            await self._enter(slots, patient)
            began = time.monotonic()
            try:
                yield
            finally:
                slots.free.release()
                slots.answer_s += _WEIGHT * (time.monotonic() - began - slots.answer_s)
        finally:
            slots.here -= 1
            if not slots.here:  # thousands of hosts come and go
                del self._hosts[host]

    async def _enter(self, slots: _Slots, patient: bool) -> None:
        if patient or not slots.free.locked():
            await slots.free.acquire()
            return
        if self._waiting >= self._may_wait:
            raise Full(self._turn(slots))
        self._waiting += 1
        try:
            async with asyncio.timeout(_WAIT_S):
                await slots.free.acquire()
        except TimeoutError:
            raise Full(self._turn(slots)) from None
        finally:
            self._waiting -= 1

    def _turn(self, slots: _Slots) -> float:
        """Seconds until a job that is turned away should return."""
        now = time.monotonic()
        slots.turn = max(slots.turn, now + _SOONEST_S) + slots.answer_s / self._per_host
        after_s = min(slots.turn - now, _LATEST_S)
        slots.turn = now + after_s
        return after_s


_MOST_REDIRECTS = 3
_KEPT_ELSEWHERE = ("accept", "accept-language", "content-type", "user-agent")
_DRAIN_BYTES = 65_536
_DRAIN_S = 1.0
_IDLE_S = 1.0  # less than any host waits before it closes an idle connection


class Caller:
    """Calls hosts that the guard allows: a callback within `timeout_s`, its connections within `connect_timeout_s`.
    `tls`: the context for https, or None to trust what the system trusts."""

    def __init__(
        self,
        guard: Guard,
        slots: HostSlots,
        timeout_s: float,
        connect_timeout_s: float,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        self._guard = guard
        self._slots = slots
        self._timeout_s = timeout_s
        self._connect_timeout_s = connect_timeout_s
        self._tls = tls

    async def __aenter__(self) -> Self:
        self._resolver = Resolver(self._guard)
        self._session = self._new_session(keepalive_timeout=_IDLE_S)
        # The host may close a kept connection just as it is used, and a call that must not be repeated would be lost.
        self._once = self._new_session(force_close=True)
        return self

    def _new_session(self, **keeping: Any) -> aiohttp.ClientSession:
        return aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(
                limit=0,  # `HostSlots` is the limit
                resolver=self._resolver,
                socket_factory=self._guard.socket,
                ssl=self._tls or True,
                **keeping,
            ),
            cookie_jar=aiohttp.DummyCookieJar(),
            auto_decompress=False,  # nobody reads the body
            trace_configs=[_kept_connections()],
            skip_auto_headers=("Content-Type",),  # aiohttp would send application/octet-stream without a body
            trust_env=False,  # no proxy, which would connect past the guard, and no .netrc
        )

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._session.close()
        await self._once.close()
        await self._resolver.close()

    async def call(self, callback: Callback, ours: Callable[[], dict[str, str]], *, once: bool) -> Answer:
        """The answer to a request, the last one after redirects. Raises Retry, Bury, Full.

        `ours`: returns our own headers, as of now. `once`: for a job that cannot be returned to the queue and must not
        be called twice. It waits for a slot at the host instead of raising Full, and uses a connection of its own:
        nothing is repeated.
        """
        url, theirs, left_s = callback.url, callback.headers, self._timeout_s
        for _ in range(_MOST_REDIRECTS + 1):
            self._check(url)
            async with self._slots.at(host_of(url), patient=once):
                began = time.monotonic()
                headers = _defaults(callback) | {name.lower(): value for name, value in theirs.items()} | ours()
                answer = await self._hop(callback.method, url, headers, callback.body, left_s, once)
            if not follows(answer.status, callback.method) or not answer.location:
                return answer
            left_s -= time.monotonic() - began
            next_url = _redirected(url, answer)
            if next_url.origin() != url.origin():  # any header may be a credential, whatever it is called
                theirs = {name: value for name, value in theirs.items() if name.lower() in _KEPT_ELSEWHERE}
            url = next_url
        raise Bury(f"redirected more than {_MOST_REDIRECTS} times")

    async def reach(self, url: URL) -> None:
        """Open a connection as a call would, and close it. Raises NoConnection, Bury."""
        self._check(url)
        host, port = host_of(url), url.port or 0
        tls: dict[str, Any] = {}
        if url.scheme == "https":
            tls = {"ssl": self._tls or ssl.create_default_context(), "server_hostname": host}
        try:
            async with asyncio.timeout(self._connect_timeout_s):
                found = await self._resolver.resolve(host, port, socket.AF_UNSPEC)
                await self._reach_one([each["host"] for each in found], port, tls)
        except TimeoutError:
            raise NoConnection(reason=f"no connection within {self._connect_timeout_s:g} s") from None
        except ssl.SSLCertVerificationError as error:
            raise NoConnection(reason=f"TLS failed: {error.verify_message}") from None
        except OSError as error:
            known = failure(error)
            raise known if isinstance(known, Bury) else NoConnection(reason=f"no connection: {words(error)}") from None

    async def _reach_one(self, addresses: Sequence[str], port: int, tls: Mapping[str, Any]) -> None:
        """Connect to the first address that answers. Raises the OSError of the last one if none does."""
        within_s = self._connect_timeout_s / len(addresses)
        for place, address in enumerate(addresses, 1):
            try:
                async with asyncio.timeout(within_s):
                    _, writer = await asyncio.open_connection(address, port, **tls)
            except OSError:  # TimeoutError is one
                if place == len(addresses):
                    raise
            else:
                writer.close()
                return

    def _check(self, url: URL) -> None:
        try:
            self._guard.check_host(host_of(url))
        except NotAllowed as error:
            raise failure(error) from None

    async def _hop(
        self, method: str, url: URL, headers: Mapping[str, str], body: bytes | None, within_s: float, once: bool
    ) -> Answer:
        try:
            async with asyncio.timeout(within_s):
                response = await self._ask(method, url, headers, body, once)
        except aiohttp.ConnectionTimeoutError:
            raise NoConnection(reason=f"no connection within {self._connect_timeout_s:g} s") from None
        except TimeoutError:
            raise Retry(reason=f"timed out after {self._timeout_s:g} s") from None
        except (aiohttp.ClientError, OSError) as error:
            raise failure(error) from None
        await _drain(response)  # in extra time: a 2xx that came at the last moment counts
        return Answer(response.status, response.headers.get("Retry-After"), response.headers.get("Location"))

    async def _ask(
        self, method: str, url: URL, headers: Mapping[str, str], body: bytes | None, once: bool
    ) -> aiohttp.ClientResponse:
        """Send a request, again at once if a kept connection broke: the host had probably just closed it. If a new
        connection breaks, the request has failed."""
        # Only this one of aiohttp's time-outs: for name, connection and TLS together. It would round long ones up.
        timeout = aiohttp.ClientTimeout(total=None, connect=self._connect_timeout_s, ceil_threshold=86_400)
        session = self._once if once else self._session
        while True:
            kept: set[str] = set()
            try:
                return await session.request(
                    method,
                    url,
                    data=body,
                    headers=headers,
                    timeout=timeout,
                    allow_redirects=False,
                    trace_request_ctx=kept,
                )
            except (aiohttp.ServerDisconnectedError, aiohttp.ClientOSError):
                if not kept:
                    raise


def _kept_connections() -> aiohttp.TraceConfig:
    """Marks a request that reuses the connection of an earlier one, in the set that is its trace context."""

    async def note(_: aiohttp.ClientSession, context: Any, __: aiohttp.TraceConnectionReuseconnParams) -> None:
        context.trace_request_ctx.add("kept")

    trace = aiohttp.TraceConfig()
    trace.on_connection_reuseconn.append(note)
    return trace


def host_of(url: URL) -> str:
    """The host as it is counted and logged."""
    return (url.raw_host or "").lower().rstrip(".")


def _defaults(callback: Callback) -> dict[str, str]:
    own = {"user-agent": f"jobqueue/{__version__}"}
    return own if callback.body is None else own | {"content-type": "application/json"}


async def _drain(response: aiohttp.ClientResponse) -> None:
    """Read a short answer, so that its connection can be reused. The status is known, so a failure here is harmless."""
    left = _DRAIN_BYTES
    try:
        async with asyncio.timeout(_DRAIN_S):
            while left > 0 and (some := await response.content.read(left)):
                left -= len(some)
    except (aiohttp.ClientError, OSError):
        pass
    finally:
        if not response.content.at_eof():
            response.close()
        response.release()


def _redirected(url: URL, answer: Answer) -> URL:
    """The target of a redirect. Raises Bury."""
    try:
        target = callbacks.target(str(url.join(URL(answer.location or ""))))
    except ValueError:
        raise Bury(f"redirected with {answer.status} to something that is not an http or https URL") from None
    if (url.scheme, target.scheme) == ("https", "http"):  # the payload would travel in the clear
        raise Bury(f"redirected with {answer.status} from https to http")
    return target
