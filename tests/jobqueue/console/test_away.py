"""The console while the service is away, and how much it asks."""

from __future__ import annotations

import asyncio
import tempfile
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import aiohttp
import pytest

from buckets.redis.client import Redis
from tests.jobqueue.console import contents
from tests.jobqueue.console.consoles import Console, console
from tests.kit.redis_sentinels import SentinelSet
from tests.kit.redis_server import RedisServer
from tests.kit.service import Client, ServiceProcess
from tests.kit.waiting import until

_PAGES = ("/", "/topics", f"/topic?name={contents.TOPIC}", f"/job?id={contents.DELAYED}", "/workers", "/forecast")
_ON_DISK = ("--appendonly", "yes", "--appendfsync", "always")

_IN_TIME_S = 20.0
"""Two seconds are promised; the service waits for a Redis that hangs for longer than these."""
_PATIENT = "redis_timeout_s = 60"
_FRESH_S = 1.1
"""After this, answers are too old not to be asked for again."""


async def carried_out(service: ServiceProcess) -> float:
    """How many commands it has answered."""
    async with aiohttp.ClientSession() as session, session.get(service.url + "/metrics") as response:
        lines = (await response.text()).splitlines()
    return sum(float(line.rpartition(" ")[2]) for line in lines if line.startswith("jobqueue_commands_total{"))


async def in_time(front: Console, path: str) -> tuple[int, str]:
    """Status and text of a page, which has to come in time."""
    begun = time.monotonic()
    response, text = await front.get(path)
    assert time.monotonic() - begun < _IN_TIME_S
    return response.status, text


async def test_pages_keep_their_content_while_the_service_is_away(redis_server: RedisServer) -> None:
    service = ServiceProcess("--redis", redis_server.url, "--namespace", "away")
    async with console(service.url) as front:
        status, text = await in_time(front, "/topics")
        assert status == 503 and "no service listens" in text
        async with service, Client(service.url) as client:
            await contents.fill(client)
            await until(lambda: _is_up(front))
            for path in _PAGES:
                assert (await front.get(path))[0].status == 200
        await asyncio.sleep(_FRESH_S)
        for path in _PAGES:
            status, text = await in_time(front, path)
            assert status == 200 and "The service does not answer" in text and "old: no service listens" in text
        status, text = await in_time(front, "/topic?name=never-seen")
        assert status == 503 and "no service listens" in text
        response, text = await front.post("/do/run", {"id": contents.DELAYED})
        assert response.status == 503 and "no service listens" in text


async def _is_up(front: Console) -> bool:
    return (await front.get("/topics"))[0].status == 200


async def test_pages_keep_their_content_while_redis_hangs_and_while_it_is_restarted() -> None:
    with tempfile.TemporaryDirectory(prefix="jq-") as folder, RedisServer(Path(folder), *_ON_DISK) as redis:
        config = Path(folder) / "jobqueue.toml"
        config.write_text(_PATIENT)
        async with (
            ServiceProcess("--redis", redis.url, "--config", str(config)) as service,
            Client(service.url) as client,
        ):
            await contents.fill(client)
            async with console(service.url) as front:
                await all_well(front)
                redis.freeze()
                try:
                    await all_old(front)
                finally:
                    redis.thaw()
                await until(lambda: _is_well(front))
                await all_well(front)
                redis.kill()
                await all_old(front)
                redis.start()
                await until(lambda: _is_well(front))
                assert contents.DELAYED in (await front.get(f"/job?id={contents.DELAYED}"))[1]


async def test_pages_keep_their_content_until_a_replica_takes_over() -> None:
    async with (
        SentinelSet(down_after_ms=3000) as redis,
        ServiceProcess("--redis", redis.url) as service,
        Client(service.url) as client,
        console(service.url) as front,
    ):
        await contents.fill(client)
        await redis.settled()
        await all_well(front)
        master = await redis.master()
        master.kill()
        await asyncio.sleep(_FRESH_S)
        status, text = await in_time(front, "/topics")
        assert status == 200 and "The service does not answer" in text
        while not await _is_well(front):
            for path in _PAGES:
                assert (await in_time(front, path))[0] == 200, path
        await all_well(front)

        async def is_replaced() -> bool:  # the Sentinel that is asked may hear of it after the service
            return await redis.master() is not master

        await until(is_replaced)


