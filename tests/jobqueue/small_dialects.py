"""Two small dialects: one over HTTP, one on a TCP and UDP port. They take the places of real ones."""

from __future__ import annotations

import asyncio
import contextlib
from typing import Any

import orjson

from buckets import Job
from jobqueue.errors import STATUS
from jobqueue.protocols import HttpDialect, Reply, Request, SocketDialect
from jobqueue.schema import params
from jobqueue.wires.stream import allows

HTTP = "tests.jobqueue.small_dialects:Plain"
SOCKET = "tests.jobqueue.small_dialects:Echo"


class Plain(HttpDialect[Any]):
    """`/add` adds the body to the topic `t`, `/pop` pops from it, `/fail` fails, other paths tell the request."""

    async def handle(self, request: Request, reserved: list[Job]) -> Reply:
        if request.path == "/fail":
            raise RuntimeError("a customer's")
        if request.path == "/add":
            answer = await self.ask(params.Add(topic="t", body=request.body))  # type: ignore[arg-type]
            return Reply(201, answer["id"].encode(), content_type="text/plain; charset=utf-8")
        if request.path == "/pop":
            answer = await self.ask(params.Pop(topic="t", wait=float(request.query or 0)), reserved)
            return Reply(200, (answer["id"] or "nothing").encode(), content_type="text/plain")
        told = [request.method, request.path, request.query, request.body.decode()]
        return Reply(200, orjson.dumps(told))

    def refuse(self, error: Exception, request: Request) -> Reply:
        code = self.tools.commands.refuse(error)["code"]
        return Reply(STATUS[code], f"refused: {code} {request.path}".encode(), content_type="text/plain")

    def is_open(self, request: Request) -> bool:
        return request.path == "/open"

    def token_in(self, given: str) -> str:
        return given.removeprefix("pool:")


class Echo(SocketDialect[Any]):
    """Sends back what comes. After `drain` it says bye; it keeps its connections until they close."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.connections: set[_Connection] = set()
        self.empty = asyncio.Event()

    def connection(self) -> asyncio.Protocol:
        return _Connection(self)

    def datagrams(self) -> asyncio.DatagramProtocol:
        return _Datagrams(self)

    def drain(self) -> None:
        for each in self.connections:
            each.transport.write(b"bye")

    async def close(self, grace_s: float) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(grace_s if self.connections else 0):
                await self.empty.wait()
        for each in self.connections:
            each.transport.abort()


class _Connection(asyncio.Protocol):
    transport: asyncio.Transport

    def __init__(self, dialect: Echo) -> None:
        self._dialect = dialect

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport  # type: ignore[assignment]
        self._dialect.connections.add(self)

    def data_received(self, data: bytes) -> None:
        self.transport.write(data)

    def connection_lost(self, error: Exception | None) -> None:
        self._dialect.connections.discard(self)
        if not self._dialect.connections:
            self._dialect.empty.set()


class _Datagrams(asyncio.DatagramProtocol):
    def __init__(self, dialect: Echo) -> None:
        self._dialect = dialect

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport: asyncio.DatagramTransport = transport  # type: ignore[assignment]

    def datagram_received(self, data: bytes, peer: Any) -> None:
        if allows(self._dialect.options.allow, peer):
            self._transport.sendto(data, peer)
