"""Connections that hold their jobs: hang-ups, ends of leases, waits, tubes, statistics, and the end of the service."""

from __future__ import annotations

import asyncio
import contextlib
from typing import Any

import aiohttp
import pytest
import structlog

from buckets import Pool, Redis
from jobqueue.app import Service
from jobqueue.dialect_settings import Beanstalkd, Dialects
from jobqueue.settings import Settings, TopicSettings
from tests.kit.beanstalkd import Client, client, ours, tube
from tests.kit.ports import free_port
from tests.kit.redis_server import RedisServer
from tests.kit.waiting import until

pytestmark = pytest.mark.usefixtures("redis")


@contextlib.asynccontextmanager
async def both(server: RedisServer, **options: Any) -> Any:
    """The port of the dialect, and what sends native commands."""
    port = free_port()
    settings = Settings(port=0, redis=server.url, protocols=Dialects(beanstalkd=Beanstalkd(port=port, **options)))
    async with Service(settings) as service, aiohttp.ClientSession() as session:

        async def native(command: str, **fields: Any) -> Any:
            async with session.post(f"{service.url}/command", json={"command": command, **fields}) as response:
                return await response.json()

        yield port, native


async def is_waiting(peer: Client, name: str, count: int = 1) -> None:
    """Wait until so many connections wait for a job of a tube."""

    async with asyncio.timeout(20):
        while (await peer.document(f"stats-tube {name}"))["current-waiting"] != str(count):
            pass


async def test_a_job_is_its_holders_alone(redis_server: RedisServer) -> None:
    async with ours(redis_server) as port, client(port) as holder, client(port) as other:
        number = await holder.put("t", "x")
        assert await holder.reserve("t") == (number, "x")
        for command in ("delete {}", "release {} 1 0", "bury {} 1", "touch {}", "kick-job {}", "reserve-job {}"):
            assert await other.ask(command.format(number)) == "NOT_FOUND"
        assert await other.ask(f"peek {number}") == f"FOUND {number} 1"
        assert await holder.ask(f"delete {number}") == "DELETED"


@pytest.mark.parametrize("end", ["quit", "hang up"])
async def test_the_jobs_of_a_closed_connection_are_ready_at_once_and_it_was_no_try(
    end: str, redis_server: RedisServer
) -> None:
    async with both(redis_server) as (port, native), client(port) as other:
        await native("add", topic="t", id="job", body=1, tries=1)
        async with client(port) as holder:
            assert (await holder.reserve("t"))[1] == "1"
            holder.send("quit") if end == "quit" else holder.close()
            _, data = await other.reserve("t")
        assert data == "1"
        job = await native("get", id="job")
        assert (job["state"], job["attempt"]) == ("reserved", 1)


async def test_a_waiting_reserve_gets_the_job_of_a_connection_that_closes(redis_server: RedisServer) -> None:
    async with ours(redis_server) as port, client(port) as waiting, client(port) as other:
        number = await other.put("t", "x")
        async with client(port) as holder:
            assert await holder.reserve("t") == (number, "x")
            waiting.send("watch t", "reserve")
            await is_waiting(other, "t")
        assert await waiting.line() == "WATCHING 2"
        assert await waiting.line() == f"RESERVED {number} 1"


async def test_a_lease_that_ends_holds_nothing(redis_server: RedisServer) -> None:
    async with ours(redis_server) as port, client(port) as slow, client(port) as other:
        number = await slow.put("t", "x", ttr=1)
        await slow.reserve("t")
        assert await other.reserve("t") == (number, "x")
        for command in ("delete {}", "release {} 1 0", "bury {} 1", "touch {}"):
            assert await slow.ask(command.format(number)) == "NOT_FOUND"
        assert (await slow.document("stats"))["job-timeouts"] == "1"


async def test_a_wait_ends_a_second_before_a_lease_does(redis_server: RedisServer) -> None:
    async with ours(redis_server) as port, client(port) as holder, client(port) as other:
        number = await holder.put("t", "x", ttr=2)
        await holder.reserve("t")
        assert await holder.ask("reserve") == "DEADLINE_SOON"
        assert await holder.ask("reserve-with-timeout 30") == "DEADLINE_SOON"
        ready = await other.put("t", "y")
        assert await holder.ask("reserve") == f"RESERVED {ready} 1"
        assert await holder.line() == "y"
        assert await holder.ask(f"touch {number}") == "TOUCHED"
        assert await holder.ask(f"delete {number}") == "DELETED"


