"""buckets.redis.cluster: one namespace over the servers of a Cluster, while slots move and masters fail."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from buckets.errors import Unavailable
from buckets.fsck.check import Fsck
from buckets.job import NewJob
from buckets.keys import shard_of
from buckets.pool.codec import Added
from buckets.pool.pool import Pool
from buckets.redis.client import Redis
from buckets.timers.timer import Awake, Timer
from buckets.topics.topics import Topics
from tests.buckets.instances import Instance, ended
from tests.buckets.jobs import add
from tests.buckets.waiting.parked import hearing, job_of, park
from tests.kit.redis_cluster import ClusterSet, slot_of
from tests.kit.redis_network import Network
from tests.kit.redis_node import Access, RedisNode
from tests.kit.waiting import until

SHARDS = 16


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def cluster() -> AsyncIterator[ClusterSet]:
    async with ClusterSet() as servers:
        yield servers


@pytest.fixture
async def redis(cluster: ClusterSet) -> AsyncIterator[Redis]:
    """A client of the Cluster, which is empty."""
    await cluster.settled()
    redis = Redis(cluster.url)
    for server in await redis.servers():
        await server.read("FLUSHALL")
    yield redis
    await redis.close()


@pytest.fixture
async def pool(redis: Redis) -> AsyncIterator[Pool]:
    pool = await Pool.open(redis, shards=SHARDS, buckets=2)
    yield pool
    await pool.close()


def jobs(number: int, prefix: str = "") -> list[NewJob]:
    return [NewJob(f"{prefix}{n}", "t", b"x", ttr_ms=60_000) for n in range(number)]


async def test_a_topic_is_spread_over_all_servers_and_popped_from_all(pool: Pool, redis: Redis) -> None:
    added = await pool.add(jobs(300))
    assert [each.result for each in added if isinstance(each, Added)] == ["created"] * 300
    sizes = [int(await server.read("DBSIZE")) for server in await redis.servers()]
    assert len(sizes) == 3
    assert min(sizes) > 40
    popped = (await pool.pop(["t"], 300)).jobs
    assert sorted(int(job.id) for job in popped) == list(range(300))
    assert Counter(await pool.finish([(job.id, job.lease) for job in popped])) == {"finished": 300}
    assert (await Topics(pool).stats("t")).counts["reserved"] == 0


@pytest_asyncio.fixture
async def steady() -> AsyncIterator[tuple[ClusterSet, Pool]]:
    """A Cluster whose masters are not replaced, however long a busy machine keeps one of them waiting."""
    async with ClusterSet(replicas=0, timeout_ms=15_000) as servers:
        redis = Redis(servers.url)
        pool = await Pool.open(redis, shards=SHARDS, buckets=2)
        yield servers, pool
        await pool.close()
        await redis.close()


async def test_a_slot_that_moves_back_and_forth_is_not_noticed(steady: tuple[ClusterSet, Pool]) -> None:
    """Under load, all commands on all shards; each script is refused as a whole until its slot has moved."""
    cluster, pool = steady
    moving = True
    errors: list[object] = []

    async def work(worker: int) -> int:
        turn = 0
        while moving or turn < 5:
            own = jobs(20, f"{worker}.{turn}.")
            errors.extend(each for each in await pool.add(own) if not isinstance(each, Added))
            popped = (await pool.pop(["t"], 20)).jobs
            ended = await pool.finish([(job.id, job.lease) for job in popped])
            errors.extend(each for each in ended if each != "finished")
            turn += 1
        return turn

    workers = [asyncio.create_task(work(worker)) for worker in range(4)]
    moved = 0
    for shard in range(4):
        moved += await cluster.move_back_and_forth(pool.keys[shard].meta, batch=7)
    moving = False
    turns = await asyncio.gather(*workers)
    assert errors == []
    assert moved > 0
    while popped := (await pool.pop(["t"], 1000)).jobs:
        await pool.finish([(job.id, job.lease) for job in popped])
    stats = await Topics(pool).stats("t")
    assert stats.totals["finished"] == sum(turns) * 20
    assert stats.counts == {"delayed": 0, "ready": 0, "reserved": 0, "dead": 0}
    report = await (await Fsck.open(pool.redis, rest=0)).run()
    assert not report.faults


async def test_a_master_that_is_killed_is_replaced_within_the_deadline(pool: Pool, cluster: ClusterSet) -> None:
    old = cluster.nodes[0]
    masters = [await cluster.master_of(key.meta) for key in pool.keys]
    await pool.add(jobs(100))
    old.kill()
    results = await pool.add(jobs(100, "more"))
    assert all(isinstance(each, Added) for each in results)
    assert await cluster.master_of(pool.keys[masters.index(old)].meta) is not old
    await old.start()
    await cluster.settled()


async def test_shards_on_other_servers_do_not_wait_for_one_that_is_dead(pool: Pool, cluster: ClusterSet) -> None:
    old = await cluster.master_of(pool.keys[0].meta)
    elsewhere = [key for key in pool.keys if await cluster.master_of(key.meta) is not old]
    old.freeze()
    asking = asyncio.create_task(pool.redis.read("TYPE", pool.keys[0].meta))
    await until(lambda: pool.redis.is_away(pool.keys[0].meta))
    assert [pool.redis.is_away(key.meta) for key in elsewhere] == [False] * len(elsewhere)
    assert await asking == b"hash"  # from the server that replaced it
    old.thaw()
    await cluster.settled()


async def test_all_shards_of_a_server_that_is_cut_off_are_passed_over_when_one_of_them_is_refused() -> None:
    async with ClusterSet(network=Network(), replicas=0) as servers:  # nothing replaces it
        redis = Redis(servers.url)
        pool = await Pool.open(redis, shards=SHARDS, buckets=2)
        old = await servers.master_of(pool.keys[0].meta)
        own = [key for key in pool.keys if await servers.master_of(key.meta) is old]
        assert servers.network
        servers.network.cut_off([old.host], with_service=False)
        await until(lambda: servers.is_alone(old))
        asking = asyncio.create_task(redis.read("TYPE", own[0].meta))
        await until(lambda: redis.is_away(own[0].meta))
        assert [key for key in pool.keys if redis.is_away(key.meta)] == own
        servers.network.heal()
        assert await asking == b"hash"
        await until(lambda: not any(redis.is_away(key.meta) for key in own))
        await pool.close()
        await redis.close()


async def test_waiting_pops_are_woken_by_a_shard_on_its_new_server(pool: Pool, cluster: ClusterSet) -> None:
    async with hearing(pool) as waiting:
        parked = [await park(waiting, ("t",)) for _ in range(SHARDS)]
        for shard in range(4):
            await cluster.move_back_and_forth(pool.keys[shard].meta)
        await pool.add(jobs(100))
        assert len({(await job_of(each)).id for each in parked}) == SHARDS


async def test_a_password_is_shown_to_all_servers() -> None:
    async with ClusterSet(access=Access("worker", "secret"), replicas=0) as servers:
        redis = Redis(servers.url)
        pool = await Pool.open(redis, shards=4)
        await pool.add(jobs(20))
        assert len((await pool.pop(["t"], 20)).jobs) == 20
        await redis.close()


async def test_one_server_of_the_url_that_answers_is_enough(cluster: ClusterSet) -> None:
    host = cluster.nodes[0].address
    redis = Redis(f"redis+cluster://127.0.0.1:1,{host}")
    pool = await Pool.open(redis, "few", shards=SHARDS)
    assert (await add(pool, "a")).result == "created"
    await redis.close()


async def test_no_server_that_answers_is_unavailable() -> None:
    redis = Redis("redis+cluster://127.0.0.1:1,127.0.0.1:2", timeout_s=0.3)
    with pytest.raises(Unavailable, match="no server of the Cluster"):
        await redis.read("TYPE", "a")
    await redis.close()


async def test_who_has_jobs_on_living_servers_does_not_wait_with_those_whose_server_is_dead(
    pool: Pool, cluster: ClusterSet
) -> None:
    """Adds and finishes of the same loop turn share scripts, but not their errors."""
    old = await cluster.master_of(pool.keys[0].meta)
    mine = [NewJob(f"{n}", "t", b"", ttr_ms=60_000) for n in range(64)]
    lost = [await cluster.master_of(pool.keys[shard_of(job.id, SHARDS)].meta) is old for job in mine]
    old.freeze()
    adding = [asyncio.create_task(add(pool, job.id)) for job in mine]
    living = [task for task, dead in zip(adding, lost, strict=True) if not dead]
    await asyncio.gather(*living)
    assert not any(task.done() for task, dead in zip(adding, lost, strict=True) if dead)
    old.thaw()
    await asyncio.gather(*adding)
    await cluster.settled()


async def test_finishes_for_a_dead_server_hold_up_no_pop_on_the_others() -> None:
    async with ClusterSet(replicas=0) as servers:  # nothing replaces it
        redis = Redis(servers.url, timeout_s=3)
        pool = await Pool.open(redis, shards=SHARDS, buckets=2)
        dead = await servers.master_of(pool.keys[0].meta)
        lost = next(f"{n}" for n in range(64) if shard_of(f"{n}", SHARDS) == 0)
        dead.kill()
        await until(lambda: pool.redis.is_away(pool.keys[0].meta))
        sent = asyncio.Event()
        finishing = asyncio.create_task(pool.finish([(lost, None)], sent.set))
        async with asyncio.timeout(2):
            await sent.wait()
        assert not finishing.done()
        assert isinstance((await finishing)[0], Unavailable)
        await pool.close()
        await redis.close()


async def test_timers_of_a_dead_server_keep_no_waiting_pop_from_jobs_on_the_others() -> None:
    async with ClusterSet(replicas=0, timeout_ms=60_000) as servers:  # nothing replaces it
        redis = Redis(servers.url)
        pool = await Pool.open(redis, shards=SHARDS, buckets=1)
        async with hearing(pool) as waiting:
            dead = await servers.master_of(pool.keys[0].meta)
            own = [shard for shard, key in enumerate(pool.keys) if await servers.master_of(key.meta) is dead]
            locks = Instance(pool).locks
            timers = [Timer(pool, waiting, locks[shard], 0, Awake(0)) for shard in own]
            parked = await park(waiting)
            for timer in timers:
                await timer.tick()
                timer._held.set()
            dead.freeze()
            running = [asyncio.create_task(timer.run()) for timer in timers]
            await until(lambda: redis.is_away(pool.keys[0].meta))
            alive = next(f"{n}" for n in range(64) if shard_of(f"{n}", SHARDS) not in own)
            await add(pool, alive)
            async with asyncio.timeout(redis.timeout_s / 2):
                assert (await parked).jobs[0].id == alive
            dead.thaw()
            await ended(running)
        await pool.close()
        await redis.close()


async def test_a_slot_that_moves_holds_up_only_pops_that_must_wait_for_it(pool: Pool, cluster: ClusterSet) -> None:
    """Jobs of all other shards go on, however long the move takes."""
    await pool.add(jobs(200))
    key = pool.keys[0].meta
    home, slot = await cluster.master_of(key), slot_of(key)
    away = next(node for node in await cluster.masters() if node is not home)
    await away.ask("CLUSTER", "SETSLOT", slot, "IMPORTING", await home_id(home))
    await home.ask("CLUSTER", "SETSLOT", slot, "MIGRATING", await home_id(away))
    here = [job.id for job in jobs(200) if shard_of(job.id, SHARDS) == 0]
    got: list[str] = []
    while len(got) < 200 - len(here):
        async with asyncio.timeout(pool.redis.timeout_s / 2):
            got += [job.id for job in (await pool.pop(["t"])).jobs]
    assert not set(got) & set(here)
    await away.ask("CLUSTER", "SETSLOT", slot, "STABLE")
    await home.ask("CLUSTER", "SETSLOT", slot, "STABLE")
    await until(lambda: finds(pool, got, 200))


async def home_id(node: RedisNode) -> str:
    return str(await node.ask("CLUSTER", "MYID"))


async def finds(pool: Pool, got: list[str], number: int) -> bool:
    got += [job.id for job in (await pool.pop(["t"], number)).jobs]
    return len(set(got)) == number
