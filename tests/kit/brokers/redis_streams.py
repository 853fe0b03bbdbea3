"""A Redis whose streams are read. It appends each change to its file before it answers."""

from __future__ import annotations

from typing import Any

from buckets.errors import JobQueueError
from buckets.redis.client import Redis
from tests.kit.brokers import Broker, Received
from tests.kit.ports import free_port
from tests.kit.redis_server import binary


class RedisStreams(Broker):
    kind = "redis-stream"

    def __init__(self) -> None:
        super().__init__()
        self.port = free_port()

    def command(self) -> list[str]:
        kept = ("--appendonly", "yes", "--appendfsync", "always", "--save", "")
        return [binary(), "--port", str(self.port), "--bind", "127.0.0.1", "--dir", str(self.folder), *kept]

    @property
    def url(self) -> str:
        return f"redis://127.0.0.1:{self.port}"

    async def answers(self) -> bool:
        redis = Redis(self.url, 1.0)
        try:
            return bool(await redis.read("PING"))
        except JobQueueError:
            return False
        finally:
            await redis.close()

    async def prepare(self, topics: list[str]) -> None:
        """Streams come into being with their first entry."""

    def table(self) -> dict[str, Any]:
        return {"kind": "redis-stream", "url": self.url, "stream": "jobs"}

    async def received(self) -> list[Received]:
        redis = Redis(self.url, 10.0)
        found, last = [], "-"
        while entries := await redis.read("XRANGE", "jobs", last, "+", "COUNT", 1000):
            for _, fields in entries:
                named = dict(zip(fields[::2], fields[1::2], strict=True))
                body = named.pop(b"body")
                headers = {name.decode(): value.decode() for name, value in named.items()}
                found.append(Received(headers["jobqueue-key"], headers, body))
            last = f"({entries[-1][0].decode()}"
        await redis.close()
        return found
