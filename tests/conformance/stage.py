"""The stage of a scene: a Redis, a service, a proxy in front of it and a port that speaks TLS; the actions on them."""

from __future__ import annotations

import asyncio
import json
import ssl
from pathlib import Path
from typing import Any

import trustme

from buckets.redis.client import Redis
from tests.conformance.proxy import Proxy
from tests.kit.redis_server import RedisServer
from tests.kit.service import Client, ServiceProcess
from tests.kit.waiting import until

SETTINGS = """
redis_timeout_s = 1
default_backoff_s = []
[topics.full]
max_pending = 2
[virtual_topics]
paid = ["invoice", "mail"]
"""


class Stage:
    """Use with `async with`. Redis belongs to the test, so that it outlives the service."""

    def __init__(self, server: RedisServer, folder: Path) -> None:
        self._server = server
        settings = folder / "jobqueue.toml"
        settings.write_text(SETTINGS)
        self.service = ServiceProcess("--redis", server.url, "--config", str(settings), log=folder / "service.log")
        self.client = Client(self.service.url)
        self.proxy = Proxy(self.service.url)
        self.token_file = folder / "token"

    async def __aenter__(self) -> Stage:
        await self.service.__aenter__()
        await self.client.__aenter__()
        await self.proxy.__aenter__()
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        trustme.CA().issue_cert("127.0.0.1").configure_cert(context)
        self._tls = await asyncio.start_server(lambda reader, writer: writer.close(), "127.0.0.1", 0, ssl=context)
        return self

    async def __aexit__(self, *exception: object) -> None:
        self._tls.close()
        await self.proxy.__aexit__()
        await self.client.__aexit__()
        await self.service.__aexit__()

    @property
    def tls_port(self) -> str:
        """Where TLS is spoken, with a certificate of an authority that nobody knows: `127.0.0.1:443`."""
        return f"127.0.0.1:{self._tls.sockets[0].getsockname()[1]}"

    async def act(self, action: str) -> None:
        """Perform an action on the service or on Redis."""
        match action:
            case "service stops":
                await self.service.stop()
            case "service stops, once a pop waits":
                await until(self.parked)
                await self.service.stop()
            case "service is killed":
                await self.service.kill()
            case "service starts":
                await self.service.start()
            case "redis is full":
                await self._configure("maxmemory", "1")
            case "redis has room":
                await self._configure("maxmemory", "0")
            case "redis hangs":
                self._server.freeze()
            case "redis goes on":
                self._server.thaw()
            case _:
                raise ValueError(f"unknown action {action!r}")

    async def _configure(self, name: str, value: str) -> None:
        redis = Redis(self._server.url)
        await redis.read("CONFIG", "SET", name, value)
        await redis.close()

    async def parked(self) -> bool:
        """Whether a pop waits at the service."""
        return await self.service.parked(1)

    async def stored(self, job_id: str) -> bytes:
        """The bytes of a job's body as sent."""
        assert self.client._session
        question = json.dumps({"command": "get", "id": job_id}).encode()
        async with self.client._session.post(self.service.url + "/command", data=question) as answer:
            raw = await answer.read()
        begin = raw.index(b'"value":') + len(b'"value":')
        return raw[begin : raw.rindex(b',"created":')]

    async def figures(self, topic: str) -> dict[str, Any]:
        """The number of jobs of the topic, by state."""
        counts: dict[str, Any] = (await self.client.ask("stats", topic=topic))["counts"]
        return counts
