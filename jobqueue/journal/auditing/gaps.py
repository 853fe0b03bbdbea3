"""What a journal does not have."""

from __future__ import annotations

from sqlalchemy import func, select
from sqlalchemy.ext.asyncio import AsyncConnection

from jobqueue.journal import tables
from jobqueue.journal.auditing.asked import Asked, Found
from jobqueue.journal.explaining.told import FORGOTTEN, LOST
from jobqueue.journal.explaining.words import moment

_gap, _refused = tables.gap.c, tables.refused.c
_KINDS = {LOST: "lost", FORGOTTEN: "forgotten"}
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
            *(_KINDS[row.kind], row.shard, moment(row.from_ms * 1000), moment(row.to_ms * 1000), row.entries),
            *(moment(row.found), moment(row.walked) if row.walked else ""),
        ]
        for row in await connection.execute(query)
    ]
    found = Found(["kind", "shard", "from", "to", "entries", "found", "walked"], rows)
    which = _refused.source == source, _refused.time >= asked.since, _refused.time < asked.until
    refused = (await connection.execute(select(func.count()).select_from(tables.refused).where(*which))).scalar()
    if refused:
        found.notes.append(f"{refused:,} events could not be read; they are in jq_refused")
    return found


async def lost(connection: AsyncConnection, source: str, asked: Asked) -> int:
    """How many entries of a time are missing."""
    query = select(func.sum(_gap.entries)).where(
        *(_gap.source == source, _gap.kind == LOST),
        *(_gap.to_ms >= asked.since // 1000, _gap.from_ms < asked.until // 1000),
    )
    return int((await connection.execute(query)).scalar() or 0)
