"""Operations over several instances of a service on one Redis: side by side, cancelled, and whatever dies meanwhile."""

from __future__ import annotations

import asyncio
import os
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import aiohttp
import pytest
import pytest_asyncio

from buckets.redis.client import Redis
from tests.kit.redis_server import RedisServer
from tests.kit.service import Client, ServiceProcess
from tests.kit.waiting import PATIENCE_S, until

pytestmark = pytest.mark.asyncio(loop_scope="module")

_INSTANCES = 3
_JOBS = int(os.environ.get("TEST_OPERATED", "2400"))  # that an operation changes while something happens
_KILLS = 3 if _JOBS < 100_000 else 10
_IN_TIME_S = PATIENCE_S + _JOBS / 1000
_HOUR_S = 3600
_AT_ONCE = 1000


class Site:
    """Instances of a service, their Redis, and a client that asks whichever answers."""

    def __init__(self, redis: RedisServer, services: list[ServiceProcess]) -> None:
        self.redis = redis
        self.services = services
        self._turn = 0

    async def ask(self, command: str, actor: str = "", **fields: Any) -> Any:
        """The answer of the next instance that gives one, once the service is there."""
        headers = {"X-Jobqueue-Actor": actor} if actor else {}
        async with aiohttp.ClientSession(headers=headers) as session:
            while True:
                self._turn += 1
                url = self.services[self._turn % len(self.services)].url
                try:
                    async with session.post(f"{url}/command", json={"command": command, **fields}) as response:
                        answer = await response.json()
                except aiohttp.ClientError:
                    continue
                if answer.get("code") not in ("UNAVAILABLE", "SHUTTING_DOWN"):
                    return answer
                await asyncio.sleep(0.05)

    async def fill(self, topic: str, number: int) -> None:
        """Add jobs, `topic:0` on, each due a second after the one before it."""
        async with Client(self.services[0].url) as client:
            for begin in range(0, number, _AT_ONCE):
                adds = [
                    {"command": "add", "topic": topic, "id": f"{topic}:{each}", "body": 1, "delay": _HOUR_S + each}
                    for each in range(begin, min(begin + _AT_ONCE, number))
                ]
                assert all(answer["success"] for answer in await client.batch(adds))

    async def bury(self, topic: str, number: int) -> None:
        """Add jobs and make dead letters of them."""
        async with Client(self.services[0].url) as client:
            for _ in range(0, number, _AT_ONCE):
                some = min(_AT_ONCE, number)
                await client.batch([{"command": "add", "topic": topic, "body": 1} for _ in range(some)])
                jobs = (await client.ask("pop", topic=topic, count=some))["jobs"]
                await client.batch([{"command": "bury", "id": job["id"], "lease": job["lease"]} for job in jobs])
        assert await self.counts(topic) == {"dead": number}

    async def counts(self, topic: str) -> dict[str, int]:
        found = (await self.ask("stats", topic=topic))["counts"]
        return {state: count for state, count in found.items() if count}

    async def dues(self, topic: str) -> dict[str, float]:
        """When each of the delayed jobs of a topic is due."""
        found: dict[str, float] = {}
        cursor = None
        while True:
            more: dict[str, Any] = {"cursor": cursor} if cursor else {}
            page = await self.ask("peek", topic=topic, state="delayed", count=1000, body=False, **more)
            found |= {job["id"]: job["due"] for job in page["jobs"]}
            cursor = page["cursor"]
            if not cursor:
                return found

    async def plan(self, kind: str, topic: str, actor: str = "", **fields: Any) -> Any:
        answer = await self.ask("operation", actor, do="plan", kind=kind, filter={"topic": topic}, **fields)
        await self.reaches(answer["plan"], lambda found: found["state"] == "planned")
        return await self.get(answer["plan"])

    async def start(self, plan: Any, rate: int, actor: str = "") -> Any:
        return await self.ask("operation", actor, do="start", plan=plan["operation"], expect=plan["count"], rate=rate)

    async def get(self, operation: str) -> Any:
        return await self.ask("operation", do="get", operation=operation)

    async def reaches(self, operation: str, is_there: Callable[[Any], bool]) -> Any:
        """Wait until what is known of an operation is so."""

        async def reached() -> bool:
            found = await self.get(operation)
            assert found["state"] not in ("failed", "cancelled"), found
            return is_there(found)

        await until(reached, within_s=_IN_TIME_S, every_s=0.05)
        return await self.get(operation)

    async def ended(self, operation: str) -> Any:
        return await self.reaches(operation, lambda found: found["state"] == "done")

    async def running(self) -> ServiceProcess:
        """The instance that carries operations out: it holds the first timer."""
        held: list[ServiceProcess] = []

        async def found() -> bool:
            rows = (await self.ask("instances"))["instances"]
            pids = {row["pid"] for row in rows if 0 in (row["timers"] or {}).get("0", ())}
            held[:] = [each for each in self.services if each.process and each.process.pid in pids]
            return len(held) == 1

        await until(found, every_s=0.05)
        return held[0]


