"""`make bench-outbox`: how many rows of an outbox a second reach the service, from each kind of database.

The rows are there when the relays begin. Relays, service, its Redis and the database share the machine. `python -m
bench.outbox 100000` sets another number of rows.
"""

from __future__ import annotations

import asyncio
import json
import sqlite3
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from sqlalchemy import text

from bench.journal_run import KINDS, databases
from jobqueue.journal.database import engine_of
from jobqueue.journal.url import address
from jobqueue.outbox.table import ddl
from tests.kit.service import JOBQUEUE, ServiceProcess

ROWS = 50_000
RELAYS = 2  # SQLite has one
_AT_ONCE = 1_000
_DUE_S = 86_400
_LOOK_S = 0.05


async def measure(kind: str, url: str, rows: int, folder: Path) -> None:
    where = address(url)
    if where.kind == "sqlite":
        with sqlite3.connect(where.path) as connection:
            connection.executescript(f"PRAGMA journal_mode = WAL;{ddl('sqlite')}")
    engine = await engine_of(where)
    async with engine.begin() as outbox:
        if where.kind != "sqlite":
            for statement in _statements(ddl(where.kind)):
                await outbox.execute(text(statement))
        insert = text("INSERT INTO jobqueue_outbox (id, topic, body, due) VALUES (:id, 'orders', :body, :due)")
        body, due = json.dumps({"order": "x" * 80}), time.time() + _DUE_S
        for first in range(0, rows, _AT_ONCE):
            some = range(first, min(first + _AT_ONCE, rows))
            await outbox.execute(insert, [{"id": f"order:{number}", "body": body, "due": due} for number in some])
    async with ServiceProcess("--data", str(folder / kind)) as service:
        command = [*JOBQUEUE, "outbox", "--from", url, "--url", service.url]
        began = time.perf_counter()
        count = 1 if where.kind == "sqlite" else RELAYS
        relays = [
            await asyncio.create_subprocess_exec(*command, stderr=asyncio.subprocess.DEVNULL) for _ in range(count)
        ]
        async with engine.connect() as outbox:
            while (await outbox.execute(text("SELECT count(*) FROM jobqueue_outbox"))).scalar():
                await outbox.rollback()
                await asyncio.sleep(_LOOK_S)
        seconds = time.perf_counter() - began
        for relay in relays:
            relay.terminate()
            await relay.wait()
    await engine.dispose()
    print(f"{kind:10} {rows:,} rows, {count} relays: {rows / seconds:7,.0f} a second, with their start", flush=True)


def _statements(script: str) -> list[str]:
    """The statements of the DDL; the function of the trigger has a semicolon of its own."""
    return [each for each in script.replace(";\n    $$", "; $$").split(";\n") if each.strip()]


async def main(rows: int = ROWS, kinds: Sequence[str] = KINDS) -> None:
    with tempfile.TemporaryDirectory(prefix="jq-bench-") as name, databases(Path(name), kinds) as made:
        for kind, new_url in made.items():
            await measure(kind, new_url(), rows, Path(name))


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1]) if len(sys.argv) > 1 else ROWS))
