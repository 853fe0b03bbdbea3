"""The sessions in docs/protocols/, run against a real service."""

from __future__ import annotations

import re
import shlex
import subprocess
from pathlib import Path

import pytest

from tests.jobqueue.protocols.served import Served

_PAGES = Path(__file__).parents[3] / "docs" / "protocols"
_VARYING = re.compile(r'[0-9a-f]{32}|\b\d{13}\b|(?<="elapsed_ms":)\d+')
PORTS = {"camellia": 8080, "lmstfy": 7777, "mykit": 6355}


def session(page: str) -> list[tuple[str, str]]:
    """The commands of a page, each with the answer that it shows."""
    blocks = re.findall(r"```console\n(.*?)```", page, re.S)
    return re.findall(r"^\$ (.+)\n(.+)$", "\n".join(blocks), re.M)


def settings(page: str) -> str:
    """The table that a page shows, on the port of the test, for this host."""
    table = re.findall(r"```toml\n(.*?)```", page, re.S)[0]
    return re.sub(r"^allow = .*\n", "", re.sub(r"^port = \d+", "port = PORT", table, flags=re.M), flags=re.M)


@pytest.mark.parametrize("name", PORTS)
def test_the_session_of_a_page_goes_as_it_says(name: str) -> None:
    page = (_PAGES / f"{name}.md").read_text()
    steps = session(page)
    assert len(steps) >= 3
    with Served(settings(page)).running() as served:
        for command, shown in steps:
            real = command.replace(f"localhost:{PORTS[name]}", f"127.0.0.1:{served.dialect_port}")
            printed = subprocess.run(shlex.split(real), capture_output=True, text=True, check=True).stdout
            assert _VARYING.sub("…", printed) == _VARYING.sub("…", shown), command
