"""Slow clients of a real service: they are dropped, and other clients do not notice."""

from __future__ import annotations

import asyncio
import json
import socket
from pathlib import Path

from tests.chaos.slow_clients import measure
from tests.kit.redis_server import RedisServer
from tests.kit.service import Client, ServiceProcess
from tests.kit.waiting import until


async def test_slow_and_half_open_clients_are_dropped_and_the_others_are_served() -> None:
    report = await measure(half_open=60, dripping=60, seconds=3, client_timeout_s=0.5)
    assert report.open_most == 120
    assert report.dropped >= 120
    assert report.asked > 0
    assert not report.failed


async def test_the_jobs_of_a_client_that_does_not_take_its_answer_are_given_back(
    own_server: RedisServer, tmp_path: Path
) -> None:
    config = tmp_path / "jobqueue.toml"
    config.write_text("client_timeout_s = 0.5\n")
    async with (
        ServiceProcess("--redis", own_server.url, "--config", str(config)) as service,
        Client(service.url) as client,
    ):
        for number in range(38):
            await client.ask("add", topic="t", id=f"{number}", body="x" * 200_000, ttr=3600)
        with socket.socket() as deaf:
            deaf.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)  # set before connecting, so that it takes effect
            deaf.connect(("127.0.0.1", service.port))
            deaf.setblocking(False)
            body = json.dumps({"command": "pop", "topic": "t", "count": 100}).encode()
            head = b"POST /command HTTP/1.1\r\nHost: t\r\nContent-Length: %d\r\n\r\n" % len(body)
            await asyncio.get_running_loop().sock_sendall(deaf, head + body)

            async def were_given(jobs: int) -> bool:
                return bool((await client.ask("stats", topic="t"))["counts"]["reserved"] == jobs)

            await until(lambda: were_given(38))
            await until(lambda: were_given(0))
        popped = await client.ask("pop", topic="t")
        assert popped["attempt"] == 1
