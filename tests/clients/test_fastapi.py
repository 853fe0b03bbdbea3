"""The example for FastAPI, as a real process with uvicorn: requests add jobs, and its worker stops with it."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import aiohttp
import pytest
from jobqueue_client import AsyncClient

from tests.kit.ports import free_port
from tests.kit.redis_server import RedisServer
from tests.kit.service import ROOT, ServiceProcess
from tests.kit.waiting import until

EXAMPLES = ROOT / "clients" / "python" / "examples"


class Application:
    """The example under uvicorn, and what it has printed."""

    def __init__(self, process: asyncio.subprocess.Process, url: str) -> None:
        self.process = process
        self.url = url

    async def says(self, words: str) -> None:
        """Wait until it prints these words."""
        assert self.process.stdout
        async with asyncio.timeout(30):
            while words not in (line := (await self.process.stdout.readline()).decode()):
                assert line, f"it ended without {words!r}"

    async def post(self, path: str) -> int:
        async with aiohttp.ClientSession() as session, session.post(self.url + path) as answer:
            return answer.status


@asynccontextmanager
async def application(service: str, time_out_s: float) -> AsyncIterator[Application]:
    port = free_port()
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "uvicorn", "fastapi_app:app", "--port", str(port)),
        cwd=EXAMPLES,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
        env=os.environ | {"JOBQUEUE_URL": service, "TIME_OUT_S": str(time_out_s), "PYTHONDONTWRITEBYTECODE": "1"},
    )
    try:
        app = Application(process, f"http://127.0.0.1:{port}")
        await app.says("Uvicorn running")
        yield app
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()


@pytest.fixture
async def service(redis_server: RedisServer, redis: object) -> AsyncIterator[str]:
    async with ServiceProcess("--redis", redis_server.url) as service:
        yield service.url


async def test_a_request_adds_a_job_and_shutdown_waits_for_its_running_handler(service: str) -> None:
    async with application(service, time_out_s=0.2) as app, AsyncClient(service) as client:
        assert await app.post("/orders/1001") == 200
        await app.says("closing order 1001")
        app.process.send_signal(signal.SIGTERM)
        await app.says("order 1001 closed")
        async with asyncio.timeout(30):
            assert await app.process.wait() in (0, -signal.SIGTERM)  # uvicorn passes the signal on in the end
        assert (await client.get("example-close-order:1001"))["state"] == "finished"


async def test_an_order_that_is_paid_too_late_is_an_answer_and_no_defect(service: str) -> None:
    async with application(service, time_out_s=0.1) as app, AsyncClient(service) as client:
        assert await app.post("/orders/1") == 200
        await app.says("order 1 closed")

        async def is_finished() -> bool:
            return (await client.get("example-close-order:1"))["state"] == "finished"

        await until(is_finished)
        assert await app.post("/orders/1/paid") == 409

    async with application(service, time_out_s=60) as app:
        assert await app.post("/orders/2") == 200
        assert await app.post("/orders/2/paid") == 200
