"""buckets.waiting.waiting: each pop looks at its own time, by one timer for all."""

from __future__ import annotations

import asyncio

from buckets.pool.pop_search import ask_for
from buckets.pool.sleepers import OVER, Waiter
from buckets.waiting.waiting import LookTimes
from tests.kit.waiting import until


def waiter() -> Waiter:
    return Waiter(ask_for(["t"]), 1, 0.0, lambda outcome: None)


def end(times: LookTimes, over: Waiter) -> None:
    over.state = OVER
    times.discard(over)


async def test_each_looks_at_its_time_and_not_before() -> None:
    loop = asyncio.get_running_loop()
    looked: list[tuple[Waiter, float]] = []
    times = LookTimes(lambda each: looked.append((each, loop.time())))
    asked = {waiter(): loop.time() + ms / 1000 for ms in (50, 10, 30, 10, 20)}
    for each, time in asked.items():
        times.add(each, time)
    await until(lambda: len(looked) == 5)
    assert all(time >= asked[each] for each, time in looked)
    assert [asked[each] for each, _ in looked] == sorted(asked.values())


async def test_one_that_looks_may_look_again_and_one_that_is_over_does_not() -> None:
    looked: list[Waiter] = []

    def look(each: Waiter) -> None:
        looked.append(each)
        if len(looked) < 3:
            times.add(each, asyncio.get_running_loop().time() + 0.01)

    times = LookTimes(look)
    gone, stays = waiter(), waiter()
    for each in (gone, stays):
        times.add(each, asyncio.get_running_loop().time() + 0.01)
    end(times, gone)
    await until(lambda: len(looked) == 3)
    assert set(looked) == {stays}


async def test_those_that_are_over_are_forgotten_long_before_their_time() -> None:
    looked: list[Waiter] = []
    times = LookTimes(looked.append)
    now = asyncio.get_running_loop().time()
    last = waiter()
    times.add(last, now + 0.05)
    for n in range(5_000):
        over = waiter()
        times.add(over, now + 60 + n % 7)
        end(times, over)
    assert len(times._waiters) < 250
    await until(lambda: bool(looked))
    assert looked == [last]


async def test_an_error_of_one_keeps_none_of_the_others_from_looking() -> None:
    errors: list[object] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: errors.append(context))
    looked: list[Waiter] = []
    bad, good = waiter(), waiter()

    def look(each: Waiter) -> None:
        if each is bad:
            raise RuntimeError("a bug")
        looked.append(each)

    times = LookTimes(look)
    for each in (bad, good):
        times.add(each, asyncio.get_running_loop().time() + 0.01)
    await until(lambda: looked == [good])
    assert len(errors) == 1
