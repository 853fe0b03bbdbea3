"""Schedules of a whole service, through the days on which clocks change: its time is virtual."""

from __future__ import annotations

import sys
from collections import defaultdict
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

import pytest
import pytest_asyncio

from tests.jobqueue.engine.schedules.calendar_oracle import CalendarOracle
from tests.jobqueue.engine.schedules.changes import CHANGES, ON_THE_DAY
from tests.kit.service import Client, ServiceProcess

pytestmark = pytest.mark.asyncio(loop_scope="module")

BEGIN = datetime(2026, 3, 7, 12, tzinfo=UTC)
"""Before the first change."""
_BEGINS = """
import runpy, time
late_ns = time.time_ns() - int({begin}e9)
host = time.time_ns
time.time_ns = lambda: host() - late_ns
runpy.run_module("jobqueue", run_name="__main__")
"""
ALL_DAY = ["0 * * * *", "30 * * * *", "*/10 * * * *", "20 */3 * * *", "0 0 12 * * *"]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def client(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Client]:
    """A client of a test service whose clock begins before all changes."""
    program = [sys.executable, "-c", _BEGINS.format(begin=round(BEGIN.timestamp()))]
    service = ServiceProcess("--test", workers=None, log=tmp_path_factory.mktemp("service") / "log", program=program)
    await service.start()
    async with Client(service.url) as client:
        yield client
    await service.stop()


async def until(client: Client, moment: datetime) -> None:
    """Advance the clock to a moment."""
    now = (await client.ask("clock"))["now"]
    assert (await client.ask("clock", advance=round(moment.timestamp() - now, 3)))["success"]


async def occurrences(client: Client) -> dict[str, list[float]]:
    """The times of all occurrences that are ready, by the names of their schedules."""
    found: defaultdict[str, list[float]] = defaultdict(list)
    while jobs := (await client.ask("pop", topic="t", count=1000))["jobs"]:
        for job in jobs:
            name, _, ms = job["id"].rpartition("@")
            assert job["due"] == int(ms) / 1000
            found[name].append(job["due"])
        await client.batch([{"command": "finish", "id": job["id"], "lease": job["lease"]} for job in jobs])
    return found


def in_order_of_time(changes: list[tuple[str, str]]) -> list[tuple[str, str]]:
    return sorted(changes, key=lambda change: change[1])


@pytest.mark.parametrize(("zone", "day"), in_order_of_time(CHANGES))
async def test_a_day_on_which_the_clock_changes(client: Client, zone: str, day: str) -> None:
    midnight = datetime.fromisoformat(day).replace(tzinfo=ZoneInfo(zone))
    begin, end = (each.astimezone(UTC) for each in (midnight, midnight + timedelta(days=1)))
    by_hand = {expression: clocks for *change, expression, clocks in ON_THE_DAY if change == [zone, day]}
    wanted = {each: [datetime.fromisoformat(f"{day}T{clock}") for clock in by_hand[each]] for each in by_hand}
    wanted |= {each: CalendarOracle(each, zone).between(begin - timedelta(minutes=1), end) for each in ALL_DAY}
    hours = (end - begin) // timedelta(hours=1)
    wanted |= {"": [begin + timedelta(hours=turn) for turn in range(hours + 1)]}  # an interval
    interval = {"every": 3600, "start": (begin - timedelta(hours=1)).timestamp()}

    await until(client, begin - timedelta(minutes=1))
    for place, cron in enumerate(wanted):
        times: dict[str, Any] = {"cron": cron, "zone": zone} if cron else interval
        defined = await client.ask("schedule", name=f"{day}-{place}", topic="t", body=1, **times)
        assert defined["success"], defined
    await until(client, end)
    found = await occurrences(client)
    for place, (cron, moments) in enumerate(wanted.items()):
        on_the_day = [each for each in found[f"{day}-{place}"] if each <= end.timestamp()]
        assert on_the_day == [each.timestamp() for each in moments], cron
        assert (await client.ask("unschedule", name=f"{day}-{place}"))["live"] == 0
