"""Tokens that come back: those that live by the journal and of which Redis has no record."""

from __future__ import annotations

from typing import Any

from sqlalchemy import select

from buckets.access import Entry, Stored, Tokens
from buckets.events.restoring import Restoring
from buckets.shards import Shards
from jobqueue.access.tokens import Record, from_json
from jobqueue.journal import tables
from jobqueue.journal.reading.tokens import may_miss
from jobqueue.journal.restoring.choice import LEFT, Stopped, Sums
from jobqueue.journal.restoring.reading import Reading
from jobqueue.journal.restoring.runs import Passing, Run

_TRIES = 50
_TOKEN, _POSITION = tables.token.c, tables.position.c


async def bring_back(reading: Reading, shards: Shards, run: Run | None, sums: Sums, *, stale: bool = False) -> None:
    """Bring back tokens. `run`: None: only tell; `stale`: do not wait for the journal. Raises NotBegun, Stopped, and
    JobQueueError."""
    # They are read with shard 0. Where events are off, nobody reads them, and what is known of them is that much older.
    asked = [each for each in await Restoring(shards, "").ask(()) if each.shard == 0 and each.stream]
    if not stale:
        await Passing(reading).begin(asked)
    lost = _Lost(await _rows(reading), await _looked_until(reading))
    tokens = Tokens(shards)
    for _ in range(_TRIES):
        stored = await tokens.read()
        entries = lost.judge(stored)
        if run is None or await tokens.write(entries, seen=stored.version):
            lost.tell(sums)
            if run:
                await run.end(sums)
            return
    raise Stopped("others change tokens all the time")


async def _rows(reading: Reading) -> list[Any]:
    wanted = select(_TOKEN.id, _TOKEN.changed, _TOKEN.ended, _TOKEN.record)
    return list(await reading.rows(wanted.where(reading.of_source(tables.token)).order_by(_TOKEN.id)))


async def _looked_until(reading: Reading) -> int:
    """Until when (us) the tokens are read, with shard 0."""
    until = select(_POSITION.time).where(reading.of_source(tables.position), _POSITION.shard == 0)
    return int(next(iter(await reading.rows(until)), (0,))[0])


class _Lost:
    """The tokens of a journal, judged by what Redis has. `until_us`: until when the journal has read them."""

    def __init__(self, rows: list[Any], until_us: int) -> None:
        self._rows, self._until_us = rows, until_us
        self._put: dict[str, str] = {}
        self._others: list[tuple[str, str]] = []

    def judge(self, stored: Stored) -> list[Entry]:
        """What Redis is to have. It may have taken some of it already, the last time."""
        now = stored.now_us / 1e6
        there = [record for raw in stored.records.values() if (record := from_json(raw)) and record.is_live(now)]
        taken = {word for record in there for word in _words(record)}
        before, self._put, self._others, entries = self._put, {}, [], list[Entry]()
        for row in self._rows:
            record = from_json(row.record.encode())
            if record and row.id in before and stored.records.get(row.id) == row.record.encode():
                self._put[row.id] = record.name
            elif record is None or (why := self._reason(row, record, stored, taken)):
                self._others.append(("unreadable" if record is None else why, row.id))
            else:
                self._put[row.id] = record.name
                taken |= _words(record)
                entries.append(Entry(row.id, row.changed, row.record.encode()))
        return entries

    def _reason(self, row: Any, record: Record, stored: Stored, taken: set[str]) -> str:
        """Why a token does not come back: a count of `Sums`; empty: it does."""
        if row.id in stored.records:
            return "known"
        if not record.is_live(stored.now_us / 1e6):
            return "over"
        if (row.ended is not None and row.ended <= stored.now_us) or may_miss(self._until_us, stored.now_us):
            return "unsure"
        return "taken" if taken & _words(record) else ""

    def tell(self, sums: Sums) -> None:
        """Tell what the last judgement was."""
        sums.counts["looked"] += len(self._rows)
        sums.counts["put"] += len(self._put)
        sums.tokens = self._put
        for why, token_id in self._others:
            if why in LEFT:
                sums.name(why, token_id)
            else:
                sums.counts[why] += 1


def _words(record: Record) -> set[str]:
    """What no two live tokens share: the name, and the name in a certificate."""
    return {f"name {record.name}"} | ({f"certificate {record.certificate}"} if record.certificate else set())
