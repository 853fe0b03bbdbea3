"""buckets.waiting: the waiting pops of an owner end with an error, and no job is lost or tried for them."""

from __future__ import annotations

import asyncio

import pytest

from buckets.errors import JobQueueError, NotFound
from buckets.pool.pool import Pool
from buckets.waiting.waiting import Waiting
from tests.buckets.jobs import add
from tests.buckets.waiting.parked import Parked, caught_up, job_of, park
from tests.kit.waiting import until

GONE = NotFound("no longer")


async def is_untouched(pool: Pool, job_id: str) -> bool:
    job = await pool.get(job_id)
    return job is not None and (job.state.word, job.attempts) == ("ready", 0)


async def error_of(parked: Parked) -> JobQueueError:
    with pytest.raises(JobQueueError) as caught:
        await parked
    return caught.value


async def test_the_waiting_pops_of_an_owner_end_and_those_of_others_wait_on(waiting: Waiting, pool: Pool) -> None:
    ended = [await park(waiting, owner="me") for _ in range(3)]
    stays = await park(waiting, owner="you")
    assert (waiting.waits_of("me"), waiting.waits_of("you")) == (3, 1)
    waiting.end_owned("me", GONE)
    assert [await error_of(parked) for parked in ended] == [GONE] * 3
    assert (waiting.parked, waiting.waits_of("me")) == (1, 0)
    await add(pool, "a")
    assert (await job_of(stays)).id == "a"


async def test_only_pops_that_ask_for_a_topic_out_of_reach_end(waiting: Waiting, pool: Pool) -> None:
    ends, stays = await park(waiting, ["t", "u"], owner="me"), await park(waiting, ["t"], owner="me")
    waiting.end_owned("me", GONE, lambda topic: topic == "t")
    assert await error_of(ends) is GONE
    await add(pool, "a")
    assert (await job_of(stays)).id == "a"


async def test_a_job_on_its_way_to_a_pop_that_ends_goes_to_the_next_one_and_no_try_is_used_up(
    waiting: Waiting, pool: Pool
) -> None:
    for turns in range(40):
        ends, stays = await park(waiting, owner="me"), await park(waiting, owner="you")
        adding = asyncio.create_task(add(pool, f"a{turns}"))
        for _ in range(turns):
            await asyncio.sleep(0)
        waiting.end_owned("me", GONE)
        await adding
        await asyncio.wait([ends])
        if ends.exception():
            job = await job_of(stays)
            assert (job.id, job.attempts) == (f"a{turns}", 1)
        else:
            assert (await job_of(ends)).attempts == 1
            waiting.end_owned("you", GONE)
            assert await error_of(stays) is GONE


async def test_a_pop_that_ends_during_its_first_look_leaves_its_job_ready(waiting: Waiting, pool: Pool) -> None:
    await add(pool, "a")
    looking = asyncio.create_task(waiting.pop(["t"], 1, 60, owner="me"))
    await asyncio.sleep(0)
    assert waiting.waits_of("me") == 1
    waiting.end_owned("me", GONE)
    assert await error_of(looking) is GONE
    await until(lambda: is_untouched(pool, "a"))
    await caught_up(waiting, pool)
    assert waiting.parked == 0
