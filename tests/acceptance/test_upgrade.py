"""`jobqueue upgrade` as an operator runs it, beside real services."""

from __future__ import annotations

import asyncio
import json
import os

import pytest

from buckets import Redis
from buckets.keys import Keys
from buckets.namespace import SLICES_MS, Numbers, found, read_meta
from buckets.pool.pool import Pool
from tests.buckets.instances import sign
from tests.kit import forked
from tests.kit.redis_server import RedisServer
from tests.kit.service import Client, ServiceProcess
from tests.kit.waiting import until


async def upgrade(url: str) -> tuple[int, str, str]:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("JOBQUEUE_")}
    return await forked.ran(("upgrade", "--redis", url), environment)


@pytest.fixture
async def old(redis: Redis) -> Redis:
    """A namespace of two shards that an older version founded."""
    for shard in range(2):
        await found(redis, Keys("jq", shard), Numbers(2, 8), slices_ms=0)
    return redis


async def formats(redis: Redis) -> list[tuple[str, str]]:
    metas = [await read_meta(redis, Keys("jq", shard)) for shard in range(2)]
    return [(meta["format"], meta.get("slices", "")) for meta in metas]


async def joined(redis: Redis, name: str, **known: int) -> None:
    """An instance signs the list of members, with a card as its version writes it."""
    pool = await Pool.open(redis)
    await sign(pool, name)
    card = {"host": "h", "pid": 7, "worker": None, "version": "0.1.0", "name": name, "started": 1, "timers": {}}
    await pool.call("write_card", 0, token=name, card=json.dumps(card | known))


async def test_a_namespace_is_upgraded_while_a_service_runs(old: Redis, redis_server: RedisServer) -> None:
    async with ServiceProcess("--redis", redis_server.url) as service, Client(service.url) as client:
        await client.ask("add", topic="t", id="a", delay=90_000, body=1)

        async def has_card() -> bool:
            return bool(await old.read("HLEN", "{jq:0}:cards"))

        await until(has_card)
        code, output, complaint = await upgrade(redis_server.url)
        assert (code, complaint) == (0, "")
        assert "has format 2: far jobs move into slices" in output
        assert await formats(old) == [("2", str(SLICES_MS))] * 2
        assert (await client.ask("get", id="a"))["state"] == "delayed"
    assert await upgrade(redis_server.url) == (0, "the namespace jq has format 2 already\n", "")


async def test_beside_an_older_instance_it_is_refused_and_nothing_changes(
    old: Redis, redis_server: RedisServer
) -> None:
    await joined(old, "new:1", format=2)
    await joined(old, "old:1")
    code, output, complaint = await upgrade(redis_server.url)
    assert (code, output) == (2, "")
    assert complaint == "Error: of an older version, or not ready yet: old:1. Nothing was changed\n"
    assert await formats(old) == [("1", "")] * 2


async def test_an_older_instance_that_joins_meanwhile_is_named(old: Redis, redis_server: RedisServer) -> None:
    upgrading = asyncio.create_task(upgrade(redis_server.url))

    async def is_upgraded() -> bool:
        return await formats(old) == [("2", str(SLICES_MS))] * 2

    await until(is_upgraded)
    await joined(old, "old:1")
    code, output, complaint = await upgrading
    assert (code, output) == (1, "")
    assert "of an older version: old:1. Stop it now: its timers do not know slices" in complaint
    code, output, again = await upgrade(redis_server.url)
    assert (code, output, again) == (1, "", complaint)


async def test_without_a_namespace_there_is_nothing_to_upgrade(redis: Redis, redis_server: RedisServer) -> None:
    code, _, complaint = await upgrade(redis_server.url)
    assert code == 2 and "there is no namespace jq" in complaint
    assert not await redis.read("KEYS", "*")
