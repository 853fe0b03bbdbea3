"""Refusals of requests that aiohttp reads, whatever their port and path.

They are JSON, with a code, where aiohttp would answer with text: for an unknown path or method, for bytes that are not
HTTP, and for an exception in a handler. The guard refuses the requests of foreign browsers. Requests that the fast path
reads come from no browser: see `fast_path.read`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from http import HTTPStatus
from typing import cast

import orjson
from aiohttp import web

from buckets.errors import JobQueueError
from jobqueue.access.browsers import Browsers, is_preflight, made_by, read_by
from jobqueue.access.caller import CALLER
from jobqueue.commands.answers import failure
from jobqueue.errors import BAD_HTTP_STATUS, STATUS, BadHttp, EncodedBody, MethodNotAllowed, NoSuchPath
from jobqueue.logs import Sparing
from jobqueue.metrics.process import Metrics
from jobqueue.protocols import Reply
from jobqueue.web.fast_path import CHALLENGE, SERVER, UNAUTHORIZED
from jobqueue.web.peer import Peer

Handler = Callable[[web.BaseRequest], Awaitable[web.StreamResponse]]


def refusal(error: Exception) -> Reply:
    """The reply for an error; an unexpected one is logged."""
    answer = failure(error)
    status = BAD_HTTP_STATUS.get(type(error)) or STATUS[answer["code"]]
    return Reply(status, orjson.dumps(answer), answer.get("retry_after"))


def response_to(error: Exception, headers: dict[str, str] | None = None, *, closes: bool = False) -> web.Response:
    """The answer for an error. `closes`: the connection is closed after it, as always after one for want of a token."""
    reply = refusal(error)
    named = {"Server": SERVER, **(headers or {})}
    refused = web.Response(status=reply.status, body=reply.body, content_type=reply.content_type, headers=named)
    if reply.status == UNAUTHORIZED:
        refused.headers.update(CHALLENGE)
    if closes or reply.status == UNAUTHORIZED:
        refused.force_close()
    return refused


def in_json(handler: Handler) -> Handler:
    """A handler that refuses an unknown path, method or expectation in JSON."""

    async def handle(request: web.BaseRequest) -> web.StreamResponse:
        try:
            return await handler(request)
        except web.HTTPException as error:
            kind = {404: NoSuchPath, 405: MethodNotAllowed}.get(error.status, BadHttp)
            return response_to(kind(), {name: value for name, value in error.headers.items() if name == "Allow"})

    return handle


class Refusing(web.RequestHandler):
    """aiohttp's handler of a connection, but it reports in JSON what it cannot read, and what failed."""

    __slots__ = ()

    def handle_error(
        self, request: web.BaseRequest, status: int = 500, exc: BaseException | None = None, message: str | None = None
    ) -> web.StreamResponse:
        """Neither sends nor logs `message`, which contains parts of the request."""
        if request.writer.output_size > 0:
            raise ConnectionError("an answer has already begun")
        error = exc if isinstance(exc, Exception) else TimeoutError()  # aiohttp has none when a handler timed out
        return response_to(error if status >= 500 else BadHttp(), closes=True)


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
