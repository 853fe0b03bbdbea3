"""A client in PHP, on sockets, as users of queue_server have."""

from __future__ import annotations

import asyncio
import json
import shutil
from pathlib import Path

import pytest

from buckets import Redis
from tests.jobqueue.protocols.queue_server.clients import serving
from tests.kit.redis_server import RedisServer

SCRIPT = Path(__file__).with_name("client.php")


@pytest.mark.skipif(shutil.which("php") is None, reason="needs php")
@pytest.mark.parametrize("transport", ["tcp", "udp"])
async def test_it_produces_consumes_and_confirms(redis_server: RedisServer, redis: Redis, transport: str) -> None:
    async with serving(redis_server) as served:
        address = f"127.0.0.1:{served.port}"
        process = await asyncio.create_subprocess_exec(
            *("php", str(SCRIPT), transport, address, "50"), stdout=asyncio.subprocess.PIPE
        )
        output, _ = await process.communicate()
        assert process.returncode == 0
        assert json.loads(output) == {
            "produced": 50,
            "same": True,
            "left": 0,
            "queues": ["task#test:order:event"],
            "leader": address,
            "refused": "field error",
        }
