"""`jobqueue move` as an operator runs it, beside real services on both Redis."""

from __future__ import annotations

import asyncio
import os
import random
import signal
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import pytest

from buckets import Redis
from buckets.job import NewJob
from buckets.keys import shard_of
from buckets.migration import Migration
from buckets.pool.pool import Pool
from tests.acceptance.load import Load
from tests.kit import forked
from tests.kit.redis_server import RedisServer
from tests.kit.service import JOBQUEUE, Client, ServiceProcess
from tests.kit.waiting import until

HOUR_MS = 3_600_000


@pytest.fixture
async def new(own_server: RedisServer) -> AsyncIterator[Redis]:
    redis = Redis(own_server.url)
    yield redis
    await redis.close()


def _environment() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if not name.startswith("JOBQUEUE_")}


async def _start(*command: str) -> asyncio.subprocess.Process:
    pipe = asyncio.subprocess.PIPE
    return await asyncio.create_subprocess_exec(*command, stdout=pipe, stderr=pipe, env=_environment())


async def _ended(process: asyncio.subprocess.Process) -> tuple[int, str, str]:
    """The exit code, standard output and standard error."""
    output, complaint = await process.communicate()
    assert process.returncode is not None
    return process.returncode, output.decode(), complaint.decode()


async def move(old: str, new: str, *flags: str) -> tuple[int, str, str]:
    return await forked.ran(("move", "--from", old, "--to", new, "--rest", "0", *flags), _environment())


async def test_all_is_moved_while_services_run_on_both_and_a_line_a_topic_tells_it(
    redis_server: RedisServer, redis: Redis, own_server: RedisServer
) -> None:
    old, new = redis_server.url, own_server.url
    async with (
        ServiceProcess("--redis", old) as first,
        ServiceProcess("--redis", new) as second,
        Client(first.url) as before,
        Client(second.url) as after,
    ):
        for number in range(7):
            await before.ask("add", topic="mails", id=f"m{number}", body="my secret body")
            await before.ask("add", topic="calls", id=f"c{number}", delay=60, body="my secret body")
        job = await before.ask("pop", topic="mails")
        await before.ask("bury", id=job["id"], lease=job["lease"])
        await after.ask("add", topic="calls", id="c0", delay=60, body=1)
        waiting = asyncio.create_task(after.ask("pop", topic="mails", count=9, wait=20))
        code, output, complaint = await move(old, new)
        assert (code, complaint) == (0, "")
        lines = [line.strip("│┃ ").replace("│", " ").replace("┃", " ").split() for line in output.splitlines()]
        assert ["topic", "delayed", "ready", "dead", "finished", "deleted"] in lines
        assert ["calls", "7", "0", "0", "0", "0"] in lines and ["mails", "0", "6", "1", "0", "0"] in lines
        assert "14 jobs and tombstones were moved; 1 of them were already on the new Redis" in output
        assert "secret" not in output
        assert len((await waiting)["jobs"]) == 6  # the pop that waited on the new Redis was woken
        assert not any((await before.ask("stats"))["counts"].values())


async def test_while_producers_add_to_both_and_workers_pop_from_both_no_job_is_lost_or_early(
    redis_server: RedisServer, redis: Redis, own_server: RedisServer
) -> None:
    old, new = redis_server.url, own_server.url
    async with ServiceProcess("--redis", old) as first, ServiceProcess("--redis", new) as second:
        load = Load([first.url, second.url])
        async with load.running(producers=4, workers=4):
            await until(lambda: len(load.acknowledged) > 300)
            moving = asyncio.create_task(move(old, new))
            await until(lambda: len(load.acknowledged) > 900)
        assert (await moving)[0] == 0
        load.check()


