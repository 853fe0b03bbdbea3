"""What the tests of schedules share."""

from __future__ import annotations

import pytest

from buckets.clock import HeldClock
from buckets.pool.pool import Pool
from tests.buckets.schedules.scheduled import Scheduled


@pytest.fixture
def scheduled(pool: Pool, clock: HeldClock) -> Scheduled:
    return Scheduled(pool, clock)
