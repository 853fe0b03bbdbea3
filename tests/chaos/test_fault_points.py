"""The fault-point run: its gate strikes where it should, and a sample of all points passes, a different one each
day."""

from __future__ import annotations

import datetime
from pathlib import Path

import pytest

from buckets.pool.pool import Pool
from buckets.redis.client import Redis
from tests.chaos.fault_points import HOWS, chosen, learn, play_all, points_of
from tests.kit.gate import AFTER, BEFORE, Gate, Point
from tests.kit.redis_server import RedisServer

EVERY = 53


@pytest.mark.parametrize(("when", "done"), [(BEFORE, 1), (AFTER, 2)])
async def test_the_gate_strikes_once_exactly_before_or_after_a_command(
    redis_server: RedisServer, redis: Redis, tmp_path: Path, when: str, done: int
) -> None:
    gone: list[bytes] = []
    async with Gate(str(redis_server.socket), str(tmp_path / "g")) as gate:
        behind = Redis(gate.url, timeout_s=0.3)
        gate.arm(Point("INCR", 2, when), lambda: gone.append(b"struck"))
        assert await behind.read("INCR", "a") == 1
        assert not gate.struck
        assert await behind.read("INCR", "a") == done + 1  # retried on another connection
        assert (gone, gate.struck, gate.passed["INCR"]) == ([b"struck"], True, 3)
        await behind.close()


async def test_scripts_are_counted_by_their_names(redis_server: RedisServer, redis: Redis, tmp_path: Path) -> None:
    async with Gate(str(redis_server.socket), str(tmp_path / "g")) as gate:
        behind = Redis(gate.url, timeout_s=0.3)
        gate.arm(Point("create_shard", 1, BEFORE))
        await Pool.open(behind)
        assert gate.struck and gate.passed["create_shard"] > 1
        await behind.close()


async def test_no_job_is_lost_early_or_doubled_at_some_of_the_points() -> None:
    first = await learn()
    assert not first.findings
    points = points_of(first.passed)
    assert {point.command for point in points} >= {
        "add",
        "pop",
        "finish",
        "due",
        "beat",
        "sign_in",
        "trim_dead",
        "barrier",
        "WAIT",
    }
    todo = chosen(points, EVERY, seed=datetime.date.today().toordinal())
    outcomes = await play_all(todo, lanes=6)
    assert {outcome.how for outcome in outcomes} == set(HOWS)
    assert not [(str(each.point), each.how, each.findings) for each in outcomes if each.findings]