async def test_a_wait_that_ends_before_that_is_timed_out(redis_server: RedisServer) -> None:
    async with ours(redis_server) as port, client(port) as holder:
        await holder.put("t", "x", ttr=60)
        await holder.reserve("t")
        assert await holder.ask("reserve-with-timeout 1") == "TIMED_OUT"


async def test_a_job_that_was_gone_when_popped_can_still_be_deleted(redis_server: RedisServer) -> None:
    async with both(redis_server) as (port, native), client(port) as peer:
        await native("add", topic="t", id="once", body={"a": 1}, ttr=0)
        number, data = await peer.reserve("t")
        assert data == '{"a": 1}'
        assert await peer.ask(f"release {number} 1 0") == "NOT_FOUND"
        assert await peer.ask("reserve-with-timeout 0") == "TIMED_OUT"
        assert await peer.ask(f"delete {number}") == "DELETED"
        assert await peer.ask(f"delete {number}") == "NOT_FOUND"


async def test_a_job_whose_tries_are_used_up_is_buried_by_its_release(redis_server: RedisServer) -> None:
    async with both(redis_server) as (port, native), client(port) as peer:
        await native("add", topic="t", id="job", body=1, tries=1)
        number, _ = await peer.reserve("t")
        assert await peer.ask(f"release {number} 1 0") == "BURIED"
        assert (await native("get", id="job"))["cause"] == "tries"


async def test_a_full_topic_and_a_body_that_is_too_long_when_stored_are_refused(redis_server: RedisServer) -> None:
    port = free_port()
    settings = Settings(
        port=0,
        redis=redis_server.url,
        max_body_bytes=1000,
        topics={"full": TopicSettings(max_pending=1)},
        protocols=Dialects(beanstalkd=Beanstalkd(port=port)),
    )
    async with Service(settings), client(port) as peer:
        await peer.put("full", "x")
        assert await peer.ask("put 1 0 60 1", "y") == "OUT_OF_MEMORY"
        assert await peer.ask("put 1 0 60 1000", "y" * 1000) == "JOB_TOO_BIG"


async def test_puts_in_a_row_are_answered_in_order_refusals_and_what_follows_too(redis_server: RedisServer) -> None:
    async with ours(redis_server) as port, client(port) as peer:
        puts = [line for number in range(150) for line in (f"put 1 0 60 {len(str(number))}", str(number))]
        peer.send("use t", *puts, "put x", "use u", "put 1 0 60 1", "y", "list-tube-used")
        assert await peer.line() == "USING t"
        numbers = [int((await peer.line()).removeprefix("INSERTED ")) for _ in range(150)]
        assert await peer.line() == "BAD_FORMAT"
        assert await peer.line() == "USING u"
        assert (await peer.line()).startswith("INSERTED ")
        assert await peer.line() == "USING u"
        for number, data in zip(numbers, range(150), strict=True):
            await peer.ask(f"peek {number}")
            assert await peer.line() == str(data)
        assert (await peer.document("stats"))["cmd-put"] == "151"


async def test_a_connection_watches_at_most_a_hundred_tubes(redis_server: RedisServer) -> None:
    async with ours(redis_server) as port, client(port) as peer:
        for count in range(2, 101):
            assert await peer.ask(f"watch t{count}") == f"WATCHING {count}"
        assert await peer.ask("watch t101") == "OUT_OF_MEMORY"
        assert await peer.ask("watch t2") == "WATCHING 100"
        assert await peer.ask("reserve-with-timeout 0") == "TIMED_OUT"


