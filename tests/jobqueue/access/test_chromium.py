"""What pages in a real browser can do at a service on the same machine: nothing."""

from __future__ import annotations

import json
import re
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import aiohttp
import pytest

from tests.jobqueue.access.chromium import CHROMIUM, Attempt, Pages, browsing
from tests.kit.ports import free_ports
from tests.kit.redis_server import RedisServer
from tests.kit.service import Client, ServiceProcess

pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="chromium is missing (Debian: apt-get install chromium)")

ADD = '{"command":"add","topic":"evil","body":"'  # a form puts `=` behind it
ADD_WHOLE = ADD + '"}'
POSTS = ("fetch", "noCors", "noReferrer", "json", "form")
GETS = ("fetch", "noCors", "image", "frame", "socket")


class Site:
    """A service with all dialects: those over HTTP below a path, and on ports of their own."""

    def __init__(self, server: RedisServer, folder: Path, more: str = "") -> None:
        self.port, self.beanstalkd, self.queue_server, self.camellia, self.lmstfy, self.mykit = free_ports(6)
        config = folder / "site.toml"
        config.write_text(
            f"{more}\n"
            f"[protocols.beanstalkd]\nport = {self.beanstalkd}\n[protocols.queue_server]\nport = {self.queue_server}\n"
            f'[protocols.camellia]\nport = {self.camellia}\npath = "/camel"\n'
            f'[protocols.lmstfy]\nport = {self.lmstfy}\npath = "/lmstfy"\n'
            f'[protocols.mykit]\nport = {self.mykit}\npath = "/mykit"\nclear_all = true\n'
        )
        flags = ("--redis", server.url, "--namespace", "browsers", "--config", str(config))
        self.service = ServiceProcess(*flags, port=self.port)
        self.url = self.service.url

    async def commands(self) -> dict[str, str]:
        """How many commands of each kind it has carried out."""
        done = r'^(jobqueue_commands_total\{code="OK",.*?\}) (\S+)$'
        return dict(re.findall(done, await self.metrics(), re.MULTILINE))

    async def refused(self) -> int:
        """How many requests of pages it has refused."""
        (found,) = re.findall(r'^jobqueue_access_total\{verdict="browser"\} (\S+)$', await self.metrics(), re.MULTILINE)
        return int(float(found))

    async def metrics(self) -> str:
        async with aiohttp.ClientSession() as session, session.get(self.url + "/metrics") as response:
            return await response.text()

    def attempts(self, host: str = "127.0.0.1") -> list[Attempt]:
        """Requests that would change something, or take a job, if they were answered."""
        native, lmstfy = f"http://{host}:{self.port}", f"http://{host}:{self.lmstfy}"
        form, push = "topic=evil&msg=x&delayMillis=0", '{"topic":"evil","delay":0,"body":"'
        posts: Sequence[tuple[str, str, str]] = (
            (f"{native}/command", ADD_WHOLE, ADD),
            (f"{native}/camel/camellia/delayQueue/sendMsg?{form}", form, form),
            (f"http://{host}:{self.camellia}/camellia/delayQueue/sendMsg?{form}", form, form),
            (f"{native}/mykit/push", push + '"}', push),
            (f"http://{host}:{self.mykit}/push", push + '"}', push),
        )
        gets = [f"{base}/api/prey/queue?ttr=9" for base in (f"{native}/lmstfy", lmstfy)]
        gets += [f"{native}/mykit/clearAll", f"http://{host}:{self.mykit}/clearAll", f"{native}/metrics"]
        return [
            *((way, url, sent if way == "form" else body, "POST") for url, body, sent in posts for way in POSTS),
            *((way, url, None, "GET") for url in gets for way in GETS),
            *(("fetch", f"{base}/api/evil/q?delay=0", "x", "PUT") for base in (f"{native}/lmstfy", lmstfy)),
        ]

    def raw_attempts(self) -> list[Attempt]:
        """Commands of dialects without HTTP in the bodies of requests."""
        put, action = "\r\nput 0 0 60 1\r\nx\r\n", '{"action":1,"topic":"evil"}'
        return [
            (way, f"http://127.0.0.1:{port}/", body, "POST")
            for port, body in ((self.beanstalkd, put), (self.queue_server, action))
            for way in ("noCors", "form")
        ]


