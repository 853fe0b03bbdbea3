"""docs/outbox.md: its session leads from a transaction to a job."""

from __future__ import annotations

import asyncio
import re
import shlex
import sqlite3
import sys
from pathlib import Path

from tests.kit.service import JOBQUEUE, ROOT, Client, ServiceProcess
from tests.kit.waiting import until

PAGE = (ROOT / "docs" / "outbox.md").read_text()


async def test_the_order_of_the_page_has_its_job(tmp_path: Path) -> None:
    schema, relay = re.findall(r"```sh\njobqueue (.*?)(?: \|| +#)", PAGE)
    (program,) = re.findall(r"```python\n(.*?)```", PAGE, re.S)
    made = await asyncio.create_subprocess_exec(*JOBQUEUE, *shlex.split(schema), stdout=asyncio.subprocess.PIPE)
    ddl, _ = await made.communicate()
    with sqlite3.connect(tmp_path / "shop.db") as database:
        database.executescript(f"CREATE TABLE orders (number INTEGER);{ddl.decode()}")
    written = await asyncio.create_subprocess_exec(sys.executable, "-c", program, cwd=tmp_path)
    assert await written.wait() == 0
    async with ServiceProcess("--data", str(tmp_path / "data")) as service, Client(service.url) as client:
        asked = shlex.split(relay.replace("http://localhost:8000", service.url))
        running = await asyncio.create_subprocess_exec(*JOBQUEUE, *asked, cwd=tmp_path)

        async def is_there() -> bool:
            return bool((await client.ask("get", id="example-close-order:1001"))["success"])

        await until(is_there)
        running.terminate()
        assert await running.wait() == 0
    assert database.execute("SELECT number FROM orders").fetchall() == [(1001,)]
    assert database.execute("SELECT number FROM jobqueue_outbox").fetchall() == []
    (statement,) = re.findall(r"```sql\n(.*?)```", PAGE, re.S)
    database.executescript(statement)
