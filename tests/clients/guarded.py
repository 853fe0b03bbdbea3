"""A server that accepts one token only, and otherwise answers what a test says."""

from __future__ import annotations

import json
import ssl
from collections.abc import Callable
from typing import Any, NamedTuple, Self

from aiohttp import web

UNAUTHORIZED = {"success": False, "id": None, "error": "no valid token", "code": "UNAUTHORIZED"}
OLD = "jqt_orders01Zz9Zz9Zz9Zz9Zz9Zz9Zz9Zz9Zz9Zz9Zz9Zz9Zz9Zz9x3PwsY5"
NEW = "jqt_00000002sssssssssssssssssssssssssssssssssssssssssss0YwW25"  # its checksum begins with the digit 0

Answer = dict[str, Any]


class Request(NamedTuple):
    """A request as received."""

    headers: dict[str, str]
    commands: list[dict[str, Any]]


class Guarded:
    """Use with `async with`. `answer` gives the answer to one command, and may change what is `accepted`."""

    def __init__(
        self, answer: Callable[[Answer], Answer], accepted: str = OLD, tls: ssl.SSLContext | None = None
    ) -> None:
        self._answer = answer
        self.accepted = accepted
        self._tls = tls
        self.requests: list[Request] = []
        self.url = ""

    async def __aenter__(self) -> Self:
        self._runner = web.ServerRunner(web.Server(self._handle), shutdown_timeout=0.1)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", 0, ssl_context=self._tls)
        await site.start()
        self.url = f"{'https' if self._tls else 'http'}://127.0.0.1:{self._runner.addresses[0][1]}"
        return self

    async def __aexit__(self, *exception: object) -> None:
        await self._runner.cleanup()

    @property
    def shown(self) -> list[str | None]:
        """The header Authorization of each request."""
        return [request.headers.get("Authorization") for request in self.requests]

    async def _handle(self, request: web.BaseRequest) -> web.StreamResponse:
        asked = json.loads(await request.read())
        commands = asked if isinstance(asked, list) else [asked]
        self.requests.append(Request(dict(request.headers), commands))
        if request.headers.get("Authorization") != f"Bearer {self.accepted}":
            return web.json_response(UNAUTHORIZED, status=401)
        answers = [self._answer(command) for command in commands]
        if isinstance(asked, list):
            return web.json_response(answers)
        status = answers[0].pop("status", 200)
        return web.json_response(answers[0], status=status)
