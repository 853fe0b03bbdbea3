"""A failover of Sentinels: what the new master does not have is known as forgotten, and all else is there once."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from buckets.pool.pool import Pool
from buckets.redis.client import Redis
from jobqueue.journal.reading.verdict import FORGOTTEN, UNKNOWN
from tests.jobqueue.journal.reading.drained import Journal, opened, switched_on
from tests.jobqueue.journal.reading.process import JournalProcess
from tests.jobqueue.journal.reading.test_shard import told
from tests.kit.redis_network import Network
from tests.kit.redis_sentinels import SentinelSet
from tests.kit.redis_server import RedisServer


async def fail_over(servers: SentinelSet, pool: Pool, journal: Journal, forgotten: list[str]) -> None:
    """Have jobs told and drained that no replica gets to know, then lose the master."""
    assert servers.network
    old = await servers.master()
    servers.network.cut_off([old.host], with_service=False)
    await told(pool, *forgotten)
    await journal.until_drained()
    await servers.failed_over(old)
    old.kill()
    servers.network.heal()
    await old.start()
    await servers.settled()


async def failovers(url: str, rounds: int) -> None:
    async with SentinelSet(network=Network()) as servers:
        redis = Redis(servers.url)
        pool = await Pool.open(redis)
        await switched_on(pool)
        ids: list[str] = []
        async with opened(pool, url, servers.url) as journal, journal.draining():
            for round_ in range(rounds):
                stays = [f"{round_}-a{n}" for n in range(5)]
                await told(pool, *stays)
                await servers.settled()  # the replicas have all that the master has
                await journal.until_drained()
                lost = [f"{round_}-b{n}" for n in range(5)]
                await fail_over(servers, pool, journal, lost)
                later = [f"{round_}-c{n}" for n in range(5)]
                await told(pool, *later)
                await journal.until_drained(60)
                ids += stays + lost + later
            await must_be_known(journal, ids, rounds)
        await pool.close()
        await redis.close()


async def must_be_known(journal: Journal, ids: list[str], rounds: int) -> None:
    events = await journal.events()
    assert [row["id"] for row in events] == ids
    gaps = await journal.gaps()
    assert [row["kind"] for row in gaps] == [UNKNOWN] + [FORGOTTEN] * rounds
    assert [row["epoch"] for row in gaps] == list(range(rounds + 1))
    ranges = [((row["from_ms"], row["from_seq"]), (row["to_ms"], row["to_seq"])) for row in gaps[1:]]
    marked = [row["id"] for row in events if any(one < (row["ms"], row["seq"]) <= other for one, other in ranges)]
    assert marked == [job_id for job_id in ids if "-b" in job_id]
    # They live by the journal: whoever restores them finds them so.
    assert all(row["state"] == 2 for row in (await journal.jobs()).values())


async def test_what_a_failover_forgot_is_known(sqlite_url: str) -> None:
    async with asyncio.timeout(120):
        await failovers(sqlite_url, 1)


@pytest.mark.slow
async def test_what_ten_failovers_forgot_is_known(journal_url: str) -> None:
    await failovers(journal_url, 10)


async def test_a_redis_that_does_not_answer_for_a_while_is_told_once_with_its_end(
    own_server: RedisServer, sqlite_url: str, tmp_path: Path
) -> None:
    redis = Redis(own_server.url)
    pool = await Pool.open(redis)
    await switched_on(pool)
    async with (
        opened(pool, sqlite_url, own_server.url) as journal,
        JournalProcess(
            own_server.url, sqlite_url, tmp_path / "log", environment={"JOBQUEUE_REDIS_TIMEOUT_S": "0.2"}
        ) as reader,
    ):
        await journal.until_drained()
        own_server.freeze()
        await reader.has_logged("journal.interrupted")
        own_server.thaw()
        await reader.has_logged("journal.resumed")
        await told(pool, "a")
        await journal.until_drained()
        assert [line["shard"] for line in reader.logged("journal.interrupted")] == [0]
        assert len(reader.logged("journal.resumed")) == 1
    await pool.close()
    await redis.close()
