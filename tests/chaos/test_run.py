"""Whole runs with real processes: a service that loses a job is caught, and an honest one is not blamed."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path
from typing import ClassVar

import pytest

from tests.chaos.history import read
from tests.chaos.load.load import Work
from tests.chaos.load.scheduling import Timetable
from tests.chaos.nemeses import NEMESES, Nemesis, make
from tests.chaos.run import run
from tests.chaos.scenarios.catalog import SCENARIOS
from tests.chaos.scenarios.scenario import Scenario
from tests.chaos.servers import volatile
from tests.chaos.stage import Stage

_LIGHT = Work(rate=60, producers=1, consumers=2)
EVERY_S = 2


class Steal(Nemesis):
    """Removes the record of a delayed job from Redis, without a trace in the history."""

    async def strike(self, stage: Stage) -> None:
        with stage.history.fault("steal"):
            delayed = [await stage.standalone.read("ZRANGE", f"{{jq:0}}:b:{bucket}", "-1", "-1") for bucket in range(8)]
            job = max(job for ids in delayed for job in ids).decode()
            assert await stage.standalone.read("DEL", f"{{jq:0}}:j:{job}")
            (stage.folder.parent / "stolen").write_text(job)


class Skip(Nemesis):
    """Sets the next time of a schedule to the one after it, without a trace in the history."""

    async def strike(self, stage: Stage) -> None:
        with stage.history.fault("skip"):
            script = """
                local record = redis.call('HGET', KEYS[1], ARGV[1])
                local time = struct.unpack('>I6', string.sub(record, 17, 22))  -- buckets/layout.py
                local later = struct.pack('>I6', time + ARGV[2] * 1000)
                redis.call('HSET', KEYS[1], ARGV[1], string.sub(record, 1, 16) .. later .. string.sub(record, 23))
                return time"""
            command = ("EVAL", script, "1", "{jq:0}:schedules", "schedule-0", str(EVERY_S))
            skipped = await stage.standalone.read(*command)
            (stage.folder.parent / "skipped").write_text(f"schedule-0@{skipped}")


class Hold(Nemesis):
    """Leaks, in the eyes of the checker: clients and connections that stay, and a useless key."""

    held: ClassVar[list[asyncio.StreamWriter]] = []

    async def strike(self, stage: Stage) -> None:
        with stage.history.fault("hold"):
            instance = stage.instances[0]
            _, client = await asyncio.open_connection("127.0.0.1", instance.port)
            pop = b'{"command": "pop", "topic": "nobody", "wait": 60}'
            client.write(b"POST /command HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n" % len(pop) + pop)
            _, redis = await asyncio.open_unix_connection(stage.standalone.server.socket)
            redis.write(b"CLIENT SETNAME jobqueue\r\nSET {jq:0}:j:forever 1\r\nRPUSH {jq:0}:r:4:left 1:x\r\n")
            self.held.extend((client, redis))


def scenario(nemesis: str, every_s: float, work: Work = _LIGHT) -> Scenario:
    return Scenario(nemesis, "", volatile, {nemesis: {"every_s": every_s}}, work=work)


async def test_a_service_whose_redis_loses_a_job_is_caught(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(NEMESES, "steal", f"{__name__}:Steal")
    monkeypatch.setattr("tests.chaos.run.DRAIN_S", 6.0)  # the counts include a job that no longer exists
    outcome = await run(scenario("steal", 1), 1.5, 7, tmp_path / "run")
    assert not outcome.passed
    (lost,) = (finding for finding in outcome.report.findings if finding.invariant == "lost")
    assert lost.id == (tmp_path / "stolen").read_text()
    events = read(outcome.folder)
    assert {events[line - 1].id for line in lost.lines} == {lost.id}
    assert f"lost: {lost.id}: " in (outcome.folder / "findings.txt").read_text()


async def test_a_service_whose_redis_passes_over_a_time_of_a_schedule_is_caught(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(NEMESES, "skip", f"{__name__}:Skip")
    work = replace(_LIGHT, timetable=Timetable(4, (EVERY_S,)))
    outcome = await run(scenario("skip", 3, work), 5, 7, tmp_path / "run")
    (skipped,) = outcome.report.findings
    assert (skipped.invariant, skipped.id) == ("skipped", (tmp_path / "skipped").read_text())
    assert outcome.report.figures.occurrences >= 8


async def test_what_is_left_behind_is_caught(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(NEMESES, "hold", f"{__name__}:Hold")
    monkeypatch.setattr("tests.chaos.resources._SETTLED_S", 0.2)
    outcome = await run(scenario("hold", 0.7), 1, 7, tmp_path / "run")
    while Hold.held:
        Hold.held.pop().close()
    said = " ".join(finding.says for finding in outcome.report.findings if finding.invariant == "leak")
    for left in ("1 clients", "1 waiting pops", "3 connections", "1 keys r", "records that do not end"):
        assert left in said


async def test_an_honest_service_passes_and_leaves_no_history(tmp_path: Path) -> None:
    outcome = await run(scenario("flush-scripts", 0.3), 1.5, 7, tmp_path / "run", short=True)
    assert outcome.report.found == []
    assert outcome.strikes >= 3 and outcome.report.figures.adds > 50
    assert not outcome.folder.exists()


@pytest.mark.parametrize("name", NEMESES)
def test_every_nemesis_of_the_table_can_be_made_and_says_what_it_is(name: str) -> None:
    used = [each for each in SCENARIOS if name in each.nemeses]
    assert used
    for options in [each.options(name, short) for each in used for short in (False, True)]:
        nemesis = make(name, **options)
        assert nemesis.every_s == options["every_s"]
        assert type(nemesis).__module__ == f"tests.chaos.nemeses.{name.replace('-', '_')}"
