"""Keep-alive connections for asyncio, on aiohttp."""

from __future__ import annotations

import asyncio
import io

import aiohttp

from jobqueue_client.access import speaks_tls
from jobqueue_client.errors import Unreachable
from jobqueue_client.http import SPEAKS_TLS, Reply, Request, command_url, words
from jobqueue_client.options import Options

_NO_CONNECTION = (
    aiohttp.ClientConnectorError,
    aiohttp.InvalidURL,
    UnicodeError,  # an invalid host name
)
_IDLE_S = 10.0
_CONCURRENT_REQUESTS = 100
_LARGE_BYTES = 1 << 20


class AsyncConnections:
    """The connections to a service, in one event loop."""

    def __init__(self, options: Options) -> None:
        self._options = options
        self._session: aiohttp.ClientSession | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._closed = False
        self._known = {url for url in options.urls if url.lower().startswith("https:")}
        """The URLs whose scheme is known to be right."""
        # Thousands of concurrent calls share this many connections, and queue before their time-outs begin. Pops that
        # wait for a job do not count: they would hold up the adds that would end their wait.
        self._free = asyncio.Semaphore(_CONCURRENT_REQUESTS)

    async def post(self, request: Request, authorization: str | None) -> Reply:
        """Send a request and read its reply. Raises Unreachable, or RuntimeError after `close`."""
        headers = self._options.headers_with(authorization)
        if request.wait_s:
            return await self._post(request, headers)
        async with self._free:
            return await self._post(request, headers)

    async def close(self) -> None:
        """Close the connections, for good."""
        self._closed = True
        session, self._session = self._session, None
        if session is not None:
            await session.close()

    async def _post(self, request: Request, headers: dict[str, str]) -> Reply:
        # If the caller kept the loop busy, the loop has not yet noticed which idle connections the service has closed.
        # It polls the sockets at the end of this turn, and closes those connections in the next one.
        for _ in range(2):
            await asyncio.sleep(0)
        within_s = self._options.timeout_s + request.wait_s
        try:
            return await self._exchange(request, headers, within_s)
        except aiohttp.ConnectionTimeoutError:
            message = f"{request.url}: no connection within {self._options.connect_timeout_s:g} s"
            raise Unreachable(message, maybe_done=False) from None
        except _NO_CONNECTION as error:
            raise Unreachable(f"{request.url}: {words(error)}", maybe_done=False) from None
        except TimeoutError:
            raise Unreachable(f"{request.url}: no answer within {within_s:g} s", maybe_done=True) from None
        except (aiohttp.ClientError, OSError) as error:
            if request.url not in self._known and await asyncio.to_thread(
                speaks_tls, request.url, self._options.connect_timeout_s
            ):
                raise Unreachable(f"{request.url}: {SPEAKS_TLS}", maybe_done=False) from None
            raise Unreachable(f"{request.url}: no answer: {words(error)}", maybe_done=True) from None

    async def _exchange(self, request: Request, headers: dict[str, str], within_s: float) -> Reply:
        # aiohttp warns about large bytes objects, which it writes at once; it sends a file in chunks.
        body = request.data if len(request.data) < _LARGE_BYTES else io.BytesIO(request.data)
        connect_s = self._options.connect_timeout_s
        # `total` bounds a reply that trickles in; a shorter `total` could expire before the connection is open.
        timeout = aiohttp.ClientTimeout(total=connect_s + within_s, connect=connect_s, sock_read=within_s)
        async with self._open_session().post(
            command_url(request.url), data=body, headers=headers, timeout=timeout, allow_redirects=False
        ) as response:
            self._known.add(request.url)
            return Reply(response.status, response.headers.get("Retry-After"), await response.read())

    def _open_session(self) -> aiohttp.ClientSession:
        if self._closed:
            raise RuntimeError("the client is closed")
        loop = asyncio.get_running_loop()
        if self._session is None:
            self._loop = loop
            self._session = aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(
                    limit=0, keepalive_timeout=_IDLE_S, ssl=self._options.access.tls or True
                ),
                cookie_jar=aiohttp.DummyCookieJar(),
            )
        if self._loop is not loop:
            raise RuntimeError("the client was used in another event loop: create one in each")
        return self._session
