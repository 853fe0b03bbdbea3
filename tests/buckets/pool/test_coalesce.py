"""buckets.pool.popping: items that are handed in during one turn of the loop are worked on together."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest

from buckets.pool.popping import Coalescer
from tests.kit.waiting import PATIENCE_S


class Worker:
    """Doubles numbers, and records which ones it was given together."""

    def __init__(self) -> None:
        self.seen: list[list[int]] = []

    async def work(self, items: list[int]) -> list[int]:
        self.seen.append(items)
        if 13 in items:
            raise ValueError("13")
        await asyncio.sleep(0)
        return [2 * item for item in items]


class UpTo:
    """Joins up to this many numbers, none twice."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._numbers: list[int] = []

    def take(self, items: Sequence[int]) -> bool:
        self._numbers += items
        return len(set(self._numbers)) == len(self._numbers) <= self._most


def coalescer_of(worker: Worker, most: int) -> Coalescer[int]:
    return Coalescer(worker.work, lambda: UpTo(most))


async def ask(coalescer: Coalescer[int], items: Sequence[int]) -> list[int]:
    return await coalescer.hand_in(items)


async def test_callers_of_one_turn_share_the_work_and_each_gets_its_own_results() -> None:
    worker = Worker()
    coalescer = coalescer_of(worker, 100)
    assert list(await asyncio.gather(ask(coalescer, [1, 2]), ask(coalescer, [3]), ask(coalescer, []))) == [
        [2, 4],
        [6],
        [],
    ]
    assert await ask(coalescer, [4]) == [8]
    assert worker.seen == [[1, 2, 3], [4]]


async def test_not_too_much_is_done_together_and_the_items_of_one_caller_always_are() -> None:
    worker = Worker()
    coalescer = coalescer_of(worker, 3)
    asked = [[1, 2], [3, 4], [5], [6, 7, 8, 9], [10]]
    assert await asyncio.gather(*(ask(coalescer, some) for some in asked)) == [[2 * n for n in some] for some in asked]
    assert worker.seen == [[1, 2], [3, 4, 5], [6, 7, 8, 9], [10]]


async def test_an_error_is_told_to_all_who_share_the_work_and_to_no_other() -> None:
    coalescer = coalescer_of(Worker(), 2)
    answers = await asyncio.gather(*(ask(coalescer, some) for some in ([1], [13], [2], [3])), return_exceptions=True)
    assert [isinstance(answer, ValueError) for answer in answers] == [True, True, False, False]


async def test_a_caller_that_is_gone_takes_nothing_from_the_others() -> None:
    coalescer = coalescer_of(Worker(), 100)
    tasks = [asyncio.create_task(ask(coalescer, [n])) for n in range(3)]
    await asyncio.sleep(0)
    tasks[1].cancel()
    answers = await asyncio.gather(*tasks, return_exceptions=True)
    assert (answers[0], answers[2]) == ([0], [4])
    assert isinstance(answers[1], asyncio.CancelledError)


async def test_who_is_gone_before_the_work_begins_has_nothing_done() -> None:
    worker = Worker()
    coalescer = coalescer_of(worker, 100)
    tasks = [asyncio.create_task(ask(coalescer, [n])) for n in range(2)]
    await asyncio.sleep(0)
    tasks[0].cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    assert worker.seen == [[1]]


async def test_work_that_is_cancelled_leaves_nobody_waiting() -> None:
    begun = asyncio.Event()

    async def hang(items: list[int]) -> list[int]:
        begun.set()
        await asyncio.Event().wait()
        return items

    coalescer = Coalescer(hang, lambda: UpTo(10))
    asking = asyncio.create_task(ask(coalescer, [1]))
    await begun.wait()
    for task in coalescer._working:
        task.cancel()
    async with asyncio.timeout(PATIENCE_S):
        with pytest.raises(asyncio.CancelledError):
            await asking


async def test_who_comes_during_the_work_waits_for_its_end_and_then_goes_with_others() -> None:
    worker, go_on = Worker(), asyncio.Event()

    async def work(items: list[int]) -> list[int]:
        await go_on.wait()
        return await worker.work(items)

    coalescer = Coalescer(work, lambda: UpTo(100))
    asking = [asyncio.create_task(ask(coalescer, [0]))]
    for n in range(1, 4):
        for _ in range(3):
            await asyncio.sleep(0)
        asking.append(asyncio.create_task(ask(coalescer, [n])))
    await asyncio.sleep(0)
    go_on.set()
    assert await asyncio.gather(*asking) == [[0], [2], [4], [6]]
    assert worker.seen == [[0], [1, 2, 3]]


async def test_nobody_waits_for_ever_for_the_work_before() -> None:
    worker, stuck = Worker(), asyncio.Event()

    async def work(items: list[int]) -> list[int]:
        if items == [0]:
            await stuck.wait()
        return await worker.work(items)

    coalescer = Coalescer(work, lambda: UpTo(100))
    first = asyncio.create_task(ask(coalescer, [0]))
    for _ in range(3):
        await asyncio.sleep(0)
    async with asyncio.timeout(PATIENCE_S):
        assert await ask(coalescer, [1]) == [2]
    stuck.set()
    assert await first == [0]
