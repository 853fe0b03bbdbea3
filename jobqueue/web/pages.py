"""The pages of the service that are no commands, and who may see each."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Awaitable, Callable

import orjson
from aiohttp import web

from buckets.errors import JobQueueError
from jobqueue.access.entry import Entry
from jobqueue.access.rights import METRICS
from jobqueue.errors import Forbidden
from jobqueue.metrics.scrape import CONTENT_TYPE_LATEST, Scrape
from jobqueue.protocols import NATIVE, load
from jobqueue.reference import openapi
from jobqueue.web.answering import let_in
from jobqueue.web.refusals import response_to

HEALTHZ, READYZ = "/healthz", "/readyz"
_METRICS = "/metrics"

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


class Pages:
    """The pages of one process. Without tokens everybody sees them; else a token is asked for, but not for `/healthz`,
    the status of `/readyz`, and the paths of `open_paths`."""

    def __init__(
        self, entry: Entry, readiness: Callable[[], dict[str, bool]], scrape: Scrape, open_paths: tuple[str, ...]
    ) -> None:
        """`readiness`: the checks by name, and whether each passes."""
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
        commands = load(NATIVE).path
        return _json({"service": "jobqueue", "commands": commands, "paths": [*self.handlers][1:]})

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
        """Whether the checks are shown by their names."""
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
