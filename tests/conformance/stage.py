"""The stage of a scene: a Redis, a service, and proxies in front of it, two of which speak TLS; the actions on them."""

from __future__ import annotations

import json
import ssl
from contextlib import AsyncExitStack
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
        self.files = _certificates(folder)
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=str(self.files["$ca"]))
        context.load_cert_chain(folder / "server.pem")
        self.tls = Proxy(self.service.url, context)
        """Its certificate is for 127.0.0.1, by the authority `$ca`."""
        strict = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=str(self.files["$ca"]))
        strict.load_cert_chain(folder / "server.pem")
        strict.verify_mode = ssl.CERT_REQUIRED
        self.strict = Proxy(self.service.url, strict)
        """Likewise; and it wants a certificate of the client's."""

    async def __aenter__(self) -> Stage:
        async with AsyncExitStack() as stack:
            for each in (self.service, self.client, self.proxy, self.tls, self.strict):
                await stack.enter_async_context(each)
            self._end = stack.pop_all()
        return self

    async def __aexit__(self, *exception: object) -> None:
        await self._end.aclose()

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


def _certificates(folder: Path) -> dict[str, Path]:
    """Write `server.pem` and these files, by the names that scenes have for them."""
    authority = trustme.CA()
    authority.issue_cert("127.0.0.1").private_key_and_cert_chain_pem.write_to_path(folder / "server.pem")
    names = ("$ca", "$other_ca", "$cert", "$key", "$other_key", "$cert_and_key", "$binary", "$empty")
    files = {name: folder / f"{name[1:]}.pem" for name in (*names, "$nowhere")}
    own = authority.issue_cert("orders.shop.test")
    authority.cert_pem.write_to_path(files["$ca"])
    trustme.CA().cert_pem.write_to_path(files["$other_ca"])
    own.cert_chain_pems[0].write_to_path(files["$cert"])
    own.private_key_pem.write_to_path(files["$key"])
    own.private_key_and_cert_chain_pem.write_to_path(files["$cert_and_key"])
    authority.issue_cert("other").private_key_pem.write_to_path(files["$other_key"])
    files["$binary"].write_bytes(b"\xff\xfe")
    files["$empty"].write_text("no certificate")
    return files
