"""buckets.migration: a namespace goes from one Redis to another, complete."""

from __future__ import annotations

import asyncio
import hashlib
import json
import random
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from typing import Any

import pytest

from buckets.access import Entry, Tokens
from buckets.clock import HeldClock
from buckets.errors import NoRoom, Unfit
from buckets.fsck.check import Fsck
from buckets.job import Job, NewJob, State, Tag, Verb
from buckets.keys import shard_of
from buckets.migration import Migrated, Migration
from buckets.pool.numbers import BLOCK, LARGEST_NUMBER, Numbers
from buckets.pool.pool import Pool
from buckets.record import unpack
from buckets.redis.client import Redis
from buckets.schedules import moving
from buckets.schedules.record import Schedule
from buckets.schedules.schedules import Schedules
from buckets.topics.topics import Topics
from tests.buckets.books import check_books
from tests.buckets.jobs import add, delete, finish, get, pop, pop_one, popped_ids, state
from tests.buckets.schedules.scheduled import Scheduled
from tests.kit.redis_cluster import ClusterSet
from tests.kit.redis_server import RedisServer
from tests.kit.waiting import until

HOUR = 3_600_000


@pytest.fixture
async def old(live_pool: Pool) -> Pool:
    return live_pool


@pytest.fixture
async def other(own_server: RedisServer) -> AsyncIterator[Redis]:
    """The new Redis."""
    redis = Redis(own_server.url)
    yield redis
    await redis.close()


@pytest.fixture
async def new(other: Redis) -> AsyncIterator[Pool]:
    pool = await Pool.open(other, shards=4, buckets=2)
    yield pool
    await pool.close()


async def move(old: Pool, new: Pool, **options: Any) -> Migrated:
    return await (await Migration.open(old.redis, new.redis, rest=0, **options)).run()


async def records(pool: Pool) -> dict[str, Job]:
    """All jobs and tombstones, by id."""
    found = {}
    for server in await pool.redis.servers():
        for key in await server.read("KEYS", "{jq:*}:j:*"):
            job_id = key.partition(b":j:")[2].decode()
            found[job_id] = unpack(job_id, await pool.redis.read("GET", key))
    return found


def content(jobs: dict[str, Job]) -> str:
    """A hash over everything in the jobs except their shards."""
    said = hashlib.sha256()
    for job_id, job in sorted(jobs.items()):
        kind = job.kind
        numbers = (
            job.created,
            job.due,
            job.next,
            kind.ttr,
            kind.tries,
            kind.attempts,
            kind.deliveries,
            kind.step,
            job.lease,
        )
        said.update(repr((job_id, kind.topic, kind.state, kind.priority, kind.cause, *numbers)).encode())
        said.update(repr(sorted(kind.optional.items())).encode() + job.body)
    return said.hexdigest()


async def emptied(pool: Pool) -> None:
    """No job is left, and the counts agree."""
    assert await records(pool) == {}
    for server in await pool.redis.servers():
        assert await server.read("KEYS", "*:[mbsrdh]:*") + await server.read("KEYS", "*:k[hb]:*") == []
    assert (await Topics(pool).stats()).counts == {"delayed": 0, "ready": 0, "reserved": 0, "dead": 0}


