"""A short run of `make bench-flood`: what it counts is judged here, not what it measures."""

from __future__ import annotations

import tempfile
from pathlib import Path

from tests.access.rates import flood


async def test_a_flood_costs_redis_little_and_leaves_others_their_work() -> None:
    with tempfile.TemporaryDirectory(prefix="jq-") as folder:
        # A rate so low that the flood exceeds it even where it comes to 50 requests a second.
        figures = await flood.measure(1.5, 1, 100, Path(folder), rate=1)
    (outcome,) = figures.floods
    assert outcome.refused > 0
    # As jobqueue.access.rates promises, however many commands are sent.
    assert figures.leases <= 20 * flood.WORKERS * figures.seconds
    assert len(figures.flooded) == len(figures.quiet) == 150
