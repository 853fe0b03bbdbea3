"""The Sentinel and Cluster sets that other tests rely on behave as documented, as seen through redis-py."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Any

import pytest
from redis.asyncio import RedisCluster, Sentinel
from redis.exceptions import ConnectionError, ReadOnlyError

from tests.kit.redis_cluster import ClusterSet, slot_of
from tests.kit.redis_network import Network
from tests.kit.redis_node import Access, RedisNode
from tests.kit.redis_sentinels import NAME, SentinelSet

ACCESS = Access("jq", "a-word")
WORDS: dict[str, Any] = {"username": ACCESS.user, "password": ACCESS.password}


@contextlib.asynccontextmanager
async def _master(sentinels: SentinelSet) -> AsyncIterator[Any]:
    hosts = [("127.0.0.1", node.port) for node in sentinels.sentinels]
    found: Any = Sentinel(hosts, **WORDS)  # type: ignore[no-untyped-call]
    async with found.master_for(NAME) as client:
        yield client
    for sentinel in found.sentinels:
        await sentinel.aclose()


def _cluster(cluster: ClusterSet) -> Any:
    return RedisCluster("127.0.0.1", cluster.nodes[0].port, **WORDS)


async def _insist(client: Any, *command: str) -> Any:
    while True:
        try:
            return await client.execute_command(*command)
        except (ConnectionError, ReadOnlyError):
            await asyncio.sleep(0.02)


async def test_a_sentinel_set_goes_on_with_another_master_when_one_is_killed_frozen_or_told_to_step_down() -> None:
    async with SentinelSet(access=ACCESS) as sentinels, _master(sentinels) as client:
        await client.set("word", "kept")
        await sentinels.settled()
        first = await sentinels.master()
        first.kill()
        second = await sentinels.failed_over(first)
        assert await _insist(client, "GET", "word") == b"kept"

        await first.start()
        await sentinels.settled()
        assert len(await sentinels.replicas()) == 2
        assert await sentinels.failover(second) is not second
        third = await sentinels.master()
        await sentinels.settled()

        third.freeze()
        assert await sentinels.failed_over(third) is not third
        third.thaw()
        await sentinels.settled()
        assert await _insist(client, "GET", "word") == b"kept"


async def test_a_master_that_is_cut_off_with_the_service_goes_on_as_one_until_the_network_is_whole_again() -> None:
    network = Network()
    async with SentinelSet(network=network, down_after_ms=300) as sentinels:
        assert await _reached(sentinels) == sentinels.servers
        old = await sentinels.master()
        network.cut_off([old.host], with_service=True)
        new = await sentinels.failed_over(old)
        assert [(await node.ask("ROLE"))[0] for node in (old, new)] == ["master", "master"]
        assert await _reached(sentinels) == [old]

        network.cut_off([old.host], with_service=False)
        assert await _reached(sentinels) == sentinels.servers
        assert (await old.ask("ROLE"))[0] == "master"

        network.heal()
        await sentinels.settled()
        assert await sentinels.master() is new
        assert old in await sentinels.replicas()


async def _reached(sentinels: SentinelSet) -> list[RedisNode]:
    """The servers that answer a caller at the service's address."""
    answers = await asyncio.gather(*(_answers("127.0.0.1", node.port) for node in sentinels.servers))
    return [node for node, answer in zip(sentinels.servers, answers, strict=True) if answer]


async def _answers(host: str, port: int) -> bool:
    incoming, outgoing = await asyncio.open_connection(host, port)
    outgoing.write(b"PING\r\n")
    try:
        async with asyncio.timeout(3):  # a server on a busy machine takes its time, one that is cut off never answers
            return await incoming.readline() == b"+PONG\r\n"
    except TimeoutError:
        return False
    finally:
        outgoing.close()


async def test_a_master_with_an_append_only_file_comes_back_with_what_it_had() -> None:
    async with SentinelSet("appendonly yes", "appendfsync always", down_after_ms=20_000) as sentinels:
        master = await sentinels.master()
        await master.ask("SET", "word", "kept")
        master.kill()
        await master.start()
        assert await master.ask("GET", "word") == "kept"


async def test_a_cluster_goes_on_with_the_replica_of_a_master_that_is_killed() -> None:
    async with ClusterSet(access=ACCESS) as cluster, _cluster(cluster) as client:
        await client.set("{jq:0}:word", "kept")
        await cluster.settled()
        master = await cluster.master_of("{jq:0}:word")
        [replica] = await cluster.replicas_of(master)
        master.kill()
        await cluster.failed_over(master)
        assert await cluster.master_of("{jq:0}:word") is replica
        assert await client.get("{jq:0}:word") == b"kept"

        await master.start()
        await cluster.settled()
        assert await cluster.replicas_of(replica) == [master]
        assert await cluster.failover(replica) is master
        assert await client.get("{jq:0}:word") == b"kept"


async def test_a_slot_moves_to_another_master_and_back_with_all_its_keys() -> None:
    async with ClusterSet(access=ACCESS, replicas=0) as cluster, _cluster(cluster) as client:
        keys = [f"{{jq:0}}:{number}" for number in range(25)]
        for key in keys:
            await client.set(key, key)
        home = await cluster.master_of(keys[0])
        away = next(node for node in await cluster.masters() if node is not home)
        assert await cluster.move_slot(slot_of(keys[0]), away, batch=10) == 25
        assert await cluster.master_of(keys[0]) is away
        assert (await home.ask("DBSIZE"), await away.ask("DBSIZE")) == (0, 25)
        assert [await client.get(key) for key in keys] == [key.encode() for key in keys]

        assert await cluster.move_slot(slot_of(keys[0]), home) == 25
        assert await cluster.move_back_and_forth(keys[0], batch=7) == 50
        assert await cluster.master_of(keys[0]) is home
        assert await client.get(keys[-1]) == keys[-1].encode()


async def test_a_set_ends_its_servers_when_its_test_fails() -> None:
    with pytest.raises(ZeroDivisionError):
        async with ClusterSet(replicas=0) as cluster:
            cluster.nodes[0].freeze()
            _ = 1 / 0
    assert not any([await _listens(node) for node in cluster.nodes])
    assert not cluster.nodes[0].folder.exists()


async def _listens(node: RedisNode) -> bool:
    try:
        await node.ask("PING")
    except OSError:
        return False
    return True
