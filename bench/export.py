"""`make bench-export`: events a second that `jobqueue journal export` writes, from each database on this machine.

The events are those of whole lives, four each, spread over half a day. `python -m bench.export 10000 sqlite`
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
from tests.kit.databases import MariaDB, PostgreSQL
from tests.kit.program import Missing

EVENTS = 1_000_000
ROUNDS = 3
_BATCH = 20_000
_SERVERS = {"postgresql": PostgreSQL, "mariadb": MariaDB}
ALL = ("sqlite", *_SERVERS)
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
    told = [(row[0], "jq", 0, number, *row[4:]) for number, row in enumerate(sorted(rows(events)))]
    before = None
    for first in range(0, len(told), _BATCH):
        last = min(first + _BATCH, len(told))
        ms = DAY + 2 * DAY_MS if last == len(told) else told[last - 1][0]
        after = Position(0, ms, last, last, "word", 0, ms * 1000)
        await store.write(Batch("jq", 0, before, after, told[first:last]))
        before = after
    await store.close()


async def export(url: str, out: str, kind: str) -> float:
    """Rows a second."""
    began = time.perf_counter()
    async with opened(url, out, None) as run:
        written = await run.write(kind, None, None, lambda what, read: None)
    return written.rows / (time.perf_counter() - began)


def size(out: str) -> int:
    """The bytes of the files."""
    return sum(file.stat().st_size for file in Path(out).rglob("*.parquet"))


async def main(events: int = EVENTS, kinds: tuple[str, ...] = ALL) -> None:
    print(f"{events:,} events: events/s of {ROUNDS} exports, slowest first; bytes an event; deliveries/s of one export")
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
            rates = [await export(url, f"{folder}/{number}", "events") for number in range(ROUNDS)]
            bytes_each = size(f"{folder}/0") / events
            deliveries = await export(url, f"{folder}/of-deliveries", "deliveries")
        speeds = ", ".join(f"{rate:,.0f}" for rate in sorted(rates))
        print(f"{kind:12}{speeds:32}{bytes_each:8.1f}{deliveries:12,.0f}", flush=True)


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1]) if sys.argv[1:] else EVENTS, tuple(sys.argv[2:]) or ALL))
