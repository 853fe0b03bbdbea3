"""What is no request of ours is refused like everything else: in JSON, with a code.

aiohttp answers a path or method that there is not, bytes that are no HTTP, and an exception of ours, with text.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import orjson
from aiohttp import web
from aiohttp.web_protocol import RequestHandler

from jobqueue.answers import failure
from jobqueue.errors import STATUS, BadHttp, MethodNotAllowed, NoSuchPath, TooSlow
from jobqueue.protocols.command.handler import Reply

Handler = Callable[[web.BaseRequest], Awaitable[web.StreamResponse]]


def refusal(error: Exception) -> Reply:
    """The answer that an error becomes; one that is not ours is logged."""
    told = failure(error)
    status = 408 if isinstance(error, TooSlow) else STATUS[told["code"]]
    return Reply(status, orjson.dumps(told), told.get("retry_after"))


def _response(error: Exception, headers: dict[str, str] | None = None) -> web.Response:
    reply = refusal(error)
    return web.Response(status=reply.status, body=reply.body, content_type="application/json", headers=headers)


def in_json(handler: Handler) -> Handler:
    """A path, a method or an expectation that there is not, told in JSON."""

    async def handle(request: web.BaseRequest) -> web.StreamResponse:
        try:
            return await handler(request)
        except web.HTTPException as error:
            kind = {404: NoSuchPath, 405: MethodNotAllowed}.get(error.status, BadHttp)
            return _response(kind(), {name: value for name, value in error.headers.items() if name == "Allow"})

    return handle


class Refusing(RequestHandler):
    """A connection that tells in JSON what it could not read, and what failed."""

    __slots__ = ()

    def handle_error(
        self, request: web.BaseRequest, status: int = 500, exc: BaseException | None = None, message: str | None = None
    ) -> web.StreamResponse:
        """Not a word of `message` is said or logged: it holds parts of the request."""
        if request.writer.output_size > 0:
            raise ConnectionError("an answer has begun already")
        ours = exc if isinstance(exc, Exception) else TimeoutError()  # without one, it says, a handler timed out
        response = _response(ours if status >= 500 else BadHttp())
        response.force_close()
        return response
