"""The aiohttp application: the routes, the request's id, and what happens when a client is gone."""

from __future__ import annotations

import asyncio
import itertools
import re
import secrets
from collections.abc import Callable

import orjson
import structlog
from aiohttp import web
from aiohttp.http_exceptions import HttpProcessingError

from buckets import Job
from buckets.errors import JobQueueError
from jobqueue.commands import Commands
from jobqueue.engine import Engine
from jobqueue.errors import BadJson, ShuttingDown, TooLarge
from jobqueue.logs import REQUEST
from jobqueue.metrics.process import Metrics
from jobqueue.metrics.scrape import CONTENT_TYPE_LATEST, Scrape
from jobqueue.protocols.command import handler
from jobqueue.protocols.command.handler import Reply
from jobqueue.reference import openapi
from jobqueue.settings import Settings
from jobqueue.web.connection import Send

log = structlog.get_logger()

_REQUEST_ID = re.compile(r"[A-Za-z0-9._:-]{1,64}")


class Web:
    """The HTTP side of one process."""

    def __init__(
        self,
        engine: Engine,
        settings: Settings,
        readiness: Callable[[], dict[str, bool]],
        metrics: Metrics,
        scrape: Scrape,
    ) -> None:
        self._engine = engine
        self._commands = Commands(engine, metrics, settings.redis_timeout_s)
        self._most_body_bytes = settings.max_body_bytes
        self._readiness = readiness
        self._scrape = scrape
        self._prefix = secrets.token_hex(4)
        self._numbers = itertools.count(1)
        self._description = orjson.dumps(openapi.description())
        self.closing = False
        self.most_bytes = settings.max_request_bytes

    def application(self) -> web.Application:
        """The routes."""
        application = web.Application(client_max_size=self.most_bytes)
        application.router.add_post("/command", self._command)
        application.router.add_get("/healthz", self._healthz)
        application.router.add_get("/readyz", self._readyz)
        application.router.add_get("/openapi.json", self._openapi)
        application.router.add_get("/metrics", self._scraped)
        return application

    def _request_id(self, given: str) -> str:
        """The client's own, where it sent a decent one."""
        return given if given and _REQUEST_ID.fullmatch(given) else f"{self._prefix}-{next(self._numbers):x}"

    async def answer(self, data: bytes | JobQueueError, given_id: str, send: Send) -> None:
        """Answer a request to /command, whichever way it came: its body, or why nobody looks into it.

        When it is cancelled, or the answer cannot be sent, its client is gone: the jobs reserved for it go back.
        """
        request_id = self._request_id(given_id)
        REQUEST.set(request_id)
        reserved: list[Job] = []
        try:
            if isinstance(data, bytes):
                reply = await handler.handle(self._commands, data, self._most_body_bytes, reserved)
            else:
                reply = handler.refuse(self._commands, data)
            if reply.status >= 500:
                log.warning("request.failed", status=reply.status)
            if reserved:
                # Two turns of the loop: one reads what the sockets have, one acts on it. A client that hung up while
                # its pop was on its way is noticed here (we are cancelled), before its job goes to a dead socket.
                await asyncio.sleep(0)
                await asyncio.sleep(0)
            await send(reply, request_id)
        except ConnectionError:
            self._engine.give_back(reserved)
        except asyncio.CancelledError:
            self._engine.give_back(reserved)
            raise

    async def _command(self, request: web.Request) -> web.StreamResponse:
        """The way of a request that is not plain."""
        response = web.Response(content_type="application/json")

        async def send(reply: Reply, request_id: str) -> None:
            """Write the answer here, not in aiohttp, to learn whether it could be written."""
            response.set_status(reply.status)
            response.body = reply.body
            response.headers["X-Request-Id"] = request_id
            if reply.retry_after is not None:
                response.headers["Retry-After"] = str(reply.retry_after)
            if self.closing:
                response.force_close()
            await response.prepare(request)
            await response.write_eof()

        await self.answer(await self._body(request), request.headers.get("X-Request-Id", ""), send)
        return response

    async def _body(self, request: web.Request) -> bytes | JobQueueError:
        """What a request holds, or why it is refused."""
        if self.closing:
            return ShuttingDown()
        try:
            return await request.read()
        except web.HTTPRequestEntityTooLarge:
            return TooLarge(f"the request is larger than the {self.most_bytes} bytes that are allowed")
        except (web.RequestPayloadError, HttpProcessingError):  # a bad gzip, a bad chunk
            return BadJson("the request's body is damaged")

    async def _healthz(self, request: web.Request) -> web.Response:
        return web.json_response({"status": "up"})

    async def _openapi(self, request: web.Request) -> web.Response:
        return web.Response(body=self._description, content_type="application/json")

    async def _scraped(self, request: web.Request) -> web.Response:
        return web.Response(body=await self._scrape.text(), headers={"Content-Type": CONTENT_TYPE_LATEST})

    async def _readyz(self, request: web.Request) -> web.Response:
        checks = self._readiness() | {"accepting": not self.closing}
        ready = all(checks.values())
        return web.Response(
            status=200 if ready else 503,
            body=orjson.dumps({"ready": ready, "checks": checks}),
            content_type="application/json",
        )
