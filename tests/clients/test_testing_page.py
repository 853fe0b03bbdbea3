"""docs/testing.md: the examples run as they stand there, and it names what there is."""

from __future__ import annotations

import asyncio
import json
import os
import re
import sys
from pathlib import Path

from jobqueue_client.testing import Done, Queue, QueuedJob

from tests.acceptance.service import ROOT, ServiceProcess

PAGE = (ROOT / "docs" / "testing.md").read_text()
PYTHON = PAGE.partition("## Python")[2].partition("## Node")[0]


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
    assert late[1]["id"] == "order-close:1"
