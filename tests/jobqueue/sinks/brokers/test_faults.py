"""What each kind does at each fault of its broker: an outage of the sink, a pause of one topic, or a try of one job.

The table in docs/sinks.md has the same rows. Brokers that are killed, frozen or not there yet are in `test_suite`.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import aio_pika
import pytest
from nats.js.api import DiscardPolicy

from buckets.redis.client import Redis
from tests.jobqueue.sinks.brokers.conftest import Running, staged
from tests.jobqueue.sinks.brokers.stage import Stage
from tests.kit.brokers import BROKERS
from tests.kit.brokers.databases import Database, MariaDB
from tests.kit.brokers.http_receiver import HttpReceiver
from tests.kit.brokers.nats_server import NatsServer
from tests.kit.brokers.rabbitmq import RabbitMq
from tests.kit.brokers.redis_streams import RedisStreams
from tests.kit.brokers.stomp_servers import RabbitMqStomp
from tests.kit.ports import free_port
from tests.kit.proxy import Proxy, to
from tests.kit.redis_server import RedisServer
from tests.kit.waiting import until

NUMBER = 200
CLOSED = [kind for kind in BROKERS if kind not in ("kafka", "sql-sqlite")]
"""Those whose connections can be closed: a Kafka names its own address to clients, a file has none."""
Mend = Callable[[], Awaitable[object]]


@pytest.fixture
async def stage(
    request: pytest.FixtureRequest, running: Running, own_server: RedisServer, tmp_path: Path
) -> AsyncIterator[Stage]:
    async with running.one(request.param) as broker, staged(broker, own_server, tmp_path) as stage:
        yield stage


def jobs(fault: str, topic: str, number: int) -> list[dict[str, Any]]:
    """Each has one try."""
    return [{"topic": topic, "id": f"{fault}:{topic}:{n}", "body": n, "tries": 1} for n in range(number)]


async def is_logged(stage: Stage, event: str, number: int) -> bool:
    return len(stage.deliver.logged(event)) >= number


async def pauses_b(stage: Stage, fault: str, mend: Mend, outages: int = 0) -> None:
    """While jobs of b cannot be delivered, those of a are; b's have lost no try when its destination is mended.
    `outages`: how often the broker ends the connection for it."""
    events = ("sink.paused", "sink.resumed", "sink.down")
    paused, resumed, down = (len(stage.deliver.logged(event)) for event in events)
    await stage.add(jobs(fault, "b", 5))
    await until(lambda: is_logged(stage, "sink.paused", paused + 1))
    await stage.add(jobs(fault, "a", NUMBER))
    await stage.until_none_is_left("a")
    assert await stage.left("b") == 5
    assert sum([(await stage.client.get(job["id"]))["deliveries"] for job in jobs(fault, "b", 5)]) < 50  # few are tried
    await mend()
    stage.deliver.reload()
    await stage.until_none_is_left("b")
    await until(lambda: is_logged(stage, "sink.resumed", resumed + 1))
    assert await stage.dead("a") == await stage.dead("b") == {}
    assert len(stage.deliver.logged("sink.down")) - down <= outages
    if not outages:
        assert [line["topic"] for line in stage.deliver.logged("sink.paused")[paused:]] == ["b"]


async def costs_a_try_of_b(stage: Stage, fault: str, reason: str, mend: Mend) -> None:
    """The job of b is dead after its only try, and those of a go on."""
    down = len(stage.deliver.logged("sink.down"))
    await stage.add(jobs(fault, "b", 1))
    await until(lambda: is_dead(stage, f"{fault}:b:0"))
    assert reason in (await stage.dead("b"))[f"{fault}:b:0"]
    await mend()
    await stage.add(jobs(fault, "a", NUMBER))
    await stage.until_none_is_left("a")
    await stage.client.delete(f"{fault}:b:0")
    assert len(stage.deliver.logged("sink.down")) == down


async def is_dead(stage: Stage, job_id: str) -> bool:
    return job_id in await stage.dead("b")


async def is_an_outage(stage: Stage, fault: str, reason: str, mend: Mend) -> None:
    """No job is sent, and none loses a try, until the broker is mended."""
    down = len(stage.deliver.logged("sink.down"))
    await stage.add([*jobs(fault, "a", 5), *jobs(fault, "b", 5)])
    await until(lambda: is_told(stage, down, reason))
    await mend()
    stage.deliver.reload()
    await stage.until_none_is_left("a")
    await stage.until_none_is_left("b")
    assert await stage.dead("a") == await stage.dead("b") == {}


async def is_told(stage: Stage, first: int, reason: str) -> bool:
    return any(reason in line["reason"] for line in stage.deliver.logged("sink.down")[first:])


@pytest.mark.parametrize("order", ["none", "strict"])
@pytest.mark.parametrize("stage", ["redis-stream"], indirect=True)
async def test_redis_stream(stage: Stage, order: str) -> None:
    assert isinstance(stage.broker, RedisStreams)
    redis = Redis(stage.broker.url)
    stage.write(["b", "a"], stream="{topic}", order=order, timeout_s=2)
    await redis.read("SET", "b", "x")
    await stage.deliver.start()
    await pauses_b(stage, "type", lambda: redis.read("DEL", "b"))
    await redis.read("ACL", "SETUSER", "default", "resetkeys", "~a")
    await pauses_b(stage, "key", lambda: redis.read("ACL", "SETUSER", "default", "allkeys"))
    await redis.read("CONFIG", "SET", "maxmemory", "1")
    await costs_a_try_of_b(stage, "full", "is full", lambda: redis.read("CONFIG", "SET", "maxmemory", "0"))
    await redis.read("REPLICAOF", "127.0.0.1", "1")
    await is_an_outage(stage, "read-only", "READONLY", lambda: redis.read("REPLICAOF", "NO", "ONE"))
    await redis.close()
    assert await stage.deliver.stop() == 0, stage.deliver.text


@pytest.mark.parametrize("stage", ["redis-stream"], indirect=True)
async def test_redis_stream_acked(stage: Stage) -> None:
    """A group that is gone is made again at the next trial."""
    assert isinstance(stage.broker, RedisStreams)
    redis = Redis(stage.broker.url)
    stage.write(["b", "a"], stream="{topic}", done="acked", group="g", poll_ms=20)
    await stage.deliver.start()
    await stage.add([*jobs("first", "a", 1), *jobs("first", "b", 1)])
    for topic in ("a", "b"):
        await until(lambda topic=topic: has_entries(redis, topic, 1))  # type: ignore[misc]
    await redis.read("XGROUP", "DESTROY", "b", "g")
    await until(lambda: is_logged(stage, "sink.paused", 1))
    stage.deliver.reload()
    await until(lambda: has_entries(redis, "b", 2))
    for topic in ("a", "b"):
        ((_, entries),) = await redis.ask(topic, "XREADGROUP", "GROUP", "g", "c", "STREAMS", topic, ">")
        await redis.ask(topic, "XACK", topic, "g", *(entry for entry, _ in entries))
        await stage.until_none_is_left(topic)
    assert (await stage.dead("b"), stage.deliver.logged("sink.down")) == ({}, [])
    await redis.close()


async def has_entries(redis: Redis, stream: str, number: int) -> bool:
    return bool(await redis.read("XLEN", stream) == number)


@pytest.mark.parametrize("stage", ["http"], indirect=True)
async def test_http(stage: Stage) -> None:
    assert isinstance(stage.broker, HttpReceiver)
    stage.write(["b", "a"], url=f"http://127.0.0.1:{stage.broker.port}/status/503")
    await stage.deliver.start()

    async def mend() -> None:
        stage.write(["b", "a"])
        stage.deliver.reload()

    await costs_a_try_of_b(stage, "refuses", "HTTP 503", mend)
    stage.write(["b", "a"], url=f"http://127.0.0.1:{free_port()}/")
    stage.deliver.reload()
    await is_an_outage(stage, "away", "connection refused", mend)


@pytest.mark.parametrize("stage", ["sql-sqlite", "sql-postgresql", "sql-mariadb"], indirect=True)
async def test_sql(stage: Stage) -> None:
    """All messages go to one table: what is wrong with it is an outage."""
    assert isinstance(stage.broker, Database)
    rows, prepare = stage.broker.rows, stage.broker.prepare
    stage.write(["b", "a"])
    await stage.deliver.start()
    await is_an_outage(stage, "missing", "the table is missing", lambda: prepare([]))
    await rows("DROP TABLE jobqueue_inbox")
    await is_an_outage(stage, "dropped", "the table is missing", lambda: prepare([]))
    rename = "ALTER TABLE jobqueue_inbox RENAME COLUMN {} TO {}"
    await rows(rename.format("attempt", "other"))
    await is_an_outage(stage, "columns", "other columns", lambda: rows(rename.format("other", "attempt")))


@pytest.mark.parametrize("stage", ["sql-mariadb"], indirect=True)
async def test_a_full_database(stage: Stage) -> None:
    assert isinstance(stage.broker, MariaDB)
    rows = stage.broker.rows
    stage.broker.server.sql("SET GLOBAL max_heap_table_size = 16384")
    columns = "message_key VARCHAR(99) PRIMARY KEY, id VARCHAR(99), topic VARCHAR(9), due DOUBLE, attempt INTEGER, "
    texts = "headers VARCHAR(999), body VARCHAR(9)"
    await rows(f"CREATE TABLE small ({columns} {texts}) ENGINE = MEMORY")
    stage.write(["b", "a"], table="small")
    await stage.deliver.start()
    await stage.add(jobs("many", "a", NUMBER))
    await is_an_outage(stage, "full", "the database is full", lambda: rows("ALTER TABLE small ENGINE = InnoDB"))
    await stage.until_none_is_left("a")


@pytest.mark.parametrize("order", ["none", "strict"])
@pytest.mark.parametrize("stage", ["nats"], indirect=True)
async def test_nats(stage: Stage, order: str) -> None:
    assert isinstance(stage.broker, NatsServer)
    server = stage.broker
    users = server.folder / "users.conf"
    server.more = ["-c", str(users)]

    async def forbid(subject: str) -> None:
        deny = f'permissions: {{publish: {{deny: "{subject}"}}}}'
        users.write_text(
            f"authorization {{users: [{{user: all, password: p}}, {{user: some, password: p, {deny}}}]}}\n"
        )
        server.kill()
        await server.start()

    await forbid("jobs.c")
    client = await server.client("all:p@")
    streams = client.jetstream()
    await streams.add_stream(name="a", subjects=["jobs.a"])
    stage.write(["b", "a"], url=f"nats://some:p@127.0.0.1:{server.port}", order=order)
    await stage.deliver.start()
    await pauses_b(stage, "missing", lambda: streams.add_stream(name="b", subjects=["jobs.b"]))
    await streams.update_stream(name="b", subjects=["jobs.b"], max_msgs=1, discard=DiscardPolicy.NEW)
    await costs_a_try_of_b(stage, "full", "the stream is full", lambda: streams.delete_stream("b"))
    await streams.add_stream(name="b", subjects=["jobs.b"])
    await client.close()
    assert await stage.deliver.stop() == 0, stage.deliver.text
    await forbid("jobs.b")
    await stage.deliver.start()
    await pauses_b(stage, "forbidden", lambda: forbid("jobs.c"), 3)  # it is started again
    assert any("may not be published to" in line["reason"] for line in stage.deliver.logged("sink.paused"))


@pytest.mark.parametrize("order", ["none", "strict"])
@pytest.mark.parametrize("stage", ["amqp"], indirect=True)
async def test_amqp(stage: Stage, order: str) -> None:
    assert isinstance(stage.broker, RabbitMq)
    server = stage.broker
    connection = await server.connection()
    async with connection, connection.channel() as channel:
        exchange = await channel.declare_exchange("faults", "topic", durable=True)
        queue = await channel.declare_queue("faults", durable=True)
        await queue.bind(exchange, "a")
        stage.write(["b", "a"], exchange="faults", order=order)
        await stage.deliver.start()
        await pauses_b(stage, "missing", lambda: queue.bind(exchange, "b"))
        await queue.unbind(exchange, "b")
        full: dict[str, Any] = {"x-max-length": 1, "x-overflow": "reject-publish"}
        other = await channel.declare_queue("full", arguments=full, durable=True)
        await other.bind(exchange, "b")
        await channel.default_exchange.publish(aio_pika.Message(b"x"), "full")
        await costs_a_try_of_b(stage, "full", "basic.nack", lambda: channel.queue_delete("full"))
        await queue.bind(exchange, "b")
        assert await stage.deliver.stop() == 0, stage.deliver.text
        await server.control("set_topic_permissions", "guest", "faults", "^a$", ".*")
        await stage.deliver.start()  # RabbitMQ remembers for a connection what it has allowed
        await pauses_b(
            stage, "forbidden", lambda: server.control("set_topic_permissions", "guest", "faults", ".*", ".*"), 1
        )
        await channel.exchange_delete("faults")

        async def mend() -> None:
            again = await channel.declare_exchange("faults", "topic", durable=True)
            await queue.bind(again, "#")

        await is_an_outage(stage, "exchange", "no exchange 'faults'", mend)
        await channel.queue_delete("faults")
        await channel.exchange_delete("faults")


@pytest.mark.parametrize("order", ["none", "strict"])
@pytest.mark.parametrize("stage", ["stomp"], indirect=True)
async def test_stomp(stage: Stage, order: str) -> None:
    assert isinstance(stage.broker, RabbitMqStomp)
    server = stage.broker
    connection = await server.connection()
    async with connection, connection.channel() as channel:
        await channel.declare_exchange("a", "fanout", durable=True)
        stage.write(["b", "a"], destination="/exchange/{topic}/k", order=order)
        await stage.deliver.start()
        await pauses_b(stage, "missing", lambda: channel.declare_exchange("b", "fanout", durable=True), 2)
        assert await stage.deliver.stop() == 0, stage.deliver.text
        await server.control("set_permissions", "guest", ".*", "^(a|amq.default)$", ".*")
        await stage.deliver.start()
        await pauses_b(stage, "forbidden", lambda: server.control("set_permissions", "guest", ".*", ".*", ".*"), 2)
        for name in ("a", "b"):
            await channel.exchange_delete(name)


@pytest.mark.parametrize("stage", CLOSED, indirect=True)
async def test_a_connection_that_is_closed_while_it_is_idle_is_no_outage(stage: Stage) -> None:
    broker = stage.broker
    await broker.prepare(["jobs"])
    url = broker.table()["url"]
    async with Proxy(to(int((re.findall(r":(\d+)", url) or ["0"])[-1]))) as proxy:
        stage.write(url=url if isinstance(broker, Database) else re.sub(r":\d+", f":{proxy.port}", url))
        await stage.deliver.start()
        await stage.add(jobs("first", "jobs", 1))
        await stage.until_none_is_left()
        await asyncio.sleep(1.1)  # what ends sooner counts as an outage
        if isinstance(broker, Database):
            await asyncio.to_thread(broker.end_sessions)
        else:
            proxy.reset_all()
        await stage.add(jobs("second", "jobs", 1))
        await stage.until_none_is_left()
        assert await stage.dead() == {}
        assert (stage.deliver.logged("sink.down"), len(stage.deliver.logged("sink.up"))) == ([], 1)
        assert await stage.deliver.stop() == 0, stage.deliver.text


@pytest.mark.parametrize("stage", ["nats"], indirect=True)
async def test_a_connection_that_ends_soon_after_an_outage_is_made_again_at_once(stage: Stage) -> None:
    await stage.broker.prepare(["jobs"])
    url, port = stage.broker.table()["url"], free_port()
    stage.write(url=re.sub(r":\d+", f":{port}", url), timeout_s=1)
    await stage.deliver.start()
    await until(lambda: bool(stage.deliver.logged("sink.down")))
    await asyncio.sleep(6)  # more tries in vain, so that the next pauses would be of 4 s and more
    async with Proxy(to(int(url.rpartition(":")[2])), port=port) as proxy:
        await until(lambda: bool(stage.deliver.logged("sink.up")))
        await asyncio.sleep(1.1)  # as above
        proxy.reset_all()
        await stage.add(jobs("first", "jobs", 1))
        await stage.until_none_is_left()
        assert [len(stage.deliver.logged(event)) for event in ("sink.down", "sink.up", "sink.reconnected")] == [1, 1, 1]
