"""The pool and add.lua: groups of jobs that are added whole or not at all, and the limit of a topic's pending jobs."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import pytest

from buckets.clock import HeldClock
from buckets.errors import AlreadyExists, JobQueueError, Reserved, TopicFull
from buckets.job import NewJob
from buckets.keys import shard_of
from buckets.pool.codec import Added
from buckets.pool.pool import Pool
from buckets.redis.client import Redis
from buckets.topics.topics import Topics
from tests.buckets.books import check_books
from tests.buckets.jobs import add, delete, finish, get, pop_one, popped_ids, state


def group(base: str, *topics: str, **fields: Any) -> list[NewJob]:
    return [NewJob(f"{base}@{topic}", topic, b'"body"', **fields) for topic in topics]


async def add_group(pool: Pool, base: str, *topics: str, **fields: Any) -> list[Added]:
    (result,) = await pool.add_groups([group(base, *topics, **fields)])
    if isinstance(result, JobQueueError):
        raise result
    return result


def results(added: list[Added]) -> list[str]:
    return [each.result for each in added]


async def test_a_group_becomes_a_job_in_each_topic(redis: Redis, pool: Pool) -> None:
    assert results(await add_group(pool, "paid:1", "invoice", "mail")) == ["created", "created"]
    assert await popped_ids(pool, "invoice") == ["paid:1@invoice"]
    assert await popped_ids(pool, "mail") == ["paid:1@mail"]
    await check_books(redis, pool)


async def test_a_group_is_one_script_on_one_shard(redis: Redis) -> None:
    pool = await Pool.open(redis, shards=4)
    for number in range(20):
        await add_group(pool, f"paid:{number}", "invoice", "mail", "crm")
    assert all(
        shard_of(f"paid:{number}@{topic}", 4) == shard_of(f"paid:{number}", 4)
        for number in range(20)
        for topic in ("invoice", "mail", "crm")
    )
    assert (await Topics(pool).stats()).counts["ready"] == 60
    await check_books(redis, pool)
    await pool.close()


async def test_where_one_of_a_group_is_there_already_the_others_are_added_beside_it(pool: Pool) -> None:
    await add(pool, "paid:1@mail", "mail", b'"old"')
    assert results(await add_group(pool, "paid:1", "invoice", "mail")) == ["created", "existing"]
    assert (await get(pool, "paid:1@mail")).body == b'"old"'


async def test_a_group_with_reject_is_refused_whole_when_one_exists(redis: Redis, pool: Pool) -> None:
    await add(pool, "paid:1@mail", "mail")
    with pytest.raises(AlreadyExists):
        await add_group(pool, "paid:1", "invoice", "mail", "crm", if_exists="reject")
    assert await state(pool, "paid:1@invoice") == "unknown"
    assert await state(pool, "paid:1@crm") == "unknown"
    await check_books(redis, pool)


async def test_a_group_with_replace_is_refused_whole_while_one_is_reserved(redis: Redis, pool: Pool) -> None:
    await add_group(pool, "paid:1", "invoice", "mail", delay_ms=0)
    lease = (await pop_one(pool, "mail")).lease
    with pytest.raises(Reserved):
        await add_group(pool, "paid:1", "invoice", "mail", if_exists="replace", priority=9)
    assert (await get(pool, "paid:1@invoice")).priority == 4
    await finish(pool, "paid:1@mail", lease)
    replaced = await add_group(pool, "paid:1", "invoice", "mail", if_exists="replace", priority=9)
    assert results(replaced) == ["replaced", "replaced"]
    await check_books(redis, pool)


async def test_groups_and_single_jobs_stand_in_one_batch_as_if_one_after_the_other(redis: Redis, pool: Pool) -> None:
    batch = [
        [NewJob("x@mail", "mail", b'"single"')],
        group("x", "invoice", "mail", if_exists="reject"),
        group("y", "invoice", "mail"),
        [NewJob("z", "other", b"1")],
        group("x", "invoice", "mail"),
    ]
    first, refused, second, third, kept = await pool.add_groups(batch)
    assert isinstance(refused, AlreadyExists)
    assert [results(each) for each in (first, second, third) if isinstance(each, list)] == [
        ["created"],
        ["created", "created"],
        ["created"],
    ]
    assert isinstance(kept, list)
    assert results(kept) == ["created", "existing"]
    await check_books(redis, pool)


async def test_what_was_deleted_of_a_group_stays_so_beside_what_is_kept_or_created(redis: Redis, pool: Pool) -> None:
    await add_group(pool, "paid:1", "invoice", "mail")
    await delete(pool, "paid:1@invoice")
    gone = await get(pool, "paid:1@invoice")
    again = await add_group(pool, "paid:1", "invoice", "mail", "crm")
    assert again[0] == Added("cancelled", "deleted", gone.due)
    assert results(again[1:]) == ["existing", "created"]
    assert await get(pool, "paid:1@invoice") == gone
    await check_books(redis, pool)


async def test_a_group_is_refused_when_all_of_it_was_deleted(redis: Redis, pool: Pool) -> None:
    await add_group(pool, "paid:1", "invoice", "mail")
    await pool.delete(["paid:1@invoice", "paid:1@mail"])
    with pytest.raises(AlreadyExists) as refusal:
        await add_group(pool, "paid:1", "invoice", "mail")
    assert refusal.value.state == "deleted"
    assert results(await add_group(pool, "paid:1", "invoice", "mail", if_exists="renew")) == ["replaced", "replaced"]
    await check_books(redis, pool)


async def test_what_is_dead_of_a_group_stays_so_beside_what_is_kept_or_created(redis: Redis, pool: Pool) -> None:
    await add_group(pool, "paid:1", "invoice", "mail", delay_ms=0)
    lease = (await pop_one(pool, "mail")).lease
    await pool.bury("paid:1@mail", lease)
    dead = await get(pool, "paid:1@mail")
    again = await add_group(pool, "paid:1", "invoice", "mail", "crm", delay_ms=0)
    assert again[1] == Added("dead", "dead", dead.due)
    assert results([again[0], again[2]]) == ["existing", "created"]
    assert await get(pool, "paid:1@mail") == dead
    await check_books(redis, pool)


async def test_a_group_is_refused_when_each_of_it_is_dead_or_deleted(redis: Redis, pool: Pool) -> None:
    await add_group(pool, "paid:1", "invoice", "mail", delay_ms=0)
    await delete(pool, "paid:1@invoice")
    await pool.bury("paid:1@mail", (await pop_one(pool, "mail")).lease)
    with pytest.raises(AlreadyExists) as refusal:
        await add_group(pool, "paid:1", "invoice", "mail")
    assert refusal.value.state == "dead"
    assert results(await add_group(pool, "paid:1", "invoice", "mail", if_exists="renew")) == ["replaced", "replaced"]
    await check_books(redis, pool)


async def test_a_full_topic_refuses_a_group_of_which_a_part_was_deleted(pool: Pool) -> None:
    await add(pool, "paid:1@invoice", "invoice")
    await delete(pool, "paid:1@invoice")
    await add(pool, "x", "mail")
    with pytest.raises(TopicFull):
        await add_group(pool, "paid:1", "invoice", "mail", most_pending=1)


async def test_renew_takes_each_job_of_a_group_by_its_own_state(redis: Redis, pool: Pool) -> None:
    await add_group(pool, "paid:1", "dead", "done", "gone", "held", "late")
    for topic in ("dead", "done", "held"):
        await pop_one(pool, topic)
    await pool.bury("paid:1@dead")
    await finish(pool, "paid:1@done")
    await delete(pool, "paid:1@gone")
    again = await add_group(pool, "paid:1", "dead", "done", "gone", "held", "late", "new", if_exists="renew")
    assert results(again) == ["replaced"] * 3 + ["existing"] * 2 + ["created"]
    assert (await Topics(pool).stats("dead")).totals["deleted"] == 1  # as when it is replaced
    await check_books(redis, pool)


async def test_renew_of_a_live_job_is_kept_in_a_full_topic_and_that_of_an_ended_one_is_not(pool: Pool) -> None:
    await add(pool, "a", most_pending=1)
    assert (await add(pool, "a", if_exists="renew", most_pending=1)).result == "existing"
    await delete(pool, "a")
    await add(pool, "b", most_pending=1)
    with pytest.raises(TopicFull):
        await add(pool, "a", if_exists="renew", most_pending=1)


async def test_a_single_job_before_a_group_is_no_part_of_it(pool: Pool) -> None:
    await add(pool, "paid:1@mail", "mail")
    alone, together = [NewJob("alone", "invoice", b"1")], group("paid:1", "invoice", "mail")
    reject = [[replace(job, if_exists="reject") for job in jobs] for jobs in (alone, together)]
    kept, refused = await pool.add_groups(reject)
    assert isinstance(kept, list)
    assert isinstance(refused, AlreadyExists)
    assert await popped_ids(pool, "invoice") == ["alone"]


async def test_a_large_batch_of_groups_is_split_between_groups_only(redis: Redis, pool: Pool) -> None:
    groups = [group(f"paid:{number}", "invoice", "mail", "crm") for number in range(450)]
    told = await pool.add_groups(groups)
    assert all(isinstance(each, list) and results(each) == ["created"] * 3 for each in told)
    assert (await Topics(pool).stats()).counts["ready"] == 1350
    await check_books(redis, pool)


async def test_a_batch_of_large_groups_is_split_by_its_jobs(redis: Redis, pool: Pool) -> None:
    """Lua takes 8,000 arguments, and a script of 200 jobs is long enough."""
    topics = [f"t{number}" for number in range(32)]
    await redis.read("CONFIG", "RESETSTAT")
    told = await pool.add_groups([group(f"paid:{number}", *topics) for number in range(100)])
    assert all(isinstance(each, list) and results(each) == ["created"] * 32 for each in told)
    scripts = re.findall(rb"cmdstat_eval(?:sha)?:calls=(\d+)", await redis.read("INFO", "commandstats"))
    assert sum(map(int, scripts)) in (17, 18)  # of six groups each; the first may have to be loaded into Redis
    await check_books(redis, pool)


async def test_a_topic_takes_as_many_pending_jobs_as_it_may_have(redis: Redis, pool: Pool, clock: HeldClock) -> None:
    await add(pool, "a", most_pending=2)
    await add(pool, "b", delay_ms=1_000, most_pending=2)
    with pytest.raises(TopicFull):
        await add(pool, "c", most_pending=2)
    assert await state(pool, "c") == "unknown"
    await add(pool, "other", "other", most_pending=2)
    job = await pop_one(pool)
    await add(pool, "c", most_pending=2)  # reserved and ended jobs are not pending
    await finish(pool, job.id)
    await delete(pool, "c")
    await add(pool, "d", most_pending=2)
    await check_books(redis, pool)


async def test_the_bound_holds_within_one_batch(redis: Redis, pool: Pool) -> None:
    told = await pool.add([NewJob(f"j{number}", "t", b"1", delay_ms=number % 2, most_pending=3) for number in range(5)])
    assert [isinstance(each, TopicFull) for each in told] == [False, False, False, True, True]
    await check_books(redis, pool)


async def test_the_bound_is_that_of_each_job(pool: Pool) -> None:
    """As the settings may change between two requests."""
    unbound, bound = NewJob("a", "t", b"1"), NewJob("b", "t", b"1", most_pending=1)
    assert [type(each) for each in await pool.add([unbound, bound, replace(bound, id="c", topic="u")])] == [
        *(Added, TopicFull, Added)
    ]


async def test_in_a_full_topic_an_add_again_is_kept_and_a_replacement_takes_its_own_place(pool: Pool) -> None:
    await add(pool, "a", most_pending=1)
    assert (await add(pool, "a", most_pending=1)).result == "existing"
    assert (await add(pool, "a", if_exists="replace", most_pending=1)).result == "replaced"
    with pytest.raises(TopicFull):  # a job of another topic would be one more
        await add(pool, "b", "u")
        await add(pool, "b", "t", if_exists="replace", most_pending=1)
    await delete(pool, "a")
    await add(pool, "c", most_pending=1)
    with pytest.raises(TopicFull):  # so would one that is no longer alive
        await add(pool, "a", if_exists="replace", most_pending=1)


async def test_a_group_is_refused_whole_when_one_topic_is_full(redis: Redis, pool: Pool) -> None:
    await add(pool, "x", "mail")
    full = group("paid:1", "invoice") + group("paid:1", "mail", most_pending=1)
    (told,) = await pool.add_groups([full])
    assert isinstance(told, TopicFull)
    assert await state(pool, "paid:1@invoice") == "unknown"
    await check_books(redis, pool)


async def test_a_bound_is_shared_by_the_shards(redis: Redis) -> None:
    """Ids are spread evenly, so each shard takes its part, rounded up."""
    pool = await Pool.open(redis, shards=4)
    told = await pool.add([NewJob(f"j{number}", "t", b"1", most_pending=10) for number in range(400)])
    assert sum(not isinstance(each, JobQueueError) for each in told) == 12
    await pool.close()
