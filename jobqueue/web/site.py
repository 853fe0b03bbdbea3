"""The HTTP side of a process: routes, request ids, and the pages besides the commands, with the rules for who may see
each."""

from __future__ import annotations

import asyncio
import functools
import itertools
import re
import secrets
from collections.abc import Awaitable, Callable
from functools import partial
from http import HTTPStatus
from typing import TYPE_CHECKING, Any

import orjson
from aiohttp import web

from buckets import Job
from buckets.errors import JobQueueError
from jobqueue.access.authentication import Entry
from jobqueue.access.caller import Cancellable
from jobqueue.access.grants import NOBODY
from jobqueue.access.tokens import METRICS
from jobqueue.commands.carrying_out import Commands
from jobqueue.engine.engine import Engine
from jobqueue.errors import Forbidden, ShuttingDown
from jobqueue.metrics.process import Metrics
from jobqueue.metrics.scrape import CONTENT_TYPE_LATEST, Scrape
from jobqueue.protocols import HttpDialect, Reply
from jobqueue.protocols.command.fast_path import FastPath
from jobqueue.protocols.command.in_flight import Desk
from jobqueue.protocols.command.protocol import CommandProtocol, Read
from jobqueue.reference import openapi
from jobqueue.settings import Settings
from jobqueue.web.answering import AiohttpClient, body_of, let_in, let_read, respond, response_to
from jobqueue.web.fast_path import SERVER, Head
from jobqueue.web.mount import Mount
from jobqueue.web.port import Client, SimpleClient

if TYPE_CHECKING:
    from jobqueue.commands.spans import CommandSpans

HEALTHZ, READYZ = "/healthz", "/readyz"
_METRICS = "/metrics"

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


class Pages:
    """The pages of one process. On a service without tokens, everybody sees them; otherwise a token is required, except
    for `/healthz`, the status of `/readyz`, and the paths in `open_paths`."""

    def __init__(
        self, entry: Entry, readiness: Callable[[], dict[str, bool]], scrape: Scrape, open_paths: tuple[str, ...]
    ) -> None:
        """`readiness`: returns whether each check passes, by its name."""
        self._entry = entry
        self._readiness = readiness
        self._scrape = scrape
        self._open_paths = open_paths
        self.handlers: dict[str, Handler] = {
            "/": self._with_token(self._root),
            HEALTHZ: self._healthz,
            READYZ: self._readyz,
            _METRICS: self._with_token(self._metrics, METRICS),
            "/openapi.json": self._with_token(self._openapi),
        }

    def _with_token(self, page: Handler, right: str = "") -> Handler:
        """A page for those who show a token, with this right if one is named."""

        async def handle(request: web.Request) -> web.StreamResponse:
            if request.path not in self._open_paths:
                try:
                    grant = let_in(self._entry, request)
                    if right and not grant.may(right):
                        raise Forbidden(f"the token lacks the right {right}", right=right)
                except JobQueueError as refused:
                    return response_to(refused)
            return await page(request)

        return handle

    async def _root(self, request: web.Request) -> web.Response:
        return _json({"service": "jobqueue", "commands": CommandProtocol.path, "paths": [*self.handlers][1:]})

    async def _healthz(self, request: web.Request) -> web.Response:
        return _json({"status": "up"})

    async def _openapi(self, request: web.Request) -> web.Response:
        # In a thread: the first time, it takes a sixth of a second.
        return web.Response(body=await asyncio.to_thread(_description), content_type="application/json")

    async def _metrics(self, request: web.Request) -> web.Response:
        return web.Response(body=await self._scrape.text(), headers={"Content-Type": CONTENT_TYPE_LATEST})

    async def _readyz(self, request: web.Request) -> web.Response:
        checks = self._readiness()
        ready = all(checks.values())
        shown = {"checks": checks} if self._may_look(request) else {}
        return _json({"ready": ready, **shown}, status=200 if ready else 503)

    def _may_look(self, request: web.Request) -> bool:
        """Whether a request may see the checks by their names."""
        if READYZ in self._open_paths or self._entry.is_open:
            return True
        if "Authorization" not in request.headers:
            return False
        try:
            grant = let_in(self._entry, request)
        except JobQueueError:
            return False
        return grant.may("stats")


@functools.cache
def _description() -> bytes:
    return orjson.dumps(openapi.description())


