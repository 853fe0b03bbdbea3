"""What every request meets that aiohttp reads, whatever its port and path, before anything looks at it. Those that the
fast path reads come from no browser: see `fast_path.read`."""

from __future__ import annotations

from http import HTTPStatus
from typing import cast

from aiohttp import web

from buckets.errors import JobQueueError
from jobqueue.access.browsers import Browsers, is_preflight, made_by, read_by
from jobqueue.access.caller import CALLER
from jobqueue.errors import EncodedBody
from jobqueue.logs import Sparing
from jobqueue.metrics.process import Metrics
from jobqueue.web.fast_path import SERVER
from jobqueue.web.peer import Peer
from jobqueue.web.refusals import Handler, response_to

_ORIGIN = web.RequestKey("origin", str)  # of the page that may read the answer
_MOST_SHOWN = 200  # characters of an origin in the log


class Guard:
    """Refuses what web pages may not ask for, and bodies that would have to be inflated."""

    def __init__(self, browsers: Browsers, metrics: Metrics, log: Sparing) -> None:
        self._browsers = browsers
        self._metrics = metrics
        self._log = log

    def before(self, handler: Handler) -> Handler:
        """A handler that is asked only what may be asked."""

        async def handle(request: web.BaseRequest) -> web.StreamResponse:
            peer = cast(Peer, CALLER.get())
            if request.headers.get("Content-Encoding", "identity").lower() != "identity":
                return response_to(EncodedBody(), closes=True)
            try:
                origin = self._browsers.judge(request.method, request.headers, on_loopback=peer.is_on_loopback)
            except JobQueueError as error:
                self._note(request, peer)
                return response_to(error)
            if not origin:
                return await handler(request)
            if is_preflight(request.method, request.headers):
                return web.Response(status=HTTPStatus.NO_CONTENT, headers={"Server": SERVER, **made_by(origin)})
            request[_ORIGIN] = origin
            return await handler(request)

        return handle

    def _note(self, request: web.BaseRequest, peer: Peer) -> None:
        self._metrics.judged("browser")
        origin = ascii(request.headers.get("Origin", ""))[1:-1][:_MOST_SHOWN]
        self._log.note(peer.host, verdict="browser", address=peer.host, origin=origin)


async def let_read(request: web.Request, response: web.StreamResponse) -> None:
    """Let a page of an allowed origin read the answer: for `on_response_prepare`."""
    if _ORIGIN in request:
        response.headers.update(read_by(request[_ORIGIN]))
