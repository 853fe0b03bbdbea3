"""What the files for nginx and HAProxy promise, shown by two real services behind each."""

from __future__ import annotations

import asyncio
import io
import json
import tempfile
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any, NamedTuple

import aiohttp
import pytest
import pytest_asyncio
from jobqueue_client import AsyncClient
from yarl import URL

from jobqueue.web.fast_path import read
from tests.deploy.proxies.programs import PROXIES, Proxy
from tests.deploy.proxies.recorder import Recorder
from tests.kit.redis_server import RedisServer
from tests.kit.service import ServiceProcess
from tests.kit.waiting import until

pytestmark = pytest.mark.asyncio(loop_scope="module")

LARGEST = 16 << 20  # bytes of a request
SETTINGS = 'allowed_hosts = ["queue.internal"]\n'


class Answer(NamedTuple):
    """What a client gets."""

    status: int
    headers: Mapping[str, str]
    page: bytes


class Stage:
    """Two instances behind a proxy."""

    def __init__(self, proxy: Proxy, instances: list[ServiceProcess], session: aiohttp.ClientSession) -> None:
        self.proxy = proxy
        self.instances = instances
        self._session = session

    async def request(self, method: str, path: str, body: bytes = b"", **headers: str) -> Answer:
        """One request, which is sent once, with the path as it is. Raises aiohttp.ClientError."""
        url, data = URL(self.proxy.url + path, encoded=True), io.BytesIO(body) if body else None
        async with self._session.request(method, url, data=data, headers=headers) as answer:
            return Answer(answer.status, answer.headers, await answer.read())

    async def status_of(self, path: str, **headers: str) -> int:
        return (await self.request("GET", path, b"", **headers)).status

    async def ask(self, command: str, **fields: Any) -> Any:
        answer = await self.request("POST", "/command", json.dumps({"command": command, **fields}).encode())
        assert answer.status == 200, answer
        return json.loads(answer.page)

    async def where_it_waits(self) -> ServiceProcess:
        """The instance that the only waiting pop has come to."""
        await until(lambda: self.wait(1))
        (instance,) = [each for each in self.instances if await each.parked(1)]
        return instance

    async def wait(self, number: int) -> bool:
        """Whether this many pops wait at the instances."""
        return sum([await each.figure("jobqueue_parked_pops") for each in self.instances]) == number

    async def both_are_used(self) -> None:
        """Wait until the proxy sends requests to both instances."""

        async def used() -> bool:
            await self.status_of("/healthz")
            return all([await self.proxy.uses(each.port) for each in self.instances])

        await until(used, within_s=60, every_s=0.05)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def instances() -> AsyncIterator[list[ServiceProcess]]:
    """Two, on one Redis. A test that ends one starts it again."""
    async with AsyncExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="jq-")))
        redis = stack.enter_context(RedisServer(folder))
        settings = folder / "jobqueue.toml"
        settings.write_text(SETTINGS)
        both = [ServiceProcess("--redis", redis.url, "--config", str(settings)) for _ in range(2)]
        await asyncio.gather(*(stack.enter_async_context(each) for each in both))
        yield both


@pytest_asyncio.fixture(scope="module", loop_scope="module", params=PROXIES, ids=lambda kind: kind.name)
async def stage(
    request: pytest.FixtureRequest, instances: list[ServiceProcess], tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Stage]:
    """The instances behind one of the proxies."""
    folder = tmp_path_factory.mktemp("proxy")
    async with request.param(folder, [each.port for each in instances]) as proxy:
        connector = aiohttp.TCPConnector(limit=0, ssl=proxy.tls)
        async with aiohttp.ClientSession(connector=connector) as session:
            yield Stage(proxy, instances, session)


async def test_the_program_finds_nothing_wrong_with_its_file(stage: Stage) -> None:
    said = stage.proxy.check()
    assert "warn" not in said.lower() and "alert" not in said.lower(), said


