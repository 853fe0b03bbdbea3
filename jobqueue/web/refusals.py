"""Refusals in JSON, with a code, where aiohttp would answer with text: for an unknown path or method, for bytes that
are not HTTP, and for an exception in a handler."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import orjson
from aiohttp import web

from jobqueue.commands.answers import failure
from jobqueue.errors import BAD_HTTP_STATUS, STATUS, BadHttp, MethodNotAllowed, NoSuchPath
from jobqueue.protocols import Reply
from jobqueue.web.fast_path import CHALLENGE, SERVER, UNAUTHORIZED

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
