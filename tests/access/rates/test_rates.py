"""The rate of a token over three instances, of which one is killed: a short run of `make bench-rates`."""

from __future__ import annotations

import tempfile
from pathlib import Path

from tests.access.rates import rates


async def test_no_more_passes_than_the_rate_allows_though_an_instance_is_killed() -> None:
    with tempfile.TemporaryDirectory(prefix="jq-") as folder:
        outcome = await rates.measure(6, Path(folder))
    for seconds in (1, 2, 5):
        window = rates.window(outcome.taken, seconds)
        assert window.most <= window.bound
    assert rates.share(outcome) > 0.6  # on a machine that does much else
    assert outcome.refused and outcome.broken
    assert not outcome.others
