"""What `check` and `health` tell of several servers of Redis."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from buckets import Pool, Redis
from buckets.access import Entry, Tokens
from buckets.redis.info import facts_of
from jobqueue.access.tokens import as_json
from jobqueue.health.redis import check_redis
from jobqueue.settings import Settings
from tests.jobqueue.access.records import record
from tests.kit.redis_cluster import ClusterSet
from tests.kit.redis_server import RedisServer

SHARDS = 6


async def test_each_server_of_a_cluster_is_told_with_its_replicas_and_its_shards() -> None:
    async with ClusterSet() as cluster:
        redis = Redis(cluster.url)
        pool = await Pool.open(redis, shards=SHARDS, buckets=2)
        found: dict[str, list[str]] = {}
        async for finding in check_redis(redis, Settings(redis=cluster.url)):
            found.setdefault(finding.subject, []).append(finding.sentence)
        servers = {subject: words for subject, words in found.items() if subject.startswith("redis ")}
        assert len(servers) == 3
        assert all(words[0].endswith(", 1 replica") for words in servers.values())
        shards = [words[-1].partition("jq: ")[2].split(", ") for words in servers.values()]
        assert sorted(shard for some in shards for shard in some) == [str(shard) for shard in range(SHARDS)]
        await pool.close()
        await redis.close()


async def told(redis: Redis, subject: str, **given: Any) -> list[tuple[str, str]]:
    findings = [finding async for finding in check_redis(redis, Settings(**given))]
    return [(each.level, each.sentence) for each in findings if each.subject == subject]


async def test_memory_that_is_full_or_nearly_is_reported_with_what_is_refused(own_server: RedisServer) -> None:
    redis = Redis(own_server.url)

    async def levels(limit: int) -> list[tuple[str, str]]:
        await redis.read("CONFIG", "SET", "maxmemory", str(limit))
        return [each for each in await told(redis, "redis") if "(maxmemory)" in each[1]]

    await redis.read("SETRANGE", "filler", str(40 << 20), "x")
    used = int((await facts_of(redis))["used_memory"])
    assert await levels(4 * used) == await levels(0) == []
    ((level, sentence),) = await levels(used + used // 20)
    assert level == "warn" and sentence.endswith("jobqueue topics")
    ((level, sentence),) = await levels(used // 2)
    assert level == "bad" and sentence.startswith("full: ") and "adds are refused (NO_ROOM)" in sentence
    await redis.close()


async def test_a_service_that_asks_for_tokens_and_has_none_lets_nobody_in(
    live_pool: Pool, redis: Redis, tmp_path: Path
) -> None:
    (tmp_path / "tokens.toml").write_text("")  # as good as none
    ((level, sentence),) = await told(redis, "access", access="tokens", tokens_file=str(tmp_path / "tokens.toml"))
    assert level == "bad" and "jobqueue token create" in sentence and "docs/redis-lost.md" in sentence
    assert await told(redis, "access") == []
    for number, (other, is_enough) in enumerate([({"revoked": 1.0}, False), ({}, True)]):
        given = record("look", id=f"token{number:03}", digest="ab" * 32, changed=number + 1, **other)
        await Tokens(live_pool).write([Entry(given.id, given.changed, as_json(given))])
        assert (await told(redis, "access", access="tokens") == []) == is_enough
