"""The kind `redis-stream`: groups that acknowledge, consumers that die, trimming, lisa's layout, and refusals."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from jobqueue_client import AsyncClient

from buckets.errors import JobQueueError
from buckets.redis.client import Redis
from jobqueue.sinks import Down
from jobqueue.sinks.redis_stream.acks import Acks, Trimming
from tests.jobqueue.sinks.brokers.stage import Stage
from tests.kit.brokers.redis_streams import RedisStreams
from tests.kit.redis_server import RedisServer
from tests.kit.service import ServiceProcess
from tests.kit.waiting import until

ACKED: dict[str, Any] = {"done": "acked", "group": "g", "poll_ms": 20, "ack_timeout_s": 0.5}


@pytest.fixture
async def stage(own_server: RedisServer, tmp_path: Path) -> AsyncIterator[Stage]:
    broker = RedisStreams()
    await broker.start()
    try:
        async with ServiceProcess("--redis", own_server.url) as service, AsyncClient(service.url) as client:
            stage = Stage(broker, service, client, tmp_path)
            yield stage
            await stage.end()
    finally:
        broker.remove()


@pytest.fixture
async def streams(stage: Stage) -> AsyncIterator[Redis]:
    """A client of the Redis of the streams."""
    assert isinstance(stage.broker, RedisStreams)
    redis = Redis(stage.broker.url)
    yield redis
    await redis.close()


Read = list[tuple[bytes, dict[bytes, bytes]]]


async def read(redis: Redis, stream: str = "jobs", group: str = "g", count: int = 10, consumer: str = "c") -> Read:
    """What a consumer gets: ids and fields."""
    try:
        reply = await redis.ask(stream, "XREADGROUP", "GROUP", group, consumer, "COUNT", count, "STREAMS", stream, ">")
    except JobQueueError:  # the group is not there yet
        return []
    return [(entry, dict(zip(fields[::2], fields[1::2], strict=True))) for entry, fields in (reply or [[0, []]])[0][1]]


async def some_read(redis: Redis, **where: Any) -> Read:
    found: list[Any] = []

    async def came() -> bool:
        found.extend(await read(redis, **where))
        return bool(found)

    await until(came, within_s=30)
    return found


async def test_a_job_is_finished_when_the_group_has_acknowledged_it(stage: Stage, streams: Redis) -> None:
    stage.write(**ACKED)
    await stage.add([{"topic": "jobs", "id": "a", "body": {"n": 1}, "ttr": 1}])
    await stage.deliver.start()
    ((entry, fields),) = await some_read(streams)
    assert (fields[b"jobqueue-id"], fields[b"body"]) == (b"a", b'{"n":1}')
    assert (await stage.client.get("a"))["state"] == "reserved"
    await streams.ask("jobs", "XACK", "jobs", "g", entry)
    await stage.until_none_is_left()
    assert (await stage.client.get("a"))["state"] == "finished"


async def test_what_a_consumer_died_with_comes_again_and_is_dead_after_its_tries(stage: Stage, streams: Redis) -> None:
    stage.write(**ACKED)
    await stage.add([{"topic": "jobs", "id": "a", "body": 1, "tries": 2, "backoff": [0.1]}])
    await stage.deliver.start()
    ((first, _),) = await some_read(streams)
    ((second, fields),) = await some_read(streams)
    assert second != first and fields[b"jobqueue-attempt"] == b"2"
    await until(lambda: is_dead(stage, "a"), within_s=30)
    assert (await stage.dead())["a"] == "sink under-test: no ack"
    assert await streams.read("XLEN", "jobs") == 0


async def looks(redis: Redis) -> int:
    """How often what is pending was looked at."""
    stats = (await redis.read("INFO", "commandstats")).decode()
    (calls,) = re.findall(r"cmdstat_xpending:calls=(\d+)", stats) or ["0"]
    return int(calls)


async def is_dead(stage: Stage, job_id: str) -> bool:
    return job_id in await stage.dead()


async def test_an_entry_that_is_cut_off_before_it_is_acknowledged_is_sent_again(stage: Stage, streams: Redis) -> None:
    stage.write(**ACKED | {"ack_timeout_s": 60})
    await stage.add([{"topic": "jobs", "id": "a", "body": 1, "backoff": [0.1]}])
    await stage.deliver.start()
    await some_read(streams)
    await streams.ask("jobs", "XTRIM", "jobs", "MAXLEN", 0)
    await streams.ask("jobs", "XAUTOCLAIM", "jobs", "g", "other", 0, "0-0")  # it is no longer pending
    ((entry, fields),) = await some_read(streams)
    assert fields[b"jobqueue-attempt"] == b"2"
    assert stage.deliver.logged("sink.refused")[0]["reason"] == "no ack"
    await streams.ask("jobs", "XACK", "jobs", "g", entry)
    await stage.until_none_is_left()


async def test_an_entry_that_is_cut_off_before_it_is_read_is_sent_again(stage: Stage, streams: Redis) -> None:
    stage.write(**ACKED)
    await stage.add([{"topic": "jobs", "id": "a", "body": 1, "backoff": [0.1]}])
    await stage.deliver.start()
    await until(lambda: has_entries(streams, 1), within_s=30)
    await streams.ask("jobs", "XTRIM", "jobs", "MAXLEN", 0)
    ((entry, fields),) = await some_read(streams)
    assert fields[b"jobqueue-attempt"] == b"2"
    await streams.ask("jobs", "XACK", "jobs", "g", entry)
    await stage.until_none_is_left()


async def test_a_stream_that_is_deleted_is_made_again_and_is_no_outage(stage: Stage, streams: Redis) -> None:
    stage.write(**ACKED)
    await stage.add([{"topic": "jobs", "id": "a", "body": 1}])
    await stage.deliver.start()
    for _ in range(3):
        await some_read(streams)
        await streams.ask("jobs", "DEL", "jobs")
    ((entry, fields),) = await some_read(streams)
    assert fields[b"jobqueue-attempt"] == b"1"
    await streams.ask("jobs", "XACK", "jobs", "g", entry)
    await stage.until_none_is_left()
    assert not stage.deliver.logged("sink.down") and not stage.deliver.logged("sink.reconnected")


async def test_what_was_pending_with_a_consumer_that_is_deleted_is_sent_again(stage: Stage, streams: Redis) -> None:
    stage.write(**ACKED | {"ack_timeout_s": 60})
    await stage.add([{"topic": "jobs", "id": "a", "body": 1, "backoff": [0.1]}])
    await stage.deliver.start()
    await some_read(streams)
    before = await looks(streams)

    async def is_seen() -> bool:  # with its consumer; a deletion before that is not noticed
        return await looks(streams) > before + 1

    await until(is_seen)
    await streams.ask("jobs", "XGROUP", "DELCONSUMER", "jobs", "g", "c")
    ((entry, fields),) = await some_read(streams, consumer="other")
    assert fields[b"jobqueue-attempt"] == b"2"
    await streams.ask("jobs", "XACK", "jobs", "g", entry)
    await stage.until_none_is_left()


@pytest.mark.parametrize("deletes", [True, False])
async def test_an_acknowledged_entry_may_be_deleted_where_the_settings_say_so(
    stage: Stage, streams: Redis, *, deletes: bool
) -> None:
    stage.write(**ACKED, deletes=deletes)
    await stage.add([{"topic": "jobs", "id": "a", "body": 1, "tries": 1}])
    await stage.deliver.start()
    ((entry, _),) = await some_read(streams)
    script = "redis.call('XACK', KEYS[1], 'g', ARGV[1]) return redis.call('XDEL', KEYS[1], ARGV[1])"
    assert await streams.ask("jobs", "EVAL", script, 1, "jobs", entry) == 1
    await stage.until_none_is_left()
    assert await stage.dead() == ({} if deletes else {"a": "sink under-test: no ack"})


async def test_a_bounded_stream_is_cut_behind_what_its_group_is_done_with(stage: Stage, streams: Redis) -> None:
    number = 500
    stage.write(**ACKED | {"ack_timeout_s": 60}, maxlen=20, timeout_s=1)
    await stage.add([{"topic": "jobs", "id": f"a{n}", "body": n} for n in range(number)])
    await stage.deliver.start()
    seen: list[str] = []
    while len(seen) < number:
        for entry, fields in await some_read(streams):
            seen.append(fields[b"jobqueue-id"].decode())
            await streams.ask("jobs", "XACK", "jobs", "g", entry)
    await stage.until_none_is_left()
    assert sorted(seen) == sorted(f"a{n}" for n in range(number))
    assert stage.deliver.logged("sink.refused") == []


async def test_trimming_to_a_length_keeps_what_the_group_needs(streams: Redis) -> None:
    entries = [await streams.ask("s", "XADD", "s", "*", "n", n) for n in range(700)]
    for group in ("g", "slow"):
        await streams.ask("s", "XGROUP", "CREATE", "s", group, "0")
    trimming = Trimming(streams, Acks(streams, "g", 30, lambda error: Down(error.message)), 50)

    async def left() -> list[bytes]:
        await trimming.trim("s")
        return [entry for entry, _ in await streams.read("XRANGE", "s", "-", "+")]

    assert await left() == entries  # none has been read
    await read(streams, "s", "g", 600)
    await streams.ask("s", "XACK", "s", "g", *entries[:595], *entries[596:600])
    assert await left() == entries[595:]  # one is pending
    await streams.ask("s", "XACK", "s", "g", entries[595])
    assert await left() == entries[600:]
    await read(streams, "s", "g", 100)
    await streams.ask("s", "XACK", "s", "g", *entries[600:])
    assert await left() == entries[650:]


async def test_entries_that_nobody_reads_bound_what_is_taken(stage: Stage, streams: Redis) -> None:
    stage.write(**ACKED, in_flight=5)
    await stage.add([{"topic": "jobs", "id": f"a{n}", "body": 1} for n in range(20)])
    await stage.deliver.start()
    await until(lambda: has_entries(streams, 5), within_s=30)
    assert (await stage.client.stats("jobs"))["counts"]["reserved"] == 5
    for _ in range(20):
        for entry, _fields in await some_read(streams, count=1):
            await streams.ask("jobs", "XACK", "jobs", "g", entry)
    await stage.until_none_is_left()


async def has_entries(redis: Redis, number: int) -> bool:
    return bool(await redis.read("XLEN", "jobs") == number)


@pytest.mark.parametrize("order", ["none", "strict"])
async def test_a_stop_does_not_wait_for_consumers_and_costs_no_try(stage: Stage, streams: Redis, order: str) -> None:
    stage.write(**ACKED, order=order)
    await stage.add([{"topic": "jobs", "id": "a", "body": 1, "tries": 1}])
    await stage.deliver.start()
    await until(lambda: has_entries(streams, 1), within_s=30)
    async with asyncio.timeout(10):
        assert await stage.deliver.stop() == 0, stage.deliver.text
    job = await stage.client.get("a")
    assert (job["state"], job["attempt"]) == ("ready", 0)


async def test_trimming_takes_what_every_group_is_done_with_and_nothing_else(streams: Redis) -> None:
    entries = [await streams.ask("s", "XADD", "s", "*", "n", n) for n in range(300)]
    for group in ("one", "two"):
        await streams.ask("s", "XGROUP", "CREATE", "s", group, "0")
    await Trimming(streams).trim("s")
    assert await streams.read("XLEN", "s") == 300
    await read(streams, "s", "one", 300)
    await streams.ask("s", "XACK", "s", "one", *entries)
    await Trimming(streams).trim("s")
    assert await streams.read("XLEN", "s") == 300
    await read(streams, "s", "two", 200)
    await streams.ask("s", "XACK", "s", "two", *entries[:100], *entries[150:200])
    await Trimming(streams).trim("s")
    left = [entry for entry, _ in await streams.read("XRANGE", "s", "-", "+")]
    assert left == entries[100:]


async def test_a_full_redis_refuses_with_a_counted_try(stage: Stage, streams: Redis) -> None:
    stage.write()
    await streams.read("CONFIG", "SET", "maxmemory", "1")
    await stage.add([{"topic": "jobs", "id": "a", "body": 1, "backoff": [0.1]}])
    await stage.deliver.start()
    await until(lambda: is_logged(stage, "sink.refused"), within_s=30)
    await streams.read("CONFIG", "SET", "maxmemory", "0")
    await stage.until_none_is_left()
    assert await stage.dead() == {}


async def test_check_says_why_there_is_no_connection(stage: Stage) -> None:
    stage.write(timeout_s=300)  # longer than this test waits: the reason is known before
    stage.broker.kill()
    assert await stage.check() == 1
    assert "connection refused" in stage.check_text


async def is_logged(stage: Stage, event: str) -> bool:
    return bool(stage.deliver.logged(event))


async def test_lisas_consumers_find_what_lisa_writes(stage: Stage, streams: Redis) -> None:
    stage.write(**ACKED, layout="lisa", clazz="com.example.Order")
    await stage.add([{"topic": "jobs", "id": "a", "body": {"n": 1}}])
    await stage.deliver.start()
    ((entry, fields),) = await some_read(streams, stream="stream:ready_queue:jobs")
    job_id, _, due = fields[b"msg"].partition(b"|")
    body = json.loads(await streams.read("GET", "message:body:jobs:a"))
    assert (job_id, body) == (b"a", {"body": {"n": 1}, "clazz": "com.example.Order"})
    assert int(due) == round((await stage.client.get("a"))["due"] * 1000)
    await streams.ask("stream:ready_queue:jobs", "XACK", "stream:ready_queue:jobs", "g", entry)
    await streams.read("DEL", "message:body:jobs:a")
    await stage.until_none_is_left()
    assert await streams.read("KEYS", "*") == [b"stream:ready_queue:jobs"]


async def test_a_message_that_lisas_consumer_finished_late_is_not_sent_again(stage: Stage, streams: Redis) -> None:
    stage.write(**ACKED, layout="lisa")
    await stage.add([{"topic": "jobs", "id": "a", "body": 1, "backoff": [1]}])
    await stage.deliver.start()
    await some_read(streams, stream="stream:ready_queue:jobs")
    await until(lambda: is_logged(stage, "sink.refused"), within_s=30)
    await streams.read("DEL", "message:body:jobs:a")  # what its consumer does when it is done
    await stage.until_none_is_left()
    assert (await stage.client.get("a"))["state"] == "finished"
    assert await streams.read("XLEN", "stream:ready_queue:jobs") == 0


async def test_lisas_dead_messages_are_garbage(stage: Stage, streams: Redis) -> None:
    stage.write(**ACKED, layout="lisa")
    await stage.add([{"topic": "jobs", "id": "a", "body": 1, "tries": 1}])
    await stage.deliver.start()
    await some_read(streams, stream="stream:ready_queue:jobs")
    await until(lambda: is_dead(stage, "a"), within_s=30)
    assert await streams.read("SMEMBERS", "set:garbage_key:jobs") == [b"a"]
