"""The clients' READMEs: what they show to add a job and to work runs as it stands there."""

from __future__ import annotations

import asyncio
import re
import shutil
import signal
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tests.kit.redis_server import RedisServer
from tests.kit.service import ROOT, Client, ServiceProcess
from tests.kit.waiting import until

CLIENTS = ROOT / "clients"


class Language(NamedTuple):
    """How the code of a README is run."""

    name: str
    program: str
    block: str  # the word after its fences
    ending: str
    head: str = ""  # what a reader has around it

    def code(self, *words: str, url: str, readme_of: Path | None = None) -> str:
        """The first block that has each word, one after another, for the service at a URL."""
        readme = ((readme_of or CLIENTS / self.name) / "README.md").read_text()
        blocks: list[str] = re.findall(rf"```{self.block}\n(.*?)```", readme, re.S)
        code = "\n".join(next(block for block in blocks if word in block) for word in words)
        assert "http://localhost:8000" in code
        return self.head + code.replace("http://localhost:8000", url)


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


async def start(language: Language, code: str, folder: Path) -> asyncio.subprocess.Process:
    """A program of that code alone, in a folder of its own."""
    (folder / "node_modules").mkdir(exist_ok=True)
    if not (folder / "node_modules/jobqueue-client").exists():
        (folder / "node_modules/jobqueue-client").symlink_to(CLIENTS / "node")
    file = folder / f"program.{language.ending}"
    file.write_text(code)
    return await asyncio.create_subprocess_exec(language.program, str(file), stdout=asyncio.subprocess.PIPE)


async def test_the_lines_that_add_a_job_run(language: Language, service: ServiceProcess, tmp_path: Path) -> None:
    process = await start(language, language.code("add(", url=service.url), tmp_path)
    assert await process.wait() == 0
    async with Client(service.url) as client:
        told = await client.ask("get", id="example-close-order:1001")
        assert told["state"] == "deleted" and told["due"] - told["created"] == pytest.approx(1800, abs=0.01)


async def test_the_lines_that_add_a_ladder_wait_as_they_say(language: Language, tmp_path: Path) -> None:
    async with ServiceProcess("--test", workers=None) as service, Client(service.url) as client:
        process = await start(language, language.code("add(", "backoff", url=service.url), tmp_path)
        assert await process.wait() == 0
        for wait in (15, 30, 180, 600):
            await client.ask("clock", advance=wait - 1)
            assert (await client.ask("pop", topic="example-call"))["id"] is None
            await client.ask("clock", advance=1.01)
            job = await client.ask("pop", topic="example-call")
            ended = await client.ask("release", id=job["id"], lease=job["lease"])
        assert ended["state"] == "dead"


async def works_until_sigterm(language: Language, code: str, service: ServiceProcess, folder: Path) -> None:
    async with Client(service.url) as client:
        await client.ask("add", topic="example-close-order", id="example-close-order:1", body={"order": 1}, tries=1)
        process = await start(language, code, folder)

        async def worked() -> bool:  # the shop that its handler asks is not here: so it ends dead
            return bool((await client.ask("get", id="example-close-order:1"))["state"] == "dead")

        await until(worked)
        process.send_signal(signal.SIGTERM)
        assert await process.wait() == 0


async def test_the_lines_that_work_run_until_sigterm(
    language: Language, service: ServiceProcess, tmp_path: Path
) -> None:
    await works_until_sigterm(language, language.code("Worker(", url=service.url), service, tmp_path)


async def test_the_lines_of_the_first_page_run_until_sigterm(service: ServiceProcess, tmp_path: Path) -> None:
    python = LANGUAGES[0]
    await works_until_sigterm(python, python.code("Worker(", url=service.url, readme_of=ROOT), service, tmp_path)


_TOO_LATE = {
    "python": (("add(",), "pass  # paid too late", 'print("paid too late")  # '),
    "php": (("add(", "NotFoundException"), "// The job is finished", 'echo "paid too late"; // '),
    "node": (("add(", "NotFoundError"), "// The job is finished", "console.log('paid too late'); // "),
}
"""By language: words of the blocks that catch it, and a line that gets something to print."""


_IN_TIME = re.compile(r"^(?:await )?\$?client(?:\.|->)(?:add|delete)\(.*", re.M)


async def test_paid_too_late_is_caught(language: Language, service: ServiceProcess, tmp_path: Path) -> None:
    words, line, printing = _TOO_LATE[language.name]
    code = language.code(*words, url=service.url)
    assert line in code
    program = _IN_TIME.sub("", code).replace(line, printing)

    async def said() -> str:
        process = await start(language, program, tmp_path)
        printed, _ = await process.communicate()
        assert process.returncode == 0
        return printed.decode()

    job: dict[str, Any] = {"topic": "example-close-order", "id": "example-close-order:1001"}
    async with Client(service.url) as client:
        assert "paid too late" in await said()
        await client.ask("add", body=1, **job)
        assert await said() == ""  # in time
        await client.ask("add", body=1, if_exists="renew", **job)
        await client.ask("pop", topic=job["topic"])
        await client.ask("finish", id=job["id"])
        assert "paid too late" in await said()
