"""Scripts touch only keys of their own shard: on a Cluster, others would be on other servers.

Redis itself would not refuse a foreign key whose slot happens to be on the same server.
"""

from __future__ import annotations

import asyncio
import shlex
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from buckets import (
    Figures,
    Fsck,
    Limit,
    Numbers,
    Occurrences,
    Operations,
    Plan,
    Redis,
    Schedule,
    Schedules,
    Time,
    Topics,
    read_forecast,
    read_instances,
)
from buckets.events.restoring import Lost, Restoring
from buckets.events.switch import read_events, switch_off
from buckets.job import NewJob, State
from buckets.pool.pool import Pool
from buckets.pool.standing import standing
from buckets.record import Fields, pack_record
from buckets.scripts import SCRIPTS
from buckets.shards import Item
from buckets.timers.members import sign_out
from buckets.timers.slicing import upgrade
from tests.buckets.jobs import delete, finish
from tests.buckets.operations.operating import carried_out, carry_out
from tests.chaos.forked_service import ForkedService
from tests.chaos.history import History
from tests.chaos.load.scripted_life import VIRTUAL_TOPICS, ScriptedLife
from tests.chaos.load.wire import Wire
from tests.jobqueue.journal.reading.drained import opened, switched_on
from tests.kit.redis_server import RedisServer
from tests.kit.waiting import until

_SHARDS = 4
_BUCKETS = 2
# These need a replica, another Redis, a check without repairs, or tokens.
_ABSENT = {"barrier", "export", "find_orphans", "lease_rate", "note_used", "write_tokens"} | {
    *("audit_schedules", "export_schedules", "import_schedules", "put_schedule"),
}
_MAYBE = {"forget"}  # by sweeps, if it takes long enough


@asynccontextmanager
async def monitored(server: RedisServer) -> AsyncIterator[list[list[str]]]:
    """Collects the commands that the server receives, as lists of words; those of scripts come after `lua`."""
    reader, writer = await asyncio.open_unix_connection(server.socket)
    writer.write(b"MONITOR\r\n")
    assert await reader.readline() == b"+OK\r\n"
    seen: list[list[str]] = []

    async def read() -> None:
        async for line in reader:
            _, _, source, *words = shlex.split(line.decode())
            seen.append(["lua", *words] if source == "lua]" else words)

    reading = asyncio.create_task(read())
    try:
        yield seen
    finally:
        redis = Redis(server.url)
        await redis.read("PING", "the end")
        await redis.close()
        await until(lambda: seen[-1][-1] == "the end")
        reading.cancel()
        writer.close()
        await writer.wait_closed()


def tag_of(key: str) -> str:
    return key[: key.index("}") + 1]


async def live(service: ForkedService, folder: Path) -> None:
    """Exercise a service."""
    service.start()
    with History(folder / "life.jsonl") as history:
        wire = Wire([service.url])
        await ScriptedLife("life", history, wire).run()
        wire.give_up()
    service.kill()
    await service.ended()


async def mend(redis: Redis) -> None:
    """Do what an operator does: damage lists by removing jobs and adding unknown ids, and run repairs."""
    pool = await Pool.open(redis, shards=_SHARDS, buckets=_BUCKETS)
    jobs = [NewJob(f"job{number}", "t", b"1", delay_ms=60_000 * (number % 2)) for number in range(40)]
    await pool.add(jobs)
    popped = await pool.pop(["t"], 1)
    await pool.unpop(popped.jobs)
    for key in pool.keys:
        await redis.read("DEL", key.ready(4, "t"), key.bucket(0))
        await redis.read("ZADD", key.bucket(1), 1, "nobody")
        await redis.read("SET", key.due("t"), "a string")
    await (await Fsck.open(redis, repair=True, rest=0)).run()
    popped = await pool.pop(["t"], 40)
    assert len(popped.jobs) == 20
    await pool.add([NewJob(f"far{number}", "t", b"1", delay_ms=7_200_000) for number in range(40)])
    moved = [await pool.slice(shard, bucket, 0, 100) for shard in range(_SHARDS) for bucket in range(_BUCKETS)]
    assert sum(jobs for jobs, _ in moved) == 40
    for shard in range(_SHARDS):
        await upgrade(pool, shard)
    # A service does this every two seconds, and the one above may not have lived that long.
    held = await pool.each("check_leases", [Item(job.id, (job.id, job.lease)) for job in popped.jobs])
    assert held == [1] * 20
    # As one does that is asked for all instances, and one that is stopped in order.
    await read_instances(pool)
    await sign_out(pool, "nobody")
    await pool.close()


async def serve_dialects(redis: Redis) -> None:
    """Do what only the protocols of other systems ask for."""
    pool = await Pool.open(redis, shards=_SHARDS, buckets=_BUCKETS)
    numbers = Numbers(pool)
    jobs = [NewJob(f"#{await numbers.next()}", "t", b"1", priority=number % 10) for number in range(40)]
    await pool.add(jobs)
    popped = await pool.pop(["s", "t"], 4, by_priority=True)
    assert len(popped.jobs) == 4
    (alias,) = await numbers.aliases([("a", 0)])
    assert await numbers.resolve(alias) == "a"
    assert await numbers.last() >= alias
    await numbers.raise_to(alias + 1000)
    for job in popped.jobs:
        assert await finish(pool, job.id, job.lease, "t") == "finished"
    left = [job.id for job in jobs if job.id not in {job.id for job in popped.jobs}]
    assert (await pool.take(left[0])).id == left[0]
    assert await delete(pool, left[1], "t*", ()) == "ready"
    await pool.close()


