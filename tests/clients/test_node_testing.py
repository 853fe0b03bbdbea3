"""jobqueue-client/testing: the test kit of the Node client, as a shop uses it with node:test."""

from __future__ import annotations

import asyncio
import os
import shutil
import sys
from pathlib import Path

import pytest

from tests.kit.service import JOBQUEUE, ROOT, ServiceProcess
from tests.kit.waiting import until

FILES = sorted((ROOT / "clients/node/test/service").glob("*.test.js"))


async def run(*arguments: str, **environment: str) -> tuple[int | None, str]:
    """The exit code of Node, and its output."""
    if shutil.which("node") is None:
        pytest.skip("node is not installed; .ci/run installs it")
    kept = {name: value for name, value in os.environ.items() if not name.startswith("JOBQUEUE_")}
    process = await asyncio.create_subprocess_exec(
        *("node", *arguments),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
        cwd=ROOT / "clients/node",
        env=kept | {"PYTHONPATH": str(ROOT)} | environment,
    )
    output, _ = await process.communicate()
    return process.returncode, output.decode()


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.name)
async def test_the_tests_of_a_shop_pass(file: Path) -> None:
    code, output = await run("--test", str(file), JOBQUEUE_COMMAND=" ".join(JOBQUEUE))
    assert code == 0, output


async def test_a_test_service_that_already_runs_is_used() -> None:
    async with ServiceProcess("--test", workers=None) as service:
        code, output = await run("--test", str(FILES[-1]), JOBQUEUE_TEST_URL=service.url)
        assert code == 0, output


STARTED = """
import { TestService } from 'jobqueue-client/testing';
console.log(await new TestService().start().catch((error) => error.message));
"""


@pytest.mark.parametrize(
    ("command", "says"),
    [("/nowhere/jobqueue", "set JOBQUEUE_COMMAND"), (f"{sys.executable} -c 1/0", "ZeroDivisionError")],
)
async def test_a_service_that_cannot_be_started_is_told_with_the_cause(command: str, says: str) -> None:
    code, output = await run("--input-type=module", "--eval", STARTED, JOBQUEUE_COMMAND=command)
    assert code == 0 and says in output, output


ENDED = """
import { TestService } from 'jobqueue-client/testing';
console.log(await new TestService().start());
process.exit();
"""


async def test_a_test_run_that_ends_early_leaves_no_service_behind() -> None:
    code, output = await run("--input-type=module", "--eval", ENDED, JOBQUEUE_COMMAND=" ".join(JOBQUEUE))
    port = int(output.strip().rpartition(":")[2])

    async def is_gone() -> bool:
        try:
            _, writer = await asyncio.open_connection("127.0.0.1", port)
        except OSError:
            return True
        writer.close()
        return False

    assert code == 0
    await until(is_gone)
