"""How a task answers a request, whether the fast path or aiohttp has read it: the log, and the jobs of a client that is
gone. Also the refusals of requests that aiohttp reads, on any port and path.

Refusals are JSON with a code where aiohttp would answer with text: for an unknown path or method, for bytes that are
not HTTP, and for an exception in a handler. The guard refuses browser requests from foreign origins. Requests that the
fast path reads never come from a browser: see `fast_path.read`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from http import HTTPStatus
from typing import cast

import orjson
import structlog
from aiohttp import web
from aiohttp.http_exceptions import HttpProcessingError

from buckets import Job
from buckets.errors import JobQueueError
from jobqueue.access.authentication import Entry, credential
from jobqueue.access.browsers import Browsers, is_preflight, made_by, read_by
from jobqueue.access.caller import CALLER
from jobqueue.access.connections import close_if_hung_up
from jobqueue.access.grants import GRANT, HEADER, NOBODY, USER, Grant, named
from jobqueue.commands.answers import failure
from jobqueue.errors import (
    BAD_HTTP_STATUS,
    STATUS,
    BadHttp,
    BadJson,
    EncodedBody,
    MethodNotAllowed,
    NoSuchPath,
    TooLarge,
)
from jobqueue.logs import REQUEST, Sparing
from jobqueue.metrics.process import Metrics
from jobqueue.protocols import Reply
from jobqueue.protocols.command.in_flight import Work
from jobqueue.tracing import HEADER as TRACEPARENT
from jobqueue.tracing import TRACE, traceparent
from jobqueue.web.fast_path import CHALLENGE, SERVER, UNAUTHORIZED
from jobqueue.web.peer import Peer
from jobqueue.web.port import Client

Handler = Callable[[web.BaseRequest], Awaitable[web.StreamResponse]]


def refusal(error: Exception) -> Reply:
    """The reply for an error; an unexpected one is logged."""
    answer = failure(error)
    status = BAD_HTTP_STATUS.get(type(error)) or STATUS[answer["code"]]
    return Reply(status, orjson.dumps(answer), answer.get("retry_after"))


def response_to(error: Exception, headers: dict[str, str] | None = None, *, closes: bool = False) -> web.Response:
    """The response for an error. `closes`: True to close the connection after it; it is always closed after a 401."""
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
    """aiohttp's handler of a connection, but with unreadable requests and failures reported in JSON."""

    __slots__ = ()

    def handle_error(
        self, request: web.BaseRequest, status: int = 500, exc: BaseException | None = None, message: str | None = None
    ) -> web.StreamResponse:
        """Neither sends nor logs `message`, which contains parts of the request."""
        if request.writer.output_size > 0:
            raise ConnectionError("an answer has already begun")
        error = exc if isinstance(exc, Exception) else TimeoutError()  # aiohttp passes none when a handler timed out
        return response_to(error if status >= 500 else BadHttp(), closes=True)


_ORIGIN = web.RequestKey("origin", str)  # the origin of the page that may read the answer
_MOST_SHOWN = 200  # characters of an origin in the log


class Guard:
    """Refuses requests that web pages may not make, and compressed bodies."""

    def __init__(self, browsers: Browsers, metrics: Metrics, log: Sparing) -> None:
        self._browsers = browsers
        self._metrics = metrics
        self._log = log

    def before(self, handler: Handler) -> Handler:
        """A handler that gets only the requests that are allowed."""

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


log = structlog.get_logger()


async def respond(give_back: Callable[[Sequence[Job]], None], work: Work, request_id: str, client: Client) -> None:
    """Answer a request with the reply that some work makes.

    When this is cancelled, or the answer cannot be made or sent, the jobs reserved for the client are returned.
    """
    REQUEST.set(request_id)
    reserved: list[Job] = []
    try:
        reply = await work(reserved)
        if reply.status >= 500 and reply.status != HTTPStatus.SERVICE_UNAVAILABLE:  # for 503, commands are logged
            log.warning("request.failed", status=reply.status)
        await client.send(reply, request_id, has_jobs=bool(reserved))
    except ConnectionError:
        give_back(reserved)
    except BaseException:
        give_back(reserved)
        raise


def let_in(entry: Entry, request: web.BaseRequest) -> Grant:
    """Let a request in. From here on, its commands are limited by the returned grant, and carried out in the name of
    the person that the request names. Raises Unauthorized, Unavailable, Forbidden, BadField."""
    GRANT.set(NOBODY)
    USER.set("")
    TRACE.set(traceparent(request.headers.get(TRACEPARENT)))
    shown = credential(", ".join(request.headers.getall("Authorization", ())))  # several headers are no token
    grant = entry.grant(shown, cast(Peer, CALLER.get()))
    USER.set(named(request.headers.getall(HEADER, ()), grant))
    GRANT.set(grant)
    return grant


async def body_of(request: web.Request) -> bytes:
    """The body of a request. Raises the reason why it cannot be read."""
    try:
        return await request.read()
    except web.HTTPRequestEntityTooLarge:
        raise TooLarge(f"the request is too large; at most {request.client_max_size} bytes are allowed") from None
    except (web.RequestPayloadError, HttpProcessingError):  # a bad chunk
        raise BadJson("the request's body is damaged") from None


class AiohttpClient:
    """The client of a request. Its answer is written here, not by aiohttp's handler, to learn whether it could be
    written."""

    def __init__(self, request: web.Request, is_closing: Callable[[], bool], *, challenges: bool = False) -> None:
        """`is_closing`: returns True if the service is stopping, so that the answer is the last one on its connection.
        `challenges`: True if a 401 says how to send a token, and is the last answer, too."""
        self._request = request
        self._is_closing = is_closing
        self._challenges = challenges
        self.response = web.Response()

    async def send(self, reply: Reply, request_id: str, *, has_jobs: bool) -> None:
        """Write the answer: see `Client`."""
        if has_jobs:
            close_if_hung_up(self._request.transport)
        response = self.response
        response.set_status(reply.status)
        response.body = reply.body
        response.headers["Content-Type"] = reply.content_type
        is_challenge = self._challenges and reply.status == UNAUTHORIZED
        if is_challenge:
            response.headers.update(CHALLENGE)
        response.headers["X-Request-Id"] = request_id
        if reply.retry_after is not None:
            response.headers["Retry-After"] = str(reply.retry_after)
        if self._is_closing() or is_challenge:
            response.force_close()
        await response.prepare(self._request)
        await response.write_eof()
