"""docs/recurring.md: its examples run as they stand there."""

from __future__ import annotations

import asyncio
import json
import re
import shlex
import shutil
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.documents.test_readme import steady
from tests.kit.service import ROOT, Client, ServiceProcess
from tests.kit.shell import Shell
from tests.kit.waiting import until

PAGE = (ROOT / "docs" / "recurring.md").read_text()
HEADS = {
    "python": "",
    "php": f"<?php require '{ROOT}/clients/php/autoload.php';\n",
    "js": "",
}
PROGRAMS = {"python": sys.executable, "php": "php", "js": "node"}


def blocks(word: str) -> list[str]:
    return re.findall(rf"```{word}\n(.*?)```", PAGE, re.S)


@pytest.fixture
async def service() -> AsyncIterator[ServiceProcess]:
    async with ServiceProcess("--test", workers=None) as service:
        yield service


async def ran(language: str, code: str, service: ServiceProcess, folder: Path) -> tuple[int | None, str]:
    """The exit code of an example as a program, and what it prints."""
    if shutil.which(PROGRAMS[language]) is None:
        pytest.skip(f"{PROGRAMS[language]} is not installed; .ci/run installs it")
    (folder / "node_modules").mkdir(exist_ok=True)
    if not (folder / "node_modules/jobqueue-client").exists():
        (folder / "node_modules/jobqueue-client").symlink_to(ROOT / "clients" / "node")
    assert "http://localhost:8000" in code
    file = folder / f"example.{'mjs' if language == 'js' else language}"
    file.write_text(HEADS[language] + code.replace("http://localhost:8000", service.url))
    process = await asyncio.create_subprocess_exec(
        PROGRAMS[language], str(file), stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT
    )
    printed, _ = await process.communicate()
    return process.returncode, printed.decode()


async def test_the_sessions_go_as_they_say(service: ServiceProcess) -> None:
    steps = re.findall(r"^\$ (.+)\n((?:[^$\n].*\n)+)", "\n".join(blocks("console")), re.M)
    assert len(steps) == 11
    for command, shown in steps:
        if command.startswith("jobqueue "):
            told = await Shell(service.url, COLUMNS="200").shown(*shlex.split(command)[1:])
            assert told.startswith(shown)
            continue
        real = command.replace("localhost:8000", f"127.0.0.1:{service.port}")
        process = await asyncio.create_subprocess_shell(real, stdout=asyncio.subprocess.PIPE)
        printed, _ = await process.communicate()
        answer, expected = json.loads(printed), json.loads(shown)
        assert steady(answer) == steady(expected), command
        if "spread" in command:  # it says the same on every day
            assert answer["due"] == expected["due"]


@pytest.mark.parametrize("language", [*PROGRAMS])
async def test_a_sensor_has_the_moment_of_the_page_in_each_language(
    language: str, service: ServiceProcess, tmp_path: Path
) -> None:
    (moment,) = set(re.findall(r'sensor-17".*"due":([\d.]+)', PAGE))
    (code,) = [block for block in blocks(language) if "example-poll" in block]
    assert await ran(language, code, service, tmp_path) == (0, "")
    async with Client(service.url) as client:
        assert (await client.ask("get", id="example-poll:sensor-17"))["due"] == float(moment)


@pytest.mark.parametrize("language", ["php", "js"])
async def test_a_session_is_put_off_by_its_requests(language: str, service: ServiceProcess, tmp_path: Path) -> None:
    (code,) = [block for block in blocks(language) if "example-logout" in block]
    assert await ran(language, code, service, tmp_path) == (0, "")
    async with Client(service.url) as client:
        told = await client.ask("get", id="example-logout:7")
        assert (told["state"], told["value"]) == ("delayed", {"session": 7})
        (added,) = [line for line in code.splitlines() if "at login" in line]
        assert await ran(language, code.replace(added, ""), service, tmp_path) == (0, "")
        await client.ask("delete", id="example-logout:7")
        assert await ran(language, code.replace(added, ""), service, tmp_path) == (0, "")
        assert (await client.ask("get", id="example-logout:7"))["state"] == "deleted"


async def test_a_reminder_waits_until_the_cart_has_rested(service: ServiceProcess, tmp_path: Path) -> None:
    (code,) = [block for block in blocks("python") if "example-remind" in block]
    rest = """
rests = [400.0, 700.0]
since_last_change = lambda cart: rests.pop(0)
send_reminder = lambda cart: (print("reminded of", cart, flush=True), worker.stop())
for _ in range(2):
    cart_changed(7)
client.run("example-remind:7")
cart_changed(7)
worker.run()
"""
    async with Client(service.url) as client:
        running = asyncio.create_task(ran("python", code + rest, service, tmp_path))

        async def is_given_back() -> bool:
            told = await client.ask("get", id="example-remind:7")
            return bool(told["success"] and told["state"] == "delayed" and told["deliveries"])

        await until(is_given_back)
        assert (await client.ask("get", id="example-remind:7"))["attempt"] == 0
        await client.ask("clock", advance=200)
        code_, printed = await running
        assert code_ == 0 and "reminded of 7" in printed, printed
        assert (await client.ask("get", id="example-remind:7"))["state"] == "finished"