@asynccontextmanager
async def started(server: RedisServer, folder: Path, more: str = "") -> AsyncIterator[Site]:
    """With a job that lmstfy's path would hand out."""
    site = Site(server, folder, more)
    async with site.service, Client(site.url) as client:
        assert (await client.ask("add", topic="prey/queue", id="prey", body="x"))["success"]
        yield site


async def state_of_prey(site: Site) -> str:
    async with Client(site.url) as client:
        state: str = (await client.ask("get", id="prey"))["state"]
        return state


@pytest.mark.parametrize("host", ["127.0.0.1", "evil.example"])
async def test_a_page_of_another_origin_does_nothing(own_server: RedisServer, tmp_path: Path, host: str) -> None:
    """It is of the same site, or of another one."""
    async with started(own_server, tmp_path) as site:
        before, attempts = await site.commands(), site.attempts()
        pages = Pages([*attempts, *site.raw_attempts()])
        pages.go.set()
        async with pages, browsing(f"http://{host}:{pages.port}/", tmp_path / "browser"):
            outcomes = await pages.outcomes()
        assert await site.commands() == before
        assert await site.refused() >= len(attempts)
        assert await state_of_prey(site) == "ready"
    assert len(outcomes) == len(attempts) + 4
    assert {end for _, _, end in outcomes} == {"failed", "opaque", "loaded"}


async def test_a_page_of_an_allowed_origin_adds_a_job_and_reads_the_answer(
    own_server: RedisServer, tmp_path: Path
) -> None:
    (port,) = free_ports(1)
    async with started(own_server, tmp_path, f'allowed_origins = ["http://good.example:{port}"]') as site:
        attempts: list[Attempt] = [
            ("json", f"{site.url}/command", ADD_WHOLE, "POST"),
            ("fetch", f"{site.url}/command", "{", "POST"),
            ("fetch", f"{site.url}/lmstfy/api/good/q?delay=0", "x", "PUT"),
            ("fetch", f"{site.url}/nowhere", None, "GET"),
            ("fetch", f"{site.url}/healthz", None, "GET"),
            ("socket", f"{site.url}/healthz", None, None),
        ]
        pages = Pages(attempts, port=port)
        pages.go.set()
        async with pages, browsing(f"http://good.example:{port}/", tmp_path / "browser"):
            ends = [end for _, _, end in await pages.outcomes()]
        assert json.loads(ends[0].removeprefix("200 "))["success"]
        assert [end[:3] for end in ends[1:5]] == ["400", "201", "404", "200"]
        assert ends[5] == "failed"


async def test_a_page_whose_name_is_rebound_to_the_service_does_nothing(
    own_server: RedisServer, tmp_path: Path
) -> None:
    """The page comes from the host and the port that the service has afterwards, so it is of the same origin."""
    site = Site(own_server, tmp_path)
    name = "rebound.example"
    attempts = site.attempts(name)
    collector = Pages([])
    page = Pages(attempts, home=f"http://{name}:{collector.port}", port=site.port)
    async with collector:
        await page.__aenter__()
        async with browsing(f"http://{name}:{site.port}/", tmp_path / "browser"):
            await page.was_opened.wait()
            await page.__aexit__()
            async with site.service, Client(site.url) as client:
                assert (await client.ask("add", topic="prey/queue", id="prey", body="x"))["success"]
                before = await site.commands()
                collector.go.set()
                outcomes = await collector.outcomes()
                assert await site.commands() == before
                assert await state_of_prey(site) == "ready"
                assert await site.refused() >= len(attempts)
    assert not any("jobqueue_" in end or '"status":"up"' in end for _, _, end in outcomes)
