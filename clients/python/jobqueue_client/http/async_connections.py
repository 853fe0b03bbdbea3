"""Keep-alive connections for asyncio, on aiohttp."""

from __future__ import annotations

import asyncio
import io

import aiohttp

from jobqueue_client.errors import Unreachable
from jobqueue_client.http import Reply, Request
from jobqueue_client.options import Options

_NO_CONNECTION = (
    aiohttp.ClientConnectorError,
    aiohttp.ConnectionTimeoutError,
    aiohttp.InvalidURL,
    UnicodeError,  # an invalid host name
)
_IDLE_S = 10.0
_CONCURRENT_REQUESTS = 100
_LARGE_BYTES = 1 << 20


class AsyncConnections:
    """The connections to one service, in one event loop."""

    def __init__(self, options: Options) -> None:
        self._options = options
        self._session: aiohttp.ClientSession | None = None
        # Thousands of concurrent calls share this many connections, and queue before their time-outs begin. Pops that
        # wait for a job do not count: they would hold up the adds that are to end their wait.
        self._free = asyncio.Semaphore(_CONCURRENT_REQUESTS)

    async def post(self, request: Request) -> Reply:
        """Send a request and read its reply. Raises Unreachable."""
        if request.wait_s:
            return await self._post(request)
        async with self._free:
            return await self._post(request)

    async def close(self) -> None:
        """Close the connections. The next request opens new ones."""
        session, self._session = self._session, None
        if session is not None:
            await session.close()

    async def _post(self, request: Request) -> Reply:
        # If the caller kept the loop busy, the loop has not yet noticed which idle connections the service has closed.
        # It polls the sockets at the end of this turn, and closes those connections in the next one.
        for _ in range(2):
            await asyncio.sleep(0)
        within_s = self._options.timeout_s + request.wait_s
        try:
            return await self._exchange(request.data, within_s)
        except _NO_CONNECTION as error:
            raise Unreachable(f"{self._options.url}: no connection: {error}", maybe_done=False) from None
        except TimeoutError:
            message = f"{self._options.url}: no answer within {within_s:g} s"
            raise Unreachable(message, maybe_done=True) from None
        except (aiohttp.ClientError, OSError) as error:
            raise Unreachable(f"{self._options.url}: no answer: {error!r}", maybe_done=True) from None

    async def _exchange(self, data: bytes, within_s: float) -> Reply:
        # aiohttp warns about large bytes objects, which it writes at once; it sends a file in chunks.
        body = data if len(data) < _LARGE_BYTES else io.BytesIO(data)
        connect_s = self._options.connect_timeout_s
        # `total` bounds a reply that trickles in; a shorter one could expire before there is a connection.
        timeout = aiohttp.ClientTimeout(total=connect_s + within_s, connect=connect_s, sock_read=within_s)
        async with self._open_session().post(
            self._options.command_url, data=body, timeout=timeout, allow_redirects=False
        ) as response:
            return Reply(response.status, response.headers.get("Retry-After"), await response.read())

    def _open_session(self) -> aiohttp.ClientSession:
        if self._session is None:
            self._session = aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(limit=0, keepalive_timeout=_IDLE_S),
                cookie_jar=aiohttp.DummyCookieJar(),
                headers=self._options.all_headers,
            )
        return self._session
