"""A real service that speaks dialects over HTTP, and its clients, byte by byte."""

from __future__ import annotations

import asyncio
import json
import socket
import tempfile
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from tests.kit.ports import free_port
from tests.kit.redis_server import RedisServer
from tests.kit.service import ServiceProcess


class Response(NamedTuple):
    """What came back."""

    status: int
    headers: dict[str, str]
    """Names in lower case."""
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)


class Served:
    """A service with tables `[protocols.…]`, each of which says `port = PORT`."""

    def __init__(self, tables: str) -> None:
        self.port = free_port()
        self.dialect_port = free_port()
        self._tables = tables.replace("PORT", str(self.dialect_port))

    @contextmanager
    def running(self) -> Iterator[Served]:
        """It runs on a Redis of its own."""
        with (
            tempfile.TemporaryDirectory(prefix="jq-") as folder,
            RedisServer(Path(folder)) as redis,
            asyncio.Runner(loop_factory=asyncio.new_event_loop) as runner,
        ):
            settings = Path(folder) / "jobqueue.toml"
            settings.write_text(self._tables)
            flags = ("--redis", redis.url, "--config", str(settings))
            service = ServiceProcess(*flags, port=self.port, log=Path(folder) / "log")
            runner.run(service.start())
            try:
                yield self
            finally:
                runner.run(service.stop())

    def native(self, command: str, **fields: Any) -> Any:
        """The answer to a native command."""
        data = json.dumps({"command": command, **fields}).encode()
        url = f"http://127.0.0.1:{self.port}/command"
        try:
            with urllib.request.urlopen(urllib.request.Request(url, data)) as answer:
                return json.loads(answer.read())
        except urllib.error.HTTPError as error:
            return json.loads(error.read())

    def parked(self) -> int:
        """How many pops are waiting."""
        with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/metrics") as answer:
            lines = answer.read().decode().splitlines()
        return next(int(float(line.split()[1])) for line in lines if line.startswith("jobqueue_parked_pops "))

    def connect(self, port: int = 0) -> Connection:
        """A connection to the dialect's port, or another."""
        return Connection(port or self.dialect_port)


class Connection:
    """A kept connection."""

    def __init__(self, port: int) -> None:
        self._socket = socket.create_connection(("127.0.0.1", port), timeout=30)
        self._file = self._socket.makefile("rb")

    def send(self, first: str, headers: str, body: bytes = b"") -> None:
        """Send a request: its first line without the version, its other lines, its body."""
        lines = [f"{first} HTTP/1.1", *headers.strip("\n").split("\n")]
        if body:
            lines.append(f"Content-Length: {len(body)}")
        self._socket.sendall("\r\n".join([*lines, "", ""]).encode() + body)

    def receive(self) -> Response:
        """The next response."""
        status = int(self._file.readline().split(b" ")[1])
        headers: dict[str, str] = {}
        while line := self._file.readline().strip():
            name, _, value = line.decode().partition(":")
            headers[name.lower()] = value.strip()
        return Response(status, headers, self._file.read(int(headers.get("content-length", "0"))))

    def ask(self, first: str, headers: str, body: bytes = b"") -> Response:
        """The response to a request."""
        self.send(first, headers, body)
        return self.receive()

    def __enter__(self) -> Connection:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def close(self) -> None:
        """Hang up."""
        self._file.close()
        self._socket.close()


def eventually(holds: Callable[[], Any], within_s: float = 30) -> Any:
    """Wait until something holds; returns it."""
    end = time.monotonic() + within_s
    while not (found := holds()):
        assert time.monotonic() < end, "it did not come"
        time.sleep(0.02)
    return found
