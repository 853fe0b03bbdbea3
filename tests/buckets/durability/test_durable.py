"""buckets.durable: a reported durability was reached, whatever happens to connections and servers."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest

from buckets.durable import FSYNCED, LOCAL, REPLICATED, Barrier, Durability, Durable, DurablePool, Outcome, Want
from buckets.errors import NotFound, Unavailable
from buckets.job import NewJob, State
from buckets.meter import Meter
from buckets.pool.codec import Added
from buckets.pool.pool import Pool
from buckets.redis.client import Redis
from tests.buckets.durability.replicas import chain, cut_off, in_step
from tests.buckets.jobs import add, delete, finish, get, pop_one, state
from tests.kit.redis_server import RedisServer
from tests.kit.waiting import until

Serve = Callable[..., Awaitable[tuple[Durable, list[RedisServer]]]]


class Notes(Meter):
    """Records what the meter is told."""

    def __init__(self) -> None:
        self.barriers = 0
        self.secured_changes: list[tuple[str, str, int]] = []

    def barrier_passed(self, seconds: float) -> None:
        self.barriers += 1

    def secured(self, asked: str, reached: str, changes: int) -> None:
        self.secured_changes.append((asked, reached, changes))


@pytest.fixture
async def serve() -> AsyncIterator[Serve]:
    """Starts a Redis with replicas; returns durable changes on it, and the servers."""
    async with AsyncExitStack() as stack:

        async def serve(
            servers: int,
            *options: str,
            timeout_s: float = 5.0,
            redis_timeout_s: float = 5.0,
            shards: int = 1,
        ) -> tuple[Durable, list[RedisServer]]:
            started = stack.enter_context(chain(servers, *options))
            place = Path(f"{started[0].socket}.place")  # a test can point it to another server
            lead(place, started[0])
            redis = Redis(f"unix://{place}", redis_timeout_s, Notes())
            stack.push_async_callback(redis.close)
            pool = await Pool.open(redis, shards=shards)
            stack.push_async_callback(pool.close)
            if servers > 1:
                await in_step(redis)
            return Durable(pool, 1, timeout_s), started

        yield serve


def lead(place: Path, server: RedisServer) -> None:
    place.unlink(missing_ok=True)
    place.symlink_to(server.socket)


def place_of(servers: list[RedisServer]) -> Path:
    return Path(f"{servers[0].socket}.place")


@pytest.fixture
async def operator() -> AsyncIterator[Callable[[RedisServer], Redis]]:
    """Opens other connections to servers."""
    async with AsyncExitStack() as stack:

        def connect(server: RedisServer) -> Redis:
            redis = Redis(server.url)
            stack.push_async_callback(redis.close)
            return redis

        yield connect


def adds(*ids: str, durability: Durability = REPLICATED) -> list[Want]:
    return [Want(job_id, durability, NewJob(job_id, "t", b"1")) for job_id in ids]


async def add_durably(durable: Durable, job_id: str, durability: Durability = REPLICATED) -> str:
    (told,) = await durable.change(adds(job_id, durability=durability), durable.pool.add)
    assert isinstance(told.result, Added)
    return told.durability


async def calls(redis: Redis, command: str) -> int:
    said = (await redis.read("INFO", "commandstats")).decode()
    found = re.search(rf"cmdstat_{command}:calls=(\d+)", said)
    return int(found[1]) if found else 0


def blocked(operator: Redis) -> Callable[[], Awaitable[bool]]:
    """Whether a connection waits for replicas."""

    async def waits() -> bool:
        return b"blocked_clients:1" in await operator.read("INFO", "clients")

    return waits


async def test_a_change_that_a_replica_has_is_replicated(serve: Serve) -> None:
    durable, _ = await serve(2)
    pool = durable.pool
    assert await add_durably(durable, "a") == REPLICATED
    assert await durable.change([Want("a", REPLICATED, "a")], pool.delete) == [Outcome("ready", REPLICATED)]


async def test_what_others_wrote_is_told_by_what_the_replicas_have(
    serve: Serve, operator: Callable[[RedisServer], Redis]
) -> None:
    """A repeated add may find the job of another client that is in the memory of one server only."""
    durable, servers = await serve(2)
    (shard,) = durable.pool.keys
    other = operator(servers[0])
    link = await other.link_to(shard.meta)  # on which nothing is written
    servers[1].freeze()
    await add(durable.pool, "a")
    assert await Barrier(link, 1, 100, Meter()).reached(shard, {REPLICATED}) == set()


async def test_after_a_replica_was_away_changes_are_replicated_again(serve: Serve) -> None:
    durable, servers = await serve(2, timeout_s=0.1)
    servers[1].freeze()
    assert await add_durably(durable, "a") == LOCAL
    assert await state(durable.pool, "a") == "ready"
    servers[1].thaw()
    await until(lambda: is_replicated(durable, "a"))


async def is_replicated(durable: Durable, job_id: str) -> bool:
    return await add_durably(durable, job_id) == REPLICATED


async def test_without_a_replica_it_is_local_and_done(serve: Serve) -> None:
    durable, _ = await serve(1, timeout_s=0.1)
    assert await add_durably(durable, "a") == LOCAL
    assert await state(durable.pool, "a") == "ready"


async def test_more_replicas_than_there_are_do_not_have_it(serve: Serve) -> None:
    durable, _ = await serve(2)
    (told,) = await Durable(durable.pool, 2, 0.1).change(adds("a"), durable.pool.add)
    assert told.durability == LOCAL
    assert await add_durably(durable, "a") == REPLICATED


async def test_what_was_refused_is_not_waited_for(serve: Serve) -> None:
    durable, _ = await serve(1, timeout_s=60)
    (told,) = await durable.change([Want("a", REPLICATED, "a")], durable.pool.delete)
    assert isinstance(told.result, NotFound)
    assert told.durability == LOCAL
    assert durable.pool.redis.meter.secured_changes == []  # type: ignore[attr-defined]


async def test_each_is_told_what_it_asked_for_in_the_order_of_all(serve: Serve) -> None:
    durable, _ = await serve(2, shards=4)
    wants = [Want(f"{n}", (LOCAL, REPLICATED, FSYNCED)[n % 3], NewJob(f"{n}", "t", b"1")) for n in range(60)]
    told = await durable.change(wants, durable.pool.add)
    # This Redis writes no file.
    assert [each.durability for each in told] == [LOCAL, REPLICATED, LOCAL] * 20
    assert durable.pool.redis.meter.secured_changes == [  # type: ignore[attr-defined]
        (REPLICATED, REPLICATED, 20),
        (FSYNCED, LOCAL, 20),
    ]
    finishes = [Want(f"{n}", REPLICATED, f"{n}") for n in (59, 70, 0)]
    one, none, other = await durable.change(finishes, durable.pool.delete)
    assert (one, other) == (Outcome("ready", REPLICATED), Outcome("ready", REPLICATED))
    assert isinstance(none.result, NotFound)


async def test_all_who_come_while_a_barrier_is_under_way_share_the_next(
    serve: Serve, operator: Callable[[RedisServer], Redis]
) -> None:
    durable, servers = await serve(2)
    watcher = operator(servers[0])
    servers[1].freeze()
    first = asyncio.create_task(add_durably(durable, "first"))
    await until(blocked(watcher))
    others = []
    for n in range(200):
        others.append(asyncio.create_task(add_durably(durable, f"{n}")))
        await asyncio.sleep(0)  # each on a loop turn of its own
    servers[1].thaw()
    assert await asyncio.gather(first, *others) == [REPLICATED] * 201
    # 200 scripts behind a WAIT may be answered in a few parts.
    assert await calls(watcher, "wait") == durable.pool.redis.meter.barriers < 12  # type: ignore[attr-defined]


async def test_one_barrier_is_under_way_at_a_time(serve: Serve, operator: Callable[[RedisServer], Redis]) -> None:
    durable, servers = await serve(2)
    (shard,) = durable.pool.keys
    barrier = Barrier(await durable.pool.redis.link_to(shard.meta), 1, 5_000, durable.pool.redis.meter)
    servers[1].freeze()
    waiting = [asyncio.create_task(barrier.reached(shard, {REPLICATED}))]
    watcher = operator(servers[0])
    await until(blocked(watcher))
    for _ in range(50):
        waiting.append(asyncio.create_task(barrier.reached(shard, {REPLICATED})))
        await asyncio.sleep(0)
    servers[1].thaw()
    assert await asyncio.gather(*waiting) == [{REPLICATED}] * 51
    assert await calls(watcher, "wait") == 2


async def test_others_are_not_held_up_by_a_wait(
    serve: Serve, redis: Redis, operator: Callable[[RedisServer], Redis]
) -> None:
    durable, servers = await serve(2, timeout_s=60)
    servers[1].freeze()
    waiting = asyncio.create_task(add_durably(durable, "a"))
    plain = await Pool.open(operator(servers[0]))
    await until(blocked(plain.redis))
    await add(plain, "b", "u")
    assert (await pop_one(plain, "u")).id == "b"
    assert (await get(plain, "a")).id == "a"
    assert not waiting.done()
    servers[1].thaw()
    await waiting


async def test_one_that_leaves_does_not_take_the_barrier_of_the_others_with_it(
    serve: Serve, operator: Callable[[RedisServer], Redis]
) -> None:
    durable, servers = await serve(2)
    servers[1].freeze()
    tasks = [asyncio.create_task(add_durably(durable, f"{n}")) for n in range(3)]
    await until(blocked(operator(servers[0])))
    tasks[0].cancel()
    servers[1].thaw()
    assert await asyncio.gather(*tasks[1:]) == [REPLICATED, REPLICATED]
    assert (await asyncio.gather(tasks[0], return_exceptions=True))[0].__class__ is asyncio.CancelledError


def losing(durable: Durable, operator: Redis, times: int) -> Callable[[Sequence[Any]], Awaitable[Sequence[Any]]]:
    """Adds whose connection is killed this many times, after their answer and before a barrier."""
    left = times

    async def work(jobs: Sequence[NewJob]) -> Sequence[Any]:
        nonlocal left
        results = await durable.pool.add(jobs)
        if left:
            left -= 1
            link = await durable.pool.redis.link_to("any")
            await operator.read("CLIENT", "KILL", "ID", await durable.pool.redis.read("CLIENT", "ID"))
            await until(lambda: link.lost)
        return results

    return work


async def test_a_connection_lost_behind_a_change_is_no_proof_and_it_is_made_again(
    serve: Serve, operator: Callable[[RedisServer], Redis]
) -> None:
    durable, servers = await serve(2)
    work = losing(durable, operator(servers[0]), 1)
    (told,) = await durable.change(adds("a"), work)
    assert (told.result.result, told.durability) == ("created", REPLICATED)
    assert await calls(durable.pool.redis, "wait") == 1


@pytest.mark.parametrize(("repeat", "times"), [(False, 1), (True, 3)])
async def test_what_may_not_be_made_again_or_was_too_often_is_local(
    serve: Serve, operator: Callable[[RedisServer], Redis], repeat: bool, times: int
) -> None:
    durable, servers = await serve(2)
    work = losing(durable, operator(servers[0]), times)
    (told,) = await durable.change(adds("a"), work, repeat=repeat)
    assert (told.result.result, told.durability) == ("created", LOCAL)
    assert await calls(durable.pool.redis, "wait") == 0


async def test_a_connection_that_is_lost_while_it_waits_is_no_proof(
    serve: Serve, operator: Callable[[RedisServer], Redis]
) -> None:
    durable, servers = await serve(2)
    watcher = operator(servers[0])
    servers[1].freeze()
    adding = asyncio.create_task(durable.change(adds("a"), durable.pool.add, repeat=False))
    await until(blocked(watcher))
    await watcher.read("CLIENT", "KILL", "TYPE", "normal")
    ((result, durability),) = await adding
    assert (result.result, durability) == ("created", LOCAL)


async def test_a_master_that_is_made_a_replica_while_it_waits_proves_nothing(
    serve: Serve, operator: Callable[[RedisServer], Redis]
) -> None:
    durable, servers = await serve(2)
    watcher = operator(servers[0])
    servers[1].freeze()
    adding = asyncio.create_task(durable.change(adds("a"), durable.pool.add, repeat=False))
    await until(blocked(watcher))
    await watcher.read("REPLICAOF", "127.0.0.1", "1")
    ((result, durability),) = await adding
    assert (result.result, durability) == ("created", LOCAL)


async def test_the_replicas_of_a_new_master_do_not_speak_for_what_the_old_one_took(
    serve: Serve, operator: Callable[[RedisServer], Redis]
) -> None:
    durable, servers = await serve(3)
    old, new, _ = servers
    master = operator(new)
    await in_step(master)

    async def lost_with_the_old_master(jobs: Sequence[NewJob]) -> Sequence[Any]:
        await cut_off(operator(old), new)
        results = await durable.pool.add(jobs)
        old.kill()
        new.thaw()
        await master.read("REPLICAOF", "NO", "ONE")
        lead(place_of(servers), new)
        return results

    (told,) = await durable.change(adds("a"), lost_with_the_old_master, repeat=False)
    assert isinstance(told.result, Added)
    assert told.durability == LOCAL
    assert await state(durable.pool, "a") == "unknown"
    await in_step(master)
    assert await add_durably(durable, "b") == REPLICATED


async def test_what_a_failover_forgot_is_made_again_on_the_new_master(
    serve: Serve, operator: Callable[[RedisServer], Redis]
) -> None:
    durable, servers = await serve(3)
    old, new, _ = servers
    master = operator(new)
    await in_step(master)
    turns: list[Sequence[Any]] = []

    async def lost_at_first(jobs: Sequence[NewJob]) -> Sequence[Any]:
        if not turns:
            await cut_off(operator(old), new)
        turns.append(await durable.pool.add(jobs))
        if len(turns) == 1:
            old.kill()
            new.thaw()
            await master.read("REPLICAOF", "NO", "ONE")
            await in_step(master)
            lead(place_of(servers), new)
        return turns[-1]

    (told,) = await durable.change(adds("a"), lost_at_first)
    assert told == Outcome(turns[1][0], REPLICATED)
    assert await state(durable.pool, "a") == "ready"


async def produced(
    durable: Durable, durability: Durability
) -> tuple[list[str], Callable[[], Coroutine[Any, Any, None]]]:
    """Concurrent adds, none repeated: a list that fills with the ids that reached the durability, and how to stop."""
    kept: list[str] = []
    stopped = False

    async def produce(name: str) -> None:
        number = 0
        while not stopped:
            number += 1
            job_id = f"{name}-{number}"
            ((result, reached),) = await durable.change(
                adds(job_id, durability=durability), durable.pool.add, repeat=False
            )
            assert isinstance(result, Added | Unavailable)
            if reached == durability:
                kept.append(job_id)

    producers = [asyncio.create_task(produce(f"{n}")) for n in range(16)]

    async def stop() -> None:
        nonlocal stopped
        stopped = True
        await asyncio.gather(*producers)

    return kept, stop


async def test_all_that_was_called_replicated_is_there_after_failovers_under_load(
    serve: Serve, operator: Callable[[RedisServer], Redis]
) -> None:
    durable, servers = await serve(3, timeout_s=0.2)
    kept, stop = await produced(durable, REPLICATED)
    await until(lambda: len(kept) > 300)
    old, new, _ = servers
    old.kill()
    await operator(new).read("REPLICAOF", "NO", "ONE")
    lead(place_of(servers), new)
    then = len(kept)
    await until(lambda: len(kept) > then + 300)
    await stop()
    assert set(await asyncio.gather(*(state(durable.pool, job_id) for job_id in kept))) == {"ready"}


async def test_a_wait_leaves_redis_time_to_answer_others(serve: Serve) -> None:
    """A connection without an answer for Redis's timeout counts as lost."""
    durable, servers = await serve(2, timeout_s=60, redis_timeout_s=1.5)
    servers[1].freeze()
    link = await durable.pool.redis.link_to("any")
    assert [await add_durably(durable, job_id) for job_id in "ab"] == [LOCAL, LOCAL]
    assert await durable.pool.redis.link_to("any") is link


