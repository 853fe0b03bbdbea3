"""buckets.waiting: a job that falls due is handed to one pop that really sleeps, and none is lost."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from typing import Any

import pytest

from buckets.clock import HeldClock
from buckets.errors import JobQueueError
from buckets.job import Job, NewJob, Tag
from buckets.pool.pool import PAGE, Pool
from buckets.pool.pop_search import Popped
from buckets.pool.sleepers import MOST_GROUPS, OFFERED, SLEEPING, Offered
from buckets.redis.client import Redis
from buckets.topics.topics import Topics
from buckets.waiting.waiting import Waiting
from tests.buckets.jobs import add, pop_one, state
from tests.buckets.test_meter import Notes
from tests.buckets.waiting.parked import LONG_S, Parked, asked, job_of, jobs_of, park, waiting_on
from tests.kit.redis_server import RedisServer
from tests.kit.waiting import until


@pytest.fixture
async def pool(redis: Redis, clock: HeldClock) -> AsyncIterator[Pool]:
    """All its jobs are in one bucket."""
    pool = await Pool.open(redis, "one", buckets=1, clock=clock)
    yield pool
    await pool.close()


async def fall_due(pool: Pool, clock: HeldClock, *ids: str, topic: str = "t") -> None:
    await pool.add([NewJob(job_id, topic, b"", delay_ms=1) for job_id in ids])
    clock.advance(1)


async def hand_out(waiting: Waiting, pool: Pool, offers: Sequence[Offered]) -> None:
    """What a timer does once it has made its offers."""
    _, _, handed = await pool.due(0, 0, offers)
    waiting.settle(offers, handed)


async def asleep(waiting: Waiting, number: int) -> None:
    def sleep() -> bool:
        return sum(each.state == SLEEPING for group in waiting._sleepers._groups.values() for each in group) == number

    await until(sleep)


async def sleeping(waiting: Waiting, *workers: str, topics: Sequence[str] = ("t",)) -> list[Parked]:
    parked = [await park(waiting, topics, worker=worker) for worker in workers]
    await asleep(waiting, sum(map(len, waiting._sleepers._groups.values())))
    return parked


def worker_of(job: Job) -> str:
    return job.optional[Tag.WORKER].decode()


def offered(offers: Sequence[Offered]) -> int:
    return sum(len(offer.workers) for offer in offers)


async def test_jobs_that_fall_due_go_to_those_who_sleep_first_come_first_served(
    deaf: Waiting, pool: Pool, clock: HeldClock
) -> None:
    parked = await sleeping(deaf, "w1", "w2", "w3", "w4")
    offers = deaf.sleepers(PAGE)
    await fall_due(pool, clock, "a", "b", "c")
    await hand_out(deaf, pool, offers)
    jobs = [await job_of(each) for each in parked[:2]]
    assert [(job.id, worker_of(job), job.attempts) for job in jobs] == [("a", "w1", 1), ("b", "w2", 1)]
    assert await state(pool, "c") == "ready"
    assert deaf.parked == 2
    assert not any(each.done() for each in parked[2:])


async def test_a_pop_is_in_one_offer_only_and_two_timers_share_those_who_sleep(deaf: Waiting, pool: Pool) -> None:
    await sleeping(deaf, *[""] * 5)
    assert [offered(deaf.sleepers(PAGE)) for _ in range(3)] == [3, 2, 0]


async def test_the_only_one_that_sleeps_is_offered(deaf: Waiting, pool: Pool, clock: HeldClock) -> None:
    (parked,) = await sleeping(deaf, "", topics=["u", "t"])
    await fall_due(pool, clock, "a")
    await hand_out(deaf, pool, deaf.sleepers(PAGE))
    assert (await job_of(parked)).id == "a"


async def test_no_more_are_offered_than_asked_for_and_of_many_topics_the_latest(deaf: Waiting, pool: Pool) -> None:
    await sleeping(deaf, *[""] * 10)
    offers = deaf.sleepers(3)
    assert offered(offers) == 3
    deaf.settle(offers, None)
    tasks = [asyncio.create_task(deaf.pop([f"t{n}"], 1, LONG_S)) for n in range(MOST_GROUPS + 8)]
    await until(lambda: deaf.parked == 10 + len(tasks))
    await asleep(deaf, deaf.parked)
    topics = {topic for offer in deaf.sleepers(PAGE) for topic in offer.topics}
    assert len(topics) == MOST_GROUPS
    assert "t" not in topics


@pytest.mark.parametrize("options", [{"ttr_ms": 5_000}, {"by_priority": True}, {"count": 2}])
async def test_a_pop_that_asks_for_something_else_is_not_offered(
    deaf: Waiting, pool: Pool, options: dict[str, Any]
) -> None:
    count = options.pop("count", 1)
    parked = asyncio.create_task(deaf.pop(["t"], count, LONG_S, **options))
    await until(lambda: deaf.parked == 1)
    await Topics(pool).stats()
    assert deaf.sleepers(PAGE) == []
    deaf.close()
    assert await jobs_of(parked) == []


async def test_a_pop_whose_own_look_is_under_way_is_not_offered(own_server: RedisServer) -> None:
    redis = Redis(own_server.url)
    waiting = waiting_on(await Pool.open(redis))
    (parked,) = await sleeping(waiting, "")
    own_server.freeze()
    waiting.notifier.hear(0, "ready 1 t")
    assert waiting.sleepers(PAGE) == []  # it is about to look
    await asked(redis)
    assert waiting.sleepers(PAGE) == []
    own_server.thaw()
    await asleep(waiting, 1)
    assert offered(waiting.sleepers(PAGE)) == 1
    parked.cancel()
    await redis.close()


async def test_one_that_is_offered_does_not_look_until_it_is_settled(
    deaf: Waiting, pool: Pool, clock: HeldClock
) -> None:
    """Else it could get two jobs: its own look's, and the one that it is handed."""
    (parked,) = await sleeping(deaf, "")
    offers = deaf.sleepers(PAGE)
    await add(pool, "ready")
    await fall_due(pool, clock, "due", topic="u")
    deaf.notifier.hear(0, "ready 1 t")
    await Topics(pool).stats()
    assert await state(pool, "ready") == "ready"
    await hand_out(deaf, pool, offers)
    assert (await job_of(parked)).id == "ready"


