"""nginx in front of a console, with the files of deploy/ for both."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import aiohttp
import pytest
import pytest_asyncio

from tests.acceptance.worker_processes import lines
from tests.deploy.proxies.programs import ConsoleNginx
from tests.kit.guarded import Guarded, guarded
from tests.kit.ports import free_port
from tests.kit.service import JOBQUEUE, ROOT
from tests.kit.waiting import until

pytestmark = pytest.mark.asyncio(loop_scope="module")

NAME = "queue-console.internal"
HERE = {"allow 10.0.0.0/8;": "allow 127.0.0.0/8;"}


class Stage:
    """A service, its console, nginx, and a browser's requests through it."""

    def __init__(self, house: Guarded, proxy: ConsoleNginx, port: int, log: Path) -> None:
        self.house = house
        self.proxy = proxy
        self.port = port
        self.log = log

    async def request(self, method: str, path: str, token: str = "", **headers: str) -> tuple[int, str]:
        """As a browser sends it that knows the console by its name: the status, and the cookie of a session."""
        heads = {"Host": NAME, "Origin": f"https://{NAME}", **headers}
        data = {"token": token} if method == "POST" else None
        async with (
            aiohttp.ClientSession(connector=aiohttp.TCPConnector(ssl=self.proxy.tls)) as session,
            session.request(
                method, f"{self.proxy.url}{path}", data=data, headers=heads, allow_redirects=False
            ) as response,
        ):
            return response.status, response.headers.get("Set-Cookie", "")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def stage(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Stage]:
    folder, port = tmp_path_factory.mktemp("console"), free_port()
    log = folder / "console.log"
    async with guarded(folder) as house, ConsoleNginx(folder, [port], HERE) as proxy:
        config = ROOT / "deploy" / "systemd" / "console.toml"
        with log.open("wb") as output:
            command = ("console", "--config", config, "--url", house.url, "--port", str(port))
            process = await asyncio.create_subprocess_exec(*JOBQUEUE, *command, stderr=output)
        try:
            await until(lambda: bool(lines(log, "console.started")))
            yield Stage(house, proxy, port, log)
        finally:
            process.terminate()
            await process.wait()


async def test_the_program_finds_nothing_wrong_with_its_file(stage: Stage) -> None:
    assert "warn" not in stage.proxy.check().lower()


async def test_people_sign_in_through_it_with_a_cookie_for_this_host(stage: Stage) -> None:
    token = (await stage.house.token("look")).token.text
    status, cookie = await stage.request("POST", "/sign-in", token)
    assert status == 303 and cookie.startswith("__Host-jobqueue=") and "Secure" in cookie
    assert (await stage.request("GET", "/topics", Cookie=cookie.partition(";")[0]))[0] == 200
    assert (await stage.request("POST", "/sign-in", token, Origin="https://evil.example"))[0] == 403
    assert (await stage.request("GET", "/topics", Host="evil.example"))[0] == 421


async def test_what_a_browser_says_of_a_user_is_dropped_and_the_log_has_its_address(stage: Stage) -> None:
    heads = {"X-Forwarded-User": "ann", "X-Forwarded-Groups": "ops"}
    assert (await stage.request("GET", "/topics", **heads))[0] == 303
    assert not lines(stage.log, "console.header_ignored")
    await stage.request("POST", "/sign-in", "wrong", **{"X-Forwarded-For": "192.0.2.7"})
    # Here the browser is on the machine of the proxy, and so trusted, too.
    assert lines(stage.log, "session.refused")[-1]["address"] == "192.0.2.7"


async def test_it_is_not_for_everybody(stage: Stage, tmp_path: Path) -> None:
    """From this machine, which is none of the networks that the file names."""
    async with ConsoleNginx(tmp_path, [stage.port]) as proxy:
        assert (await Stage(stage.house, proxy, stage.port, stage.log).request("GET", "/sign-in"))[0] == 403