async def test_statistics_of_a_job(redis_server: RedisServer) -> None:
    async with ours(redis_server) as port, client(port) as peer:
        number = await peer.put("t", "x", pri=70000, delay=100, ttr=0)
        told = await peer.document(f"stats-job {number}")
        left = told.pop("time-left")
        assert left in ("98", "99")
        assert list(told.items()) == [
            *(("id", str(number)), ("tube", '"t"'), ("state", "delayed"), ("pri", "70000"), ("age", "0")),
            *(("delay", "100"), ("ttr", "1"), ("file", "0"), ("reserves", "0")),
            *((word, "0") for word in ("timeouts", "releases", "buries", "kicks")),
        ]
        await peer.ask(f"kick-job {number}")
        assert (await peer.document(f"stats-job {number}"))["state"] == "ready"
        await peer.reserve("t")
        assert (await peer.document(f"stats-job {number}"))["state"] == "reserved"
        await peer.ask(f"release {number} 3 50")
        told = await peer.document(f"stats-job {number}")
        assert (told["pri"], told["delay"], told["state"]) == ("3", "50", "delayed")
        await peer.ask(f"reserve-job {number}")
        await peer.line()
        await peer.ask(f"bury {number} 5")
        told = await peer.document(f"stats-job {number}")
        assert (told["pri"], told["delay"], told["state"], told["reserves"]) == ("5", "50", "buried", "2")


async def test_statistics_of_a_tube(redis_server: RedisServer) -> None:
    async with ours(redis_server) as port, client(port) as peer, client(port) as waiting:
        await peer.put("t", "x", delay=100)
        await peer.ask("pause-tube t 1000")
        waiting.send("watch t", "ignore default", "reserve")
        await is_waiting(peer, "t")
        told = await peer.document("stats-tube t")
        assert told.pop("pause") == told.pop("pause-time-left") == "1000"
        assert list(told.items()) == [
            *(("name", '"t"'), ("current-jobs-urgent", "0"), ("current-jobs-ready", "0")),
            *(("current-jobs-reserved", "0"), ("current-jobs-delayed", "1"), ("current-jobs-buried", "0")),
            *(("total-jobs", "1"), ("current-using", "1"), ("current-watching", "1"), ("current-waiting", "1")),
            *(("cmd-delete", "0"), ("cmd-pause-tube", "1")),
        ]


STATS = """current-jobs-urgent current-jobs-ready current-jobs-reserved current-jobs-delayed current-jobs-buried cmd-put
cmd-peek cmd-peek-ready cmd-peek-delayed cmd-peek-buried cmd-reserve cmd-reserve-with-timeout cmd-delete cmd-release
cmd-use cmd-watch cmd-ignore cmd-bury cmd-kick cmd-touch cmd-stats cmd-stats-job cmd-stats-tube cmd-list-tubes
cmd-list-tube-used cmd-list-tubes-watched cmd-pause-tube job-timeouts total-jobs max-job-size current-tubes
current-connections current-producers current-workers current-waiting total-connections pid version rusage-utime
rusage-stime uptime binlog-oldest-index binlog-current-index binlog-records-migrated binlog-records-written
binlog-max-size draining id hostname os platform"""


async def test_statistics_of_all(redis_server: RedisServer) -> None:
    async with ours(redis_server) as port, client(port) as peer:
        await peer.put("t", "x")
        async with client(port) as other:
            await other.reserve("t")
            told = await peer.document("stats")
        assert list(told) == STATS.split()
        expected = {"cmd-put": "1", "cmd-use": "1", "cmd-reserve-with-timeout": "1", "current-jobs-reserved": "1"}
        expected |= {"current-producers": "1", "current-workers": "1", "current-waiting": "0", "total-jobs": "1"}
        expected |= {"current-connections": "2", "total-connections": "2", "current-tubes": "2", "draining": "false"}
        assert {name: told[name] for name in expected} == expected


async def test_tubes_are_listed_while_they_have_jobs_or_connections(redis_server: RedisServer) -> None:
    async with both(redis_server, prefix="b.") as (port, native), client(port) as peer:
        await native("add", topic="elsewhere", body=1)
        await peer.put("a", "x")
        peer.send("use u", "watch w", "list-tubes")
        for expected in ("USING u", "WATCHING 2"):
            assert await peer.line() == expected
        text = (await peer.reader.readexactly(int((await peer.line()).split()[1]) + 2)).decode()
        assert text == "---\n- default\n- a\n- u\n- w\n\r\n"


