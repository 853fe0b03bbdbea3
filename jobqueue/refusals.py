"""What is no request of ours is refused like everything else: in JSON, with a code.

aiohttp answers a path or method that there is not, bytes that are no HTTP, and an exception of ours, with text.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import orjson
from aiohttp import web
from aiohttp.web_protocol import RequestHandler

from jobqueue.answers import failure
from jobqueue.errors import STATUS, BadHttp, MethodNotAllowed, NoSuchPath

Handler = Callable[[web.BaseRequest], Awaitable[web.StreamResponse]]


def _response(error: Exception, headers: dict[str, str] | None = None) -> web.Response:
    told = failure(error)
    return web.Response(
        status=STATUS[told["code"]], body=orjson.dumps(told), content_type="application/json", headers=headers
    )


def _in_json(handler: Handler) -> Handler:
    """A path, a method or an expectation that there is not, told in JSON."""

    async def handle(request: web.BaseRequest) -> web.StreamResponse:
        try:
            return await handler(request)
        except web.HTTPException as error:
            kind = {404: NoSuchPath, 405: MethodNotAllowed}.get(error.status, BadHttp)
            return _response(kind(), {name: value for name, value in error.headers.items() if name == "Allow"})

    return handle


class _Connection(RequestHandler):
    """A connection that tells in JSON what it could not read, and what failed."""

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


class _Server(web.Server):
    def __call__(self) -> RequestHandler:
        return _Connection(self, loop=self._loop, **self._kwargs)


class Runner(web.AppRunner):
    """Runs an application with connections of ours. aiohttp has no public way to choose their class."""

    async def _make_server(self) -> web.Server:
        made: Any = await super()._make_server()
        return _Server(
            _in_json(made.request_handler),
            request_factory=made.request_factory,
            handler_cancellation=made.handler_cancellation,
            loop=asyncio.get_running_loop(),
            **made._kwargs,
        )
