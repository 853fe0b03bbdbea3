"""The Node client beside what its users have from npm: the NestJS example in a real application, and real loggers."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import signal
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from tests.clients.test_packages import NODE, packed, project, run
from tests.kit.redis_server import RedisServer
from tests.kit.service import Client, ServiceProcess

PACKAGES = ["@nestjs/common@11", "@nestjs/core@11", "reflect-metadata@0", "rxjs@7", "pino@10", "winston@3"]
COMPILER = ["typescript@7", "@types/node@20"]


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A project of a user: with our package as it would be published, and the others from npm."""
    folder = tmp_path_factory.mktemp("shop")
    return project(folder, packed(folder), *PACKAGES, *COMPILER)


@pytest.fixture
async def service(redis_server: RedisServer, redis: object) -> AsyncIterator[ServiceProcess]:
    async with ServiceProcess("--redis", redis_server.url) as service:
        yield service


async def started(program: Path, url: str) -> asyncio.subprocess.Process:
    return await asyncio.create_subprocess_exec(
        *("node", program.name),
        cwd=program.parent,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
        env=os.environ | {"JOBQUEUE_URL": url},
    )


async def test_the_nestjs_example_works_until_the_application_is_shut_down(shop: Path, service: ServiceProcess) -> None:
    for file in (NODE / "examples/nestjs").iterdir():
        shutil.copy(file, shop)
    await asyncio.to_thread(run, shop, "npx", "tsc", "--project", ".")
    process = await started(shop / "dist/main.js", service.url)
    assert process.stdout
    said = b""
    async with asyncio.timeout(60):
        while b"closed: not paid in time" not in said:
            line = await process.stdout.readline()
            assert line, said.decode()
            said += line
        process.send_signal(signal.SIGTERM)
        said += await process.stdout.read()
        await process.wait()
    log = [json.loads(line) for line in said.splitlines() if line.startswith(b"{")]
    assert [line["message"] for line in log] == ["worker.started", "worker.stopping", "worker.stopped"]
    assert log[-1]["finished"] == 1 and log[-1]["lost"] == 0
    async with Client(service.url) as client:
        figures = await client.ask("stats", topic="example-close-order")
        assert figures["totals"]["finished"] == 1 and figures["counts"]["reserved"] == 0


TYPED = """
import { pino } from 'pino';
import winston from 'winston';
import { Worker } from 'jobqueue-client';

for (const logger of [console, pino(), winston.createLogger()]) new Worker('http://localhost:8000', { logger });
"""


def test_the_types_accept_these_loggers(shop: Path) -> None:
    (shop / "typed").mkdir()
    (shop / "typed/loggers.ts").write_text(TYPED)
    flags = ("--ignoreConfig", "--noEmit", "--strict", "--module", "nodenext", "--target", "es2022", "--types", "node")
    run(shop, "npx", "tsc", *flags, "typed/loggers.ts")


LOGGERS = {
    "console": "console",
    "pino": "(await import('pino')).pino()",
    "winston": "winston.createLogger({ transports: new winston.transports.Console(), format: winston.format.json() })",
}

PROGRAM = """
import winston from 'winston';
import { Client, Worker } from 'jobqueue-client';

const url = process.env.JOBQUEUE_URL;
const worker = new Worker(url, { logger: LOGGER, on_death: () => worker.stop() });
worker.job('logged', () => { throw new RangeError('no such order'); });
await new Client(url).add('logged', { card: '4111 1111' }, { id: 'logged:1', tries: 1 });
await worker.run();
process.exitCode = 0;
"""


@pytest.mark.parametrize("logger", LOGGERS)
async def test_a_logger_gets_each_event_as_one_line_with_its_fields(
    shop: Path, service: ServiceProcess, logger: str
) -> None:
    program = shop / f"{logger}.mjs"
    program.write_text(PROGRAM.replace("LOGGER", LOGGERS[logger]))
    process = await started(program, service.url)
    said, _ = await asyncio.wait_for(process.communicate(), 60)
    log: list[dict[str, Any]] = [json.loads(line) for line in said.splitlines()]
    assert {each["message"] for each in log} == {
        *("worker.started", "job.failed", "job.died", "worker.stopping", "worker.stopped")
    }
    (failed,) = [each for each in log if each["message"] == "job.failed"]
    assert failed["reason"] == "RangeError: no such order" and failed["at"].startswith(f"{program}:7:")
    assert (failed["topic"], failed["id"], failed["attempt"]) == ("logged", "logged:1", 1)
    assert b"4111 1111" not in said
