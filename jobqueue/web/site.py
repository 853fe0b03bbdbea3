"""The HTTP side of a process: routes, request ids, and what happens to the jobs of a client that is gone."""

from __future__ import annotations

import itertools
import re
import secrets
from collections.abc import Awaitable, Callable, Mapping
from http import HTTPStatus
from typing import Any

import orjson
import structlog
from aiohttp import web
from aiohttp.http_exceptions import HttpProcessingError

from buckets import Job
from buckets.errors import JobQueueError
from jobqueue.access.hang_ups import close_if_hung_up
from jobqueue.caller import Cancellable
from jobqueue.commands.carrying_out import Commands
from jobqueue.engine.engine import Engine
from jobqueue.errors import BadJson, ShuttingDown, TooLarge
from jobqueue.logs import REQUEST
from jobqueue.metrics.process import Metrics
from jobqueue.metrics.scrape import CONTENT_TYPE_LATEST, Scrape
from jobqueue.protocols import NATIVE, PROTOCOLS, HttpDialect, Protocol, Reply, load
from jobqueue.protocols.command.fast_path import FastPath
from jobqueue.protocols.command.in_flight import Desk, Work
from jobqueue.reference import openapi
from jobqueue.settings import Settings
from jobqueue.web.fast_path import SERVER
from jobqueue.web.mount import Mount
from jobqueue.web.port import Client, SimpleClient

log = structlog.get_logger()

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]

