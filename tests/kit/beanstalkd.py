"""A service with the dialect, a real beanstalkd, and a client that sends bytes and reads lines."""

from __future__ import annotations

import asyncio
import contextlib
import re
import shutil
import uuid
from collections.abc import AsyncIterator
from typing import Any

from jobqueue.app import Service
from jobqueue.dialect_settings import Beanstalkd, Dialects
from jobqueue.settings import Settings
from tests.kit.ports import free_port
from tests.kit.redis_server import RedisServer

PATIENCE_S = 20
BEANSTALKD = shutil.which("beanstalkd")


@contextlib.asynccontextmanager
async def ours(server: RedisServer, grace_s: float = 1, **options: Any) -> AsyncIterator[int]:
    """The port of a service's dialect."""
    options.setdefault("port", free_port())
    settings = Settings(port=0, redis=server.url, grace_s=grace_s, protocols=Dialects(beanstalkd=Beanstalkd(**options)))
    async with Service(settings):
        yield options["port"]


@contextlib.asynccontextmanager
async def theirs() -> AsyncIterator[int]:
    """The port of a beanstalkd."""
    assert BEANSTALKD
    port = free_port()
    process = await asyncio.create_subprocess_exec(BEANSTALKD, "-l", "127.0.0.1", "-p", str(port))
    try:
        async with asyncio.timeout(PATIENCE_S):
            while True:
                with contextlib.suppress(OSError):
                    _, writer = await asyncio.open_connection("127.0.0.1", port)
                    writer.close()
                    break
                await asyncio.sleep(0.01)
        yield port
    finally:
        process.terminate()
        await process.wait()


class Client:
    """A connection."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    async def line(self) -> str:
        """The next line, without its end; `(closed)` at the end of all."""
        async with asyncio.timeout(PATIENCE_S):
            try:
                line = await self.reader.readuntil(b"\r\n")
            except (asyncio.IncompleteReadError, ConnectionError):
                return "(closed)"
        return line[:-2].decode()

    def send(self, *lines: str) -> None:
        """Send lines."""
        self.writer.write("".join(f"{line}\r\n" for line in lines).encode())

    async def ask(self, *lines: str) -> str:
        """Send lines; returns the next line of the answer."""
        self.send(*lines)
        return await self.line()

    async def put(self, tube: str, data: str, *, pri: int = 1024, delay: int = 0, ttr: int = 60) -> int:
        """Use a tube and put a job there; returns its number."""
        assert await self.ask(f"use {tube}") == f"USING {tube}"
        word, number = (await self.ask(f"put {pri} {delay} {ttr} {len(data.encode())}", data)).split()
        assert word == "INSERTED"
        return int(number)

    async def reserve(self, tube: str) -> tuple[int, str]:
        """Watch a tube, and reserve a job within a moment; returns its number and data."""
        self.send(f"watch {tube}", "reserve-with-timeout 10")
        assert (await self.line()).startswith("WATCHING")
        word, number, _ = (await self.line()).split()
        assert word == "RESERVED"
        return int(number), await self.line()

    async def document(self, command: str) -> dict[str, str]:
        """The keys and values that a command answers with, in order."""
        word, size = (await self.ask(command)).split()
        assert word == "OK"
        text = (await self.reader.readexactly(int(size) + 2)).decode()
        assert text.startswith("---\n") and text.endswith("\n\r\n")
        return dict(line.split(": ", 1) for line in text[4:-3].split("\n"))

    def close(self) -> None:
        """Hang up."""
        self.writer.close()


@contextlib.asynccontextmanager
async def client(port: int) -> AsyncIterator[Client]:
    """A connection, until the block is left."""
    opened = Client(*await asyncio.open_connection("127.0.0.1", port, limit=1 << 20))
    try:
        yield opened
    finally:
        opened.close()


def tube() -> str:
    """The name of a tube that nobody else uses."""
    return f"t{uuid.uuid4().hex[:12]}"


async def play(port: int, text: str) -> None:
    """Play an exchange (see exchanges.py) on a new connection."""
    names = {"{t}": tube(), "{u}": tube(), "{0}": "\0", "{_}": " "}
    async with client(port) as peer:
        for line in text.strip("\n").splitlines()[:-1]:
            mark, expected = line.strip()[:1], line.lstrip()[2:]
            if mark == ">":
                peer.send(_filled(expected, names))
            elif mark == "<":
                _compare(await peer.line(), expected, names)
            else:
                assert await peer.reader.readuntil(b"\n") == f"{_filled(expected, names)}\n".encode()


def _filled(text: str, names: dict[str, str]) -> str:
    for name, value in names.items():
        text = text.replace(name, value)
    return re.sub(r"\{(\d+)\}", lambda found: "x" * int(found[1]), text)


def _compare(line: str, expected: str, names: dict[str, str]) -> None:
    pattern = re.escape(_filled(expected, names)).replace(r"\{\*\}", "[0-9]+")
    pattern = re.sub(r"\\\{([a-c])\\\}", r"(?P<\1>[0-9]+)", pattern)
    found = re.fullmatch(pattern, line)
    assert found, f"{line!r} is not {_filled(expected, names)!r}"
    names |= {f"{{{name}}}": value for name, value in found.groupdict().items()}