async def test_a_redis_that_falls_silent_behind_a_change_leaves_it_local(serve: Serve) -> None:
    durable, servers = await serve(2, redis_timeout_s=1.5)

    async def then_silence(jobs: Sequence[NewJob]) -> Sequence[Any]:
        results = await durable.pool.add(jobs)
        servers[0].freeze()
        return results

    ((result, durability),) = await durable.change(adds("a"), then_silence)
    assert (result.result, durability) == ("created", LOCAL)


async def test_a_redis_that_is_away_is_told_in_the_place_of_each_change(serve: Serve) -> None:
    durable, servers = await serve(1)
    durable.pool.redis.timeout_s = 0.2
    servers[0].kill()
    told = await durable.change(adds("a", "b"), durable.pool.add)
    assert [each.durability for each in told] == [LOCAL, LOCAL]
    assert all(isinstance(each.result, Unavailable) for each in told)


SAFE = ("--appendonly", "yes", "--appendfsync", "always")


async def test_all_that_was_called_fsynced_is_there_after_a_kill_under_load(serve: Serve) -> None:
    durable, servers = await serve(1, *SAFE)
    kept, stop = await produced(durable, FSYNCED)
    await until(lambda: len(kept) > 200)
    servers[0].kill()
    servers[0].start()
    then = len(kept)
    await until(lambda: len(kept) > then + 100)
    await stop()
    assert set(await asyncio.gather(*(state(durable.pool, job_id) for job_id in kept))) == {"ready"}