async def test_a_ring_that_comes_for_one_that_is_handed_a_job_goes_to_the_next(
    deaf: Waiting, pool: Pool, clock: HeldClock
) -> None:
    first, second = await sleeping(deaf, "", "")
    offers = deaf.sleepers(PAGE)
    assert offered(offers) == 1
    await fall_due(pool, clock, "due")
    _, _, handed = await pool.due(0, 0, offers)
    await add(pool, "ready")
    deaf.notifier.hear(0, "ready 1 t")
    deaf.settle(offers, handed)
    assert (await job_of(first)).id == "due"
    assert (await job_of(second)).id == "ready"


async def test_if_the_script_fails_all_sleep_on_and_are_offered_again(
    deaf: Waiting, pool: Pool, clock: HeldClock
) -> None:
    parked = await sleeping(deaf, "", "")
    deaf.settle(deaf.sleepers(PAGE), None)
    await fall_due(pool, clock, "a")
    await hand_out(deaf, pool, deaf.sleepers(PAGE))
    assert (await job_of(parked[0])).id == "a"


async def cancelled(parked: Parked) -> None:
    parked.cancel()
    await asyncio.gather(parked, return_exceptions=True)


async def test_the_job_of_one_that_was_cancelled_while_it_was_offered_goes_to_another_of_the_same_worker(
    deaf: Waiting, pool: Pool, clock: HeldClock
) -> None:
    first, other, same = await sleeping(deaf, "w", "w2", "w")
    offers = deaf.sleepers(1)
    await fall_due(pool, clock, "a")
    _, _, handed = await pool.due(0, 0, offers)
    await cancelled(first)
    deaf.settle(offers, handed)
    job = await job_of(same)
    assert (job.id, worker_of(job), job.attempts) == ("a", "w", 1)
    assert not other.done()


async def test_the_job_of_one_that_was_cancelled_while_it_was_offered_goes_back_and_wakes_the_next(
    deaf: Waiting, pool: Pool, clock: HeldClock
) -> None:
    first, other = await sleeping(deaf, "w", "w2")
    offers = deaf.sleepers(1)
    await fall_due(pool, clock, "a")
    _, _, handed = await pool.due(0, 0, offers)
    await cancelled(first)
    deaf.settle(offers, handed)
    job = await job_of(other)
    assert (job.id, worker_of(job), job.attempts) == ("a", "w2", 1)


