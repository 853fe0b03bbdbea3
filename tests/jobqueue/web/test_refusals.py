"""What is no request of ours, and what fails outside of the commands."""

from __future__ import annotations

import aiohttp
import pytest
import structlog
from aiohttp import web

from jobqueue.access.connections import ConnectionLimits
from jobqueue.web.connection import Client
from jobqueue.web.runner import Runner


class Nobody:
    """Answers no plain request: none comes here."""

    closing = True
    most_bytes = 0

    async def answer(self, data: bytes, given_id: str, client: Client) -> None:
        raise AssertionError(data)


@pytest.mark.parametrize("error", [ValueError("of a customer"), TimeoutError()])
async def test_an_exception_in_a_handler_is_logged_and_told_as_internal(error: Exception) -> None:
    async def fail(request: web.Request) -> web.Response:
        raise error

    application = web.Application()
    application.router.add_get("/", fail)
    runner = Runner(application, Nobody(), ConnectionLimits(60, 1000))
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    url = f"http://127.0.0.1:{runner.addresses[0][1]}/"
    with structlog.testing.capture_logs() as logs:
        async with aiohttp.ClientSession() as session, session.get(url) as response:
            answer = await response.json()
    await runner.cleanup()
    assert (response.status, answer["code"]) == (500, "INTERNAL")
    assert "customer" not in answer["error"]
    assert [entry["event"] for entry in logs] == ["command.failed"]
