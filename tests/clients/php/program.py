"""PHP programs that a test writes: they run to their end, or until the test ends them."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.kit.service import ROOT

PHP = ROOT / "clients" / "php"
SHARED = Path("/usr/share/php")  # where Debian's packages are
PATIENCE_S = 60.0

HEAD = f"""<?php
use JobQueue\\Client\\Bury;
use JobQueue\\Client\\Client;
use JobQueue\\Client\\Job;
use JobQueue\\Client\\Retry;
use JobQueue\\Client\\Worker;
require '{PHP}/autoload.php';
$url = getenv('URL');
$tell = function (mixed $what): void {{
    fwrite(STDOUT, json_encode($what) . "\\n");
}};
"""


def need(*files: str) -> None:
    """Skip the test unless PHP is there, and these files of Debian's packages."""
    for missing in [] if shutil.which("php") else ["php"]:
        pytest.skip(f"{missing} is not installed; .ci/run installs it")
    for missing in [file for file in files if not (SHARED / file).exists()]:
        pytest.skip(f"{SHARED / missing} is not there; .ci/run installs its package")


@asynccontextmanager
async def running(code: str, url: str, **environment: str) -> AsyncIterator[asyncio.subprocess.Process]:
    """A program that begins with HEAD; its output and its log are one stream."""
    need()
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "program.php"
        file.write_text(HEAD + code)
        process = await asyncio.create_subprocess_exec(
            *("php", str(file)),
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
            env={**os.environ, "URL": url, **environment},
        )
        try:
            yield process
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()


async def text(process: asyncio.subprocess.Process) -> str:
    """Its remaining output, once it has ended."""
    assert process.stdout
    async with asyncio.timeout(PATIENCE_S):
        output = await process.stdout.read()
        await process.wait()
    return output.decode()


async def output(code: str, url: str, **environment: str) -> str:
    """The output of a program that ends."""
    async with running(code, url, **environment) as process:
        return await text(process)


async def told(code: str, url: str, **environment: str) -> list[Any]:
    """What a program that ends passed to `$tell`, in order."""
    return told_in(await output(code, url, **environment))


def told_in(output: str) -> list[Any]:
    lines = output.splitlines()
    assert not [line for line in lines if line.startswith("PHP ")], output
    return [json.loads(line) for line in lines if line[:1] in '[{"' or line in ("true", "false", "null")]
