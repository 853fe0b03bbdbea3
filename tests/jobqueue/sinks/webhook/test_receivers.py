"""The receivers of docs/callbacks.md, in PHP and Node: they accept what `jobqueue callbacks` signs, nothing else."""

from __future__ import annotations

import asyncio
import base64
import json
import re
import shutil
import time
from pathlib import Path

import pytest

from jobqueue.sinks.webhook import signature
from tests.kit.service import ROOT

PAGE = (ROOT / "docs" / "callbacks.md").read_text()
SECRET, OTHER = ("whsec_" + base64.b64encode(bytes([n]) * 32).decode() for n in (1, 2))
BODY = '{"ordér":1}'
ASKED = {
    "php": """
        [$body, $headers, $secret] = json_decode(file_get_contents('php://stdin'), true);
        foreach ($headers as $name => $value) {
            $_SERVER['HTTP_' . strtoupper(strtr($name, '-', '_'))] = $value;
        }
        %s
        echo json_encode($genuine);""",
    "js": """
        import { readFileSync } from 'node:fs';
        %s
        const [body, headers, secret] = JSON.parse(readFileSync(0, 'utf8'));
        console.log(isGenuine(Buffer.from(body), headers, secret));""",
}


@pytest.fixture(params=["php", "js"])
def receiver(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[str, ...]:
    """The command that runs the code of the page on a request from standard input."""
    ending = str(request.param)
    program = {"php": "php", "js": "node"}[ending]
    if shutil.which(program) is None:
        pytest.skip(f"{program} is not installed; .ci/run installs it")
    (code,) = re.findall(rf"```{ending}\n(.*?)```", PAGE, re.S)
    file = tmp_path / {"php": "receiver.php", "js": "receiver.mjs"}[ending]
    code = code.replace("file_get_contents('php://input')", "$body")
    file.write_text(("<?php " if ending == "php" else "") + ASKED[ending] % code)
    return program, str(file)


async def is_genuine(receiver: tuple[str, ...], body: str, headers: dict[str, str], secret: str = SECRET) -> bool:
    process = await asyncio.create_subprocess_exec(
        *receiver, stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE
    )
    said, _ = await process.communicate(json.dumps([body, headers, secret]).encode())
    return bool(json.loads(said))


async def test_a_receiver_accepts_only_what_was_signed_a_moment_ago(receiver: tuple[str, ...]) -> None:
    def signed(now: float) -> dict[str, str]:
        return signature.headers("order:1.2", int(now), BODY.encode(), signature.secrets_of(f"{OTHER} {SECRET}"))

    headers = signed(time.time())
    assert await is_genuine(receiver, BODY, headers)
    assert not await is_genuine(receiver, BODY + " ", headers)
    assert not await is_genuine(receiver, BODY, headers, "whsec_" + base64.b64encode(b"h" * 32).decode())
    assert not await is_genuine(receiver, BODY, signed(time.time() - 600))
    assert not await is_genuine(receiver, BODY, {name: headers[name] for name in ("webhook-id", "webhook-timestamp")})
