"""docs/migrating.md: each snippet of ours adds what it says, and its sentence about a field is the service's."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path

import pytest

from tests.documents.test_recurring import ran, service
from tests.kit.service import ROOT, Client, ServiceProcess

__all__ = ["service"]

PAGE = (ROOT / "docs" / "migrating.md").read_text()
SYSTEMS = dict(re.findall(r"^## ([^\n]+)\n(.*?)(?=^## |\Z)", PAGE, re.M | re.S))
_JOB = {
    "value": {"order": 1001},
    "topic": "example-close-order",
    "priority": 4,
    "tries": 16,
    "backoff": [],
    "ttl": None,
}
_ADDED = {
    ("BullMQ", "js"): {"priority": 9, "tries": 5, "backoff": [1.0, 2.0, 4.0, 8.0]},
    ("Celery", "python"): {"priority": 9, "tries": 4, "backoff": [180.0], "ttl": 1800.0},
    ("RabbitMQ's delayed messages", "php"): {},
}
"""By the heading and the language of a snippet: what is not as by default in the job that it adds."""


def snippet(system: str, language: str) -> str:
    (block,) = re.findall(rf"```{language}\n(.*?)```", SYSTEMS[system], re.S)
    return str(block)


def test_each_snippet_is_run() -> None:
    shown = {
        (system, language) for system, text in SYSTEMS.items() for language in re.findall(r"^```(\w+)$", text, re.M)
    }
    assert shown == {*_ADDED, ("Sidekiq", "sh"), ("SQS", "python")}


@pytest.mark.parametrize(("language", "system"), [(language, system) for system, language in _ADDED])
async def test_a_snippet_adds_the_job_that_the_old_queue_had(
    service: ServiceProcess, language: str, system: str, tmp_path: Path
) -> None:
    assert await ran(language, snippet(system, language), service, tmp_path) == (0, "")
    async with Client(service.url) as client:
        job = await client.ask("get", id="example-close-order:1001")
    wanted = _JOB | _ADDED[system, language]
    assert {name: job[name] for name in wanted} == wanted
    assert job["due"] - job["created"] == pytest.approx(1800)


async def test_the_snippet_for_sidekiq_is_a_request(service: ServiceProcess) -> None:
    command = snippet("Sidekiq", "sh").replace("localhost:8000", f"127.0.0.1:{service.port}")
    process = await asyncio.create_subprocess_shell(command, stdout=asyncio.subprocess.PIPE)
    await process.communicate()
    async with Client(service.url) as client:
        job = await client.ask("get", id="example-close-order:1001")
    assert (job["tries"], job["due"] - job["created"]) == (6, pytest.approx(1800))


async def test_the_snippet_for_sqs_sends_receives_and_deletes(service: ServiceProcess, tmp_path: Path) -> None:
    assert await ran("python", snippet("SQS", "python"), service, tmp_path) == (0, "")
    async with Client(service.url) as client:
        job = await client.ask("get", id="example-close-order:1001")
        assert (job["state"], job["ttr"], job["attempt"]) == ("finished", 30.0, 1)


async def test_a_field_of_another_queue_is_refused_as_the_page_says(service: ServiceProcess) -> None:
    (sentence,) = re.findall(r"`(unknown field of add: [^`]+)`", PAGE)
    async with Client(service.url) as client:
        assert (await client.ask("add", topic="t", body=1, attempts=3))["error"] == sentence
