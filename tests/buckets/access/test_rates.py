"""buckets.access, lease_rate.lua: a bucket gives no more than its rate and burst allow, in any span of time."""

from __future__ import annotations

import itertools
import random

import pytest

from buckets.access import lease
from buckets.pool.pool import Pool

BEGIN_US = 1_700_000_000_000_000


class Bucket:
    """A bucket at times of the test's own."""

    def __init__(self, pool: Pool, rate: int, burst: int) -> None:
        self._pool = pool
        self._rate, self._burst = rate, burst

    async def lease(self, at_us: int, most: int, *, least: int = 1, owed: int = 0) -> tuple[int, float]:
        leased, after_us = await self._pool.call(
            "lease_rate",
            0,
            now=at_us,
            whose="x",
            rate=self._rate,
            burst=self._burst,
            least=least,
            most=most,
            owed=owed,
        )
        await self._pool.redis.read("PERSIST", self._pool.keys[0].tag + "rate:x")  # else it ends by Redis's clock
        return leased, after_us / 1e6


async def test_a_full_bucket_gives_its_burst_and_then_what_comes_in(pool: Pool) -> None:
    bucket = Bucket(pool, rate=10, burst=20)
    assert await bucket.lease(BEGIN_US, 50) == (20, 0)
    assert await bucket.lease(BEGIN_US, 50) == (0, 0.1)
    assert await bucket.lease(BEGIN_US + 100_000, 50) == (1, 0)
    assert await bucket.lease(BEGIN_US + 1_600_000, 50, least=16) == (0, 0.1)
    assert await bucket.lease(BEGIN_US + 1_600_000, 50, least=15) == (15, 0)
    assert await bucket.lease(BEGIN_US + 100_000_000, 50) == (20, 0)


async def test_what_is_owed_is_taken_off_down_to_one_burst_below_nothing(pool: Pool) -> None:
    bucket = Bucket(pool, rate=10, burst=20)
    assert await bucket.lease(BEGIN_US, 1, owed=1000) == (0, 2.1)
    assert await bucket.lease(BEGIN_US, 1, owed=1000) == (0, 2.1)
    assert await bucket.lease(BEGIN_US + 2_100_000, 5) == (1, 0)


async def test_a_clock_that_goes_back_gives_nothing_and_takes_nothing(pool: Pool) -> None:
    bucket = Bucket(pool, rate=10, burst=20)
    assert await bucket.lease(BEGIN_US, 15) == (15, 0)
    assert await bucket.lease(BEGIN_US - 60_000_000, 2) == (2, 0)
    assert await bucket.lease(BEGIN_US - 60_000_000, 20) == (3, 0)


async def test_a_bucket_disappears_a_second_after_it_is_full_again(pool: Pool) -> None:
    assert await lease(pool, "x", rate=1, burst=1000, least=1, most=10, owed=0) == (10, 0)
    key = pool.keys[0].tag + "rate:x"
    assert 1_000 < await pool.redis.read("PTTL", key) <= 11_000


@pytest.mark.parametrize("seed", range(5))
async def test_in_no_span_is_more_leased_than_the_burst_and_what_came_in_meanwhile(pool: Pool, seed: int) -> None:
    dice = random.Random(seed)
    rate, burst = dice.choice([1, 7, 100, 5000]), dice.choice([10, 100, 5000])
    bucket, at_us = Bucket(pool, rate, burst), BEGIN_US
    leases: list[tuple[int, int]] = []
    for _ in range(150):
        at_us += dice.choice([0, 1, 999, dice.randrange(1_000_000), dice.randrange(20_000_000)])
        leased, _ = await bucket.lease(
            at_us, dice.randrange(1, 2 * burst), owed=dice.choice([0, 0, dice.randrange(burst)])
        )
        leases.append((at_us, leased))
    total = [0, *itertools.accumulate(leased for _, leased in leases)]
    for first, (begin_us, _) in enumerate(leases):
        for last in range(first, len(leases)):
            span_s = (leases[last][0] - begin_us) / 1e6
            assert total[last + 1] - total[first] <= burst + rate * span_s + 0.001
