"""buckets.timers.timer: a share of the time that timers may be awake, and a wait that lets others work."""

from __future__ import annotations

import asyncio
import time

import pytest

from buckets.timers.timer import LONGEST_S, Awake
from tests.kit.waiting import PATIENCE_S


class Watch:
    """A clock under the test's control, which moves on each time that it is looked at."""

    def __init__(self) -> None:
        self.now_s = 100.0
        self.step_s = 0.0

    def __call__(self) -> float:
        self.now_s += self.step_s
        return self.now_s


async def waits(awake: Awake, watch: Watch, seconds: float) -> int:
    """How many waits of half a millisecond are allowed within a time in which there is one each millisecond."""
    allowed = 0
    end = watch.now_s + seconds
    while watch.now_s < end:
        begun = watch.now_s
        if awake.is_allowed:
            allowed += 1
            watch.step_s = 0.0001
            await awake.wait(0.0005, asyncio.Event())
            watch.step_s = 0.0
        watch.now_s = begun + 0.001
    return allowed


@pytest.mark.parametrize(("share", "ms"), [(0.0, 0), (0.1, 1_000), (0.3, 3_000)])
async def test_a_steady_thousand_a_second_are_awake_for_their_share_of_the_time(share: float, ms: int) -> None:
    watch = Watch()
    awake = Awake(share, watch)
    allowed = await waits(awake, watch, 10.0)
    assert allowed * 0.5 == pytest.approx(ms, rel=0.25)


async def test_the_whole_share_is_always_enough() -> None:
    watch = Watch()
    awake = Awake(1.0, watch)
    watch.now_s += 1.0
    assert await waits(awake, watch, 1.0) >= 999


async def test_what_is_not_used_is_saved_for_some_twenty_waits_only() -> None:
    watch = Watch()
    awake = Awake(0.1, watch)
    watch.now_s += 3_600
    allowed = 0
    while awake.is_allowed and allowed < 1_000:
        begun, watch.step_s = watch.now_s, LONGEST_S
        await awake.wait(LONGEST_S, asyncio.Event())
        watch.now_s, watch.step_s = max(watch.now_s, begun), 0.0
        allowed += 1
    assert 10 < allowed < 40


async def test_timers_that_wait_together_pay_once() -> None:
    watch = Watch()
    awake = Awake(1.0, watch)
    watch.now_s += 1.0
    assert awake.is_allowed
    before, begun = awake._left_s, watch.now_s
    watch.step_s = 0.0001
    await asyncio.gather(*(awake.wait(0.005, asyncio.Event()) for _ in range(8)))
    assert before - awake._left_s == pytest.approx(watch.now_s - begun, abs=0.001)
    assert watch.now_s - begun < 8 * 0.005


async def test_a_wait_within_another_one_makes_that_no_cheaper() -> None:
    watch = Watch()
    awake = Awake(0.0, watch)
    watch.step_s = 0.0001
    long = asyncio.create_task(awake.wait(0.01, asyncio.Event()))
    for _ in range(80):
        await asyncio.sleep(0)
    await awake.wait(0.0005, asyncio.Event())
    await long
    assert -awake._left_s == pytest.approx(0.01, rel=0.1)


async def test_a_wait_ends_when_its_time_is_over_and_others_work_meanwhile() -> None:
    turns = [0]

    def turn() -> None:
        turns[0] += 1
        asyncio.get_running_loop().call_soon(turn)

    turn()
    begun = time.monotonic()
    async with asyncio.timeout(PATIENCE_S):
        assert await Awake(1.0).wait(0.005, asyncio.Event())
    assert time.monotonic() - begun >= 0.005
    assert turns[0] >= 2


async def test_a_wait_ends_when_the_event_is_set() -> None:
    alarm = asyncio.Event()
    asyncio.get_running_loop().call_soon(alarm.set)
    async with asyncio.timeout(PATIENCE_S):
        assert not await Awake(1.0).wait(3_600, alarm)


async def test_a_wait_that_is_cancelled_is_paid_for() -> None:
    awake = Awake(1.0)
    waiting = asyncio.create_task(awake.wait(3_600, asyncio.Event()))
    await asyncio.sleep(0.01)
    waiting.cancel()
    await asyncio.gather(waiting, return_exceptions=True)
    assert awake._left_s < 0
