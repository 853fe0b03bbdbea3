"""jobqueue.access.rates: processes spend what they lease, and no more."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import pytest

from buckets.errors import Unavailable
from buckets.pool.pool import Pool
from jobqueue.access import rates as rates_module
from jobqueue.access.rates import Permits, Quota, Quotas
from jobqueue.access.tokens import Record
from tests.kit.waiting import until


def record(rights: tuple[str, ...] = ("produce",), **terms: Any) -> Record:
    return Record(id="abcdefgh", name="n", digest="", rights=rights, created=0, changed=1, **terms)


def buckets(pool: Pool) -> Quotas:
    return Quotas(pool, 1000, lambda: None)


def bucket(pool: Pool, **terms: Any) -> Quota:
    """The rates of a token in a process of its own."""
    made = buckets(pool).of(record(**terms))
    assert made
    return made


async def test_a_token_without_rates_has_no_bucket(live_pool: Pool) -> None:
    assert buckets(live_pool).of(record(burst=5)) is None


async def test_a_changed_rate_holds_at_once_and_the_same_one_keeps_its_bucket(live_pool: Pool) -> None:
    all_of = buckets(live_pool)
    first = all_of.of(record(rate=5))
    assert all_of.of(record(rate=5, rights=("consume",))) is first
    assert all_of.of(record(rate=6)) is not first


async def test_commands_pass_as_far_as_the_permits_go_and_the_rest_hears_when(live_pool: Pool) -> None:
    one = bucket(live_pool, rate=1, burst=20)
    assert await one.take([0] * 15) == (15, 0.0)
    done, after_s = await one.take([0] * 15)
    assert done == 5 and 0 < after_s <= 1
    assert not one.spend(1)


async def test_what_is_at_hand_is_spent_without_asking_and_what_is_given_back_can_be_spent_again(
    live_pool: Pool,
) -> None:
    one = bucket(live_pool, rate=800, burst=800)
    assert not one.spend(1)
    assert await one.take([0]) == (1, 0.0)
    assert one.spend(79) and not one.spend(1)
    one.refund(2)
    assert one.spend(2) and not one.spend(1)


async def test_what_is_left_of_a_lease_is_not_spent_later(live_pool: Pool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rates_module, "_LAPSE_S", 0.1)
    one, other = (bucket(live_pool, rate=1, burst=800) for _ in range(2))
    assert await one.take([0] * 100) == (100, 0.0)
    assert await other.take([0]) == (1, 0.0)
    one.refund(50)
    assert one.spend(1)
    await asyncio.sleep(0.15)
    assert not one.spend(1)
    assert (await one.take([0] * 800))[0] in range(699, 720)


async def test_commands_refused_for_their_bytes_do_not_count_as_commands(live_pool: Pool) -> None:
    one = bucket(live_pool, rate=1, burst=20, bytes=100)
    done, _ = await one.take([1000, 900, 900])
    assert done == 1
    assert await one.take([0] * 19) == (19, 0.0)


async def test_bytes_have_a_rate_of_their_own_and_a_body_passes_whole_or_not_at_all(live_pool: Pool) -> None:
    one = bucket(live_pool, bytes=100)  # a full one has room for the largest body: 1,000 bytes
    assert await one.take([600, 300, 0]) == (3, 0.0)
    done, after_s = await one.take([90, 50, 0])
    assert done == 1 and after_s > 0
    assert (await one.take([0]))[0] == 1


async def test_commands_that_are_never_refused_count_all_the_same(live_pool: Pool) -> None:
    one, other = (bucket(live_pool, rate=10, burst=20) for _ in range(2))
    one.owe(15)

    async def is_settled() -> bool:
        return await live_pool.redis.read("HGET", live_pool.keys[0].tag + "rate:abcdefgh", "level") is not None

    await until(is_settled)
    done, _ = await other.take([0] * 20)
    assert 5 <= done < 20


async def test_while_redis_is_away_nothing_is_let_through_and_what_is_owed_stays_owed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(rates_module, "_FAILED_S", 0)
    calls: list[int] = []

    async def lease(name: str, *, owed: int, **terms: int) -> tuple[int, float]:
        calls.append(owed)
        if len(calls) == 1:
            raise Unavailable
        return 1, 0.0

    permits = Permits(lease, "x", 1000, 1000)
    permits.owe(3)
    with pytest.raises(Unavailable):
        await permits.take(1)
    assert (await permits.take(1))[0] == 1
    assert calls == [3, 3]


async def test_over_several_processes_no_more_passes_than_the_burst_and_what_comes_in(live_pool: Pool) -> None:
    processes = [bucket(live_pool, rate=200, burst=100) for _ in range(4)]
    passed = 0

    async def ask(one: Quota, end: float) -> None:
        nonlocal passed
        while time.monotonic() < end:
            done = 1 if one.spend(1) else (await one.take([0]))[0]
            passed += done
            await asyncio.sleep(0)

    begun = time.monotonic()
    await asyncio.gather(*(ask(one, begun + 2) for one in processes for _ in range(3)))
    took_s = time.monotonic() - begun
    assert 100 <= passed <= 100 + 200 * (took_s + 1)


async def test_nobody_asks_again_at_once_where_redis_did_not_answer() -> None:
    asked = 0

    async def away(name: str, **about: object) -> tuple[int, float]:
        nonlocal asked
        asked += 1
        raise Unavailable()

    permits = Permits(away, "a", 10, 20)
    outcomes = await asyncio.gather(*(permits.take(1) for _ in range(50)), return_exceptions=True)
    assert all(isinstance(each, Unavailable) for each in outcomes)
    assert asked == 1
