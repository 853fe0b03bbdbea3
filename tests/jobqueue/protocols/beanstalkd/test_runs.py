"""Commands that a client sends ahead: those that go to Redis together, by callback, are answered as one after the
other, whatever stands between them, and whoever is gone or away meanwhile."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
from collections.abc import Iterator
from typing import Any

import aiohttp
import pytest

from buckets import Redis
from jobqueue.app import Service
from jobqueue.dialect_settings import Beanstalkd, Dialects
from jobqueue.settings import Loaded, Settings, TopicSettings
from tests.jobqueue.protocols.beanstalkd.test_connections import both, is_waiting
from tests.kit.beanstalkd import BEANSTALKD, Client, client, ours, theirs
from tests.kit.ports import free_port
from tests.kit.redis_server import RedisServer

pytestmark = pytest.mark.usefixtures("redis")

_COMMANDS = 250


@contextlib.contextmanager
def debugging() -> Iterator[None]:
    """All is logged, so puts and deletes take the complete way."""
    root = logging.getLogger()
    before = root.level
    root.setLevel(logging.DEBUG)
    try:
        yield
    finally:
        root.setLevel(before)


class Tasks:
    """Counts the tasks that answer requests."""

    def __init__(self) -> None:
        self.count = 0
        self._loop = asyncio.get_running_loop()

    def __enter__(self) -> Tasks:
        self._loop.set_task_factory(self._make)
        return self

    def __exit__(self, *_: object) -> None:
        self._loop.set_task_factory(None)

    def _make(self, loop: asyncio.AbstractEventLoop, work: Any, **options: Any) -> Any:
        self.count += work.__qualname__ == "Stream._serve"
        return asyncio.Task(work, loop=loop, **options)


def put(data: str = "x", *, priority: int = 1024, delay: int = 0, ttr: int = 60) -> str:
    return f"put {priority} {delay} {ttr} {len(data)}\r\n{data}\r\n"


_OTHERS = ["list-tube-used\r\n", "put 1 0\r\n", "nonsense\r\n", "touch 7\r\n", put("x" * 70_000)]
"""The last one is too big."""


def pipeline(seed: int) -> list[str]:
    """Random commands in long and short runs, of which beanstalkd answers each in one way only."""
    chance = random.Random(seed)
    made: list[str] = ["use t\r\n", "watch t\r\n", "ignore default\r\n"]
    puts = 0
    while len(made) < _COMMANDS:
        kind, times = chance.randrange(8), chance.choice((1, 1, 2, 5, 70))
        for _ in range(times):
            if kind < 3:
                puts += 1
                made.append(put(f"{puts}"))
            elif kind < 5:
                made.append("reserve-with-timeout 0\r\n")
            elif kind < 7:
                made.append(f"delete {chance.randint(1, max(puts, 1))}\r\n")
            else:
                made.append(chance.choice(_OTHERS))
    return made


async def played(port: int, commands: list[str], chance: random.Random) -> bytes:
    """All answers to commands that are sent in pieces of any size."""
    data = "".join(commands).encode()
    async with client(port) as peer, asyncio.timeout(60):
        reading = asyncio.create_task(peer.reader.read(-1))
        at = 0
        while at < len(data):
            size = chance.choice((1, 40, 1000, 100_000))
            peer.writer.write(data[at : at + size])
            at += size
            if chance.random() < 0.1:
                await asyncio.sleep(0.001)
        peer.send("quit")
        return await reading


async def one_by_one(port: int, commands: list[str]) -> bytes:
    """All answers, where each command waits for the answer to the one before."""
    answers = b""
    async with client(port) as peer:
        for command in commands:
            peer.writer.write(command.encode())
            line = await peer.reader.readuntil(b"\r\n")
            answers += line
            if line.startswith(b"RESERVED"):
                answers += await peer.reader.readuntil(b"\r\n")
    return answers


@pytest.mark.parametrize("seed", range(4))
async def test_what_is_sent_ahead_is_answered_as_one_after_the_other(seed: int, redis_server: RedisServer) -> None:
    async with ours(redis_server) as port:
        found = await played(port, pipeline(seed), random.Random(seed))
    await flush(redis_server)
    async with ours(redis_server) as port:
        assert found == await one_by_one(port, pipeline(seed))
    await flush(redis_server)
    with debugging():
        async with ours(redis_server) as port:
            assert found == await played(port, pipeline(seed), random.Random(seed + 1))


@pytest.mark.skipif(not BEANSTALKD, reason="needs beanstalkd")
@pytest.mark.parametrize("seed", range(4))
async def test_beanstalkd_answers_the_same_to_what_is_sent_ahead(seed: int, redis_server: RedisServer) -> None:
    async with ours(redis_server) as port, theirs() as their_port:
        found = await played(port, pipeline(seed), random.Random(seed))
        assert found == await played(their_port, pipeline(seed), random.Random(seed))


async def flush(server: RedisServer) -> None:
    """Forget all jobs and numbers."""
    redis = Redis(server.url)
    await redis.read("FLUSHALL")
    await redis.close()


async def test_plain_commands_need_no_task_once_the_first_numbers_are_there(redis_server: RedisServer) -> None:
    async with ours(redis_server) as port, client(port) as peer:
        await peer.put("t", "x")
        await peer.reserve("t")
        with Tasks() as tasks:
            for number in range(2, 200):
                assert await peer.ask("put 1024 0 60 1", "x") == f"INSERTED {number}"
                assert await peer.ask("reserve") == f"RESERVED {number} 1"
                await peer.line()
                assert await peer.ask(f"delete {number}") == "DELETED"
        assert tasks.count == 0


async def test_waiting_reserves_need_no_task(redis_server: RedisServer) -> None:
    async with ours(redis_server) as port, client(port) as other, contextlib.AsyncExitStack() as stack:
        crowd = [await stack.enter_async_context(client(port)) for _ in range(20)]
        await is_waiting(other, "default", 0)
        before = len(asyncio.all_tasks())
        for peer in crowd:
            peer.send("reserve")
        await is_waiting(other, "default", 20)
        assert len(asyncio.all_tasks()) <= before


async def test_of_reserves_sent_ahead_those_that_find_no_job_wait_in_their_order(redis_server: RedisServer) -> None:
    async with ours(redis_server) as port, client(port) as peer, client(port) as other:
        first = await other.put("t", "a")
        peer.send("watch t", "reserve", "reserve", "reserve-with-timeout 0", "reserve", "list-tube-used")
        assert [await peer.line() for _ in range(3)] == ["WATCHING 2", f"RESERVED {first} 1", "a"]
        await is_waiting(other, "t")
        second = await other.put("t", "b")
        assert [await peer.line() for _ in range(3)] == [f"RESERVED {second} 1", "b", "TIMED_OUT"]
        await is_waiting(other, "t")
        third = await other.put("t", "c")
        assert [await peer.line() for _ in range(3)] == [f"RESERVED {third} 1", "c", "USING default"]


async def test_a_client_that_hangs_up_behind_reserves_gets_none_of_the_jobs(redis_server: RedisServer) -> None:
    async with both(redis_server) as (port, native), client(port) as other:
        for number in range(50):
            await other.put("t", str(number))
        for _ in range(20):
            async with client(port) as gone:
                gone.writer.write(b"watch t\r\nignore default\r\n" + b"reserve\r\n" * 50)
                if random.random() < 0.5:
                    await gone.line()
                gone.writer.transport.abort()
        async with asyncio.timeout(20):
            await until_ready(native, 50)
        got = [(await other.reserve("t"))[1] for _ in range(50)]
        assert sorted(got, key=int) == [str(number) for number in range(50)], "in whichever order they came back"
        jobs = (await native("peek", topic="t", state="reserved"))["jobs"]
        assert {job["attempt"] for job in jobs} == {1}


async def until_ready(native: Any, count: int) -> None:
    while (await native("stats", topic="t"))["counts"]["ready"] != count:
        pass


async def test_a_number_that_a_job_has_is_skipped_within_a_run(redis_server: RedisServer) -> None:
    async with both(redis_server) as (port, native), client(port) as peer:
        assert await peer.put("t", "x") == 1
        for number in (3, 4, 6):
            await native("add", topic="other", id=f"#{number}", body=1)
        peer.writer.write(put().encode() * 4)
        answers = [await peer.line() for _ in range(4)]
        assert answers[::3] == ["INSERTED 2", "INSERTED 5"]
        numbers = [int(answer.split()[1]) for answer in answers]
        assert len({*numbers}) == 4 and not {*numbers} & {3, 4, 6}


async def test_jobs_of_others_get_numbers_within_a_run(redis_server: RedisServer) -> None:
    async with both(redis_server) as (port, native), client(port) as peer:
        await peer.put("t", "a")
        await native("add", topic="t", id="b", body="b")
        await peer.put("t", "c")
        peer.send("watch t", "reserve", "reserve", "reserve", "list-tube-used")
        assert await peer.line() == "WATCHING 2"
        lines = [await peer.line() for _ in range(6)]
        assert await peer.line() == "USING t"
        assert lines[1::2] == ["a", "b", "c"]
        numbers = [int(line.split()[1]) for line in lines[::2]]
        assert len({*numbers}) == 3
        peer.send(*(f"delete {number}" for number in numbers))
        assert [await peer.line() for _ in numbers] == ["DELETED"] * 3
        assert (await native("get", id="b"))["state"] == "finished"


async def holding(peer: Client, count: int, *, ttr: int = 60) -> list[int]:
    """The numbers of jobs that it reserves."""
    for number in range(count):
        await peer.put("t", str(number), ttr=ttr)
    return [(await peer.reserve("t"))[0] for _ in range(count)]


async def test_a_job_that_is_deleted_does_not_bound_the_reserves_behind_it(redis_server: RedisServer) -> None:
    async with ours(redis_server) as port, client(port) as peer:
        await holding(peer, 3, ttr=1)
        assert await peer.ask("delete 1", "reserve", "delete 2", "delete 3", "reserve-with-timeout 0") == "DELETED"
        assert [await peer.line() for _ in range(4)] == ["DEADLINE_SOON", "DELETED", "DELETED", "TIMED_OUT"]


async def test_reserves_behind_deletes_get_what_there_is_then_wait(redis_server: RedisServer) -> None:
    async with both(redis_server) as (port, native), client(port) as peer, client(port) as other:
        await holding(peer, 2)
        third = await other.put("t", "x")
        await native("add", topic="t", id="foreign", body="y")
        peer.send("delete 1", "delete 2", "reserve", "reserve", "reserve", "list-tube-used")
        assert [await peer.line() for _ in range(4)] == ["DELETED", "DELETED", f"RESERVED {third} 1", "x"]
        assert (await peer.line()).startswith("RESERVED") and await peer.line() == "y"
        await is_waiting(other, "t")
        fourth = await other.put("t", "z")
        assert [await peer.line() for _ in range(3)] == [f"RESERVED {fourth} 1", "z", "USING t"]


async def test_reserves_behind_a_delete_that_fails_are_bounded_by_its_job(own_server: RedisServer) -> None:
    """Redis refuses what ends a job, and nothing else."""
    redis = Redis(own_server.url)
    async with ours(own_server) as port, client(port) as peer:
        await holding(peer, 1, ttr=3)
        await redis.read("ACL", "SETUSER", "default", "-unlink")
        assert await peer.ask("delete 1", "reserve") == "INTERNAL_ERROR"
        await redis.read("ACL", "SETUSER", "default", "+unlink")
        assert await peer.line() == "DEADLINE_SOON"
        assert await peer.ask("delete 1") == "DELETED"
    await redis.close()


async def test_a_delete_is_answered_though_the_reserve_behind_it_waits_or_is_dropped(own_server: RedisServer) -> None:
    """Reserves that are sent with a delete go to Redis with it."""
    async with both(own_server) as (port, native), client(port) as peer, client(port) as other:
        await holding(peer, 1)
        assert await peer.ask("delete 1", "reserve") == "DELETED"
        await is_waiting(other, "t")
        number = await other.put("t", "x")
        assert [await peer.line() for _ in range(2)] == [f"RESERVED {number} 1", "x"]
        own_server.freeze()
        peer.send(f"delete {number}", "reserve")
        peer.writer.write_eof()
        await asyncio.sleep(0.1)
        own_server.thaw()
        assert await peer.reader.read() == b"DELETED\r\n"
        assert not any((await native("stats", topic="t"))["counts"].values())


async def test_a_delete_is_answered_before_the_reserves_behind_it_with_several_shards(
    redis_server: RedisServer,
) -> None:
    port = free_port()
    protocols = Dialects(beanstalkd=Beanstalkd(port=port))
    async with Service(Settings(port=0, redis=redis_server.url, shards=3, protocols=protocols)), client(port) as peer:
        for number in await holding(peer, 5):
            assert await peer.ask(f"delete {number}", "reserve", "reserve") == "DELETED"
            for data in ("x", "y"):
                async with client(port) as other:
                    await is_waiting(other, "t")
                    following = await other.put("t", data)
                assert [await peer.line() for _ in range(2)] == [f"RESERVED {following} 1", data]


async def test_scripts_that_redis_forgets_between_deletes_and_reserves_change_no_answer(
    redis_server: RedisServer,
) -> None:
    redis = Redis(redis_server.url)
    async with ours(redis_server) as port, client(port) as peer, client(port) as other:
        (number,) = await holding(peer, 1)
        for _ in range(30):
            following = await other.put("t", "x")
            await redis.read("SCRIPT", "FLUSH")
            assert await peer.ask(f"delete {number}", "reserve", "list-tube-used") == "DELETED"
            assert [await peer.line() for _ in range(3)] == [f"RESERVED {following} 1", "x", "USING t"]
            number = following
    await redis.close()


@pytest.mark.parametrize("end", ["hang up", "send no more"])
async def test_jobs_for_reserves_behind_deletes_go_back_when_the_client_is_gone(
    end: str, own_server: RedisServer
) -> None:
    async with both(own_server) as (port, native), client(port) as other:
        for turn in range(20):
            async with client(port) as peer:
                (number,) = await holding(peer, 1)
                await other.put("t", "x")
                peer.send(f"delete {number}", "reserve")
                await asyncio.sleep(turn / 10_000)
                if end == "hang up":
                    peer.writer.transport.abort()
                else:
                    peer.writer.write_eof()
                    assert (await peer.reader.read()).startswith(b"DELETED\r\n")
            async with asyncio.timeout(20):
                while (await native("stats", topic="t"))["counts"]["reserved"]:
                    pass
            jobs = (await native("pop", topic="t", count=9))["jobs"]
            assert {job["attempt"] for job in jobs} == {1}
            assert 1 <= len(jobs) <= 2  # the one that was to be deleted, too, where that did not come to it
            for job in jobs:
                await native("finish", id=job["id"])


async def test_redis_that_dies_amid_a_pipeline_leaves_no_answer_out(own_server: RedisServer) -> None:
    port = free_port()
    settings = Settings(
        port=0, redis=own_server.url, redis_timeout_s=0.5, protocols=Dialects(beanstalkd=Beanstalkd(port=port))
    )
    async with Service(settings), client(port) as peer:
        await peer.put("t", "x")
        commands = [put(), "reserve-with-timeout 0\r\n", "delete 1\r\n", "list-tube-used\r\n"] * 2
        for command in commands:
            peer.writer.write(command.encode() * 2)
        await asyncio.to_thread(own_server.kill)
        words = set()
        for _ in commands * 2:
            line = await peer.line()
            if line.startswith("RESERVED"):
                await peer.line()
            words.add(line.split()[0])
        assert words <= {"INSERTED", "RESERVED", "DELETED", "NOT_FOUND", "USING", "TIMED_OUT", "INTERNAL_ERROR"}
        assert "INTERNAL_ERROR" in words
        own_server.start()
        while not (await peer.ask("put 1 0 60 1", "x")).startswith("INSERTED"):
            pass


async def test_new_settings_hold_for_the_next_put(redis_server: RedisServer) -> None:
    port = free_port()
    settings = Settings(port=0, redis=redis_server.url, protocols=Dialects(beanstalkd=Beanstalkd(port=port)))
    async with Service(settings) as service, client(port) as peer:
        for _ in range(3):
            await peer.put("t", "x")
        few = Settings(
            port=0,
            redis=redis_server.url,
            topics={"t": TopicSettings(max_pending=1)},
            protocols=Dialects(beanstalkd=Beanstalkd(port=port)),
        )
        service.reload(Loaded(few, {}))
        assert await peer.ask("put 1024 0 60 1", "x") == "OUT_OF_MEMORY"


async def test_metrics_and_statistics_are_the_same_either_way(redis_server: RedisServer) -> None:
    found = await counted(redis_server)
    await flush(redis_server)
    with debugging():
        assert await counted(redis_server) == found
    labels = 'code="OK",command="{}",protocol="beanstalkd"'
    assert found[labels.format("add")] == 4 and found[labels.format("finish")] == 2
    assert found["cmd-put"] == 4 and found["cmd-delete"] == 3


async def counted(server: RedisServer) -> dict[str, float]:
    """What is counted of a few commands."""
    port = free_port()
    settings = Settings(port=0, redis=server.url, protocols=Dialects(beanstalkd=Beanstalkd(port=port)))
    async with Service(settings) as service, client(port) as peer, aiohttp.ClientSession() as session:
        await peer.put("t", "x")
        peer.writer.write(b"watch t\r\n" + put().encode() * 3 + b"reserve\r\n" * 3 + b"reserve-with-timeout 0\r\n" * 4)
        peer.send("delete 1", "delete 2", "delete 2", "list-tube-used")
        while await peer.line() != "USING t":
            pass
        told = await peer.document("stats")
        async with session.get(f"{service.url}/metrics") as response:
            text = await response.text()
    lines = [line for line in text.splitlines() if line.startswith("jobqueue_commands_total{")]
    totals = {line[line.index("{") + 1 : line.index("}")]: float(line.split()[-1]) for line in lines}
    return totals | {name: float(number) for name, number in told.items() if name.startswith(("cmd-", "current-"))}
