"""The docs: the README's session, run against a real service with a shell and curl; and the table of log events."""

from __future__ import annotations

import asyncio
import json
import re
from pathlib import Path
from typing import Any

from tests.acceptance.service import ROOT, ServiceProcess

# What differs from run to run.
_VARYING = ("due", "lease")


def session() -> list[tuple[str, str]]:
    """The commands of the README with the answers that it shows."""
    blocks = re.findall(r"```console\n(.*?)```", (ROOT / "README.md").read_text(), re.S)
    return re.findall(r"^\$ (.+)\n(.+)$", "\n".join(blocks), re.M)


def steady(answer: Any) -> Any:
    """The answer without what differs from run to run."""
    if isinstance(answer, list):
        return [steady(each) for each in answer]
    return {
        name: "…" if name in _VARYING and isinstance(value, int | float) else value for name, value in answer.items()
    }


async def test_the_session_of_the_readme_goes_as_it_says(tmp_path: Path) -> None:
    steps = session()
    assert len(steps) == 6
    async with ServiceProcess("--data", str(tmp_path / "data")) as service:
        for command, shown in steps:
            real = command.replace("localhost:8000", f"127.0.0.1:{service.port}")
            process = await asyncio.create_subprocess_shell(real, stdout=asyncio.subprocess.PIPE)
            printed, _ = await process.communicate()
            assert steady(json.loads(printed)) == steady(json.loads(shown)), command


def test_the_documents_link_to_files_that_there_are() -> None:
    folders = (ROOT / folder for folder in ("docs", "clients", "tests"))
    documents = [path for folder in folders for path in folder.rglob("*.md") if "node_modules" not in path.parts]
    assert len(documents) > 10
    for document in (ROOT / "README.md", *documents):
        for link in re.findall(r"\]\((?!http)([^)#]+)", document.read_text()):
            assert (document.parent / link).exists(), f"{document}: {link}"


def test_operations_tells_what_each_log_event_means() -> None:
    sources = [path.read_text() for folder in ("buckets", "jobqueue") for path in (ROOT / folder).rglob("*.py")]
    logged = {event for text in sources for event in re.findall(r"log\.\w+[(,]\s*\"(\w+\.\w+)\"", text)}
    table = (ROOT / "docs" / "operations.md").read_text().partition("## Logs")[2]
    assert len(logged) > 20
    assert logged == set(re.findall(r"\w+\.\w+", "\n".join(re.findall(r"^\| ([^|]*) \|", table, re.M))))
