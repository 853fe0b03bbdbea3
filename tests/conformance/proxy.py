"""A proxy in front of the service that injects faults, to show what a client retries.

`faults` lists what happens to the next requests, one entry each. `pass`: nothing; `cut`: the service executes it, and
the answer is lost; `hold`: the service executes it, and the answer waits for `let_go`; `drop`: it never reaches the
service; `hang`: no answer arrives; `page`: a proxy's 502 page; an object with `status` and `answer`: that answer, as if
from another instance. Later requests pass.
"""

from __future__ import annotations

import asyncio
import json
import ssl
import time
from collections.abc import Mapping
from typing import Any, NamedTuple

import aiohttp
from aiohttp import web

Fault = str | dict[str, Any]
_UNAUTHORIZED = {"success": False, "id": None, "error": "a token is needed", "code": "UNAUTHORIZED"}


class Request(NamedTuple):
    """A request as received."""

    when: float  # by time.monotonic()
    commands: list[dict[str, Any]]
    headers: Mapping[str, str]


class Proxy:
    """Use with `async with`."""

    def __init__(self, target: str, tls: ssl.SSLContext | None = None) -> None:
        self._target = target
        self._tls = tls
        self.faults: list[Fault] = []
        self.wanted_token: str | None = None
        """Without it, a request is refused as UNAUTHORIZED."""
        self.refused = 0
        """The number of these refusals."""
        self.requests: list[Request] = []
        self.let_go = asyncio.Event()
        self.url = ""

    async def __aenter__(self) -> Proxy:
        self._session = aiohttp.ClientSession()
        server = web.Server(self._handle, handler_cancellation=True)
        self._runner = web.ServerRunner(server, shutdown_timeout=0.1)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", 0, ssl_context=self._tls)
        await site.start()
        host, port = self._runner.addresses[0][:2]
        self.url = f"{'https' if self._tls else 'http'}://{host}:{port}"
        return self

    async def __aexit__(self, *exception: object) -> None:
        await self._runner.cleanup()
        await self._session.close()

    async def _handle(self, request: web.BaseRequest) -> web.StreamResponse:
        data = await request.read()
        asked = json.loads(data)
        commands = asked if isinstance(asked, list) else [asked]
        self.requests.append(Request(time.monotonic(), commands, request.headers))
        if self.wanted_token and request.headers.get("Authorization") != f"Bearer {self.wanted_token}":
            self.refused += 1
            return web.json_response(_UNAUTHORIZED, status=401)
        return await self._meet(request, data)

    async def _meet(self, request: web.BaseRequest, data: bytes) -> web.StreamResponse:
        match self.faults.pop(0) if self.faults else "pass":
            case "drop":
                return _cut(request)
            case "cut":
                await self._forward(data)
                return _cut(request)
            case "hold":
                answer = await self._forward(data)
                await self.let_go.wait()
                return answer
            case "hang":
                await asyncio.Event().wait()
            case "page":
                return web.Response(status=502, text="<html>Bad Gateway</html>", content_type="text/html")
            case dict(told):
                return web.json_response(told["answer"], status=told["status"], headers=told.get("headers"))
        return await self._forward(data)

    async def _forward(self, data: bytes) -> web.Response:
        async with self._session.post(self._target + "/command", data=data) as answer:
            kept = {name: value for name, value in answer.headers.items() if name == "Retry-After"}
            return web.Response(
                status=answer.status, body=await answer.read(), content_type="application/json", headers=kept
            )


def _cut(request: web.BaseRequest) -> web.Response:
    assert request.transport
    request.transport.abort()
    return web.Response()
