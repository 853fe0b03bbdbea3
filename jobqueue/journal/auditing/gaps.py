"""What a journal does not have."""

from __future__ import annotations

from sqlalchemy import case, func, select
from sqlalchemy.ext.asyncio import AsyncConnection

from jobqueue.journal import tables
from jobqueue.journal.auditing.asked import Asked, Found
from jobqueue.journal.explaining.told import FORGOTTEN, LOST
from jobqueue.journal.explaining.words import moment

_gap, _refused = tables.gap.c, tables.refused.c
_KINDS = {LOST: "lost", FORGOTTEN: "forgotten"}
_BEGINNING = "the beginning"
_MOST = 10_000


async def gaps(connection: AsyncConnection, source: str, asked: Asked) -> Found:
    """Events that never came (lost), and those that Redis has forgotten, as in a failover."""
    query = (
        select(tables.gap)
        .where(_gap.source == source, _gap.kind.in_(_KINDS))
        .where(_gap.to_ms >= asked.since // 1000, _gap.from_ms < asked.until // 1000)
        .order_by(_gap.number)
        .limit(_MOST)
    )
    rows = [
        [
            *(_KINDS[row.kind], row.shard, moment(row.from_ms * 1000) if row.from_ms else _BEGINNING),
            *(moment(row.to_ms * 1000), row.entries, moment(row.found), moment(row.walked) if row.walked else ""),
        ]
        for row in await connection.execute(query)
    ]
    found = Found(["kind", "shard", "from", "to", "entries", "found", "walked"], rows)
    which = _refused.source == source, _refused.time >= asked.since, _refused.time < asked.until
    refused = (await connection.execute(select(func.count()).select_from(tables.refused).where(*which))).scalar()
    if refused:
        found.notes.append(f"{refused:,} events could not be read; they are in jq_refused")
    return found


async def lost(connection: AsyncConnection, source: str, asked: Asked) -> list[str]:
    """What is missing of a time, in words: entries that were cut off, and all that happened while events were off."""
    query = select(func.sum(_gap.entries), func.sum(case((_gap.entries == 0, 1), else_=0))).where(
        *(_gap.source == source, _gap.kind == LOST),
        *(_gap.to_ms >= asked.since // 1000, _gap.from_ms < asked.until // 1000),
    )
    entries, offs = (await connection.execute(query)).one()
    notes = [f"{int(entries):,} entries of that time are missing"] if entries else []
    notes += ["events were off for a part of that time"] if offs else []
    return [f"{note}; see jobqueue audit gaps" for note in notes]