async def fill(pool: Pool, number: int) -> None:
    """Jobs of all kinds and in all states but reserved."""
    chance = random.Random(number)
    await pool.add(
        [
            NewJob(
                f"j{n}",
                f"t{n % 3}",
                b"x" * chance.choice((0, 5, 300)),
                delay_ms=chance.choice((0, 60_000, 30 * HOUR)),
                priority=chance.randrange(10),
                tries=chance.choice((0, 16)),
                ttl_ms=chance.choice((None, 40 * HOUR)),
                backoff_ms=chance.choice(((), (5_000, 60_000))),
                retention_ms=chance.choice((0, 60_000, HOUR)),
                headers=chance.choice((b"", b'{"a":"b"}')),
                note=chance.choice((b"", b"n")),
                keeps_body=chance.choice((False, True)),
            )
            for n in range(number)
        ]
    )
    topics = ("t0", "t1", "t2")
    for end in (pool.finish, pool.finish, None):
        jobs = await pop(pool, *topics, count=number // 20)
        if end:
            await end([(job.id, job.lease) for job in jobs])
        for job in [] if end else jobs:
            await pool.bury(job.id, job.lease, "broken")
    for job in await pop(pool, *topics, count=number // 20, worker="w", ttr_ms=5_000):
        await pool.release(job.id, job.lease, reason="later")
    for shard in range(len(pool.keys)):
        for bucket in range(pool.buckets):
            await pool.slice(shard, bucket, 0, number)


def without_gone(jobs: dict[str, Job], others: dict[str, Job]) -> dict[str, Job]:
    """Without the tombstones that have ended meanwhile."""
    return {job_id: job for job_id, job in jobs.items() if job.state <= State.DEAD or job_id in others}


async def sound(pool: Pool) -> None:
    assert (await (await Fsck.open(pool.redis, rest=0)).run()).findings == {}


async def check_whole(old: Pool, new: Pool) -> None:
    await fill(old, 1_000)
    jobs, stats = await records(old), await Topics(old).stats()
    assert all(stats.counts[state] > 20 for state in ("delayed", "ready", "dead"))
    moved = await move(old, new)
    there = await records(new)
    assert content(without_gone(jobs, there)) == content(there)
    assert (await Topics(new).stats()).counts == stats.counts
    assert (await Topics(new).stats()).due == stats.due
    assert moved.done and moved.jobs == len(jobs) and moved.known == 0
    states = Counter((job.topic, job.state.word) for job in jobs.values())
    assert {(t, s): n for t, some in moved.topics.items() for s, n in some.items()} == states
    await emptied(old)
    await sound(old)
    await sound(new)
    totals = (await Topics(old).stats()).totals
    live = sum(stats.counts.values())
    assert totals["finished"] == stats.totals["finished"] and totals["moved"] == totals["deleted"] == live
    assert (await Topics(new).stats()).totals == {"created": live}
    assert (await move(old, new)).jobs == 0


async def test_all_jobs_are_on_the_new_redis_as_they_were(old: Pool, new: Pool, redis: Redis, other: Redis) -> None:
    await check_whole(old, new)
    await check_books(redis, old)
    await check_books(other, new)


async def test_the_new_redis_may_be_a_cluster(old: Pool) -> None:
    async with ClusterSet(replicas=0) as servers:
        cluster = Redis(servers.url)
        new = await Pool.open(cluster, shards=16, buckets=2)
        await check_whole(old, new)
        # And back again.
        await finish_all(old)
        jobs = await records(new)
        assert (await move(new, old)).jobs == len(jobs)
        assert content(await records(old)).strip() == content(without_gone(jobs, await records(old)))
        await emptied(new)
        await new.close()
        await cluster.close()


async def finish_all(pool: Pool) -> None:
    await pool.redis.read("FLUSHALL")
    await Pool.open(pool.redis)


async def test_ready_jobs_keep_their_order(old: Pool, other: Redis) -> None:
    new = await Pool.open(other)
    ids = [f"j{n}" for n in range(450)]
    for at in range(0, 450, 50):
        await old.add([NewJob(job_id, "t", b"") for job_id in ids[at : at + 50]])
    await add(old, "urgent", priority=0)
    await move(old, new)
    popped = await popped_ids(new)
    assert popped.index("urgent") in (0, 450)
    popped.remove("urgent")
    assert popped == ids
    await new.close()


async def test_a_job_that_somebody_has_is_moved_when_it_is_finished_or_comes_back(old: Pool, new: Pool) -> None:
    await add(old, "done", ttr_ms=60_000)
    done = await pop_one(old)
    await add(old, "lost", ttr_ms=300)
    await pop_one(old)
    moving = asyncio.create_task(move(old, new))
    await until(lambda: _has(new, "lost"))  # no timers run on the old Redis
    assert await state(old, "done") == "reserved"
    assert not moving.done()
    await finish(old, "done", done.lease)
    assert (await moving).topics == {"t": {"ready": 1, "finished": 1}}
    lost = await pop_one(new)
    assert (lost.id, lost.kind.deliveries, lost.kind.attempts) == ("lost", 2, 2)
    assert await state(new, "done") == "finished"


async def _has(pool: Pool, job_id: str) -> bool:
    return await pool.get(job_id) is not None


async def test_jobs_with_a_key_follow_the_one_that_has_it(old: Pool, new: Pool, redis: Redis) -> None:
    for name in ("a", "b", "c"):
        await add(old, f"7@{name}", key="7", key_concurrency=1)
        await add(old, f"8@{name}", key="8", key_concurrency=2)
    await add(old, "7@d", key="7", delay_ms=HOUR)
    assert await popped_ids(old) == ["7@a", "8@a", "8@b"]
    await finish(old, "8@a")  # now 8@c is in its list, and 8@b is still reserved
    moving = asyncio.create_task(move(old, new))
    await asyncio.sleep(0.3)
    assert await popped_ids(new) == []
    await check_books(redis, old)
    await finish(old, "7@a")
    await finish(old, "8@b")
    await asyncio.wait_for(moving, 20)
    await check_books(new.redis, new)
    assert sorted(await popped_ids(new)) == ["7@b", "8@c"]
    await finish(new, "7@b")
    assert await popped_ids(new) == ["7@c"]
    assert await state(new, "7@d") == "delayed"


async def test_jobs_that_come_to_other_shards_than_their_keys_are_counted(old: Pool, new: Pool) -> None:
    keyed = [NewJob(each, "t", b"1", key="7") for each in ("7@a", "7@b", *(f"j{n}" for n in range(40)))]
    await old.add([*keyed, NewJob("other", "t", b"1")])
    astray = sum(shard_of(job.id, 4) != shard_of("7", 4) for job in keyed)
    assert 20 < astray < 40
    assert (await move(old, new)).astray == astray


async def test_while_jobs_of_a_key_move_they_run_in_order_and_one_at_a_time(old: Pool, new: Pool) -> None:
    await old.add([NewJob(f"7@{n:03}", "t", b"", key="7") for n in range(400)])
    ran: list[str] = []
    running: set[str] = set()

    async def work(pool: Pool) -> None:
        while len(ran) < 400:
            for job in await pop(pool, "t", count=5):
                assert not running, f"{job.id} runs beside {running}"
                running.add(job.id)
                ran.append(job.id)
                await asyncio.sleep(random.random() / 100)
                running.remove(job.id)
                await finish(pool, job.id)
            await asyncio.sleep(0.001)

    async with asyncio.timeout(60), asyncio.TaskGroup() as both:
        both.create_task(work(old))
        await until(lambda: len(ran) > 3)
        both.create_task(work(new))
        migrated = await move(old, new)
    assert ran == [f"7@{n:03}" for n in range(400)]
    assert migrated.topics["t"]["ready"] > 0
    await emptied(old)


async def test_a_move_that_is_stopped_leaves_no_key_busy(old: Pool, new: Pool, redis: Redis) -> None:
    await old.add([NewJob(f"7@{n:03}", "t", b"", key="7") for n in range(300)])
    migration = await Migration.open(old.redis, new.redis, rest=0, progress=lambda moved, left: migration.stop())
    await migration.run()
    assert 0 < migration.migrated.jobs < 300 and not migration.migrated.done
    await check_books(redis, old)
    assert await popped_ids(old) == [f"7@{migration.migrated.jobs:03}"]


async def test_an_id_that_the_new_redis_knows_keeps_what_it_has_there(old: Pool, new: Pool) -> None:
    for job_id in ("live", "done", "gone"):
        await add(old, job_id, body=b"old")
        await add(new, job_id, body=b"new")
    await pop(new, count=3)
    await finish(new, "done")
    await delete(new, "gone")
    moved = await move(old, new)
    assert (moved.jobs, moved.known) == (3, 3)
    assert [await state(new, job_id) for job_id in ("live", "done", "gone")] == ["reserved", "finished", "deleted"]
    assert (await get(new, "live")).body == b"new"
    await emptied(old)


async def test_a_lease_is_higher_than_those_of_the_old_redis(old: Pool, new: Pool) -> None:
    await add(old, "j")
    before = await pop_one(old)
    await old.release("j", before.lease)
    await move(old, new)
    assert (await pop_one(new)).lease > before.lease


async def test_pauses_go_along_and_end_on_the_old_redis(old: Pool, new: Pool) -> None:
    for topic in ("for_long", "for_now", "open", "longer"):
        await add(old, topic, topic)
    await Topics(old).pause("for_long")
    until_ms = await Topics(old).pause("for_now", HOUR)
    await Topics(old).pause("longer", HOUR)
    await Topics(new).pause("longer")
    await move(old, new)
    assert await popped_ids(new, "for_long", "for_now", "open", "longer") == ["open"]
    assert await Topics(new).paused_until("for_long") == await Topics(new).paused_until("longer") == 0
    assert abs((await Topics(new).paused_until("for_now") or 0) - until_ms) < 1_000
    assert await Topics(old).paused_until("for_long") is None


async def left_behind(old: Pool, ids: Sequence[str]) -> None:
    """What a migration leaves that dies after its first step."""
    await old.call("export", 0, ids, now="", batch="f00d", front="", page=100, room=1 << 20)


async def test_what_a_dead_mover_took_is_put_by_the_next_one(old: Pool, new: Pool) -> None:
    await add(old, "a")
    await add(old, "b", delay_ms=HOUR)
    jobs = await records(old)
    await left_behind(old, ["a", "b"])
    assert await records(old) == {}
    moved = await move(old, new, patience_s=0.05)
    assert moved.jobs == 2 and content(await records(new)) == content(jobs)
    await emptied(old)


async def test_what_a_dead_mover_had_put_is_not_put_again(old: Pool, new: Pool) -> None:
    await add(old, "a")
    await left_behind(old, ["a"])
    (key,) = await old.redis.read("KEYS", "*:m:*")
    await new.each(
        "import", [_item(*await old.redis.read("HGETALL", key))], now="", verb=int(Verb.IMPORT), bucket=0, buckets=2
    )
    await finish(new, (await pop_one(new)).id)
    assert (await move(old, new, patience_s=0)).known == 1
    assert await state(new, "a") == "finished"


def _item(job_id: bytes, raw: bytes) -> Any:
    from buckets.shards import Item  # noqa: PLC0415

    return Item(job_id.decode(), (job_id, raw))


async def test_two_movers_move_each_job_once(old: Pool, new: Pool) -> None:
    await fill(old, 1_000)
    jobs = await records(old)
    first, second = await asyncio.gather(move(old, new), move(old, new))
    assert first.jobs + second.jobs == len(jobs) and first.known + second.known == 0
    assert first.jobs and second.jobs
    there = await records(new)
    assert content(without_gone(jobs, there)) == content(there)
    await sound(new)


async def test_a_full_new_redis_stops_the_mover_and_nothing_is_lost(old: Pool, new: Pool, other: Redis) -> None:
    await old.add([NewJob(f"j{n}", "t", b"x" * 1_000, delay_ms=HOUR) for n in range(3_000)])
    await old.add([NewJob(f"r{n}", "t", b"x" * 1_000, key=f"{n % 6}" if n % 2 else "") for n in range(1_000)])
    jobs = await records(old)
    used = int((await other.read("INFO", "memory")).partition(b"used_memory:")[2].split()[0])
    await other.read("CONFIG", "SET", "maxmemory-policy", "noeviction", "maxmemory", used + (2 << 20))
    with pytest.raises(NoRoom):
        await move(old, new)
    here, there = await records(old), await records(new)
    assert here and there and not here.keys() & there.keys() and here.keys() | there.keys() == jobs.keys()
    await sound(old)
    await sound(new)
    await other.read("CONFIG", "SET", "maxmemory", 0)
    assert (await move(old, new)).jobs == len(here)
    assert content(await records(new)) == content(jobs)


async def test_a_full_old_redis_is_emptied(other: Redis, new: Pool, redis: Redis) -> None:
    await add(new, "a")
    await add(new, "b", delay_ms=HOUR)
    await other.read("CONFIG", "SET", "maxmemory-policy", "noeviction", "maxmemory", 1)
    old = await Pool.open(redis)
    assert (await move(new, old)).jobs == 2
    await emptied(new)


async def test_a_mover_that_is_stopped_ends_behind_a_page_and_says_that_it_is_not_done(old: Pool, new: Pool) -> None:
    await fill(old, 1_000)
    jobs = await records(old)
    mover = await Migration.open(old.redis, new.redis, rest=0, progress=lambda moved, left: mover.stop())
    moved = await mover.run()
    assert not moved.done and 0 < moved.jobs <= 100
    assert await old.redis.read("KEYS", "*:m:*") == []
    there = await records(new)
    assert len(there) + len(await records(old)) == len(jobs)


async def test_jobs_with_large_bodies_go_a_few_at_a_time(old: Pool, new: Pool) -> None:
    for n in range(12):
        await add(old, f"r{n}", body=b"x" * 400_000)
        await add(old, f"d{n}", body=b"y" * 400_000, delay_ms=HOUR)
    jobs = await records(old)
    await move(old, new)
    assert content(await records(new)) == content(jobs)


async def test_a_script_takes_no_more_than_it_has_room_for_but_one_always(old: Pool) -> None:
    for n in range(3):
        await add(old, f"j{n}")
    for ids, front in (((), "4:t"), (("j1", "j2"), "")):
        looked, _, _, job_id, *_ = await old.call("export", 0, ids, now="", batch="0", front=front, page=9, room=1)
        assert (looked, job_id) == (1, b"j1" if ids else b"j0")


async def test_an_entry_of_an_earlier_life_on_the_new_redis_is_stale(old: Pool, other: Redis) -> None:
    new = await Pool.open(other)
    await add(old, "j")
    number = (await get(old, "j")).number
    await add(new, "first")
    await other.read("LPUSH", new.keys[0].ready(4, "t"), f"{number}:j", f"{number + 1}:j")
    await move(old, new)
    assert await popped_ids(new) == ["first", "j"]
    await new.close()


async def test_a_long_optional_block_and_a_later_dead_letter_survive(old: Pool, new: Pool) -> None:
    await add(old, "j", headers=b'{"a":"' + b"x" * 400 + b'"}')
    job = await pop_one(old, worker="w1")
    await old.bury(job.id, job.lease, "a reason")
    died = (await get(old, "j")).next
    await move(old, new)
    there = await get(new, "j")
    assert (there.next, there.state, there.text(Tag.REASON)) == (died, State.DEAD, "a reason")
    assert await Topics(new).kick("t", 10) == 1


async def test_a_namespace_that_is_not_there_or_of_another_version_is_refused(old: Pool, new: Pool) -> None:
    with pytest.raises(Unfit, match="has no namespace other"):
        await Migration.open(old.redis, new.redis, "other")
    await old.redis.read("HSET", old.keys[0].meta, "format", 3)
    for pair in ((old.redis, new.redis), (new.redis, old.redis)):
        with pytest.raises(Unfit, match="another version"):
            await Migration.open(*pair)
    await old.redis.read("DEL", old.keys[0].meta)
    await add(Pool(old.redis, "jq", 1, 8), "j")
    with pytest.raises(Unfit, match="damaged"):
        await Migration.open(old.redis, new.redis)


async def test_producers_and_workers_on_both_lose_nothing_and_do_nothing_twice(old: Pool, new: Pool) -> None:
    """Producers add to both; workers pop and finish on both, until all is done."""
    added: set[str] = set()
    finished: Counter[str] = Counter()
    adding = True

    async def produce(pool: Pool, name: str) -> None:
        for turn in range(40):
            jobs = [NewJob(f"{name}{turn}.{n}", "t", b"", delay_ms=(n % 4) * 100) for n in range(25)]
            await pool.add(jobs)
            added.update(job.id for job in jobs)

    async def work(pool: Pool) -> None:
        while adding or len(finished) < len(added):
            for shard in range(len(pool.keys)):
                for bucket in range(pool.buckets):
                    await pool.due(shard, bucket)
            jobs = await pop(pool, count=30)
            assert all(job.lease >= job.due * 1_000 for job in jobs)
            await pool.finish([(job.id, job.lease) for job in jobs])
            finished.update(job.id for job in jobs)

    workers = [asyncio.create_task(work(pool)) for pool in (old, new)]
    producers = [asyncio.create_task(produce(*pair)) for pair in ((old, "a"), (new, "b"))]
    movers = [asyncio.create_task(move(old, new)) for _ in range(2)]
    await asyncio.gather(*producers)
    adding = False
    async with asyncio.timeout(20):
        await asyncio.gather(*movers, *workers)
    assert finished == Counter(added) and len(added) == 2_000
    await emptied(old)
    await sound(new)


async def test_the_new_redis_gives_out_no_number_of_the_old_one(old: Pool, new: Pool) -> None:
    given = [await Numbers(old).next() for _ in range(3)]
    await move(old, new)
    assert await Numbers(new).next() > max(given) + BLOCK


async def test_numbers_taken_from_the_old_redis_during_the_migration_are_others(old: Pool, new: Pool) -> None:
    await Numbers(old).next()
    await move(old, new)
    late, there = Numbers(old), Numbers(new)
    assert set(await late.some(1_000)).isdisjoint(await there.some(1_000))
    await move(old, new)  # again, for what came late
    assert await there.last() > await late.last()


async def test_a_counter_that_is_beyond_stays_and_one_that_began_again_does_no_harm(old: Pool, new: Pool) -> None:
    await Numbers(old).next()
    await Numbers(new).raise_to(LARGEST_NUMBER - 5)
    await move(old, new)
    assert await Numbers(new).last() == LARGEST_NUMBER - 5
    await Numbers(old).raise_to(LARGEST_NUMBER - 1)
    await move(old, new)
    assert await Numbers(new).last() == LARGEST_NUMBER and await Numbers(new).next() == 1


async def test_a_namespace_without_numbers_gets_none(old: Pool, new: Pool) -> None:
    await add(old, "a")
    await move(old, new)
    assert await new.redis.read("KEYS", "*seq") == []


async def test_aliases_name_their_jobs_on_the_new_redis_for_as_long(old: Pool, new: Pool) -> None:
    await add(old, "a")
    numbers = [await Numbers(old).alias("a", await old.now_ms() + 2 * HOUR), await Numbers(old).alias("b")]
    await move(old, new)
    assert [await Numbers(new).resolve(number) for number in (*numbers, 99)] == ["a", "b", None]
    for number, hours in zip(numbers, (3, 1), strict=True):
        left = await new.redis.read("PTTL", new.keys[0].alias(number))
        assert hours * HOUR - 60_000 < left <= hours * HOUR
    await sound(new)


async def test_the_records_of_tokens_go_along_and_the_one_that_was_changed_last_holds(old: Pool, new: Pool) -> None:
    def record(token: str, changed: int) -> Entry:
        return Entry(token, changed, json.dumps({"changed": changed}).encode())

    await Tokens(old).write([record("revoked0", 2), record("rotated0", 1)])
    await Tokens(old).note_used({"revoked0": 60})
    await Tokens(new).write([record("revoked0", 1), record("rotated0", 2)])
    await move(old, new)
    stored = await Tokens(new).read()
    assert {entry.id: entry.changed for entry in stored.entries()} == {"revoked0": 2, "rotated0": 2}
    assert stored.used == {"revoked0": 60}


async def test_the_cards_of_instances_stay_behind(old: Pool, new: Pool) -> None:
    await old.redis.read("HSET", "{jq:0}:cards", "aa", "{}")
    await move(old, new)
    assert await old.redis.read("EXISTS", "{jq:0}:cards") == 1
    assert await new.redis.read("EXISTS", "{jq:0}:cards") == 0


async def define(pool: Pool, name: str, every_ms: int = HOUR, **options: Any) -> Scheduled:
    scheduled = Scheduled(pool, HeldClock())
    await scheduled.define(name, every_ms, **options)
    return scheduled


async def occur(pool: Pool, name: str, times: int = 1) -> None:
    """Make the next occurrences of a schedule as if their times had come."""
    scheduled = Scheduled(pool, HeldClock())
    for _ in range(times):
        record = await scheduled.record(name)
        copy = pool.shape(NewJob(name, "t", b""))
        plan = (name, record.revision, record.next, record.next + HOUR, 0, 1, 1, "", "", 0, copy.front)
        await pool.call(
            *("occur", scheduled.schedules.shard(name), (*plan, record.next, 1)),
            now=pool.clock.now(),
            bucket=0,
            met=record.bucket,
        )


async def schedules(pool: Pool) -> dict[str, tuple[Schedule, list[bytes]]]:
    """All schedules but for their buckets, with the occurrences that are remembered of each."""
    found = {}
    for shard, keys in enumerate(pool.keys):
        cursor = 0
        while True:
            page, cursor = await Schedules(pool).page(shard, cursor, "*")
            for each in page:
                occurrences = await pool.redis.read("ZRANGE", keys.occurrences(each.name), 0, -1, "WITHSCORES")
                found[each.name] = each._replace(bucket=0), occurrences
            if not cursor:
                break
    return found


async def test_schedules_move_with_their_times_and_their_occurrences(
    old: Pool, new: Pool, redis: Redis, other: Redis
) -> None:
    for number in range(150):
        await define(old, f"s{number}", HOUR + number, paused=number % 7 == 0, body="x" * 100 * number)
    for number in (1, 2, 3):
        await occur(old, f"s{number}", number)
    await add(old, "job")
    before = await schedules(old)
    assert [len(before[f"s{number}"][1]) // 2 for number in (1, 2, 3)] == [1, 2, 3]
    moved = await move(old, new)
    assert (moved.done, moved.schedules, moved.jobs, moved.known) == (True, 150, 7, 0)
    assert await schedules(new) == before and await schedules(old) == {}
    assert await redis.read("KEYS", "*:[ombd]:*") == []
    await sound(old)
    await sound(new)
    await check_books(other, new)
    record = (await Schedules(new).see("s3")).schedule
    assert record and await Schedules(new).undefine(record) == 3
    assert (await move(old, new)).schedules == 0


async def test_more_occurrences_than_one_script_takes_move_too(old: Pool, new: Pool) -> None:
    await define(old, "s")
    await occur(old, "s")
    more = [value for ms in range(1, 2_500) for value in (ms, ms)]
    await old.redis.read("ZADD", old.keys[0].occurrences("s"), *more)
    before = await schedules(old)
    assert (await move(old, new)).schedules == 1
    assert await schedules(new) == before and len(before["s"][1]) == 5_000
    await sound(old)


async def test_a_name_that_the_new_redis_knows_keeps_what_it_has_there(old: Pool, new: Pool) -> None:
    await define(old, "s", body="old")
    await define(new, "s", body="new")
    moved = await move(old, new)
    assert (moved.schedules, moved.known) == (1, 1)
    assert b"new" in (await schedules(new))["s"][0].definition
    assert await schedules(old) == {}


async def test_a_schedule_follows_its_last_occurrence(old: Pool, new: Pool) -> None:
    """With `overlap: skip`, its next occurrence depends on that."""
    await define(old, "s")
    await occur(old, "s")
    job = await pop_one(old)
    await define(old, "free")
    mover = asyncio.create_task(move(old, new))
    await until(lambda: _has_schedule(new, "free"))
    assert await state(old, job.id) == "reserved" and not await _has_schedule(new, "s")
    await finish(old, job.id, job.lease)
    assert (await mover).schedules == 2
    assert await state(new, job.id) == "finished" and await _has_schedule(new, "s")


async def _has_schedule(pool: Pool, name: str) -> bool:
    return (await Schedules(pool).see(name)).schedule is not None


async def test_schedules_that_a_dead_mover_took_are_put_by_the_next_one(old: Pool, new: Pool) -> None:
    for name in ("a", "b"):
        await define(old, name)
    before = await schedules(old)
    await moving.export(old, 0, [b"a", b"b"])
    assert await schedules(old) == {}
    assert (await move(old, new, patience_s=0.05)).schedules == 2
    assert await schedules(new) == before
    assert await old.redis.read("KEYS", "*:m:*") == []


async def test_two_movers_move_each_schedule_once(old: Pool, new: Pool) -> None:
    for number in range(300):
        await define(old, f"s{number}")
    before = await schedules(old)
    first, second = await asyncio.gather(move(old, new), move(old, new))
    assert first.schedules + second.schedules == 300 and first.known + second.known == 0
    assert await schedules(new) == before


async def test_schedules_that_find_no_room_go_back(old: Pool, new: Pool, other: Redis) -> None:
    for number in range(50):
        await define(old, f"s{number}")
    before = await schedules(old)
    await other.read("CONFIG", "SET", "maxmemory-policy", "noeviction", "maxmemory", 1)
    with pytest.raises(NoRoom):
        await move(old, new)
    assert await schedules(old) == before and await schedules(new) == {}
    await sound(old)
    await other.read("CONFIG", "SET", "maxmemory", 0)
    assert (await move(old, new)).schedules == 50
    assert await schedules(new) == before


async def test_a_schedule_that_moves_while_both_services_run_has_each_occurrence_once(old: Pool, new: Pool) -> None:
    """Timers on both, and three moves to and fro."""
    here, there = Scheduled(old, HeldClock()), Scheduled(new, HeldClock())
    for number in range(20):
        await here.define(f"s{number}", 500, catch_up="all")
    stop = asyncio.Event()
    finished: Counter[str] = Counter()

    async def serve(scheduled: Scheduled) -> None:
        while not stop.is_set():
            await scheduled.tick()
            jobs = await pop(scheduled.pool, count=100)
            await scheduled.pool.finish([(job.id, job.lease) for job in jobs])
            finished.update(job.id for job in jobs)

    serving = [asyncio.create_task(serve(each)) for each in (here, there)]
    for pair in ((old, new), (new, old), (old, new)):
        async with asyncio.timeout(20):
            await move(*pair)
    await until(lambda: len(finished) > 20)
    stop.set()
    await asyncio.gather(*serving)
    await there.tick()
    while jobs := await popped_ids(new):
        finished.update(jobs)
    assert set(finished.values()) == {1}
    for number in range(20):
        record = await there.record(f"s{number}")
        wanted = {f"s{number}@{ms}" for ms in range(record.start + 500, record.last + 1, 500)}
        assert {each for each in finished if each.startswith(f"s{number}@")} == wanted