@pytest.mark.parametrize(
    "options",
    [
        ("--appendonly", "no"),
        ("--appendonly", "yes", "--appendfsync", "everysec"),
        ("--appendonly", "yes", "--appendfsync", "no"),
        (*SAFE, "--no-appendfsync-on-rewrite", "yes"),
    ],
    ids=" ".join,
)
async def test_where_an_answer_may_come_before_the_fsync_it_is_local(serve: Serve, options: tuple[str, ...]) -> None:
    durable, _ = await serve(1, *options, timeout_s=0.3)
    assert [await add_durably(durable, f"{n}", FSYNCED) for n in range(3)] == [LOCAL] * 3
    assert await state(durable.pool, "2") == "ready"


async def test_a_server_that_takes_no_barrier_any_more_tells_nothing(
    serve: Serve, operator: Callable[[RedisServer], Redis]
) -> None:
    durable, servers = await serve(1, *SAFE)

    async def demoted(jobs: Sequence[NewJob]) -> Sequence[Any]:
        results = await durable.pool.add(jobs)
        await operator(servers[0]).read("REPLICAOF", "127.0.0.1", "1")
        return results

    ((result, durability),) = await durable.change(adds("a", durability=FSYNCED), demoted, repeat=False)
    assert (result.result, durability) == ("created", LOCAL)


