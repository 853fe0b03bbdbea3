"""Traces of the Node client: its spans with the SDK of OpenTelemetry from npm, and a program that has nothing of it."""

from __future__ import annotations

import asyncio
import shutil
from pathlib import Path

import pytest

from tests.clients import test_node_testing
from tests.clients.test_packages import NODE, packed, project, run
from tests.kit.service import Client, ServiceProcess

PACKAGES = ["@opentelemetry/api@1", "@opentelemetry/sdk-trace-base@2", "@opentelemetry/context-async-hooks@2"]
FILES = sorted((NODE / "test/traces").glob("*.test.js"))


@pytest.fixture(scope="module")
def package(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Our package as it would be published."""
    return packed(tmp_path_factory.mktemp("packed"))


@pytest.fixture(scope="module")
def traced(package: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return project(tmp_path_factory.mktemp("traced"), package, *PACKAGES)


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.name)
async def test_the_spans_are_as_promised(file: Path, traced: Path) -> None:
    program = str(shutil.copy(file, traced))
    async with ServiceProcess("--test", workers=None) as service:
        code, output = await test_node_testing.run("--test", program, JOBQUEUE_TEST_URL=service.url)
    assert code == 0, output


PROGRAM = """
import { Client } from 'jobqueue-client';

const client = new Client(process.argv[2]);
await client.add('plain', {}, { id: 'plain:1' });
client.close();
"""


async def test_without_the_package_of_opentelemetry_an_add_has_no_headers(package: Path, tmp_path: Path) -> None:
    await asyncio.to_thread(project, tmp_path, package)
    assert not (tmp_path / "node_modules/@opentelemetry").exists()
    (tmp_path / "program.js").write_text(PROGRAM)
    async with ServiceProcess("--test", workers=None) as service, Client(service.url) as client:
        await asyncio.to_thread(run, tmp_path, "node", "program.js", service.url)
        assert (await client.ask("pop", topic="plain"))["headers"] is None