def _json(content: object, status: int = 200) -> web.Response:
    return web.Response(status=status, body=orjson.dumps(content), content_type="application/json")


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
        entry: Entry,
        protocol: type[CommandProtocol] = CommandProtocol,
        spans: CommandSpans | None = None,
    ) -> None:
        self._engine = engine
        deadline_s = settings.redis_timeout_s
        commands = Commands(engine, metrics, deadline_s, logs_views=settings.log_body_views, spans=spans)
        self._protocol = protocol(commands, settings)
        desk = Desk(engine, commands, self._protocol.render, partial(respond, engine.give_back))
        self._fast_path = FastPath(desk, settings.max_body_bytes)
        self._entry = entry
        self._for_all = entry.for_all
        self._prefix = secrets.token_hex(4)
        self._numbers = itertools.count(1)
        checks = partial(self._checks, readiness)
        self._pages = Pages(entry, checks, scrape, settings.open_paths).handlers
        self._mounts: list[Mount] = []
        self.closing = False
        self.most_bytes = settings.max_request_bytes

    def mount(self, dialect: HttpDialect[Any]) -> tuple[web.Application, Callable[[object], bool]]:
        """Let a dialect answer below its path. Returns the application for its own port, and the function that says
        whether the client with an address may connect there."""
        mount = Mount(dialect, self._entry, self._request_id, lambda: self.closing)
        self._mounts.append(mount)
        application = web.Application(client_max_size=self.most_bytes)
        for path in (HEALTHZ, READYZ):
            application.router.add_get(path, self._pages[path])
        application.router.add_route("*", "/{path:.*}", mount.on_own_port)
        application.on_response_prepare.extend((_name_server, let_read))
        return application, mount.is_allowed

    def application(self) -> web.Application:
        """The application with the routes of the service."""
        application = web.Application(
            client_max_size=self.most_bytes, middlewares=[self._below_mounts] if self._mounts else []
        )
        application.router.add_post(CommandProtocol.path, self._command)
        for path, handler in self._pages.items():
            application.router.add_get(path, handler)
        application.on_response_prepare.extend((_name_server, let_read))
        return application

    @web.middleware
    async def _below_mounts(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        """Pass a request that none of the service's own pages answers to the dialect whose path it is below."""
        unknown = request.match_info.http_exception
        if unknown is not None and unknown.status == HTTPStatus.NOT_FOUND:
            below = [(mount, path) for mount in self._mounts if (path := mount.cut(request)) is not None]
            if below:  # the dialect with the longest path leaves the shortest rest
                mount, path = min(below, key=lambda each: len(each[1]))
                return await mount.answer(request, path)
        return await handler(request)

    def _checks(self, readiness: Callable[[], dict[str, bool]]) -> dict[str, bool]:
        return readiness() | {"accepting": not self.closing}

    def _request_id(self, given: str) -> str:
        """The client's own request id if it is well formed, otherwise a new one."""
        return given if given and _REQUEST_ID.fullmatch(given) else f"{self._prefix}-{next(self._numbers):x}"

    def begin(self, data: bytes, head: Head, connection: SimpleClient) -> Cancellable | None:
        """Begin to answer a simple request: see `Answerer`."""
        request_id = self._request_id(head.request_id)
        connection.trace = head.trace
        try:
            grant = connection.grant = self._for_all or self._entry.grant(head.credential, connection)
        except JobQueueError as refused:
            connection.grant = NOBODY
            connection.complete(self.answer(refused, request_id, connection))
            return None
        begun = self._fast_path.begin(data, request_id, connection, grant)
        if begun is None or isinstance(begun, tuple):  # what was read of the request
            connection.complete(self.answer(data, request_id, connection, begun))
            return None
        return begun

    async def answer(
        self, data: bytes | JobQueueError, request_id: str, client: Client, found: Read | None = None
    ) -> None:
        """Answer a request: see `respond`. `data`: its body, or the reason why it is refused unread; `found`: what was
        already read of the body."""
        protocol = self._protocol

        async def work(reserved: list[Job]) -> Reply:
            return await protocol.handle(data, reserved, found) if isinstance(data, bytes) else protocol.refuse(data)

        await respond(self._engine.give_back, work, request_id, client)

    async def _command(self, request: web.Request) -> web.StreamResponse:
        """Answer a request for commands that is not simple."""
        client = AiohttpClient(request, lambda: self.closing, challenges=True)
        request_id = self._request_id(request.headers.get("X-Request-Id", ""))
        await self.answer(await self._body(request), request_id, client)
        return client.response

    async def _body(self, request: web.Request) -> bytes | JobQueueError:
        """The body of a request that may come in, or why it is refused."""
        try:
            let_in(self._entry, request)
            return ShuttingDown() if self.closing else await body_of(request)
        except JobQueueError as refused:
            return refused


async def _name_server(request: web.Request, response: web.StreamResponse) -> None:
    response.headers["Server"] = SERVER
