"""docs/recurring.md: its schedules are defined as it shows, in each language alike, and occur when it says."""

from __future__ import annotations

import asyncio
import json
import re
import shutil
import sys
from collections.abc import AsyncIterator
from datetime import datetime, timedelta
from itertools import takewhile
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from jobqueue_client.testing import Queue

from jobqueue.engine.schedules.times import Cron
from tests.kit.service import ROOT, Client, ServiceProcess

PAGE = (ROOT / "docs" / "recurring.md").read_text()
RECIPES = {"example-digest", "example-sync", "example-invoices"}
PROGRAMS = {
    "python": (sys.executable, "py", ""),
    "php": ("php", "php", f"<?php require '{ROOT}/clients/php/autoload.php';\n"),
    "js": ("node", "mjs", ""),
}
"""By the word after the fences: the program, how its files end, and what a reader has around the lines."""


@pytest.fixture(scope="module")
def service() -> Any:
    """A test service, on which nothing occurs unless its clock is advanced."""
    with asyncio.Runner() as runner:
        service = ServiceProcess("--test", workers=None)
        runner.run(service.start())
        yield service
        runner.run(service.stop())


@pytest.fixture
async def client(service: ServiceProcess) -> AsyncIterator[Client]:
    async with Client(service.url) as client:
        await client.ask("reset")
        yield client


def blocks(word: str) -> list[str]:
    return re.findall(rf"```{word}\n(.*?)```", PAGE, re.S)


async def ran(*command: str) -> str:
    process = await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.PIPE)
    printed, _ = await process.communicate()
    assert process.returncode == 0, command
    return printed.decode()


async def with_curl(url: str) -> list[Any]:
    """The answers to all lines of the page."""
    lines = [line for block in blocks("sh") for line in block.splitlines()]
    return [
        json.loads(await ran("sh", "-c", line.replace("localhost:8000", url.removeprefix("http://")))) for line in lines
    ]


async def defined(client: Client) -> dict[str, Any]:
    return {each["name"]: each for each in (await client.ask("schedules"))["schedules"]}


async def test_the_recipes_define_list_and_remove_schedules(service: ServiceProcess, client: Client) -> None:
    *recipes, listed, removed = await with_curl(service.url)
    assert [answer["result"] for answer in recipes] == ["created"] * 3
    assert {each["name"] for each in listed["schedules"]} == RECIPES
    assert (removed["name"], removed["live"]) == ("example-invoices", 0)
    assert {*await defined(client)} == RECIPES - {"example-invoices"}


@pytest.mark.parametrize("language", PROGRAMS)
async def test_a_program_defines_the_same_schedules_in_each_language(
    service: ServiceProcess, client: Client, language: str, tmp_path: Path
) -> None:
    program, ending, head = PROGRAMS[language]
    if shutil.which(program) is None:
        pytest.skip(f"{program} is not installed; .ci/run installs it")
    (block,) = [each for each in blocks(language) if "example-digest" in each and "localhost:8000" in each]
    (tmp_path / "node_modules").mkdir()
    (tmp_path / "node_modules/jobqueue-client").symlink_to(ROOT / "clients" / "node")
    file = tmp_path / f"program.{ending}"
    file.write_text(head + block.replace("http://localhost:8000", service.url))
    for _ in range(2):
        await ran(program, str(file))
    shown = await defined(client)
    assert {*shown} == RECIPES
    *again, _, _ = await with_curl(service.url)
    assert [answer["result"] for answer in again] == ["existing"] * 3


def test_the_test_of_the_page_passes(service: ServiceProcess) -> None:
    (block,) = [each for each in blocks("python") if "def test_" in each]
    made: dict[str, Any] = {}
    exec(block, made)  # noqa: S102 - it is our own
    queue = Queue(service.url)
    queue.reset()
    with queue.client:
        made["test_the_digest_is_sent_each_weekday"](queue)


def rows() -> list[list[str]]:
    lines = re.findall(r"^\| (\w+/\w+) \| (\S+), .* \| `(.+)` \| (.+) \|$", PAGE, re.M)
    return [list(line) for line in lines]


@pytest.mark.parametrize(("zone", "day", "cron", "times"), rows())
def test_a_time_at_a_change_of_the_clock_comes_as_the_table_says(zone: str, day: str, cron: str, times: str) -> None:
    begin = datetime.fromisoformat(day).replace(tzinfo=ZoneInfo(zone))
    end = (begin + timedelta(hours=4)).timestamp() * 1000
    found = takewhile(lambda time: time < end, Cron(cron, zone).after(round(begin.timestamp() * 1000) - 1))
    local = [datetime.fromtimestamp(time / 1000, ZoneInfo(zone)).isoformat() for time in found]
    assert ", ".join(each[11:16] + each[19:] for each in local) == times


def test_the_table_has_the_zones_whose_clocks_change_in_each_way() -> None:
    assert {zone for zone, *_ in rows()} == {"Europe/Berlin", "America/New_York", "Australia/Lord_Howe"}
    assert len(rows()) >= 8
