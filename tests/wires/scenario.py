"""The scenario that all protocols run. Its steps know the verbs of a driver and nothing of a protocol."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import time
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack

from tests.wires.drivers import Added, Driver, RefusedError, Taken
from tests.wires.serving import LEASE_S, Wires

SOON_S = 1
"""A wait in which nothing comes."""
LONG_S = 15
"""A wait in which it comes for certain."""
BODY = b"some words"


class Scene:
    """What a step works with: a topic of its own, clients that add, and clients that pop."""

    def __init__(self, wires: Wires, kind: type[Driver], topic: str) -> None:
        self.wires = wires
        self.kind = kind
        self.topic = topic
        self._stack = AsyncExitStack()

    async def adder(self, ttr_s: float = 60.0) -> Driver:
        return await self._stack.enter_async_context(self.wires.driver(self.kind, ttr_s=ttr_s))

    async def popper(self, ttr_s: float = 60.0) -> Driver:
        return await self._stack.enter_async_context(self.wires.popper(self.kind, ttr_s=ttr_s))

    async def figures(self) -> tuple[dict[str, int], dict[str, int]]:
        """How many jobs the topic has in each state, and what became of jobs."""
        async with self.wires.native() as native:
            answer = await native.ask("stats", topic=self.topic)
            return answer["counts"], answer["totals"]

    async def close(self) -> None:
        await self._stack.aclose()


async def taken(client: Driver, topic: str) -> Taken:
    job = await client.pop(topic, LONG_S)
    assert job is not None, "nothing came"
    return job


async def a_job_is_added_popped_and_finished(scene: Scene) -> None:
    adder, popper = await scene.adder(), await scene.popper()
    assert await popper.pop(scene.topic) is None
    added = await adder.add(scene.topic, BODY)
    assert await adder.is_there(scene.topic, added.name)
    job = await taken(popper, scene.topic)
    assert job.body == BODY
    assert await popper.finish(job)
    assert not await adder.is_there(scene.topic, added.name)


async def it_is_never_early(scene: Scene) -> None:
    adder, popper = await scene.adder(), await scene.popper()
    due = {b"%d" % delay: (await adder.add(scene.topic, b"%d" % delay, delay_s=delay)).due for delay in (2, 1)}
    while due:
        job = await taken(popper, scene.topic)
        assert job.at >= due.pop(job.body), job
        assert await popper.finish(job)


async def who_waits_gets_what_is_added(scene: Scene) -> None:
    adder, popper = await scene.adder(), await scene.popper()
    waiting = asyncio.create_task(taken(popper, scene.topic))
    await asyncio.sleep(0.3)
    await adder.add(scene.topic, BODY)
    assert await popper.finish(await waiting)


async def it_comes_again_when_the_lease_ends_and_not_before(scene: Scene) -> None:
    adder, popper, other = await scene.adder(LEASE_S), await scene.popper(LEASE_S), await scene.popper(LEASE_S)
    await adder.add(scene.topic, BODY)
    before = time.time()
    first = await taken(popper, scene.topic)
    assert await other.pop(scene.topic) is None or time.time() - before >= LEASE_S
    second = await taken(other, scene.topic)
    assert second.body == BODY and second.at - before >= LEASE_S
    if not popper.SETTLES:
        assert not await popper.finish(first)
    assert await other.finish(second)
    assert await popper.pop(scene.topic, SOON_S) is None


async def what_is_finished_stays_finished(scene: Scene) -> None:
    adder, popper = await scene.adder(LEASE_S), await scene.popper(LEASE_S)
    added = await adder.add(scene.topic, BODY)
    job = await taken(popper, scene.topic)
    assert await popper.finish(job)
    with contextlib.suppress(RefusedError):
        await popper.finish(job)
    assert await popper.pop(scene.topic, LEASE_S + SOON_S) is None
    assert not await adder.is_there(scene.topic, added.name)


async def what_is_cancelled_never_comes(scene: Scene) -> None:
    adder, popper = await scene.adder(), await scene.popper()
    delayed, ready = await adder.add(scene.topic, BODY, delay_s=1), await adder.add(scene.topic, BODY)
    for each in (delayed, ready):
        assert await adder.cancel(scene.topic, each.name)
    assert await popper.pop(scene.topic, 1 + SOON_S) is None
    assert not await adder.is_there(scene.topic, delayed.name)


async def a_name_that_lives_is_added_once(scene: Scene) -> None:
    adder, popper = await scene.adder(), await scene.popper()
    if not adder.HAS_IDS:
        return
    names = {(await _again(adder, scene)).name for _ in range(3)}
    assert len(names) == 1
    assert await popper.finish(await taken(popper, scene.topic))
    assert await popper.pop(scene.topic, SOON_S) is None


async def _again(adder: Driver, scene: Scene) -> Added:
    try:
        return await adder.add(scene.topic, BODY, name=scene.topic.replace("/", "-"))
    except RefusedError:
        return Added(scene.topic.replace("/", "-"), 0)


async def a_client_that_hangs_up_while_it_waits_takes_nothing(scene: Scene) -> None:
    adder, gone, other = await scene.adder(), await scene.popper(), await scene.popper()
    if not gone.WAITS:
        return
    waiting = asyncio.create_task(gone.pop(scene.topic, LONG_S))
    await asyncio.sleep(0.3)
    waiting.cancel()
    await asyncio.wait([waiting])
    await gone.close()
    await adder.add(scene.topic, BODY)
    assert await other.finish(await taken(other, scene.topic))  # its lease would have been a minute
    _, totals = await scene.figures()
    assert totals["delivered"] == 1, "no try was used up for the client that hung up"


async def a_client_that_dies_with_a_job_in_hand_does_not_keep_it(scene: Scene) -> None:
    ttr_s = 60.0 if scene.kind.HOLDS else LEASE_S
    adder, gone, other = await scene.adder(ttr_s), await scene.popper(ttr_s), await scene.popper(ttr_s)
    await adder.add(scene.topic, BODY)
    await taken(gone, scene.topic)
    await gone.close()
    job = await taken(other, scene.topic)
    assert job.body == BODY
    assert await other.finish(job)


async def a_refusal_changes_nothing(scene: Scene) -> None:
    adder = await scene.adder()
    added = await adder.add(scene.topic, BODY, delay_s=3600)
    before = await scene.figures()
    await adder.refusals(scene.topic)
    assert await scene.figures() == before
    assert await adder.is_there(scene.topic, added.name)


STEPS: list[Callable[[Scene], Awaitable[None]]] = [
    a_job_is_added_popped_and_finished,
    it_is_never_early,
    who_waits_gets_what_is_added,
    it_comes_again_when_the_lease_ends_and_not_before,
    what_is_finished_stays_finished,
    what_is_cancelled_never_comes,
    a_name_that_lives_is_added_once,
    a_client_that_hangs_up_while_it_waits_takes_nothing,
    a_client_that_dies_with_a_job_in_hand_does_not_keep_it,
    a_refusal_changes_nothing,
]


async def play(wires: Wires, *kinds: type[Driver]) -> None:
    """All steps by each kind at the same time, each in a topic of its own. Raises all that went wrong."""
    steps = list(itertools.product(kinds, STEPS))
    ran = await asyncio.gather(*(_step(wires, *each) for each in steps), return_exceptions=True)
    wrong = []
    for (kind, step), result in zip(steps, ran, strict=True):
        if isinstance(result, Exception):
            result.add_note(f"{kind.NAME}: {step.__name__}")
            wrong.append(result)
    if wrong:
        raise ExceptionGroup(f"{len(wrong)} steps went wrong", wrong)


async def _step(wires: Wires, kind: type[Driver], step: Callable[[Scene], Awaitable[None]]) -> None:
    scene = Scene(wires, kind, f"shop/{kind.NAME.replace(' ', '_')}-{step.__name__}")
    try:
        await step(scene)
    finally:
        await scene.close()