async def test_with_nobody_else_it_is_ready_again_with_its_tries_as_before(
    deaf: Waiting, pool: Pool, clock: HeldClock
) -> None:
    (parked,) = await sleeping(deaf, "w")
    offers = deaf.sleepers(PAGE)
    await cancelled(parked)
    await fall_due(pool, clock, "a")
    await hand_out(deaf, pool, offers)
    await pool.close()
    assert (await pop_one(pool)).attempts == 1
    assert deaf.parked == 0


@pytest.mark.parametrize("is_due", [True, False])
async def test_one_whose_worker_leaves_while_it_is_offered_answers_with_its_job_or_empty(
    deaf: Waiting, pool: Pool, clock: HeldClock, is_due: bool
) -> None:
    (parked,) = await sleeping(deaf, "w")
    offers = deaf.sleepers(PAGE)
    deaf.notifier.hear(0, "leave w")
    if is_due:
        await fall_due(pool, clock, "a")
    await hand_out(deaf, pool, offers)
    assert [job.id for job in await jobs_of(parked)] == (["a"] if is_due else [])
    assert not deaf._of_worker


@pytest.mark.parametrize("is_due", [True, False])
async def test_one_whose_wait_ends_while_it_is_offered_answers_with_its_job_or_empty(
    deaf: Waiting, pool: Pool, clock: HeldClock, is_due: bool
) -> None:
    parked = await park(deaf, wait_s=0.3)
    await asleep(deaf, 1)
    offers = deaf.sleepers(PAGE)
    (waiter,) = offers[0].waiters
    await until(lambda: waiter.leaving)
    assert waiter.state == OFFERED
    if is_due:
        await fall_due(pool, clock, "a")
    await hand_out(deaf, pool, offers)
    assert [job.id for job in await jobs_of(parked)] == (["a"] if is_due else [])


@pytest.mark.parametrize("is_due", [True, False])
async def test_one_that_is_offered_when_all_are_let_go_answers_with_its_job_or_empty(
    deaf: Waiting, pool: Pool, clock: HeldClock, is_due: bool
) -> None:
    first, second = await sleeping(deaf, "", "")
    offers = deaf.sleepers(PAGE)
    deaf.close()
    assert await jobs_of(second) == []
    if is_due:
        await fall_due(pool, clock, "a")
    await hand_out(deaf, pool, offers)
    assert [job.id for job in await jobs_of(first)] == (["a"] if is_due else [])
    assert deaf.sleepers(PAGE) == []


async def test_an_answer_may_cancel_the_pop_that_is_handed_the_next_job(
    deaf: Waiting, pool: Pool, clock: HeldClock
) -> None:
    """As when a client has several requests in progress, and hangs up at the first answer."""
    parked = await sleeping(deaf, *[""] * 4)
    offers = deaf.sleepers(PAGE)
    first, second = offers[0].waiters
    answer = first.done

    def answer_and_hang_up(outcome: Popped | JobQueueError) -> None:
        deaf.cancel(second)
        answer(outcome)

    first.done = answer_and_hang_up
    await fall_due(pool, clock, "a", "b")
    await hand_out(deaf, pool, offers)
    assert [(await job_of(each)).id for each in (parked[0], parked[2])] == ["a", "b"]
    assert not parked[1].done()
    parked[1].cancel()


async def test_an_answer_that_fails_keeps_no_job_from_the_others(deaf: Waiting, pool: Pool, clock: HeldClock) -> None:
    parked = await sleeping(deaf, *[""] * 4)
    offers = deaf.sleepers(PAGE)
    errors: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: errors.append(context))
    offers[0].waiters[0].done = lambda outcome: 1 / 0  # type: ignore[assignment]
    await fall_due(pool, clock, "a", "b")
    await hand_out(deaf, pool, offers)
    assert (await job_of(parked[1])).id == "b"
    assert len(errors) == 1
    parked[0].cancel()


async def test_a_job_counts_as_delivered_once_and_only_to_a_pop_that_is_still_there(
    redis: Redis, deaf: Waiting, pool: Pool, clock: HeldClock
) -> None:
    notes = redis.meter = Notes()
    (parked,) = await sleeping(deaf, "w")
    await fall_due(pool, clock, "a")
    await hand_out(deaf, pool, deaf.sleepers(PAGE))
    assert (await job_of(parked)).id == "a"
    assert notes.deliveries == [("t", 0)]
    (gone,) = await sleeping(deaf, "v")
    await fall_due(pool, clock, "b")
    offers = deaf.sleepers(PAGE)
    gone.cancel()
    await asyncio.gather(gone, return_exceptions=True)
    await hand_out(deaf, pool, offers)
    assert notes.deliveries == [("t", 0)]
