"""Refusals of what is not a valid request, and of what fails outside of the commands."""

from __future__ import annotations

import aiohttp
import pytest
import structlog
from aiohttp import web

from jobqueue.access.connections import ConnectionLimits
from jobqueue.web.fast_path import Head
from jobqueue.web.port import SimpleClient
from jobqueue.web.ports import Runner
from tests.jobqueue.web.guards import guard


class NoAnswerer:
    """Answers no simple request: it gets none."""

    closing = True
    most_bytes = 0

    def begin(self, data: bytes, head: Head, connection: SimpleClient) -> None:
        raise AssertionError(data)


@pytest.mark.parametrize("error", [ValueError("of a customer"), TimeoutError()])
async def test_an_exception_in_a_handler_is_logged_and_reported_as_internal(error: Exception) -> None:
    async def fail(request: web.Request) -> web.Response:
        raise error

    application = web.Application()
    application.router.add_get("/", fail)
    runner = Runner(application, NoAnswerer(), ConnectionLimits(60, 1000), guard())
    await runner.open("127.0.0.1", 0)
    url = f"http://127.0.0.1:{runner.addresses[0][1]}/"
    with structlog.testing.capture_logs() as logs:
        async with aiohttp.ClientSession() as session, session.get(url) as response:
            answer = await response.json()
    await runner.close()
    assert (response.status, answer["code"]) == (500, "INTERNAL")
    assert "customer" not in answer["error"]
    assert [entry["event"] for entry in logs] == ["command.failed"]
