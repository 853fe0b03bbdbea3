"""`make bench-journal`: how many events a second go into each database, what one costs, and its bytes there.

Lives of four events (add, due, pop, finish), each event of a life in another batch of 5,000, ids in no order, bodies of
100 bytes. From the entries of a stream as Redis gives them to the end of the transaction; the servers do not wait for
the disk, SQLite does. `python -m bench.journal 1000000 sqlite` sets another number of events, and one database.
"""

from __future__ import annotations

import asyncio
import os
import random
import struct
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from buckets.events.codec import read_all
from buckets.job import State, Tag, Verb
from buckets.layout import HEADER, NEW_HEADER
from buckets.record import OPTIONAL, pack_optional
from jobqueue.journal.database import open_store
from jobqueue.journal.rows import Collector
from jobqueue.journal.store import Batch, Position
from tests.kit.databases import MariaDB, PostgreSQL, Server, run

EVENTS = 400_000
BATCH = 5_000
_ENTRY = 100  # events of an entry
_GROUP = BATCH // 4  # lives whose events come together
_TOPICS = 20
_TICKS = os.sysconf("SC_CLK_TCK")
_WORKER = pack_optional(iter([(Tag.WORKER, b"billing-3")]))
_BODY = b'"' + b"x" * 98 + b'"'

Raw = tuple[int, int, list[bytes]]
"""An entry of a stream: its place, and its fields."""


def _head(verb: Verb, at_us: int, is_new: bool = False) -> bytes:
    return bytes((1, verb, is_new)) + at_us.to_bytes(7, "big") + b"shop1:812:0"


def _record(state: State, topic: bytes, times: tuple[int, int, int], lease: int = 0, end: bytes = b"") -> bytes:
    length = HEADER if lease else NEW_HEADER
    flags = state | (OPTIONAL if lease and state == State.RESERVED else 0)
    front = struct.pack(">BBBBBB", 1, length, flags, 4, 3, len(topic))
    middle = b"".join(ms.to_bytes(6, "big") for ms in times) + struct.pack(">IHI", 60_000, 16, 7)
    delivery = struct.pack(">H", 1) + (1).to_bytes(3, "big") + b"\0" + lease.to_bytes(7, "big") if lease else b""
    return front + middle + delivery + topic + end


def _values(verb: Verb, topic: bytes, start: int) -> bytes:
    """The value of an event of a life that began then."""
    due, ready, popped, done = start + 1000, start + 1001, start + 1200, start + 1700
    lease = popped * 1000
    if verb is Verb.ADD:
        return _record(State.DELAYED, topic, (start, due, due), end=_BODY)
    if verb is Verb.DUE:
        return bytes((State.DELAYED,)) + due.to_bytes(6, "big") + _record(State.READY, topic, (start, due, ready))
    if verb is Verb.POP:
        record = _record(State.RESERVED, topic, (start, due, popped + 60_000), lease, _WORKER)
        return bytes((State.READY,)) + ready.to_bytes(6, "big") + record
    record = _record(State.FINISHED, topic, (start, due, done + 60_000), lease)
    return bytes((State.RESERVED,)) + (popped + 60_000).to_bytes(6, "big") + record


