"""A dialect over HTTP: where its requests come in, who may make them, and how its replies are sent.

Every request takes the complete path, through aiohttp. On the service's own port, the dialect handles the requests
below its path that none of the service's own pages answers; on its own port, it handles every path except those of the
health checks.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable
from functools import partial
from typing import Any, cast
from urllib.parse import unquote_plus

from aiohttp import web

from buckets import Job
from buckets.errors import NoRoom
from jobqueue.access.authentication import Entry
from jobqueue.access.caller import CALLER
from jobqueue.access.grants import GRANT, NOBODY, OPEN, USER, Grant
from jobqueue.errors import Forbidden, ShuttingDown
from jobqueue.protocols import HttpDialect, Reply, Request
from jobqueue.tracing import HEADER, TRACE, traceparent
from jobqueue.web.answering import AiohttpClient, body_of, respond
from jobqueue.web.peer import Peer
from jobqueue.wires.stream import allows

_SLASHES = re.compile("/{2,}")
_TOKEN_SEGMENT = re.compile("/~([^/]*)(/.*|)")
_BEARER = re.compile("Bearer +(.+)", re.IGNORECASE)
_TOKEN_PARAMETER = "token"  # noqa: S105 - its name


class Mount:
    """One dialect on the ports of a process. `entry`: says who may come in; `name_request`: returns the id of a
    request, from the id that its client sent; `is_closing`: returns True if the service is stopping."""

    def __init__(
        self,
        dialect: HttpDialect[Any],
        entry: Entry,
        name_request: Callable[[str], str],
        is_closing: Callable[[], bool],
    ) -> None:
        self._dialect = dialect
        self._entry = entry
        self._name_request = name_request
        self._is_closing = is_closing

    def cut(self, request: web.Request) -> str | None:
        """For a request to the service's own port, its path below that of the dialect, or None if it is not below
        it."""
        base: str = self._dialect.options.path
        path = _path_of(request)
        if base in ("", "/"):
            return path if base else None
        below = path == base or path.startswith(f"{base}/")
        return (path[len(base) :] or "/") if below else None

    def is_allowed(self, peer: object) -> bool:
        """Whether a client may use the dialect, by its address."""
        return allows(self._dialect.options.allow, peer)

    async def on_own_port(self, request: web.Request) -> web.StreamResponse:
        """Answer a request to the port of the dialect."""
        return await self.answer(request, _path_of(request))

    async def answer(self, request: web.Request, path: str) -> web.StreamResponse:
        """Answer a request. `path`: its path below that of the dialect."""
        request_id = self._name_request(request.headers.get("X-Request-Id", ""))
        client = AiohttpClient(request, self._is_closing)
        await respond(self._dialect.tools.give_back, partial(self._reply, request, path), request_id, client)
        return client.response

    async def _reply(self, request: web.Request, path: str, reserved: list[Job]) -> Reply:
        path, query, token = _without_token(path, request)
        asked = Request(request.method, path, query, request.headers, b"")
        try:
            self._check(request, asked, token)
            asked.body = await body_of(request)
            return await self._dialect.handle(asked, reserved)
        except Exception as error:
            reply = self._dialect.refuse(error, asked)
        await asyncio.sleep(self._dialect.pause_s(asked))
        return reply

    def _check(self, request: web.Request, asked: Request, token: str | None) -> None:
        """Raises the reason why a request is not handled."""
        if not self.is_allowed(request.get_extra_info("peername")):
            raise Forbidden()
        if cast(Peer, CALLER.get()).is_surplus:
            raise NoRoom("this process has as many connections as it may have")
        USER.set("")
        TRACE.set(traceparent(asked.headers.get(HEADER)))
        GRANT.set(NOBODY)
        GRANT.set(self._admit(asked, token))
        if self._is_closing():
            raise ShuttingDown()

    def _admit(self, asked: Request, shown: str | None) -> Grant:
        """What a request may do, by the token that it shows."""
        given = None if shown is None else self._dialect.token_in(shown)
        is_open = self._dialect.is_open(asked)
        if is_open and (given is None or self._entry.is_open):
            return OPEN if self._entry.is_open else NOBODY
        return self._entry.dialect_grant(given, self._dialect.options, cast(Peer, CALLER.get()).host)


def _path_of(request: web.Request) -> str:
    """The path of a request as it came, but with single slashes. Bytes that are not UTF-8, which one of aiohttp's two
    parsers lets through, become U+FFFD."""
    path = _bytes(request.raw_path.partition("?")[0].partition("#")[0]).decode("utf-8", "replace")
    if not path.startswith("/"):  # a whole URL, as it is sent to a proxy
        path = "/" + path.partition("://")[2].partition("/")[2]
    return _SLASHES.sub("/", path)


def _without_token(path: str, request: web.Request) -> tuple[str, str, str | None]:
    """The path and the query of a request, both without a token, and the token that the request shows, or None."""
    segment = _TOKEN_SEGMENT.fullmatch(path)
    if segment:
        path = segment[2] or "/"
    query = request.raw_path.partition("?")[2].partition("#")[0]
    parts = [part.partition("=") for part in query.split("&")] if query else []
    shown = [value for name, _, value in parts if name == _TOKEN_PARAMETER]
    query = "&".join("".join(part) for part in parts if part[0] != _TOKEN_PARAMETER)
    bearer = _BEARER.fullmatch(", ".join(request.headers.getall("Authorization", ())))  # several headers are no token
    tokens = (
        bearer and bearer[1],
        request.headers.get("X-Token"),
        unquote_plus(shown[0]) if shown else None,
        unquote_plus(segment[1].replace("+", "%2B")) if segment else None,
    )
    return path, query, next((token for token in tokens if token), None)


def _bytes(text: str) -> bytes:
    return text.encode("utf-8", "surrogateescape")
