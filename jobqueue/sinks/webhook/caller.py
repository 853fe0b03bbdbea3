"""The caller: does a callback's request, follows its redirects, and gives the answer."""

from __future__ import annotations

import asyncio
import os
import ssl
import time
from collections.abc import Callable, Mapping
from types import TracebackType
from typing import Any, Self

import aiohttp
from jobqueue_client import Bury, Retry
from yarl import URL

from jobqueue import __version__
from jobqueue.sinks.webhook import callback as callbacks
from jobqueue.sinks.webhook.addresses import Guard, NotAllowed, Resolver
from jobqueue.sinks.webhook.callback import Callback
from jobqueue.sinks.webhook.host_slots import Places
from jobqueue.sinks.webhook.verdicts import Answer, follows

_MOST_REDIRECTS = 3
_KEPT_ELSEWHERE = ("accept", "accept-language", "content-type", "user-agent")
_DRAIN_BYTES = 65_536
_DRAIN_S = 1.0
_IDLE_S = 1.0  # less than any host waits before it closes one


class Caller:
    """Calls hosts that the guard allows, each within `timeout_s`, a connection within `connect_timeout_s`."""

    def __init__(self, guard: Guard, places: Places, timeout_s: float, connect_timeout_s: float) -> None:
        self._guard = guard
        self._places = places
        self._timeout_s = timeout_s
        self._connect_timeout_s = connect_timeout_s

    async def __aenter__(self) -> Self:
        self._resolver = Resolver(self._guard)
        self._session = self._made(keepalive_timeout=_IDLE_S)
        # The host may close a kept connection just then: what may not be repeated would be lost.
        self._once = self._made(force_close=True)
        return self

    def _made(self, **keeping: Any) -> aiohttp.ClientSession:
        return aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(
                limit=0,  # `places` is the limit
                resolver=self._resolver,
                socket_factory=self._guard.socket,
                **keeping,
            ),
            cookie_jar=aiohttp.DummyCookieJar(),
            auto_decompress=False,  # nobody reads it
            trace_configs=[_kept_connections()],
            skip_auto_headers=("Content-Type",),  # of no body it would say application/octet-stream
            trust_env=False,  # neither a proxy, which would connect for us and past the guard, nor a .netrc
        )

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._session.close()
        await self._once.close()
        await self._resolver.close()

    async def call(self, callback: Callback, ours: Callable[[], dict[str, str]], *, once: bool) -> Answer:
        """The answer to a request, of several the last. Raises Retry, Bury, Full.

        `ours`: gives our own headers, as of now. `once`: of a job that cannot go back and may not be called again: it
        waits for a place at the host, instead of Full, and has a connection of its own: no request is repeated.
        """
        url, theirs, left_s = callback.url, callback.headers, self._timeout_s
        for _ in range(_MOST_REDIRECTS + 1):
            async with self._places.at(host_of(url), patient=once):
                began = time.monotonic()
                headers = _defaults(callback) | {name.lower(): value for name, value in theirs.items()} | ours()
                answer = await self._hop(callback.method, url, headers, callback.body, left_s, once)
            if not follows(answer.status, callback.method) or not answer.location:
                return answer
            left_s -= time.monotonic() - began
            next_url = _redirected(url, answer)
            if next_url.origin() != url.origin():  # any of them may be a credential, whatever it is called
                theirs = {name: value for name, value in theirs.items() if name.lower() in _KEPT_ELSEWHERE}
            url = next_url
        raise Bury(f"redirected more than {_MOST_REDIRECTS} times")

    async def _hop(
        self, method: str, url: URL, headers: Mapping[str, str], body: bytes | None, within_s: float, once: bool
    ) -> Answer:
        try:
            async with asyncio.timeout(within_s):
                response = await self._ask(method, url, headers, body, once)
        except aiohttp.ConnectionTimeoutError:
            raise Retry(reason=f"no connection within {self._connect_timeout_s:g} s") from None
        except TimeoutError:
            raise Retry(reason=f"timed out after {self._timeout_s:g} s") from None
        except (aiohttp.ClientError, OSError) as error:
            raise _failure(error) from None
        await _drain(response)  # in time of its own: a 2xx that came at the last moment is one
        return Answer(response.status, response.headers.get("Retry-After"), response.headers.get("Location"))

    async def _ask(
        self, method: str, url: URL, headers: Mapping[str, str], body: bytes | None, once: bool
    ) -> aiohttp.ClientResponse:
        """Again at once where a kept connection broke: mostly the host had closed it just then. A new one counts."""
        # Of aiohttp's own times only this one: name, connection and TLS together. It rounds long ones up.
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
    """Tells a request, in the set that it brings, that it goes over a connection of an earlier one."""

    async def note(_: aiohttp.ClientSession, context: Any, __: aiohttp.TraceConnectionReuseconnParams) -> None:
        context.trace_request_ctx.add("kept")

    trace = aiohttp.TraceConfig()
    trace.on_connection_reuseconn.append(note)
    return trace


def host_of(url: URL) -> str:
    """The host as it is counted and told."""
    return (url.raw_host or "").lower().rstrip(".")


def _defaults(callback: Callback) -> dict[str, str]:
    own = {"user-agent": f"jobqueue/{__version__}"}
    return own if callback.body is None else own | {"content-type": "application/json"}


async def _drain(response: aiohttp.ClientResponse) -> None:
    """Read a short answer, so that its connection serves again. The status is known: what breaks here does no harm."""
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
    """Where an answer leads. Raises Bury."""
    try:
        target = callbacks.target(str(url.join(URL(answer.location or ""))))
    except ValueError:
        raise Bury(f"redirected with {answer.status} to what is no http or https URL") from None
    if (url.scheme, target.scheme) == ("https", "http"):  # the payload would travel in the clear
        raise Bury(f"redirected with {answer.status} from https to http")
    return target


def _failure(error: Exception) -> Retry | Bury:
    """What a request that got no answer means. It never tells the URL, nor which address was refused."""
    inner = error.os_error if isinstance(error, aiohttp.ClientConnectorError) else error
    if isinstance(inner, NotAllowed):
        return Bury("the address of the host is not allowed")
    if isinstance(error, aiohttp.InvalidURL):
        return Bury("url must have a host that is a name, or an address in its usual spelling")
    return Retry(reason=next(words(error) for kind, words in _FAILURES if isinstance(error, kind)))


def _certificate(error: Any) -> str:
    return getattr(error.certificate_error, "verify_message", None) or "the certificate is not trusted"


def _words(error: Exception) -> str:
    number = error.errno if isinstance(error, OSError) else None
    return os.strerror(number).lower() if number and number > 0 else "it failed"


# The first that fits.
_FAILURES: tuple[tuple[type[Exception], Callable[[Any], str]], ...] = (
    (aiohttp.ClientConnectorCertificateError, lambda error: f"TLS failed: {_certificate(error)}"),
    (aiohttp.ClientConnectorSSLError, lambda error: "TLS failed"),
    (ssl.SSLError, lambda error: "TLS failed"),
    (aiohttp.ClientConnectorDNSError, lambda error: "the name of the host was not found"),
    (aiohttp.ClientConnectorError, lambda error: f"no connection: {_words(error.os_error)}"),
    (aiohttp.ClientResponseError, lambda error: "the answer is no HTTP"),
    (Exception, lambda error: "the connection broke before the answer"),
)
