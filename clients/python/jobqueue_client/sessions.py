"""HTTP for asyncio, on aiohttp."""

from __future__ import annotations

import asyncio
import io

import aiohttp

from jobqueue_client.errors import Unreachable
from jobqueue_client.exchange import Post
from jobqueue_client.options import Options
from jobqueue_client.replies import Reply

_NO_CONNECTION = (
    aiohttp.ClientConnectorError,
    aiohttp.ConnectionTimeoutError,
    aiohttp.InvalidURL,
    UnicodeError,  # a host name that cannot be one
)
_IDLE_S = 10.0
_AT_A_TIME = 100
_LARGE = 1 << 20


class Session:
    """The connections to one service, in one event loop."""

    def __init__(self, options: Options) -> None:
        self._options = options
        self._session: aiohttp.ClientSession | None = None
        # Thousands of calls at once share so many connections, and wait before their time-outs begin. Pops that wait
        # for a job do not count: they would keep the adds waiting that are to end them.
        self._lanes = asyncio.Semaphore(_AT_A_TIME)

    async def post(self, post: Post) -> Reply:
        """Send a request and read its reply. Raises Unreachable."""
        if post.wait_s:
            return await self._post(post)
        async with self._lanes:
            return await self._post(post)

    async def close(self) -> None:
        """Close the connections. The next request opens new ones."""
        session, self._session = self._session, None
        if session is not None:
            await session.close()

    async def _post(self, post: Post) -> Reply:
        # A caller that kept the loop busy comes before the loop sees which kept connections were closed meanwhile. It
        # looks after this turn, and acts upon it in the next, but after us.
        for _ in range(2):
            await asyncio.sleep(0)
        within_s = self._options.timeout_s + post.wait_s
        try:
            return await self._exchange(post.data, within_s)
        except _NO_CONNECTION as error:
            raise Unreachable(f"{self._options.url}: no connection: {error}", maybe_done=False) from None
        except TimeoutError:
            message = f"{self._options.url}: no answer within {within_s:g} s"
            raise Unreachable(message, maybe_done=True) from None
        except (aiohttp.ClientError, OSError) as error:
            raise Unreachable(f"{self._options.url}: no answer: {error!r}", maybe_done=True) from None

    async def _exchange(self, data: bytes, within_s: float) -> Reply:
        # aiohttp warns of large bytes that are sent in one piece; a file it sends piece by piece.
        body = data if len(data) < _LARGE else io.BytesIO(data)
        connect_s = self._options.connect_timeout_s
        # `total` holds for an answer that dribbles; a shorter one could end while there is no connection yet.
        timeout = aiohttp.ClientTimeout(total=connect_s + within_s, connect=connect_s, sock_read=within_s)
        async with self._opened().post(
            self._options.command_url, data=body, timeout=timeout, allow_redirects=False
        ) as response:
            return Reply(response.status, response.headers.get("Retry-After"), await response.read())

    def _opened(self) -> aiohttp.ClientSession:
        if self._session is None:
            self._session = aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(limit=0, keepalive_timeout=_IDLE_S),
                cookie_jar=aiohttp.DummyCookieJar(),
                headers=self._options.all_headers,
            )
        return self._session