@pytest_asyncio.fixture(scope="module", loop_scope="module", name="site")
async def one_site() -> AsyncIterator[Site]:
    """Shared by the tests; each has topics of its own. Redis keeps everything on disk."""
    with (
        tempfile.TemporaryDirectory(prefix="jq-") as folder,
        RedisServer(Path(folder), "--appendonly", "yes", "--appendfsync", "always") as redis,
    ):
        services = [ServiceProcess("--redis", redis.url) for _ in range(_INSTANCES)]
        try:
            for service in services:
                await service.start()
            yield Site(redis, services)
        finally:
            for service in services:
                await service.kill()


async def test_of_two_people_at_one_topic_one_waits_and_the_counts_balance(site: Site) -> None:
    await site.bury("shared", 400)
    first, second = await site.plan("kick", "shared", "ann"), await site.plan("kick", "shared", "bob")
    assert (first["by"], second["by"]) == ("ann", "bob")
    assert first["count"] == second["count"] == 400
    await site.start(first, 100, "ann")
    await site.reaches(first["operation"], lambda found: found["done"] > 0)
    await site.start(second, 20_000, "bob")
    assert (await site.get(second["operation"]))["state"] == "waiting"
    first, second = await site.ended(first["operation"]), await site.ended(second["operation"])
    assert second["ended"] >= first["ended"]
    assert first["done"] + second["done"] == 400
    assert first["done"] + first["skipped"] == second["done"] + second["skipped"] == 400
    assert await site.counts("shared") == {"ready": 400}
    actions = (await site.ask("actions"))["actions"]
    started = {row["actor"]: row for row in actions if row["action"] == "operation start"}
    assert {"ann", "bob"} <= started.keys()
    assert started["bob"]["operation"] == second["operation"] and started["bob"]["jobs"] == 400


async def shifted_in_spite_of(site: Site, topic: str, trouble: Callable[[str], Awaitable[None]]) -> None:
    """Jobs are made an hour later while something happens: each exactly once, but for those that were deleted."""
    number, gone = _JOBS, 60
    await site.fill(topic, number)
    before = await site.dues(topic)
    plan = await site.plan("reschedule", topic, shift=_HOUR_S)
    assert plan["count"] == number == len(before)
    await site.start(plan, min(number // 8, 20_000))
    await site.reaches(plan["operation"], lambda found: found["done"] > 0)
    ids = [f"{topic}:{each}" for each in range(gone)]  # the earliest, which come last
    for job_id in ids:
        assert (await site.ask("delete", id=job_id))["success"]
    await trouble(plan["operation"])
    end = await site.ended(plan["operation"])
    assert (end["done"], end["skipped"]) == (number - gone, gone)
    after = await site.dues(topic)
    assert after == {job_id: round(due + _HOUR_S, 3) for job_id, due in before.items() if job_id not in ids}


async def test_another_instance_goes_on_when_the_one_that_changes_jobs_is_killed(site: Site) -> None:
    async def killings(operation: str) -> None:
        for _ in range(_KILLS):
            done = (await site.get(operation))["done"]
            running = await site.running()
            await running.kill()
            await site.reaches(operation, lambda found, done=done: found["done"] > done)  # type: ignore[misc]
            paused = await site.ask("operation", do="pause", operation=operation)  # else it might end meanwhile
            assert paused["state"] == "paused"  # so it was running
            await running.start()
            await site.ask("operation", do="resume", operation=operation)

    await shifted_in_spite_of(site, "killed", killings)


async def test_it_goes_on_when_redis_was_restarted(site: Site) -> None:
    async def restart(operation: str) -> None:
        site.redis.kill()
        site.redis.start()
        assert (await site.get(operation))["done"] < _JOBS

    await shifted_in_spite_of(site, "restarted", restart)


async def test_a_cancelled_one_stops_within_a_second(site: Site) -> None:
    await site.fill("cancelled", 2000)
    plan = await site.plan("run", "cancelled")
    await site.start(plan, 200)
    await site.reaches(plan["operation"], lambda found: found["done"] > 0)
    assert (await site.ask("operation", do="cancel", operation=plan["operation"]))["state"] == "cancelled"
    await asyncio.sleep(1)
    stopped = await site.counts("cancelled")
    assert stopped["delayed"] > 0 and sum(stopped.values()) == 2000
    await asyncio.sleep(1)  # nothing says that nothing happens
    assert await site.counts("cancelled") == stopped


@pytest.mark.parametrize("kind", ["kick", "delete"])
async def test_a_full_redis_takes_no_plan_and_goes_on_with_what_runs(site: Site, kind: str) -> None:
    topic = f"full-{kind}"
    await site.bury(topic, 1000)
    plan = await site.plan(kind, topic)
    await site.start(plan, 200)
    await site.reaches(plan["operation"], lambda found: found["done"] > 0)
    redis = Redis(site.redis.url)
    try:
        await redis.read("CONFIG", "SET", "maxmemory", "1000000")
        refused = await site.ask("operation", do="plan", kind=kind, filter={"topic": topic})
        assert refused["code"] == "NO_ROOM"
        end = await site.ended(plan["operation"])
        assert (end["done"], end["skipped"]) == (1000, 0)
        assert await site.counts(topic) == ({"ready": 1000} if kind == "kick" else {})
    finally:
        await redis.read("CONFIG", "SET", "maxmemory", "0")
        await redis.close()