async def keep_journal(redis: Redis, url: str, redis_url: str) -> None:
    """Tell and drain events, explain a job, and put back and end again what Redis lost."""
    pool = await Pool.open(redis, shards=_SHARDS, buckets=_BUCKETS)
    await switched_on(pool)
    jobs = [NewJob(f"job{number}", "t", b"1") for number in range(40)]
    await pool.add(jobs)
    popped = await pool.pop(["t"], 40)
    found = (await standing(pool, "job7")).job
    assert found and found.state is State.RESERVED
    async with opened(pool, url, redis_url) as journal:
        await journal.drain()
        assert len(await journal.jobs()) == 40
    for shard in range(_SHARDS):
        assert (await read_events(pool, shard)).stream

    restoring = Restoring(pool, "an operator")
    lives = [Lost(job.id, job.created, job.lease, State.FINISHED) for job in popped.jobs]
    assert await restoring.end(lives) == ["ended"] * 40
    ids = [f"lost{number}" for number in range(40)]
    assert {job_id for asked in await restoring.ask(ids) for job_id in asked.unknown} == set(ids)
    record = pack_record(Fields(State.READY, "t", created=1, due=1, next=1, ttr=60_000, tries=16, priority=4))
    assert await restoring.put([(job_id, record) for job_id in ids]) == [True] * 40
    for shard in range(_SHARDS):
        await switch_off(pool, shard, drop=True)
    await pool.close()


async def keep_schedules(redis: Redis) -> None:
    """Schedules on all shards, whose occurrences are popped from a topic with a rate."""
    pool = await Pool.open(redis, shards=_SHARDS, buckets=_BUCKETS)
    pool.limits = {"t": Limit(rate=100_000.0)}
    schedules = Schedules(pool)

    async def plan(schedule: Schedule, now: int) -> Plan:
        return Plan(0, [Time(now, now)], "t", [("", NewJob("", "t", b"1"))])

    occurrences = Occurrences(schedules, plan)
    names = [f"s{number}" for number in range(20)]
    for name in names:
        await schedules.define(name, await schedules.see(name), b"{}", 1, 1)
        schedule = (await schedules.see(name)).schedule
        assert schedule
        await occurrences.make(schedules.shard(name), schedule.bucket, [name])
    assert len((await pool.pop(["t"], 20)).jobs) == 20
    for name in names:
        schedule = (await schedules.see(name)).schedule
        assert schedule and await schedules.undefine(schedule) == 1
    await pool.close()


async def keep_figures(redis: Redis) -> None:
    """Figures of a topic, which a service adds every ten seconds, and the one above may not have lived that long; and
    the forecast of the next hour."""
    pool = await Pool.open(redis)
    figures = Figures(pool, 48, 100)
    await figures.add({"": {"adds": 1}, "t": {"adds": 1}})
    minute = await pool.now_ms() // 60_000
    assert [numbers async for _, numbers in figures.read("t", minute - 1, minute)] == [{"adds": 1}]
    await pool.add([NewJob(f"job{number}", "t", b"1", delay_ms=60_000) for number in range(40)])
    forecast = await read_forecast(Topics(pool), None, await pool.now_ms() + 3_600_000)
    assert forecast.bins.total() == 40
    await pool.close()


async def change_many(redis: Redis) -> None:
    """Jobs on all shards, which an operation moves."""
    pool = await Pool.open(redis, shards=_SHARDS, buckets=_BUCKETS)
    await pool.add([NewJob(f"job{number}", "t", b"1", delay_ms=60_000) for number in range(40)])
    async with carried_out(pool):
        assert (await carry_out(pool, "run")).done == 40
    assert len(await Operations(pool).page()) == 1
    await pool.close()


async def test_a_script_touches_no_key_of_another_shard(own_server: RedisServer, tmp_path: Path) -> None:
    chosen: dict[str, Any] = {"shards": _SHARDS, "buckets": _BUCKETS, "durability_timeout_s": 0.05}
    redis = Redis(own_server.url)
    async with monitored(own_server) as seen:
        service = ForkedService(tmp_path / "log", virtual_topics=VIRTUAL_TOPICS, redis=own_server.url, **chosen)
        await live(service, tmp_path)
        await redis.read("FLUSHALL")
        await mend(redis)
        await redis.read("FLUSHALL")
        await serve_dialects(redis)
        await redis.read("FLUSHALL")
        await keep_schedules(redis)
        await keep_figures(redis)
        await redis.read("FLUSHALL")
        await change_many(redis)
        await redis.read("FLUSHALL")
        await keep_journal(redis, f"sqlite:///{tmp_path}/journal", own_server.url)
    await redis.close()
    tag, shas = "", set()
    for words in seen:
        match words:
            case ["EVALSHA" | "EVAL", sha, number, *rest]:
                shas.add(sha)
                (tag,) = {tag_of(key) for key in rest[: int(number)]}
            case ["lua", "time"]:
                pass
            case ["lua", "MEMORY" | "XINFO" | "XGROUP", _, key, *others] | ["lua", _, key, *others]:
                assert tag_of(key) == tag, words
                assert not any(each.startswith("{jq:") and tag_of(each) != tag for each in others), words
    assert {name for name, script in SCRIPTS.items() if script.sha not in shas} - _MAYBE == _ABSENT
