"""mykit-delay's reStoreJob and reStore, of a service with a journal."""

from __future__ import annotations

import asyncio
import json
import urllib.request
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import pytest

from buckets.job import State
from tests.buckets.events.scheduled import there as schedules
from tests.buckets.jobs import add, delete, finish, get, pop_one, state
from tests.jobqueue.journal.restoring.lost import World
from tests.jobqueue.journal.scheduled import define
from tests.kit.ports import free_port
from tests.kit.redis_server import RedisServer
from tests.kit.service import ServiceProcess
from tests.kit.waiting import until

HOUR = 3_600_000


class Mykit:
    """A client."""

    def __init__(self, port: int) -> None:
        self._port = port

    async def get(self, path: str, **query: str) -> Any:
        """The wrapper."""
        url = f"http://127.0.0.1:{self._port}/{path}?{urlencode(query)}"
        return json.loads(await asyncio.to_thread(lambda: urllib.request.urlopen(url).read()))


@pytest.fixture
async def mykit(world: World, redis_server: RedisServer, sqlite_url: str, tmp_path: Path) -> AsyncIterator[Mykit]:
    """Of a service on the world's Redis, with its journal."""
    dialect = free_port()
    settings = tmp_path / "jobqueue.toml"
    settings.write_text(f'journal = "{sqlite_url}"\n[protocols.mykit]\nport = {dialect}\nprefix = "m."\n')
    async with ServiceProcess("--redis", redis_server.url, "--config", str(settings)):
        yield Mykit(dialect)


async def test_a_job_that_ended_or_was_lost_comes_back_by_its_id(world: World, mykit: Mykit) -> None:
    await add(world.pool, "m.finished", "m.t")
    await finish(world.pool, "m.finished", (await pop_one(world.pool, "m.t")).lease)
    await add(world.pool, "m.forgotten", "m.t", retention_ms=0)
    await delete(world.pool, "m.forgotten")
    await add(world.pool, "m.elsewhere", "t", retention_ms=0)
    await delete(world.pool, "m.elsewhere")
    await add(world.pool, "m.lost", "m.t", delay_ms=HOUR)
    await add(world.pool, "m.lives", "m.t", delay_ms=HOUR)
    await world.drained()
    await world.pool.redis.read("DEL", world.pool.keys[0].job("m.lost"))
    for name in ("finished", "forgotten", "lost", "lives"):
        assert (await mykit.get("reStoreJob", jobId=name))["success"], name
    assert [await state(world.pool, f"m.{name}") for name in ("finished", "forgotten", "lost", "lives")] == [
        *("ready", "ready", "delayed", "delayed"),
    ]
    for name in ("nobody", "elsewhere"):
        told = await mykit.get("reStoreJob", jobId=name)
        assert (told["success"], told["message"]) == (False, "no such job")
    assert await state(world.pool, "m.elsewhere") == "unknown"


async def test_all_jobs_below_the_prefix_come_back(world: World, mykit: Mykit) -> None:
    await add(world.pool, "m.overdue", "m.t", delay_ms=1)
    await add(world.pool, "m.later", "m.t", delay_ms=HOUR)
    await add(world.pool, "later", "t", delay_ms=HOUR)
    await define(world.pool, "below", "m.t")
    await define(world.pool, "elsewhere", "t")
    for expire in (None, "true", "false"):
        await world.drained()
        await world.pool.redis.read("FLUSHALL")  # which the service notices
        await until(lambda: _is_founded(world))
        told = await mykit.get("reStore", **({"expire": expire} if expire else {}))
        number = 1 if expire == "false" else 2
        assert told["success"] and told["data"].startswith(f"restored {number} jobs in "), told
        there = set(await world.records())
        assert there == ({"m.later"} if expire == "false" else {"m.later", "m.overdue"})
        assert (await get(world.pool, "m.later")).state is State.DELAYED
        assert set(await schedules(world.pool)) == {"below"}


async def _is_founded(world: World) -> bool:
    return await world.pool.redis.read("HGET", world.pool.keys[0].meta, "events") is not None
