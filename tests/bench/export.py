"""`make bench-export`: events a second that `jobqueue journal export` writes, from each database on this machine.

The events are those of whole lives, four each, spread over half a day. `python -m tests.bench.export 10000 sqlite`
sets another number of them, and the databases.
"""

from __future__ import annotations

import asyncio
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

from jobqueue.journal.database import open_store
from jobqueue.journal.export.run import opened
from jobqueue.journal.store import Batch, Position, Row
from jobqueue.journal.tables import event
from tests.jobqueue.journal.filling import DAY, DAY_MS, life_of
from tests.jobqueue.journal.servers import MariaDB, Missing, PostgreSQL

EVENTS = 2_000_000
ROUNDS = 3
_BATCH = 20_000
_SERVERS = {"postgresql": PostgreSQL, "mariadb": MariaDB}
_NAMES = [column.name for column in event.columns]


def rows(events: int) -> Iterator[Row]:
    """The events of a shard, in the order of their entries."""
    apart = DAY_MS // 2 / max(1, events // 4)
    for number in range(events // 4):
        told = life_of(DAY + int(number * apart), f"order-close:{number}", topic="example-close-order")
        yield from (tuple(each[name] for name in _NAMES) for each in told)


async def fill(url: str, events: int) -> None:
    """A journal of one shard, drained to the end of the day."""
    store = await open_store(url)
    numbered = ((row[0], "jq", 0, number, *row[4:]) for number, row in enumerate(sorted(rows(events))))
    before, held, number = None, list[Row](), 0
    for row in numbered:
        held.append(row)
        number += 1
        if len(held) == _BATCH or number == events:
            at = DAY + 2 * DAY_MS if number == events else row[0]
            after = Position(0, at, row[3], number, "word", 0, at * 1000)
            await store.write(Batch("jq", 0, before, after, held))
            before, held = after, []
    await store.close()


async def export(url: str, out: str) -> tuple[float, int]:
    """Events a second, and the bytes of the files."""
    began = time.perf_counter()
    async with opened(url, out, None) as run:
        written = await run.write("events", None, None, lambda what, read: None)
    took = time.perf_counter() - began
    return written.rows / took, sum(file.stat().st_size for file in Path(out).rglob("*.parquet"))


async def main(events: int = EVENTS, kinds: tuple[str, ...] = ("sqlite", *_SERVERS)) -> None:
    print(f"{events:,} events, {ROUNDS} exports of each: events/s from the slowest to the fastest, bytes an event")
    for kind in kinds:
        with ExitStack() as stack:
            folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="jq-export-"))
            try:
                server = stack.enter_context(_SERVERS[kind]()) if kind in _SERVERS else None
            except Missing as missing:
                print(f"{kind:12}{missing}")
                continue
            url = server.new_database() if server else f"sqlite:///{folder}/journal.db"
            await fill(url, events)
            rates = [await export(url, f"{folder}/{number}") for number in range(ROUNDS)]
        speeds = ", ".join(f"{rate:,.0f}" for rate, _ in sorted(rates))
        print(f"{kind:12}{speeds}{rates[0][1] / events:9.1f}", flush=True)


if __name__ == "__main__":
    asyncio.run(main(*map(int, sys.argv[1:2]), *([tuple(sys.argv[2:])] if sys.argv[2:] else [])))
