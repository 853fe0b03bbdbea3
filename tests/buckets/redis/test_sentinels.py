"""buckets.redis.sentinels: the master that Sentinels name, through failovers, without a restart of the service."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from buckets.errors import Unavailable
from buckets.job import NewJob
from buckets.pool.codec import Added
from buckets.pool.pool import Pool
from buckets.redis.client import Redis
from tests.buckets.jobs import add, finish, pop_one, state
from tests.buckets.waiting.parked import hearing, job_of, park
from tests.kit.redis_network import Network
from tests.kit.redis_node import Access, RedisNode
from tests.kit.redis_sentinels import SentinelSet
from tests.kit.redis_server import RedisServer
from tests.kit.waiting import until


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def sentinels() -> AsyncIterator[SentinelSet]:
    async with SentinelSet() as servers:
        yield servers


@pytest.fixture
async def redis(sentinels: SentinelSet) -> AsyncIterator[Redis]:
    """A client of the master, which is empty. Its deadline is for a machine that has other work: an election takes a
    second or two, and a busy one three times as long."""
    await sentinels.settled()
    redis = Redis(sentinels.url, timeout_s=15)
    await redis.read("FLUSHALL")
    yield redis
    await redis.close()


async def test_a_failover_is_survived_without_a_restart(redis: Redis, sentinels: SentinelSet) -> None:
    pool = await Pool.open(redis)
    await add(pool, "before", ttr_ms=60_000)
    await redis.read("WAIT", "2", "1000")
    await sentinels.failover()
    results = await asyncio.gather(*(pool.add([NewJob(f"{n}", "t", b"")]) for n in range(50)))
    assert all(isinstance(result, Added) for (result,) in results)
    popped = await pop_one(pool)
    assert popped.id == "before"
    assert await finish(pool, popped.id, popped.lease) == "finished"


async def test_a_master_that_is_killed_is_replaced_within_the_deadline(redis: Redis, sentinels: SentinelSet) -> None:
    pool = await Pool.open(redis)
    old = await sentinels.master()
    old.kill()
    assert (await add(pool, "a")).result == "created"
    assert await sentinels.failed_over(old) is not old
    await old.start()


async def test_a_master_that_hangs_is_left_behind_and_its_late_word_counts_for_nothing(
    redis: Redis, sentinels: SentinelSet
) -> None:
    pool = await Pool.open(redis)
    old = await sentinels.master()
    old.freeze()
    adding = asyncio.create_task(add(pool, "a"))
    assert (await adding).result == "created"
    await sentinels.failed_over(old)
    old.thaw()
    await sentinels.settled()
    assert await state(pool, "a") == "ready"


async def test_waiting_pops_are_woken_by_the_new_master(redis: Redis, sentinels: SentinelSet) -> None:
    pool = await Pool.open(redis)
    async with hearing(pool) as waiting:
        parked = await park(waiting)
        await sentinels.failover()
        await add(pool, "a")
        assert (await job_of(parked)).id == "a"


async def test_a_master_that_nobody_knows_is_unavailable_and_the_reason_is_told(sentinels: SentinelSet) -> None:
    redis = Redis(sentinels.url.replace("jq-main", "another"), timeout_s=0.3)
    with pytest.raises(Unavailable):
        await redis.read("PING")
    assert "no Sentinel names the master another" in redis.trouble
    assert "No such master" in redis.trouble
    await redis.close()


async def test_one_sentinel_that_answers_is_enough(sentinels: SentinelSet) -> None:
    for each in sentinels.sentinels[:2]:
        each.freeze()
    redis = Redis(sentinels.url)
    try:
        assert await redis.read("PING") == b"PONG"
    finally:
        for each in sentinels.sentinels[:2]:
            each.thaw()
        await redis.close()


async def test_a_sentinel_that_is_cut_off_is_not_believed_when_the_others_hang(
    caplog: pytest.LogCaptureFixture,
) -> None:
    network = Network()
    async with SentinelSet(network=network) as servers:
        redis = Redis(servers.url)
        old, (aside, *others) = await servers.master(), servers.sentinels
        assert await _port(redis) == old.port
        network.cut_off([old.host, aside.host], with_service=False)
        new = await servers.failed_over(old)
        await until(lambda: _is_at(redis, new))
        for each in others:
            each.freeze()
        await _asked_by_others(aside, 3 * 2)  # two commands each time: the first two have been answered
        assert await _port(redis) == new.port
        await new.ask("CLIENT", "KILL", "TYPE", "normal")  # to reconnect, we ask Sentinels, too
        assert await _port(redis) == new.port
        await redis.close()
    gc.collect()
    assert "never retrieved" not in caplog.text  # of Sentinels that did not answer


async def test_when_the_bell_finds_the_new_master_commands_go_there_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("buckets.redis.sentinels._EVERY_S", 60)
    network = Network()
    async with SentinelSet(network=network) as servers:
        redis = Redis(servers.url)
        pool = await Pool.open(redis)
        async with hearing(pool) as waiting:
            old, aside = await servers.master(), servers.sentinels[0]
            network.cut_off([old.host, aside.host], with_service=False)
            new = await servers.failed_over(old)
            assert await _port(redis) == old.port
            await old.ask("CLIENT", "KILL", "TYPE", "pubsub")
            await until(lambda: _is_at(redis, new))
            await until(waiting.notifier.connected.is_set)
        await pool.close()
        await redis.close()


async def _port(redis: Redis) -> int:
    """The port of the server that it leads to."""
    return int((await redis.read("CONFIG", "GET", "port"))[1])


async def _is_at(redis: Redis, server: RedisNode) -> bool:
    return await _port(redis) == server.port


async def _asked_by_others(sentinel: RedisNode, commands: int) -> None:
    """Wait until it has received this many commands besides our own."""
    first = await _commands(sentinel)
    own = 0

    async def reached() -> bool:
        nonlocal own
        own += 1
        return await _commands(sentinel) - first - own >= commands

    await until(reached)


async def _commands(sentinel: RedisNode) -> int:
    """How many commands it has received."""
    return int((await sentinel.ask("INFO", "stats")).partition("total_commands_processed:")[2].split()[0])


async def test_a_password_for_the_servers_is_none_for_the_sentinels() -> None:
    async with SentinelSet(access=Access("worker", "secret")) as servers:
        redis = Redis(servers.url)
        pool = await Pool.open(redis)
        await add(pool, "a")
        await servers.settled()  # otherwise the new master may not have it
        await servers.failover()
        await until(lambda: _has(pool, "a"))
        await redis.close()


async def _has(pool: Pool, job_id: str) -> bool:
    return await pool.get(job_id) is not None


async def test_behind_a_name_that_leads_elsewhere_commands_and_bells_find_the_new_master(tmp_path: Path) -> None:
    """The old one is read-only for a while before the name changes, and stays alive."""
    (tmp_path / "old").mkdir()
    (tmp_path / "new").mkdir()
    with RedisServer(tmp_path / "old") as old, RedisServer(tmp_path / "new") as new:
        name = tmp_path / "name"
        name.symlink_to(old.socket)
        redis = Redis(f"unix://{name}")
        pool = await Pool.open(redis)
        other = Redis(new.url)
        await Pool.open(other)
        async with hearing(pool) as waiting:
            parked = await park(waiting)
            await asyncio.sleep(0.25)  # connections that are younger are not replaced
            await redis.read("REPLICAOF", "127.0.0.1", "1")
            adding = asyncio.create_task(add(pool, "a"))
            await until(lambda: asked_again(old))
            name.unlink()
            name.symlink_to(new.socket)
            assert (await adding).result == "created"
            assert (await job_of(parked)).id == "a"
        await redis.close()
        await other.close()


async def asked_again(server: RedisServer) -> bool:
    """Whether the server refused more than one script."""
    redis = Redis(server.url)
    said = (await redis.read("INFO", "errorstats")).decode()
    await redis.close()
    return int(said.partition("errorstat_READONLY:count=")[2].split()[0] or 0) > 4 if "READONLY" in said else False
