"""deploy/prometheus: the alerts fire on what a real service reports under a fault, and are quiet before it."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.deploy.prometheus.live import exporting
from tests.deploy.prometheus.recording import Recording, firing, write
from tests.deploy.prometheus.stage import Stage, add_for_ever, background, work_for_ever
from tests.deploy.prometheus.test_rules import promtool
from tests.kit.ports import free_ports
from tests.kit.waiting import until


async def kills(ports: list[int]) -> dict[str, Any]:
    """One instance of two is killed, then the other."""
    async with Stage(ports[:2]) as stage, Recording(*stage.targets) as recording:
        await recording.minutes(3)
        await stage.services[0].kill()
        await until(stage.second_holds_all, 60, every_s=0.05)
        one_left = await recording.minutes(3)
        await stage.services[1].kill()
        none_left = await recording.minutes(3)
    return recording.case(firing(one_left), firing(none_left, "JobqueueNoInstance"))


async def freeze(ports: list[int]) -> dict[str, Any]:
    """Redis is frozen, while clients go on."""
    async with (
        Stage(ports[:1], "redis_timeout_s = 0.5\n") as stage,
        Recording(*stage.targets) as recording,
        background(add_for_ever(stage.client), work_for_ever(stage.client)),
    ):
        before = await recording.minutes(5)
        stage.redis.freeze()
        after = await recording.minutes(10)
        stage.redis.thaw()
    expected = ("JobqueueAnswers", "JobqueueRedisDown", "JobqueueTimersNotHeld")
    return recording.case(firing(before), firing(after, *expected))


async def stall(ports: list[int]) -> dict[str, Any]:
    """Redis stops for a moment, shorter than anybody waits for it, while jobs fall due."""
    async with (
        Stage(ports[:1]) as stage,
        Recording(*stage.targets) as recording,
        background(add_for_ever(stage.client, "t", 1, delay=0.1), work_for_ever(stage.client, "t")),
    ):
        before = await recording.minutes(3)  # fewer than 100 jobs: some may be late on a busy machine
        await stage.client.batch([{"command": "add", "topic": "t", "body": "", "delay": 3}] * 300)
        stage.redis.freeze()
        await asyncio.sleep(3.5)  # until they are due
        stage.redis.thaw()
        after = await recording.minutes(3)
    return recording.case(firing(before), firing(after, "JobqueueOnTime"))


async def backlog(ports: list[int]) -> dict[str, Any]:
    """The workers of one topic are away for a while, those of another give up on all jobs."""
    async with (
        Stage(ports[:1]) as stage,
        Recording(*stage.targets) as recording,
        background(add_for_ever(stage.client)),
    ):
        async with background(work_for_ever(stage.client)):
            before = await recording.minutes(3)
        async with background(add_for_ever(stage.client, "t"), work_for_ever(stage.client, "t", "bury")):
            without = await recording.minutes(14)
        async with background(work_for_ever(stage.client)):
            await until(stage.is_worked_off, 60, every_s=0.05)
            after = await recording.minutes(3)
    waiting = ("JobqueueDeadLetters", "JobqueueNothingPopped", "JobqueueOldestReady")
    return recording.case(
        firing(before), firing(without, *waiting), firing(after, "JobqueueDeadLetters", "JobqueueDelivered")
    )


async def fill(ports: list[int]) -> dict[str, Any]:
    """Redis is filled up."""
    async with (
        Stage(ports[:1], redis=("--maxmemory", "16mb")) as stage,
        exporting(stage.redis.url, ports[1]) as exporter,
        Recording(*stage.targets, jobqueue_redis=exporter) as recording,
        background(work_for_ever(stage.client)),
    ):
        async with background(add_for_ever(stage.client)):
            before = await recording.minutes(3)
        async with background(add_for_ever(stage.client, "t", 20, body="x" * 100_000, delay=600)):
            await until(stage.is_full, 60, every_s=0.1)
            after = await recording.minutes(9)
    expected = ("JobqueueNoRoom", "JobqueueRedisAlmostFull", "JobqueueAnswers")
    return recording.case(firing(before), firing(after, *expected))


FAULTS = (kills, freeze, stall, backlog, fill)


@pytest.fixture(scope="module")
def cases() -> Iterator[dict[str, Any]]:
    """What was recorded under each fault; all of them at the same time, as they wait more than they work."""

    async def all_faults() -> list[dict[str, Any]]:
        ports = free_ports(2 * len(FAULTS))  # at once: no two of them are the same
        return await asyncio.gather(*(fault(ports[2 * n : 2 * n + 2]) for n, fault in enumerate(FAULTS)))

    yield dict(zip((fault.__name__ for fault in FAULTS), asyncio.run(all_faults()), strict=True))


@pytest.mark.parametrize("fault", [fault.__name__ for fault in FAULTS])
def test_the_alerts_of_a_fault_fire_and_no_others(fault: str, cases: dict[str, Any], tmp_path: Path) -> None:
    write(tmp_path / "test.yaml", cases[fault])
    promtool("test", "rules", tmp_path / "test.yaml")
