"""A real service with TLS of its own, and clients of it."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import ssl
from collections.abc import AsyncIterator
from pathlib import Path

import aiohttp
import trustme

from tests.jobqueue.access.authorities import Files
from tests.kit.redis_server import RedisServer
from tests.kit.service import ServiceProcess
from tests.kit.waiting import until

WORKERS = 2
_BODY = b'{"command": "add", "topic": "t", "body": 1}'
_REQUEST = b"POST /command HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n%s" % (len(_BODY), _BODY)


class Secure(ServiceProcess):
    """A service whose port speaks TLS. What is asked of it besides goes through its Unix socket."""

    def __init__(self, folder: Path, redis: str, files: Files, settings: str = "", *, workers: int = WORKERS) -> None:
        self.files = files
        self._socket = str(folder / "own.sock")
        self._own_log = folder / "service.log"
        config = folder / "jobqueue.toml"
        config.write_text(f'socket = "{self._socket}"\n{files.toml()}{settings}')
        super().__init__("--redis", redis, "--config", str(config), log=self._own_log, workers=workers)

    async def _ready(self, within_s: float) -> None:
        """Until all workers listen: one that starts with a bad certificate ends the service."""

        async def is_ready() -> bool:
            assert self.process and self.process.returncode is None, self.log
            if "service.started" not in self.log:
                return False
            with contextlib.suppress(aiohttp.ClientError):
                return (await self._get("/readyz"))[0] == 200
            return False

        await until(is_ready, within_s, every_s=0.02)

    async def _get(self, path: str) -> tuple[int, str]:
        connector = aiohttp.UnixConnector(self._socket)
        async with aiohttp.ClientSession(connector=connector) as session, session.get(f"http://x{path}") as answer:
            return answer.status, await answer.text()

    @property
    def log(self) -> str:
        return self._own_log.read_text()

    async def handshakes(self) -> dict[str, int]:
        """How many there were, by outcome."""
        _, text = await self._get("/metrics")
        lines = [line for line in text.splitlines() if line.startswith("jobqueue_tls_handshakes_total{")]
        return {line.split('"')[1]: int(float(line.split()[-1])) for line in lines}

    async def reload(self, event: str = "tls.reloaded") -> None:
        """Have the files read again, and wait until each worker has logged what came of it."""
        before = self.log.count(event)
        self.signal(signal.SIGHUP)
        await until(lambda: self.log.count(event) == before + WORKERS)

    async def connect(self, context: ssl.SSLContext) -> Link:
        """A new connection, after its handshake."""
        streams = await asyncio.open_connection("127.0.0.1", self.port, ssl=context, server_hostname="localhost")
        return Link(*streams)


class Link:
    """A connection that asks one thing after the other."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer

    @property
    def serial(self) -> str:
        """The number of the certificate that the service showed."""
        return str(self._writer.get_extra_info("peercert")["serialNumber"])

    async def ask(self) -> None:
        """Add a job. Raises OSError or EOFError if the connection ends instead."""
        self._writer.write(_REQUEST)
        head = (await self._reader.readuntil(b"\r\n\r\n")).lower()
        body = await self._reader.readexactly(int(head.partition(b"content-length: ")[2].split(b"\r\n")[0]))
        assert head.startswith(b"http/1.1 200 ") and b'"success":true' in body, (head, body)

    def close(self) -> None:
        self._writer.transport.abort()


@contextlib.asynccontextmanager
async def secure(folder: Path, clients: trustme.CA | None = None, settings: str = "") -> AsyncIterator[Secure]:
    """Such a service; with `clients`, it wants certificates of that authority. `settings`: more lines."""
    with RedisServer(folder) as redis:
        service = Secure(folder, redis.url, Files(folder, clients=clients), settings)
        async with service:
            yield service


async def is_answered(service: Secure, context: ssl.SSLContext) -> bool:
    """Whether a client gets an answer on a new connection."""
    try:
        link = await service.connect(context)
    except OSError:
        return False
    try:
        await link.ask()
    except (OSError, EOFError):
        return False
    finally:
        link.close()
    return True
