"""Events, batches and what is read back, for tests of what is in SQL."""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from typing import Any

from sqlalchemy import text

from buckets.events.codec import Entry, Event
from buckets.job import State, Tag, Verb
from buckets.record import pack_optional
from jobqueue.journal.database import open_engine
from jobqueue.journal.rows import Collector
from jobqueue.journal.store import Batch, Position, Store

NOW = 1_700_000_000_000
"""ms since the epoch, when tests begin."""
SOURCE = "jq"
_ENTRY = Entry(Verb.ADD, False, 0, "shop1:812:0", "")


def options(**fields: bytes) -> bytes:
    """An optional block as events have it, without its length: `options(worker=b"w")`."""
    return pack_optional((Tag[name.upper()], value) for name, value in fields.items())[2:]


def event(
    verb: Verb = Verb.ADD,
    after: int = State.DELAYED,
    job_id: str = "a",
    *,
    before: int = 0,
    at_ms: int = NOW,
    created: int = NOW,
    topic: str = "t",
    **fields: Any,
) -> Event:
    """A move; `fields` are those of an Event."""
    if "options" in fields:
        fields["has_options"] = True
    told = Event(
        job_id,
        verb,
        int(before),
        int(after),
        at_ms * 1000,
        fields.pop("was", 0),
        topic,
        created=created,
        due=fields.pop("due", NOW + 1000),
        ttr=60_000,
        tries=16,
        priority=4,
        **fields,
    )
    return told._replace(checksum=zlib.crc32(repr(told).encode()))


def life(job_id: str = "a", *, start: int = NOW, topic: str = "t", body: bytes = b'{"n":1}') -> list[Event]:
    """Add, due, pop after 2.5 s, finish after 3: the job was due after 1 s, and ready 2 ms later."""
    lease = (start + 2500) * 1000
    delivered = {"attempts": 1, "deliveries": 1, "lease": lease, "created": start, "due": start + 1000}
    shared: dict[str, Any] = {"job_id": job_id, "topic": topic, "created": start, "due": start + 1000}
    ready, popped, done = start + 1002, start + 2500, start + 3000
    reserved: dict[str, Any] = {**shared, **delivered}
    return [
        event(Verb.ADD, State.DELAYED, at_ms=start, next=start + 1000, body=body, **shared),
        event(Verb.DUE, State.READY, before=State.DELAYED, at_ms=ready, was=start + 1000, next=ready, **shared),
        event(
            Verb.POP,
            State.RESERVED,
            before=State.READY,
            at_ms=popped,
            was=ready,
            next=popped + 60_000,
            options=options(worker=b"w1"),
            **reserved,
        ),
        event(
            Verb.FINISH, State.FINISHED, before=State.RESERVED, at_ms=done, was=popped + 60_000, next=done, **reserved
        ),
    ]


class Teller:
    """Writes events of one shard, each as an entry of its own, at the ms of its time."""

    def __init__(self, store: Store, source: str = SOURCE, shard: int = 0, **kept: Any) -> None:
        self.store, self.source, self.shard, self.kept = store, source, shard, kept
        self.position: Position | None = None
        self.epoch = 0
        self.counts: dict[int, int] = {}

    def places(self, events: Sequence[Event]) -> list[tuple[int, int, Event]]:
        """The events with the entries in which they come."""
        placed = []
        for each in events:
            ms = each.at // 1000
            seq = self.counts[ms] = self.counts.get(ms, -1) + 1
            placed.append((ms, seq, each))
        return placed

    def batch(self, placed: Sequence[tuple[int, int, Event]], *, branch: int = 0, may_repeat: bool = False) -> Batch:
        """What writes events that are at places."""
        collector = Collector(self.source, self.shard, branch=branch, **self.kept)
        for ms, seq, each in placed:
            collector.add(ms, seq, _ENTRY._replace(at=each.at), [each])
        rows = collector.rows()
        before = self.position
        entries = (before.entries if before else 0) + len(placed)
        at = placed[-1][:2] if placed else (before[1:3] if before else (0, 0))
        after = Position(self.epoch, *at, entries, "word", NOW * 1000, NOW * 1000)
        return Batch(
            *(self.source, self.shard, before, after, rows.events, rows.jobs, rows.minutes),
            schedules=rows.schedules,
            refused=rows.refused,
            may_repeat=may_repeat,
        )

    async def write(self, batch: Batch) -> None:
        await self.store.write(batch)
        self.position = batch.after

    async def tell(self, *events: Event) -> None:
        """Write events in one batch."""
        await self.write(self.batch(self.places(events)))


async def read(url: str, query: str, **values: Any) -> list[dict[str, Any]]:
    """What a query finds, by column."""
    engine = await open_engine(url)
    try:
        async with engine.connect() as connection:
            return [dict(row) for row in (await connection.execute(text(query), values)).mappings()]
    finally:
        await engine.dispose()
