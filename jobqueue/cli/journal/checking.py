"""`jobqueue journal check`: compares the events of the journal with the totals of Redis."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

from rich.console import Console
from rich.table import Table

from buckets.events.stream import Stream
from buckets.shards import Shards
from jobqueue import logs
from jobqueue.cli.humanize import clock
from jobqueue.cli.journal.draining import (
    DONE,
    LEFT,
    CannotBegin,
    carry_out,
    chosen_of,
    joined,
    refuse_none,
    stopped_by_signals,
)
from jobqueue.journal.reading import totals
from jobqueue.journal.reading.sql import Gap, Sql
from jobqueue.journal.reading.verdict import FORGOTTEN

_PATIENCE_S = 30.0
_LOOK_S = 0.2


def check(config: str | None, given: Mapping[str, Any]) -> int:
    """Compare and report; returns the exit code."""
    logs.set_up("error", "text")

    async def work() -> int:
        chosen = chosen_of(config, given)
        await refuse_none(chosen.journal)
        async with joined(chosen, stopped_by_signals()) as shards:
            if shards is None:
                return LEFT
            sql = Sql(chosen.journal)
            await sql.open()
            try:
                return await _check(shards, sql, given["source"] or chosen.namespace)
            finally:
                await sql.close()

    return carry_out(work)


async def _check(shards: Shards, sql: Sql, source: str) -> int:
    console = Console(highlight=False)
    began_us = await totals.began_us(sql, source)
    if began_us is None:
        raise CannotBegin(f"the journal has nothing of the source {source} yet: is `jobqueue journal run` running?")
    for gap in await sql.gaps(source):
        console.print(_sentence(gap), markup=False)
    # A stream needs a client of its own only for reading entries, which is not done here.
    until = await totals.read([Stream(shards, shard, shards.redis) for shard in range(len(shards.keys))])
    behind = await _behind(sql, source, len(shards.keys), max(base.time_us for base in until.values()))
    if behind:
        console.print(f"the journal is behind in {behind} shards: it cannot be compared")
        return LEFT
    found = await totals.compare(sql, source, until)
    wrong = {topic: each for topic, each in found.items() if each.is_one}
    if wrong:
        console.print(_table(wrong))
    topics = len(found) - 1
    verdict = f"{len(wrong.keys() - {totals.ALL})} of {topics} topics differ" if wrong else f"{topics} topics agree"
    console.print(f"{verdict}, since {clock(began_us / 1e6)}")
    return LEFT if wrong else DONE


async def _behind(sql: Sql, source: str, shards: int, until_us: int) -> int:
    """Wait for the journal to catch up, and return how many shards still lack events that were recorded up to
    `until_us`."""
    left = set(range(shards))
    until = asyncio.get_running_loop().time() + _PATIENCE_S
    while left and asyncio.get_running_loop().time() < until:
        for shard in list(left):
            position = await sql.position(source, shard)
            if position and position.time >= until_us:
                left.remove(shard)
        if left:
            await asyncio.sleep(_LOOK_S)
    return len(left)


def _sentence(gap: Gap) -> str:
    where = f"shard {gap.shard}, {clock(gap.found / 1e6)}"
    if gap.kind == FORGOTTEN:
        return f"{where}: Redis went back, and lost what was recorded from {gap.after} to {gap.upto}"
    filled = "" if gap.walked is None else "; a walk has read the records since"
    return (
        f"{where}: {gap.entries:,} entries were cut off before they were read, from {gap.after} to {gap.upto}{filled}"
    )


def _table(wrong: Mapping[str, totals.Difference]) -> Table:
    table = Table("topic", "", *totals.COMPARED)
    for topic, each in sorted(wrong.items()):
        table.add_row(topic, "Redis", *map(str, each.redis))
        table.add_row("", "journal", *map(str, each.journal))
    return table