async def test_a_change_that_fails_when_it_is_made_again_keeps_its_answer_and_is_local(
    serve: Serve, operator: Callable[[RedisServer], Redis]
) -> None:
    """It was done; the failover that broke the connection lost it, and more."""
    durable, servers = await serve(2)
    await add(durable.pool, "b")
    lose, turns = losing(durable, operator(servers[0]), 1), 0

    async def work(ids: Sequence[str]) -> Sequence[Any]:
        nonlocal turns
        turns += 1
        results = await durable.pool.delete([each for each in ids if each != "b" or turns == 1])
        await lose([])
        return results if turns == 1 else [NotFound(), *results]

    await add(durable.pool, "c")
    told = await durable.change([Want(each, REPLICATED, each) for each in ("b", "c")], work)
    assert told == [Outcome("ready", LOCAL), Outcome("ready", REPLICATED)]


async def test_where_config_is_hidden_nobody_knows_of_an_fsync(serve: Serve) -> None:
    durable, _ = await serve(1, *SAFE)
    await durable.pool.redis.read("ACL", "SETUSER", "default", "-config")
    assert await add_durably(durable, "a", FSYNCED) == LOCAL


async def test_the_methods_of_the_pool_report_what_each_change_reached(serve: Serve) -> None:
    durable, _ = await serve(2, shards=4)
    reports: list[Sequence[Durability]] = []

    def wanting(*durabilities: Durability) -> DurablePool:
        return durable.wanting(durabilities, reports.append)

    jobs = [NewJob(job_id, "t", b"1") for job_id in "abc"]
    assert Unavailable not in map(type, await wanting(REPLICATED, LOCAL, FSYNCED).add(jobs))
    (group,) = await wanting(REPLICATED).add_groups([[NewJob("d@t", "t", b"1"), NewJob("d@u", "u", b"1")]])
    assert isinstance(group, list) and len(group) == 2
    await pop_one(durable.pool, "u")
    finished, missing = await wanting(REPLICATED, REPLICATED).finish([("d@u", None), ("nobody", None)])
    assert (finished, type(missing)) == ("finished", NotFound)
    assert (await wanting(REPLICATED).update("a", priority=9)).state == "ready"
    assert await wanting(REPLICATED).delete(["a"]) == ["ready"]
    with pytest.raises(NotFound):
        await wanting(REPLICATED).update("a", priority=1)
    assert await delete(wanting(REPLICATED), "b", "t", [State.DEAD]) == "ready"
    assert await finish(wanting(REPLICATED), "c", None, "t", settles=True) == "deleted"
    with pytest.raises(NotFound):
        await finish(wanting(REPLICATED), "c", None, "u", settles=True)
    assert reports == [
        [REPLICATED, LOCAL, LOCAL],
        [REPLICATED],
        [REPLICATED, LOCAL],
        [REPLICATED],
        [REPLICATED],
        [LOCAL],
        [REPLICATED],
        [REPLICATED],
        [LOCAL],
    ]