_HEALTH = ("/healthz", "/readyz")
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
        protocols: Mapping[str, str] = PROTOCOLS,
    ) -> None:
        self._engine = engine
        commands = Commands(engine, metrics, settings.redis_timeout_s)
        self._protocols = {name: load(name, protocols)(commands, settings) for name in protocols}
        self._native = self._protocols[NATIVE]
        desk = Desk(engine, commands, self._native.render, self._respond)
        self._fast_path = FastPath(desk, settings.max_body_bytes)
        self._readiness = readiness
        self._scrape = scrape
        self._prefix = secrets.token_hex(4)
        self._numbers = itertools.count(1)
        self._pages = {
            "/": self._root,
            "/healthz": self._healthz,
            "/readyz": self._readyz,
            "/metrics": self._scraped,
            "/openapi.json": self._openapi,
        }
        self._mounts: list[Mount] = []
        self._description = orjson.dumps(openapi.description())
        self.closing = False
        self.most_bytes = settings.max_request_bytes

    def mount(self, dialect: HttpDialect[Any]) -> tuple[web.Application, Callable[[object], bool]]:
        """Let a dialect answer below its path. Returns the application for its own port, and whether the client with
        an address may connect there."""
        mount = Mount(dialect, self._request_id, lambda: self.closing)
        self._mounts.append(mount)
        application = web.Application(client_max_size=self.most_bytes)
        for path in _HEALTH:
            application.router.add_get(path, self._pages[path])
        application.router.add_route("*", "/{path:.*}", mount.on_own_port)
        application.on_response_prepare.append(_name_server)
        return application, mount.is_allowed

    def application(self) -> web.Application:
        """The routes."""
        application = web.Application(
            client_max_size=self.most_bytes, middlewares=[self._below_mounts] if self._mounts else []
        )
        for protocol in self._protocols.values():
            application.router.add_post(protocol.path, self._complete_path(protocol))
        for path, handler in self._pages.items():
            application.router.add_get(path, handler)
        application.on_response_prepare.append(_name_server)
        return application

    @web.middleware
    async def _below_mounts(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        """Pass a request that none of the service's own pages answers to the dialect whose path it is below."""
        unknown = request.match_info.http_exception
        if unknown is not None and unknown.status == HTTPStatus.NOT_FOUND:
            below = [(mount, path) for mount in self._mounts if (path := mount.cut(request)) is not None]
            if below:  # the longest path of a dialect leaves the shortest
                mount, path = min(below, key=lambda each: len(each[1]))
                return await mount.answer(request, path)
        return await handler(request)

    def _request_id(self, given: str) -> str:
        """The client's own if it is well formed, else a new one."""
        return given if given and _REQUEST_ID.fullmatch(given) else f"{self._prefix}-{next(self._numbers):x}"

    def begin(self, data: bytes, given_id: str, connection: SimpleClient) -> Cancellable | None:
        """Begin to answer a simple request: see `Answerer`."""
        request_id = self._request_id(given_id)
        begun = self._fast_path.begin(data, request_id, connection)
        if begun is None:
            connection.complete(self.answer(data, request_id, connection))
        return begun

    async def answer(
        self, data: bytes | JobQueueError, request_id: str, client: Client, protocol: Protocol[object] | None = None
    ) -> None:
        """Answer a request by its body, or by the reason why nobody reads it. `protocol`: the native one by default.

        When this is cancelled, or the answer cannot be sent, the client is gone: the jobs reserved for it go back.
        """
        read_by = protocol or self._native

        async def work(reserved: list[Job]) -> Reply:
            return await read_by.handle(data, reserved) if isinstance(data, bytes) else read_by.refuse(data)

        await self._respond(work, request_id, client)

    async def _respond(self, work: Work, request_id: str, client: Client) -> None:
        """Answer a request with the reply that some work makes: see `answer`."""
        REQUEST.set(request_id)
        reserved: list[Job] = []
        try:
            reply = await work(reserved)
            if reply.status >= 500:
                log.warning("request.failed", status=reply.status)
            await client.send(reply, request_id, has_jobs=bool(reserved))
        except ConnectionError:
            self._engine.give_back(reserved)
        except BaseException:
            self._engine.give_back(reserved)
            raise

    def _complete_path(self, protocol: Protocol[object]) -> Callable[[web.Request], Awaitable[web.StreamResponse]]:
        """The handler of requests that are not simple."""

        async def handle(request: web.Request) -> web.StreamResponse:
            client = _AiohttpClient(self, request)
            request_id = self._request_id(request.headers.get("X-Request-Id", ""))
            await self.answer(await self._body(request), request_id, client, protocol)
            return client.response

        return handle

    async def _body(self, request: web.Request) -> bytes | JobQueueError:
        """The body of a request, or why it is refused."""
        if self.closing:
            return ShuttingDown()
        try:
            return await request.read()
        except web.HTTPRequestEntityTooLarge:
            return TooLarge(f"the request is too large; at most {self.most_bytes} bytes are allowed")
        except (web.RequestPayloadError, HttpProcessingError):  # a bad gzip, a bad chunk
            return BadJson("the request's body is damaged")

    async def _root(self, request: web.Request) -> web.Response:
        listed = {"service": "jobqueue", "commands": self._native.path, "paths": [*self._pages][1:]}
        return web.Response(body=orjson.dumps(listed), content_type="application/json")

    async def _healthz(self, request: web.Request) -> web.Response:
        return web.Response(body=b'{"status":"up"}', content_type="application/json")

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


async def _name_server(request: web.Request, response: web.StreamResponse) -> None:
    response.headers["Server"] = SERVER


class _AiohttpClient:
    """The client of a request on the complete path. Its answer is written here, not by aiohttp's handler, to learn
    whether it could be."""

    def __init__(self, site: Web, request: web.Request) -> None:
        self._site = site
        self._request = request
        self.response = web.Response()

    async def send(self, reply: Reply, request_id: str, *, has_jobs: bool) -> None:
        """Write the answer: see `Client`."""
        if has_jobs:
            close_if_hung_up(self._request.transport)
        response = self.response
        response.set_status(reply.status)
        response.body = reply.body
        response.content_type = reply.content_type
        response.headers["X-Request-Id"] = request_id
        if reply.retry_after is not None:
            response.headers["Retry-After"] = str(reply.retry_after)
        if self._site.closing:
            response.force_close()
        await response.prepare(self._request)
        await response.write_eof()
