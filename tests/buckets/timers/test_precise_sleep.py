"""buckets.timers.sleep: a sleep that can be cut short, by the kernel's timers and by the loop's."""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from buckets.timers import sleep
from buckets.timers.sleep import PreciseSleep
from tests.kit.waiting import PATIENCE_S

LONG_S = 3600.0


@pytest.fixture(params=["timerfd", "loop"])
def kind(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    if request.param == "loop":
        monkeypatch.setattr(sleep, "_timer_file", lambda: None)
    yield request.param


async def test_it_ends_by_itself_and_not_before_its_time(kind: str) -> None:
    sleeping = PreciseSleep(asyncio.Event())
    async with asyncio.timeout(PATIENCE_S):
        for seconds in (1e-9, 0.0004, 0.003, 0.0201):
            sleeping._woken.clear()
            begun = time.monotonic()
            assert await sleeping.sleep(seconds)
            # The loop's timer may end a tick of its clock early; a Timer then looks, and sleeps for the rest.
            assert time.monotonic() - begun >= seconds - (0 if kind == "timerfd" else 0.002)
    sleeping.close()


async def test_it_ends_when_the_event_is_set(kind: str) -> None:
    woken = asyncio.Event()
    sleeping = PreciseSleep(woken)
    asyncio.get_running_loop().call_soon(woken.set)
    async with asyncio.timeout(PATIENCE_S):
        assert not await sleeping.sleep(LONG_S)
    sleeping.close()


async def test_a_long_sleep_that_was_cut_short_does_not_lengthen_the_next(kind: str) -> None:
    woken = asyncio.Event()
    sleeping = PreciseSleep(woken)
    woken.set()
    async with asyncio.timeout(PATIENCE_S):
        assert not await sleeping.sleep(LONG_S)
        woken.clear()
        assert await sleeping.sleep(0.001)
    sleeping.close()


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="there is no timerfd")
async def test_on_linux_it_is_a_timer_of_the_kernel_which_is_given_back() -> None:
    def timers() -> int:
        return sum("timerfd" in str(file.readlink()) for file in Path("/proc/self/fd").iterdir() if file.is_symlink())

    before = timers()
    sleeping = PreciseSleep(asyncio.Event())
    assert timers() == before + 1
    sleeping.close()
    assert timers() == before
