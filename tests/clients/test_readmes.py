"""The clients' READMEs: what they show to add a job and to work runs as it stands there."""

from __future__ import annotations

import asyncio
import re
import shutil
import signal
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.acceptance.service import ROOT, Client, ServiceProcess
from tests.kit.redis_server import RedisServer
from tests.kit.waiting import until

CLIENTS = ROOT / "clients"


class Language(NamedTuple):
    """How the code of a README is run."""

    name: str
    program: str
    block: str  # the word after its fences
    ending: str
    head: str = ""  # what a reader has around it

    def code(self, word: str, url: str, readme_of: Path | None = None) -> str:
        """The first block that has the word, for the service at a URL."""
        readme = ((readme_of or CLIENTS / self.name) / "README.md").read_text()
        block: str = next(each for each in re.findall(rf"```{self.block}\n(.*?)```", readme, re.S) if word in each)
        assert "http://localhost:8000" in block
        return self.head + block.replace("http://localhost:8000", url)


LANGUAGES = [
    Language("python", sys.executable, "python", "py"),
    Language("php", "php", "php", "php", f"<?php require '{CLIENTS}/php/autoload.php';\n"),
    Language("node", "node", "js", "mjs"),
]


@pytest.fixture(params=LANGUAGES, ids=lambda language: language.name)
def language(request: pytest.FixtureRequest) -> Language:
    chosen: Language = request.param
    if shutil.which(chosen.program) is None:
        pytest.skip(f"{chosen.program} is not installed; .ci/run installs it")
    return chosen


@pytest.fixture
async def service(redis_server: RedisServer, redis: object) -> AsyncIterator[ServiceProcess]:
    async with ServiceProcess("--redis", redis_server.url) as service:
        yield service


async def start(
    language: Language, word: str, url: str, folder: Path, readme_of: Path | None = None
) -> asyncio.subprocess.Process:
    """A program of that code alone, in a folder of its own."""
    (folder / "node_modules").mkdir(exist_ok=True)
    if not (folder / "node_modules/jobqueue-client").exists():
        (folder / "node_modules/jobqueue-client").symlink_to(CLIENTS / "node")
    file = folder / f"program.{language.ending}"
    file.write_text(language.code(word, url, readme_of))
    return await asyncio.create_subprocess_exec(language.program, str(file), stdout=asyncio.subprocess.PIPE)


async def test_the_lines_that_add_a_job_run(language: Language, service: ServiceProcess, tmp_path: Path) -> None:
    process = await start(language, "add(", service.url, tmp_path)
    assert await process.wait() == 0
    async with Client(service.url) as client:
        told = await client.ask("get", id="example-close-order:1001")
        assert told["state"] == "deleted" and told["due"] - told["created"] == pytest.approx(1800, abs=0.01)


async def test_the_lines_that_work_run_until_sigterm(
    language: Language, service: ServiceProcess, tmp_path: Path
) -> None:
    async with Client(service.url) as client:
        await client.ask("add", topic="example-close-order", id="example-close-order:1", body={"order": 1}, tries=1)
        process = await start(language, "Worker(", service.url, tmp_path)

        async def worked() -> bool:  # the shop that its handler asks is not here: so it ends dead
            return bool((await client.ask("get", id="example-close-order:1"))["state"] == "dead")

        await until(worked)
        process.send_signal(signal.SIGTERM)
        assert await process.wait() == 0


async def test_paid_too_late_is_caught_as_the_first_page_shows_it(
    language: Language, service: ServiceProcess, tmp_path: Path
) -> None:
    async def said() -> str:
        process = await start(language, "paid too late", service.url, tmp_path, ROOT)
        printed, _ = await process.communicate()
        assert process.returncode == 0
        return printed.decode()

    async with Client(service.url) as client:
        assert "no such job" in await said()
        for _ in range(2):
            await client.ask(
                "add", topic="example-close-order", id="example-close-order:1001", body=1, if_exists="replace"
            )
            assert await said() == ""  # in time
        await client.ask("add", topic="example-close-order", id="example-close-order:1001", body=1, if_exists="replace")
        await client.ask("pop", topic="example-close-order")
        await client.ask("finish", id="example-close-order:1001")
        assert "paid too late" in await said()