async def test_while_redis_is_full_pages_and_actions_work_and_an_add_is_refused_with_its_reason(
    own_server: RedisServer,
) -> None:
    async with ServiceProcess("--redis", own_server.url) as service, Client(service.url) as client:
        await contents.fill(client)
        async with open_redis(own_server.url) as redis, console(service.url) as front:
            await redis.read("CONFIG", "SET", "maxmemory-policy", "noeviction", "maxmemory", "1")
            for path in contents.PAGES:
                status, text = await in_time(front, path)
                assert status == 200 and "does not answer" not in text, path
            job = {"topic": contents.TOPIC, "id": "order:new", "body": "1"}
            response, text = await front.post("/do/add", job)
            assert response.status == 503
            assert "Redis is full: no job can be added until some are finished" in text
            assert "made due" in await front.note("/do/run", {"id": contents.DELAYED})
            assert "deleted" in await front.note("/do/delete", {"id": contents.DEAD})
            assert "paused" in await front.note("/do/pause", {"topic": contents.TOPIC})
            await redis.read("CONFIG", "SET", "maxmemory", "0")
            await until(lambda: _is_added(front, job))


@asynccontextmanager
async def open_redis(url: str) -> AsyncIterator[Redis]:
    """A connection for what the service does not do."""
    redis = Redis(url)
    try:
        yield redis
    finally:
        await redis.close()


async def _is_added(front: Console, job: dict[str, str]) -> bool:
    return (await front.post("/do/add", job))[0].status == 303


async def all_well(front: Console) -> None:
    """Every page is there, as it is now."""
    for path in _PAGES:
        status, text = await in_time(front, path)
        assert status == 200 and "does not answer" not in text, path


async def all_old(front: Console) -> None:
    """Once the answers are too old, every page has its last content and says so."""
    await asyncio.sleep(_FRESH_S)
    pages = await asyncio.gather(*(in_time(front, path) for path in _PAGES))
    for path, (status, text) in zip(_PAGES, pages, strict=True):
        assert status == 200 and "The service does not answer" in text, path


async def _is_well(front: Console) -> bool:
    response, text = await front.get("/topics")
    return response.status == 200 and "does not answer" not in text


async def test_twenty_viewers_ask_as_much_as_one(redis_server: RedisServer) -> None:
    flags = ("--redis", redis_server.url, "--namespace", "viewers")
    async with ServiceProcess(*flags) as service, console(service.url) as front:
        before, begun = await carried_out(service), time.monotonic()
        for _ in range(3):
            await asyncio.gather(*(front.get("/workers") for _ in range(20)))
            await asyncio.sleep(0.3)
        asked = await carried_out(service) - before
        seconds = time.monotonic() - begun
        assert 2 <= asked <= 2 * (seconds + 1)  # whoami and workers, once a second each


async def test_a_console_that_nobody_looks_at_any_more_asks_nothing_for_a_minute(
    redis_server: RedisServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    loop, passed_s = asyncio.get_running_loop(), 0
    flags = ("--redis", redis_server.url, "--namespace", "idle")
    async with ServiceProcess(*flags) as service, console(service.url) as front:
        for path in _PAGES:
            await front.get(path)
        before = await carried_out(service)
        assert before > 0
        # The minute passes in the console alone, a second at a time, so that whatever it waits for comes.
        monkeypatch.setattr(loop, "time", lambda: time.monotonic() + passed_s)
        monkeypatch.setattr(front.site._questions, "_clock", loop.time)
        for _ in range(60):
            passed_s += 1
            await asyncio.sleep(0.01)
        assert await carried_out(service) == before
        await front.get("/topics")
        assert await carried_out(service) > before, "its answers are too old by now"
