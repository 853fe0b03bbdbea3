"""The service is killed, and Redis fails over, under load by a dialect: nothing acknowledged is lost, none is early."""

from __future__ import annotations

import asyncio
import os
import random
from pathlib import Path

import pytest

from buckets.redis.client import Redis
from tests.kit.redis_sentinels import SentinelSet
from tests.kit.redis_server import RedisServer
from tests.wires.drivers import Driver
from tests.wires.drivers.beanstalkd import Beanstalkd
from tests.wires.drivers.native import Native
from tests.wires.drivers.queue_server import QueueServer
from tests.wires.load import TOPIC, Load
from tests.wires.serving import DRIVERS, Wires

KILLS = int(os.environ.get("TEST_KILLS", "3"))
TTR_S = 2.0


def load_on(wires: Wires, kind: type[Driver]) -> Load:
    async def is_empty() -> bool:
        async with wires.native() as native:
            counts = (await native.ask("stats", topic=TOPIC)).get("counts", {"": 1})
            return not any(counts.values())

    return Load(lambda: wires.driver(kind, ttr_s=TTR_S), lambda: wires.popper(kind, ttr_s=TTR_S), is_empty)


@pytest.mark.parametrize("kind", [each for each in DRIVERS if each is not Native], ids=lambda kind: kind.NAME)
async def test_a_service_killed_again_and_again_under_a_dialect_loses_nothing(
    kind: type[Driver], redis_server: RedisServer, redis: Redis, tmp_path: Path
) -> None:
    wires = Wires(("--redis", redis_server.url), tmp_path)
    chance, load = random.Random(KILLS), load_on(wires, kind)
    await wires.service.start()
    try:
        async with load.running():
            for _ in range(KILLS):
                await asyncio.sleep(chance.uniform(0.3, 0.9))
                await wires.service.kill()
                await wires.service.start()
        await load.check()
        await wires.check_books()
    finally:
        await wires.service.stop()
    wires.check_log()


@pytest.mark.parametrize("kind", [Beanstalkd, QueueServer], ids=lambda kind: kind.NAME)
async def test_a_failover_under_a_dialect_loses_nothing(kind: type[Driver], tmp_path: Path) -> None:
    async with SentinelSet() as sentinels:
        wires = Wires(("--redis", sentinels.url), tmp_path, more='durability = "replicated"\n')
        load = load_on(wires, kind)
        await wires.service.start()
        try:
            async with load.running():
                await asyncio.sleep(1)
                old = await sentinels.master()
                old.kill()
                await sentinels.failed_over(old)
                await asyncio.sleep(1)
            await load.check()
            await wires.check_books()
        finally:
            await wires.service.stop()
    wires.check_log()
