"""`jobqueue journal on` and `off` as an operator runs them, beside a real service."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from buckets.events.codec import Event, read_all
from buckets.events.switch import GROUP, read_events, stream_key
from buckets.job import Verb
from buckets.redis.client import Redis
from buckets.shards import Shards
from tests.kit.forked import Ran
from tests.kit.redis_cluster import ClusterSet
from tests.kit.redis_server import RedisServer
from tests.kit.service import Client, ServiceProcess
from tests.kit.shell import Shell
from tests.kit.waiting import until


def events_of(fields: Sequence[bytes]) -> list[Event]:
    return [event for event in read_all(fields)[1] if isinstance(event, Event)]


async def journal(*arguments: str) -> Ran:
    return await Shell("").run("journal", *arguments)


async def test_a_running_service_tells_of_its_moves_from_on_to_off(redis_server: RedisServer, redis: Redis) -> None:
    where = ("--redis", redis_server.url)
    async with ServiceProcess(*where) as service, Client(service.url) as client:
        await client.ask("add", topic="t", id="before", body=1)
        ran = await journal("on", *where)
        assert ran == (0, "events are on in 1 shard of 1: at most 1,000,000 entries in each\n", "")
        await client.ask("add", topic="t", id="a", body=1)
        await client.ask("delete", id="a")
        entries = await redis.read("XRANGE", "{jq:0}:e", "-", "+")
        told = [(event.id, event.verb) for _, fields in entries for event in events_of(fields)]
        assert told == [("a", Verb.ADD), ("a", Verb.DELETE)]
        ran = await journal("off", "--drop", *where)
        assert (ran.code, ran.out) == (1, "")
        assert ran.err == "shard 0: its stream stays: no journal has acknowledged 2 of its entries\n"
        await client.ask("add", topic="t", id="after", body=1)
        given = await redis.read("XREADGROUP", "GROUP", GROUP, "r", "STREAMS", "{jq:0}:e", ">")
        assert [entry[0] for entry in given[0][1]] == [entry[0] for entry in entries]
        await redis.read("XACK", "{jq:0}:e", GROUP, *(entry[0] for entry in entries))
        ran = await journal("off", "--drop", *where)
        assert ran == (0, "events are off in 1 shard of 1, and their streams are empty\n", "")
        assert await journal("off", *where) == (0, "events are off in 1 shard of 1\n", "")
        stream = (await read_events(Shards(redis, "jq", 1, 8), 0)).stream
        assert stream and stream.entries == 0


async def test_a_redis_that_was_emptied_under_the_service_tells_of_its_moves_again(
    redis_server: RedisServer, redis: Redis, tmp_path: Path
) -> None:
    where, log = ("--redis", redis_server.url), tmp_path / "log"
    shards = await Shards.open(redis, shards=3)
    ran = await journal("on", "--entries", "5000", "--touches", *where)
    assert ran == (0, "events are on in 3 shards of 3: at most 5,000 entries in each, touches too\n", "")
    words = [(await read_events(shards, shard)).word for shard in range(3)]
    async with ServiceProcess(*where, workers=2, log=log) as service, Client(service.url) as client:
        await until(lambda: "service.started" in log.read_text())  # before, its supervisor would end with the namespace
        await until(lambda: has_timers_in(client, {"0", "1", "2"}))  # then it knows of each shard that events are on
        await redis.read("FLUSHALL")

        async def founded() -> bool:
            return all([(await read_events(shards, shard)).stream for shard in range(3)])

        await until(founded)
        for shard in range(3):
            events = await read_events(shards, shard)
            assert events.switch == (5_000, True)
            assert events.word and events.word not in words
        await client.ask("add", topic="t", id="a", body=1)
        assert sum([await redis.read("XLEN", stream_key(shards, shard)) for shard in range(3)]) == 1


async def has_timers_in(client: Client, shards: set[str]) -> bool:
    rows = (await client.ask("instances"))["instances"]
    return {shard for row in rows for shard in row["timers"] or ()} == shards


@pytest.mark.parametrize("entries", ["999", "1000000001", "0", "-1", "many"])
async def test_a_number_of_entries_that_cannot_be_is_refused(entries: str) -> None:
    ran = await journal("on", "--entries", entries)
    assert ran.code == 2 and "--entries" in ran.err


async def test_what_cannot_begin_says_why(redis_server: RedisServer, redis: Redis) -> None:
    where = ("--redis", redis_server.url)
    for words, *flags in (
        ("there is no namespace jq in this Redis; start the service first", *where),
        ("namespace in the flags", "--namespace", "a b", *where),
        ("the setting redis is not a valid Redis URL", "--redis", "nonsense"),
        ("no such file", "--redis", "unix:///nowhere/redis.sock"),
    ):
        ran = await journal("on", *flags)
        assert (ran.code, ran.out) == (2, "")
        assert ran.err.startswith("Error: ") and words in ran.err
    assert await redis.read("DBSIZE") == 0
    await redis.read("HSET", "{jq:0}:meta", "format", "2")
    ran = await journal("off", *where)
    assert ran.code == 2 and "of another version or damaged" in ran.err


async def test_a_shard_that_does_not_answer_is_named_and_the_others_are_switched() -> None:
    async with ClusterSet(replicas=0, timeout_ms=60_000) as servers:  # nothing replaces the master
        redis = Redis(servers.url)
        shards = await Shards.open(redis, shards=4, buckets=1)
        dead = await servers.master_of(shards.keys[2].meta)
        gone = [shard for shard in range(4) if await servers.master_of(shards.keys[shard].meta) is dead]
        dead.freeze()
        where = ("--redis", servers.url)
        ran = await Shell("", JOBQUEUE_REDIS_TIMEOUT_S="1").run("journal", "on", *where)
        assert ran.code == 1
        assert [line.partition(":")[0] for line in ran.err.splitlines()] == [f"shard {shard}" for shard in gone]
        assert ran.out == f"events are on in {4 - len(gone)} shards of 4: at most 1,000,000 entries in each\n"
        dead.thaw()
        assert [bool((await read_events(shards, shard)).switch) for shard in range(4)] == [
            shard not in gone for shard in range(4)
        ]
        ran = await journal("on", *where)
        assert (ran.code, ran.out) == (0, "events are on in 4 shards of 4: at most 1,000,000 entries in each\n")
        await redis.close()
