"""Limits hold over three services under load, in every second, through kills: `make bench-limits` is the long form."""

from __future__ import annotations

from pathlib import Path

import pytest

from buckets.pool.limits import Limit
from tests.jobqueue.engine.limits.load import LIMITS, PERMIT_LATE_S, RATES, load
from tests.kit.redis_server import RedisServer


@pytest.mark.parametrize(("shards", "limits"), [(1, LIMITS), (3, RATES)])
async def test_no_limit_is_exceeded_by_three_services(
    own_server: RedisServer, tmp_path: Path, shards: int, limits: dict[str, Limit]
) -> None:
    told = await load(own_server, tmp_path, 6, limits, shards)
    assert told.faults(limits, PERMIT_LATE_S[shards]) == []
    assert all(len(told.deliveries[topic]) > 3 for topic in limits), told.lines(limits)


async def test_the_judge_sees_what_exceeds_a_limit(own_server: RedisServer, tmp_path: Path) -> None:
    free = {topic: Limit(rate=1_000) for topic in ("steady", "narrow")}
    told = await load(own_server, tmp_path, 3, free)
    narrow = {"steady": Limit(5), "narrow": Limit(concurrency=1)}
    assert [fault.partition(":")[0] for fault in told.faults(narrow)] == ["steady", "narrow"]