def batches(events: int) -> Iterator[list[Raw]]:
    """Entries in batches: adds of some lives, and what comes next of those that were added before."""
    chance = random.Random(1)
    verbs = (Verb.ADD, Verb.DUE, Verb.POP, Verb.FINISH)
    lives: list[tuple[int, list[bytes]]] = []
    start = time.time_ns() // 1_000_000
    for number in range(events // BATCH):
        now = start + number * 250
        lives.insert(0, (now, [b"order:%015d" % chance.randrange(10**15) for _ in range(_GROUP)]))
        del lives[4:]
        entries: list[Raw] = []
        for verb, (begun, ids) in zip(verbs, lives, strict=False):
            for page in range(0, _GROUP, _ENTRY):
                topic = b"close-order-%d" % (page // _ENTRY % _TOPICS)
                value = _values(verb, topic, begun)
                pairs = [part for job_id in ids[page : page + _ENTRY] for part in (job_id, value)]
                entries.append((now, len(entries), [b"m", _head(verb, now * 1000, verb is Verb.ADD), *pairs]))
        yield entries


@dataclass
class Spent:
    """Seconds."""

    wall: float = 0
    reading: float = 0
    """CPU of Python from entries to rows."""
    storing: float = 0
    """CPU of this process in the store; SQLite's own too."""
    server: float = 0


def cpu_of(server: Server) -> float:
    """Seconds of CPU that a server and its children have used."""
    process = server._process
    assert process is not None
    own = Path(f"/proc/{process.pid}")
    pids = [str(process.pid), *(own / "task" / str(process.pid) / "children").read_text().split()]
    ticks = 0
    for pid in pids:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        ticks += sum(map(int, fields[11:13]))
        if pid == str(process.pid):
            ticks += sum(map(int, fields[13:15]))  # of children that have ended
    return ticks / _TICKS


async def fill(url: str, events: int, server: Server | None) -> Spent:
    """Write all events; what it took."""
    spent, position = Spent(), None
    store = await open_store(url)
    before = cpu_of(server) if server else 0
    for raw in batches(events):
        begun, cpu = time.perf_counter(), time.process_time()
        collector = Collector("jq", 0)
        for ms, seq, fields in raw:
            collector.add(ms, seq, *read_all(fields))
        rows = collector.rows()
        spent.reading += time.process_time() - cpu
        cpu = time.process_time()
        after = Position(0, *raw[-1][:2], (position.entries if position else 0) + len(raw), "word", 0, 0)
        await store.write(Batch("jq", 0, position, after, rows.events, rows.jobs, rows.minutes))
        position = after
        spent.storing += time.process_time() - cpu
        spent.wall += time.perf_counter() - begun
    if server:
        spent.server = cpu_of(server) - before
    await store.close()
    return spent


def bytes_of(url: str, server: Server | None) -> tuple[int, int]:
    """Bytes of events and of everything, with indexes."""
    if server is None:
        path = Path(url.removeprefix("sqlite:///"))
        query = "SELECT SUM(pgsize) FROM dbstat WHERE name LIKE 'jq_event%'"  # what Python has cannot tell
        return int(run(["sqlite3", str(path), query])), path.stat().st_size
    name = url.partition("@/")[2].partition("?")[0]
    if server.kind == "postgresql":
        query = (
            "SELECT COALESCE(SUM(pg_total_relation_size(oid)), 0) FROM pg_class WHERE relkind = 'r' AND relname LIKE "
        )
        events, everything = (server.sql(query + pattern, name) for pattern in ("'jq_event%'", "'jq_%'"))
    else:
        server.sql("ANALYZE TABLE jq_event, jq_job, jq_minute", name)
        query = (
            "SELECT COALESCE(SUM(data_length + index_length), 0) FROM information_schema.tables "
            f"WHERE table_schema = '{name}' AND table_name LIKE "
        )
        events, everything = (server.sql(query + pattern) for pattern in ("'jq_event%'", "'jq_%'"))
    return int(events), int(everything)


def measure(events: int, url: str, server: Server | None) -> None:
    spent = asyncio.run(fill(url, events, server))
    events = events // BATCH * BATCH
    each = {name: getattr(spent, name) / events * 1e6 for name in ("reading", "storing", "server")}
    of_events, all_bytes = bytes_of(url, server)
    print(
        f"{server.kind if server else 'sqlite':10}  {events / spent.wall:8,.0f} events/s   "
        f"us an event: {each['reading']:4.1f} reading, {each['storing']:4.1f} storing, {each['server']:4.1f} server   "
        f"bytes an event: {of_events / events:3.0f}, with the jobs {all_bytes / events:3.0f}",
        flush=True,
    )


def main() -> None:
    events = next((int(each) for each in sys.argv[1:] if each.isdigit()), EVENTS)
    wanted = [each for each in sys.argv[1:] if not each.isdigit()] or ["sqlite", "postgresql", "mariadb"]
    if "sqlite" in wanted:
        with tempfile.TemporaryDirectory() as folder:
            measure(events, f"sqlite:///{folder}/journal.db", None)
    for server in (PostgreSQL(), MariaDB(memory="1G")):
        if server.kind in wanted:
            with server:
                measure(events, server.new_database(), server)


if __name__ == "__main__":
    main()