async def test_a_client_that_hangs_up_in_a_waiting_pop_takes_no_job_with_it(stage: Stage) -> None:
    topic = f"hang-up-{stage.proxy.name}"
    pop = json.dumps({"command": "pop", "topic": topic, "wait": 30}).encode()
    _, writer = await asyncio.open_connection(
        "127.0.0.1", stage.proxy.port, ssl=stage.proxy.tls, server_hostname="localhost"
    )
    writer.write(b"POST /command HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n%s" % (len(pop), pop))
    await until(lambda: stage.wait(1))
    writer.transport.abort()
    await until(lambda: stage.wait(0))
    added = await stage.ask("add", topic=topic, body=1)
    job = await stage.ask("get", id=added["id"])
    assert (job["state"], job["attempt"]) == ("ready", 0)


async def test_only_commands_the_description_and_the_checks_are_public(stage: Stage) -> None:
    public = {path: await stage.status_of(path) for path in ("/healthz", "/readyz", "/openapi.json")}
    assert set(public.values()) == {200}, public
    ways = ("/metrics", "/metrics?x", "/metrics/", "//metrics", "/%6detrics", "/command/../metrics", "/./metrics")
    hidden = {path: await stage.status_of(path) for path in (*ways, "/", "/console", "/login")}
    assert set(hidden.values()) == {404}, hidden


async def test_the_name_that_a_client_asked_for_reaches_the_service(stage: Stage) -> None:
    assert await stage.status_of("/healthz", Host="queue.internal") == 200
    assert await stage.status_of("/healthz", Host="rebound.example") == 421


async def test_the_largest_request_passes(stage: Stage) -> None:
    add = b'{"command": "add", "topic": "large", "body": 1}'
    answer = await stage.request("POST", "/command", add.ljust(LARGEST))
    assert answer.status == 200, answer
    assert (await stage.request("POST", "/command", add.ljust(LARGEST + 1))).status == 413


async def test_a_request_id_goes_to_the_service_and_comes_back(stage: Stage) -> None:
    answer = await stage.request("POST", "/command", b'{"command": "stats"}', **{"X-Request-Id": "order-7"})
    assert answer.headers["X-Request-Id"] == "order-7"


async def test_requests_take_the_fast_path_of_the_service_on_few_connections(stage: Stage, tmp_path: Path) -> None:
    async with AsyncExitStack() as stack:
        recorders = [await stack.enter_async_context(Recorder(each.port)) for each in stage.instances]
        proxy = await stack.enter_async_context(type(stage.proxy)(tmp_path, [each.port for each in recorders]))
        client = await stack.enter_async_context(AsyncClient(proxy.url, ca_file=proxy.ca))
        for number in range(50):
            await client.add("t", number)
        posts = [bytes(each) for recorder in recorders for each in recorder.received if each.startswith(b"POST ")]
    heads = [part for each in posts for part in each.split(b"POST ")[1:]]
    assert len(heads) == 50 and len(posts) <= 4
    assert [head for head in heads if read(b"POST " + head.partition(b"\r\n\r\n")[0] + b"\r\n\r\n") is None] == []


async def test_a_post_whose_instance_dies_is_not_sent_to_the_other_one(stage: Stage) -> None:
    pop = asyncio.create_task(stage.request("POST", "/command", b'{"command": "pop", "topic": "dies", "wait": 30}'))
    instance = await stage.where_it_waits()
    await instance.kill()
    assert await fails(pop)
    await instance.start()
    await stage.both_are_used()


async def fails(request: asyncio.Task[Answer]) -> bool:
    """Whether the proxy gives a request up: with a page of its own, or by hanging up."""
    try:
        return (await request).status == 502
    except aiohttp.ClientConnectionError:
        return True


async def test_an_instance_that_stopped_gets_no_requests_and_one_that_is_back_gets_some(stage: Stage) -> None:
    for instance in stage.instances:
        await instance.stop()
        for _ in range(30):
            await stage.ask("stats")
        await instance.start()
        await stage.both_are_used()