async def test_a_stopping_service_lets_workers_end_and_takes_nothing_else(redis_server: RedisServer) -> None:
    port = free_port()
    settings = Settings(
        port=0, redis=redis_server.url, grace_s=60, protocols=Dialects(beanstalkd=Beanstalkd(port=port))
    )
    service = Service(settings)
    await service.__aenter__()
    async with client(port) as holder, client(port) as waiting, client(port) as idle:
        number = await holder.put("t", "x")
        await holder.reserve("t")
        waiting.send("watch t", "reserve")
        assert await waiting.line() == "WATCHING 2"
        await is_waiting(holder, "t")
        await idle.ask("use t")
        stopping = asyncio.create_task(service.__aexit__())
        assert await waiting.line() == "(closed)"
        assert await idle.line() == "(closed)"
        assert await holder.ask("put 1 0 60 1", "y") == "DRAINING"
        assert (await holder.document("stats"))["draining"] == "true"
        assert not stopping.done()
        assert await holder.ask(f"delete {number}") == "DELETED"
        assert await holder.line() == "(closed)"
        await stopping


async def test_what_is_held_at_the_end_of_the_grace_goes_back(redis_server: RedisServer, live_pool: Pool) -> None:
    async with ours(redis_server, grace_s=0.1) as port, client(port) as holder:
        number = await holder.put("t", "x")
        await holder.reserve("t")
    async with ours(redis_server) as port, client(port) as other:
        assert await other.reserve("t") == (number, "x")
        assert (await other.document(f"stats-job {number}"))["reserves"] == "2"


async def test_redis_that_is_away_is_an_internal_error(own_server: RedisServer) -> None:
    port = free_port()
    settings = Settings(
        port=0, redis=own_server.url, redis_timeout_s=0.5, protocols=Dialects(beanstalkd=Beanstalkd(port=port))
    )
    async with Service(settings), client(port) as peer:
        await peer.put("t", "x")
        await asyncio.to_thread(own_server.kill)
        assert await peer.ask("put 1 0 60 1", "x") == "INTERNAL_ERROR"
        assert await peer.ask("peek 1") == "INTERNAL_ERROR"
        assert await peer.ask("stats") == "INTERNAL_ERROR"


async def test_held_jobs_that_cannot_go_back_are_logged(own_server: RedisServer) -> None:
    port = free_port()
    settings = Settings(
        port=0, redis=own_server.url, redis_timeout_s=0.5, protocols=Dialects(beanstalkd=Beanstalkd(port=port))
    )
    with structlog.testing.capture_logs() as logs:
        async with Service(settings), client(port) as peer:
            for tube in ("t", "u"):
                await peer.put(tube, "x")
                await peer.reserve(tube)
            await asyncio.to_thread(own_server.kill)
            peer.close()
            await until(lambda: [each["jobs"] for each in logs if each["event"] == "jobs.kept"] == [2])


async def test_no_data_are_logged(redis_server: RedisServer, redis: Redis) -> None:
    with structlog.testing.capture_logs() as logs:
        async with ours(redis_server) as port, client(port) as peer:
            await peer.put(tube(), "s3cret")
            await peer.ask("put 1 0 60 s3cret")
    assert "s3cret" not in str(logs)


async def test_a_client_from_elsewhere_is_not_let_in(redis_server: RedisServer) -> None:
    async with ours(redis_server, allow=("192.0.2.0/24",)) as port, client(port) as peer:
        assert await peer.ask("list-tube-used") == "(closed)"


async def test_thousands_of_waiting_connections_end_with_their_clients(redis_server: RedisServer) -> None:
    async with ours(redis_server) as port, client(port) as other, contextlib.AsyncExitStack() as stack:
        crowd = [await stack.enter_async_context(client(port)) for _ in range(200)]
        for peer in crowd:
            peer.send("watch t", "reserve")
        await is_waiting(other, "t", 200)
        for peer in crowd[:199]:
            peer.close()
        await is_waiting(other, "t", 1)
        number = await other.put("t", "x")
        await crowd[-1].line()
        assert await crowd[-1].line() == f"RESERVED {number} 1"
        await until(lambda: True)
