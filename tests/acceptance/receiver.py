"""Receivers of callbacks: they note what arrives, and answer well or badly, by the path."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from types import TracebackType
from typing import NamedTuple, Self

Misbehaviour = Callable[[asyncio.StreamWriter], Awaitable[None]]
Answer = bytes | Misbehaviour


class Request(NamedTuple):
    """What arrived; names of headers in lower case."""

    method: str
    path: str
    headers: dict[str, str]
    body: bytes

    @property
    def id(self) -> str:
        return self.headers["webhook-id"]


def status(code: int, *headers: str) -> bytes:
    """An answer with a small body."""
    return "\r\n".join((f"HTTP/1.1 {code} X", *headers, "Content-Length: 2", "", "ok")).encode()


async def hang(writer: asyncio.StreamWriter) -> None:
    """Never answers."""
    await asyncio.sleep(3600)


async def hang_up(writer: asyncio.StreamWriter) -> None:
    """Answers nothing, and closes."""


async def close_unsaid(writer: asyncio.StreamWriter) -> None:
    """Answers well, as if the connection were good for more, and closes it."""
    writer.write(status(200))


async def break_off(writer: asyncio.StreamWriter) -> None:
    """Closes in the middle of the headers."""
    writer.write(b"HTTP/1.1 200 OK\r\nContent-Le")


async def break_off_late(writer: asyncio.StreamWriter) -> None:
    """Closes in the middle of the body."""
    writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\nhalf")


async def never_end(writer: asyncio.StreamWriter) -> None:
    """A body without an end, as fast as it can."""
    writer.write(b"HTTP/1.1 200 OK\r\n\r\n")
    while True:
        writer.write(b"x" * 65_536)
        await writer.drain()


async def answer_late(writer: asyncio.StreamWriter) -> None:
    """Its status comes after two seconds, and the body does not end."""
    await asyncio.sleep(2.2)
    writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhalf")
    await asyncio.sleep(3600)


async def dribble(writer: asyncio.StreamWriter) -> None:
    """A body that comes a byte at a time."""
    writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 10000\r\n\r\n")
    while True:
        writer.write(b"x")
        await writer.drain()
        await asyncio.sleep(0.05)


async def head_without_end(writer: asyncio.StreamWriter) -> None:
    """Headers without an end, as fast as it can."""
    writer.write(b"HTTP/1.1 200 OK\r\n")
    while True:
        writer.write(b"X-More: " + b"x" * 4000 + b"\r\n")
        await writer.drain()


async def early_hints(writer: asyncio.StreamWriter) -> None:
    """Answers before the answer, without an end."""
    while True:
        writer.write(b"HTTP/1.1 103 Early Hints\r\nX: y\r\n\r\n")
        await writer.drain()
        await asyncio.sleep(0.01)


class Receiver:
    """Listens at an address on a port of its own. `async with`."""

    def __init__(self, host: str = "127.0.0.1") -> None:
        self.host = host
        self.answers: dict[str, Answer] = {}
        self.requests: list[Request] = []
        self.connections = 0
        self.hanging = 0
        self.most_hanging = 0
        self._tasks: set[asyncio.Task[None]] = set()

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._serve, self.host, 0)
        self.port: int = self._server.sockets[0].getsockname()[1]
        self.url = f"http://{self.host}:{self.port}"
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def at(self, path: str, answer: Answer) -> str:
        """Give this answer at a path; returns the URL."""
        self.answers[path] = answer
        return self.url + path

    def of(self, job: str) -> list[Request]:
        """The requests for a job."""
        return [request for request in self.requests if request.id == job]

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task
        self._tasks.add(task)
        self.connections += 1
        try:
            with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError):
                while await self._answer(await _read(reader), reader, writer):
                    pass
        finally:
            self._tasks.discard(task)
            writer.close()

    async def _answer(self, request: Request, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        """Answer one request; returns whether the connection can be used again."""
        self.requests.append(request)
        answer = self.answers[request.path.partition("?")[0]]
        if not isinstance(answer, bytes):
            await self._misbehave(answer, reader, writer)
            return False
        writer.write(answer if request.method != "HEAD" else answer.removesuffix(b"ok"))
        await writer.drain()
        return True

    async def _misbehave(
        self, answer: Misbehaviour, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        """Misbehave until the end, or until the client hangs up."""
        self.hanging += 1
        self.most_hanging = max(self.most_hanging, self.hanging)
        tasks = {asyncio.ensure_future(answer(writer)), asyncio.ensure_future(reader.read())}
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        finally:
            self.hanging -= 1
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)


async def _read(reader: asyncio.StreamReader) -> Request:
    first, *lines = (await reader.readuntil(b"\r\n\r\n")).decode().strip().split("\r\n")
    headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
    method, path, _ = first.split(" ")
    return Request(method, path, headers, await reader.readexactly(int(headers.get("content-length", 0))))
