"""Commands in the documents, which tests run as they are written there."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path

from tests.kit.service import JOBQUEUE, ROOT

_PATIENCE_S = 60.0


def commands(document: str, heading: str, number: int = 0) -> str:
    """A block of shell commands in the section of a document; the section ends at the next heading of any level."""
    text = (ROOT / "docs" / document).read_text()
    section = re.split(r"^#+ ", text.split(f"# {heading}\n")[1], flags=re.M)[0]
    blocks: list[str] = re.findall(r"```sh\n(.*?)```", section, re.S)
    return blocks[number]


async def shell(script: str, folder: Path) -> str:
    """The output of a script of `sh` in a folder, in which `jobqueue` is this project's; it has to succeed."""
    python, *rest = JOBQUEUE
    head = f'set -e\njobqueue() {{ PYTHONPATH={ROOT} {python} {" ".join(rest)} "$@"; }}\n'
    process = await asyncio.create_subprocess_exec(
        "sh", "-c", head + script, cwd=folder, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT
    )
    async with asyncio.timeout(_PATIENCE_S):
        output, _ = await process.communicate()
    assert process.returncode == 0, output.decode()
    return output.decode()
