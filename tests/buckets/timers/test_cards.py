"""buckets.timers.cards: what each live instance says about itself, and for how long that is kept."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from typing import Any

import pytest

from buckets.clock import HeldClock
from buckets.pool.pool import Pool
from buckets.redis.client import Redis
from buckets.timers import cards
from buckets.timers.cards import About, Card, read_instances
from buckets.timers.members import sign_out
from buckets.waiting.notifier import Notifier
from buckets.waiting.pollers import Pollers
from tests.buckets.conftest import NewPool
from tests.buckets.instances import Instance, ended, give_up, sign, take
from tests.kit.waiting import until

KEY = "{jq:0}:cards"


@dataclass
class Signed:
    """An instance and its card."""

    instance: Instance
    card: Card

    @property
    def token(self) -> str:
        return self.instance.members.token


def signed(pool: Pool, name: str = "h:1", version: str = "1.0", worker: int | None = None) -> Signed:
    instance = Instance(pool)
    return Signed(instance, Card(pool, instance.members, instance.locks, About("h", 7, worker, version, name)))


async def present(pool: Pool, name: str = "h:1", **more: Any) -> Signed:
    """One that has signed the list, taken its timers, and written its card."""
    one = signed(pool, name, **more)
    await one.instance.tick()
    await one.card.write()
    return one


async def held(redis: Redis) -> set[str]:
    """The tokens that have cards."""
    return {token.decode() for token in (await redis.read("HGETALL", KEY))[::2]}


async def names(pool: Pool) -> list[str]:
    return [each.name for each in await read_instances(pool)]


async def test_a_card_says_where_an_instance_runs_in_which_version_since_when_and_with_which_timers(
    pool: Pool, clock: HeldClock
) -> None:
    clock.advance(10_000)
    now_ms = clock.now_us // 1000
    await present(pool, worker=3)
    (one,) = await read_instances(pool)
    assert one.about and abs(one.about.started - now_ms) < 2_000
    assert (one.about.host, one.about.pid, one.about.worker, one.about.version) == ("h", 7, 3, "1.0")
    assert (one.name, one.timers, one.waiting) == ("h:1", {0: list(range(pool.buckets))}, 0)
    assert abs(one.signed - now_ms) <= 1


async def test_timers_are_told_by_shard_as_far_as_they_are_held(redis: Redis, clock: HeldClock) -> None:
    pool = await Pool.open(redis, shards=3, buckets=2, clock=clock)
    await sign(pool, "other")
    await take(pool, "other", shard=1)
    await present(pool)
    told = {each.name: each for each in await read_instances(pool)}
    assert 1 not in told["h:1"].timers
    assert sum(map(len, told["h:1"].timers.values())) in range(4)
    assert (told[""].about, told[""].timers) == (None, {})


async def test_one_that_is_not_on_the_list_writes_nothing(redis: Redis, pool: Pool) -> None:
    await signed(pool).card.write()
    assert not await redis.read("EXISTS", KEY)


async def test_whoever_strikes_it_off_removes_its_card(redis: Redis, pool: Pool, clock: HeldClock) -> None:
    dead, alive = await present(pool, "dead"), await present(pool, "alive")
    assert await held(redis) == {dead.token, alive.token}
    for _ in range(4):
        clock.advance(150)
        await alive.instance.members.tick()
    assert (await held(redis), await names(pool)) == ({alive.token}, ["alive"])


async def test_one_that_leaves_takes_its_card_along(redis: Redis, pool: Pool) -> None:
    await present(pool, "stays")
    leaving = await present(pool, "leaving")
    await sign_out(pool, leaving.token)
    assert leaving.token not in await held(redis)
    assert await names(pool) == ["stays"]


async def test_a_card_that_an_earlier_version_left_is_not_shown_and_goes_with_the_next_that_is_written(
    redis: Redis, pool: Pool
) -> None:
    gone, other = await present(pool, "gone"), await present(pool, "other")
    await redis.read("ZREM", pool.keys[0].members, gone.token)
    assert await names(pool) == ["other"]
    await other.card.write()
    assert await held(redis) == {other.token}


async def test_a_card_is_due_when_its_instance_comes_onto_the_list_again_or_its_timers_change(
    redis: Redis, pool: Pool
) -> None:
    one = signed(pool)
    due = one.instance.members.card_is_due
    await one.instance.members.tick()
    assert due.is_set()
    due.clear()
    await one.instance.members.tick()
    assert not due.is_set()
    await one.instance.locks[0].tick()
    assert due.is_set()
    due.clear()
    await one.instance.locks[0].tick()
    assert not due.is_set()
    await redis.read("DEL", pool.keys[0].members)
    await one.instance.members.tick()
    assert due.is_set()


@contextlib.asynccontextmanager
async def running(ones: Sequence[Signed]) -> AsyncIterator[None]:
    async with contextlib.AsyncExitStack() as stack:
        tasks = [asyncio.create_task(one.card.run()) for one in ones]
        stack.push_async_callback(ended, tasks)
        for one in ones:
            await stack.enter_async_context(one.instance.running())
        yield


async def test_cards_follow_the_timers_and_nothing_is_written_when_these_stay(redis: Redis, live_pool: Pool) -> None:
    first, second = signed(live_pool, "first"), signed(live_pool, "second")

    async def shares() -> list[int]:
        told = {each.name: each for each in await read_instances(live_pool)}
        return [sum(map(len, told[name].timers.values())) if name in told else 0 for name in ("first", "second")]

    async def are(*numbers: int) -> bool:
        return await shares() == [*numbers]

    async with running([first]):
        await until(lambda: are(8, 0))
        async with running([second]):
            await until(lambda: are(4, 4))
            calls = await writes(redis)
            for _ in range(10):
                await first.instance.members.tick()
                await first.instance.locks[0].tick()
            await asyncio.sleep(0.3)
            assert await writes(redis) == calls
        await until(lambda: are(8, 0))
    assert await held(redis) == set()


async def writes(redis: Redis) -> int:
    """How often a card was written."""
    info = (await redis.read("INFO", "commandstats")).decode()
    (calls,) = [line.split("calls=")[1].split(",")[0] for line in info.splitlines() if line.startswith("cmdstat_hset:")]
    return int(calls)


async def test_a_lost_timer_leaves_the_card(pool: Pool, redis: Redis) -> None:
    one = await present(pool)
    await give_up(pool, one.token)
    await take(pool, "other")
    await sign(pool, "other")
    await one.instance.tick()
    await one.card.write()
    timers = next(each.timers for each in await read_instances(pool) if each.name == "h:1")
    assert len(timers.get(0, [])) < pool.buckets


async def test_what_another_program_put_in_place_of_the_cards_stops_no_timer_and_is_replaced(
    redis: Redis, pool: Pool, clock: HeldClock
) -> None:
    one = await present(pool)
    await redis.read("DEL", KEY)
    await redis.read("SET", KEY, "a string")
    await sign(pool, "dead")
    for _ in range(4):
        clock.advance(150)
        await one.instance.members.tick()
    assert await names(pool) == [""]
    await one.card.write()
    assert await names(pool) == ["h:1"]


async def test_a_card_that_cannot_be_read_is_left_out(
    subtests: pytest.Subtests, redis: Redis, new_pool: NewPool
) -> None:
    cases: list[str] = ["", "no JSON", "[]", "{}", '{"host":1,"pid":"x"}', '{"pid":1e999}', "null"]
    for card in cases:
        with subtests.test(card=card):
            pool = await new_pool()
            one = await present(pool)
            await redis.read("HSET", KEY, one.token, card)
            (read,) = await read_instances(pool)
            assert (read.about, read.timers) == (None, {})


async def test_waiting_pops_are_those_of_the_report_and_only_those_of_topics_within_reach(pool: Pool) -> None:
    one = await present(pool)
    pollers = Pollers(pool, Notifier(pool), one.token)
    pollers.instance = "h:1"
    pollers.begin("w", None, ["a"])
    pollers.begin("w", None, ["a", "b"])
    pollers.begin("v", None, ["b"])
    await pollers.tick()
    assert [each.waiting for each in await read_instances(pool)] == [3]
    assert [each.waiting for each in await read_instances(pool, lambda topic: topic == "a")] == [2]


async def test_one_without_a_card_has_the_name_that_its_report_gives(pool: Pool) -> None:
    await sign(pool, "aa")
    pollers = Pollers(pool, Notifier(pool), "aa")
    pollers.instance = "old:8000"
    pollers.begin("w", None, ["a"])
    await pollers.tick()
    (one,) = await read_instances(pool)
    assert (one.name, one.about, one.waiting) == ("old:8000", None, 1)


async def test_the_writing_of_a_card_survives_an_outage(
    redis: Redis, live_pool: Pool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cards, "_AGAIN_S", 0.05)
    one = signed(live_pool)
    await one.instance.members.tick()
    await redis.read("ACL", "SETUSER", "default", "-hset")
    writing = asyncio.create_task(one.card.run())
    await asyncio.sleep(0.3)
    assert not await redis.read("EXISTS", KEY)
    await redis.read("ACL", "SETUSER", "default", "+hset")
    try:
        await until(lambda: redis.read("EXISTS", KEY))
    finally:
        await ended([writing])
    assert json.loads(await redis.read("HGET", KEY, one.token))["name"] == "h:1"
