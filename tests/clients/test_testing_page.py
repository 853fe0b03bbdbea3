"""docs/testing.md: the examples run as they stand there, and it names what there is."""

from __future__ import annotations

import asyncio
import json
import os
import re
import shutil
import sys
from pathlib import Path

import pytest
from jobqueue_client.testing import Done, Queue, QueuedJob

from tests.kit.service import JOBQUEUE, ROOT, ServiceProcess

PAGE = (ROOT / "docs" / "testing.md").read_text()
PYTHON = PAGE.partition("## Python")[2].partition("## Node")[0]
NODE = PAGE.partition("## Node")[2].partition("## PHP")[0]


async def test_the_tests_of_the_python_shop_pass(tmp_path: Path) -> None:
    files = re.findall(r"```python\n# (\w+\.py)\n(.*?)```", PYTHON, re.S)
    assert [name for name, _ in files] == ["conftest.py", "test_shop.py", "shop.py"]
    for name, code in files:
        (tmp_path / name).write_text(code)
    paths = os.pathsep.join(path for path in sys.path if path)
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--rootdir", str(tmp_path)),
        str(tmp_path),
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": paths},
        stdout=asyncio.subprocess.PIPE,
    )
    printed, _ = await process.communicate()
    assert "3 passed" in printed.decode(), printed.decode()


async def test_the_tests_of_the_node_shop_pass(tmp_path: Path) -> None:
    if shutil.which("node") is None:
        pytest.skip("node is not installed; .ci/run installs it")
    files = re.findall(r"```js\n// (\S+)\n(.*?)```", NODE, re.S)
    assert [name for name, _ in files] == ["shop.test.js", "shop.js"]
    for name, code in files:
        (tmp_path / name).write_text(code)
    (tmp_path / "package.json").write_text('{"type": "module"}')
    (tmp_path / "node_modules").mkdir()
    (tmp_path / "node_modules/jobqueue-client").symlink_to(ROOT / "clients/node")
    process = await asyncio.create_subprocess_exec(
        *("node", "--test", "--test-reporter=tap"),
        cwd=tmp_path,
        env={**os.environ, "JOBQUEUE_COMMAND": " ".join(JOBQUEUE), "PYTHONPATH": str(ROOT)},
        stdout=asyncio.subprocess.PIPE,
    )
    printed, _ = await process.communicate()
    assert "# pass 3" in printed.decode() and process.returncode == 0, printed.decode()


def test_the_page_names_what_the_queue_of_node_has() -> None:
    named = set(re.findall(r"queue\.(\w+)", NODE))
    declared = re.search(
        r"export class Queue \{\n(.*?)\n\}", (ROOT / "clients/node/types/testing.d.ts").read_text(), re.S
    )
    assert declared and named == set(re.findall(r"^  (?:get )?(\w+)[(<]", declared[1], re.M))


def test_the_page_names_what_the_queue_has() -> None:
    named = set(re.findall(r"queue\.(\w+)", PYTHON))
    assert len(named) > 10
    public = {name for name in dir(Queue) if not name.startswith("_")}
    assert named | {"close"} == public | {"url", "client"}
    for kind in (Done, QueuedJob):
        for field in kind.__dataclass_fields__:
            assert f"`{field}`" in PYTHON, field


async def test_the_commands_for_any_language_do_as_the_page_says() -> None:
    block = re.search(r"```sh\n(curl.*?)```", PAGE, re.S)
    assert block
    printed = []
    async with ServiceProcess("--test", workers=None) as service:
        for line in block[1].splitlines():
            command = line.replace("localhost:8000", f"127.0.0.1:{service.port}")
            process = await asyncio.create_subprocess_shell(command, stdout=asyncio.subprocess.PIPE)
            printed.append(json.loads((await process.communicate())[0]))
    reset, added, early, late = printed
    assert set(reset) == {"success", "now"}
    assert added["result"] == "created"
    assert early[1]["id"] is None
    assert late[1]["id"] == "example-close-order:1"