async def killed_again_and_again(old: str, new: str, left: Callable[[], Awaitable[int]]) -> None:
    """Kill movers until a third is left to be moved."""
    number = now = await left()
    chance = random.Random(7)
    while now > number // 3:
        fewer = now - chance.randrange(1, number // 3)

        async def has_fewer(most: int = fewer) -> bool:
            return await left() <= most

        with Path(os.devnull).open("wb") as nowhere:  # noqa: ASYNC230 - nothing waits there
            command = ("move", "--from", old, "--to", new, "--rest", "0")
            process = await forked.started(command, _environment(), stdout=nowhere, stderr=nowhere)
        await until(has_fewer)
        process.send_signal(signal.SIGKILL)
        await process.wait()
        now = await left()


async def test_a_mover_that_is_killed_at_any_moment_loses_nothing_and_does_nothing_twice(
    redis_server: RedisServer, redis: Redis, own_server: RedisServer, new: Redis
) -> None:
    old = await Pool.open(redis)
    number = 6_000
    await old.add([NewJob(f"j{n}", f"t{n % 3}", b"x", delay_ms=n % 2 * HOUR_MS) for n in range(number)])

    async def left() -> int:
        return len(await redis.read("KEYS", "*:j:*"))

    await killed_again_and_again(redis_server.url, own_server.url, left)
    moved = await (await Migration.open(redis, new, rest=0, patience_s=0)).run()
    assert moved.done and await redis.read("KEYS", "*:[mjrbh]:*") == []
    assert set(await new.read("KEYS", "*:j:*")) == {f"{{jq:0}}:j:j{n}".encode() for n in range(number)}
    counts = [await new.read("HMGET", f"{{jq:0}}:c:t{n}", "created", "delayed", "ready") for n in range(3)]
    assert counts == [[b"2000", b"1000", b"1000"]] * 3


async def test_a_mover_that_is_killed_at_any_moment_moves_each_schedule_once(
    redis_server: RedisServer, redis: Redis, own_server: RedisServer, new: Redis
) -> None:
    old = await Pool.open(redis)
    number = 1_500
    for n in range(number):
        await old.call(
            *("define", 0), now="", id=f"s{n}", seen=0, start=1, next_ms=9 * 10**12 + n, bucket=n % 8, definition=b"{}"
        )

    async def left() -> int:
        return int(await redis.read("HLEN", "{jq:0}:schedules"))

    await killed_again_and_again(redis_server.url, own_server.url, left)
    moved = await (await Migration.open(redis, new, rest=0, patience_s=0)).run()
    assert moved.done and await redis.read("KEYS", "*:[mb]:*") == []
    assert set(await new.read("HKEYS", "{jq:0}:schedules")) == {f"s{n}".encode() for n in range(number)}
    entries = [await new.read("ZRANGE", f"{{jq:0}}:b:{bucket}", 0, -1, "WITHSCORES") for bucket in range(8)]
    found = {name: int(at) for flat in entries for name, at in zip(flat[::2], flat[1::2], strict=True)}
    assert found == {f"~s{n}".encode(): 9 * 10**12 + n for n in range(number)}


async def test_schedules_are_counted_and_go_on_where_they_were_moved(
    redis_server: RedisServer, redis: Redis, own_server: RedisServer
) -> None:
    old, new = redis_server.url, own_server.url
    async with (
        ServiceProcess("--redis", old) as first,
        ServiceProcess("--redis", new) as second,
        Client(first.url) as before,
        Client(second.url) as after,
    ):
        await before.ask("schedule", name="s", topic="t", every=1, catch_up="all", body=1)
        await before.ask("pop", topic="t", wait=20, ttr=0)
        code, output, complaint = await move(old, new)
        assert (code, complaint) == (0, "") and "and 1 schedules were moved" in output
        job = await after.ask("pop", topic="t", wait=20)
        assert job["id"].startswith("s@")
        assert (await before.ask("schedules"))["schedules"] == []


async def test_jobs_in_other_shards_than_their_keys_are_told(
    redis_server: RedisServer, redis: Redis, own_server: RedisServer, new: Redis
) -> None:
    await Pool.open(new, shards=4)
    old = await Pool.open(redis)
    astray = next(name for name in "abcdefgh" if shard_of(name, 4) != shard_of("7", 4))
    await old.add([NewJob(each, "t", b"x", key="7") for each in ("7@a", astray)])
    code, output, complaint = await move(redis_server.url, own_server.url)
    assert (code, complaint) == (0, "") and "1 jobs are in other shards than their keys" in output


async def test_ctrl_c_ends_it_behind_a_page(
    redis_server: RedisServer, redis: Redis, own_server: RedisServer, new: Redis
) -> None:
    old = await Pool.open(redis)
    await old.add([NewJob(f"j{n}", "t", b"x") for n in range(20_000)])
    command = ("move", "--from", redis_server.url, "--to", own_server.url, "--rest", "20")
    process = await _start(*JOBQUEUE, *command)

    async def has_begun() -> bool:
        return bool(await new.read("EXISTS", "{jq:0}:c:t"))

    await until(has_begun)
    process.send_signal(signal.SIGINT)
    code, output, complaint = await _ended(process)
    assert code == 1 and "run it again" in complaint and "jobs and tombstones were moved" in output
    assert await redis.read("KEYS", "*:m:*") == []
    assert int(await redis.read("DBSIZE")) > 10_000


async def test_what_cannot_begin_is_told_without_a_secret(redis_server: RedisServer, redis: Redis) -> None:
    url = redis_server.url
    await Pool.open(redis)
    code, output, complaint = await move(url, url)
    assert (code, output) == (2, "") and "--from and --to lead to the same Redis" in complaint
    code, _, complaint = await move(url, "redis://me:secret@127.0.0.1:1/0?nonsense=1")
    assert code == 2 and "--to is not a valid Redis URL" in complaint and "secret" not in complaint


async def test_a_full_new_redis_is_told_and_nothing_is_lost(
    redis_server: RedisServer, redis: Redis, own_server: RedisServer, new: Redis
) -> None:
    old = await Pool.open(redis)
    await Pool.open(new)
    await old.add([NewJob(f"j{n}", "t", b"x") for n in range(300)])
    await new.read("CONFIG", "SET", "maxmemory-policy", "noeviction", "maxmemory", 1)
    code, output, complaint = await move(redis_server.url, own_server.url)
    assert code == 1 and output == "0 jobs and tombstones were moved\n"
    assert "Redis is full" in complaint and "run it again to move the rest" in complaint
    assert len(await redis.read("KEYS", "*:j:*")) == 300
