"""docs/late.md: every command of the runbook runs against a live service in the situations that it describes."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

from tests.kit.service import ROOT, Client
from tests.kit.shell import Shell

PAGE = (ROOT / "docs" / "late.md").read_text()
TOPIC = "example-close-order"


def commands() -> list[str]:
    """The lines of the blocks of shell commands."""
    blocks = re.findall(r"```sh\n(.*?)```", PAGE, re.S)
    return [line for block in blocks for line in block.splitlines() if not line.startswith("export ")]


async def provoke(client: Client) -> None:
    """A delayed job, a dead one and a reserved one, and others that wait."""
    for number in range(1, 6):
        await client.ask("add", topic=TOPIC, id=f"{TOPIC}:{number}", body=1)
    for _ in range(4):
        await client.ask("pop", topic=TOPIC, worker="web1:412")
    await client.ask("release", id=f"{TOPIC}:1", delay=600, reason="connection refused")
    await client.ask("bury", id=f"{TOPIC}:2", reason="no such order")
    await client.ask("bury", id=f"{TOPIC}:4", reason="no such order")
    await client.ask("pause", topic=TOPIC)


async def test_every_command_of_the_page_runs_in_its_order(client: Client) -> None:
    await provoke(client)
    shell = Shell(client.url)
    assert len(commands()) > 10
    for command in commands():
        program, *arguments = shlex.split(command)
        ran = await (shell.run(*arguments) if program == "jobqueue" else shell.script(command))
        assert (ran.code, ran.err) == (0, ""), (command, ran)
        assert ran.out, command
    counts = (await client.ask("stats", topic=TOPIC))["counts"]
    assert counts == {"delayed": 0, "ready": 5, "reserved": 0, "dead": 0}


def test_every_link_of_the_page_leads_to_a_heading() -> None:
    headings = re.findall(r"^#+ (.*)$", PAGE, re.M)
    anchors = {re.sub(r"[^a-z0-9 -]", "", heading.lower()).replace(" ", "-") for heading in headings}
    assert set(re.findall(r"\]\(#([^)]*)\)", PAGE)) <= anchors


def test_the_readme_and_the_operations_page_lead_to_it() -> None:
    assert "docs/late.md" in (ROOT / "README.md").read_text()
    assert "late.md" in Path(ROOT / "docs" / "operations.md").read_text()
