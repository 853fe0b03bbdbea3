"""Schedules on their way to another Redis: how a migration exports and imports them.

An export is a hash like that of jobs: `~` and the name -> the record, and the occurrences that may be live. The
occurrences themselves are jobs, and migrate as jobs.
"""

from __future__ import annotations

import secrets
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any, NamedTuple

from buckets.keys import FAMILIES
from buckets.layout import SCHEDULE
from buckets.pages import Pages
from buckets.pool.pool import Pool
from buckets.scripts import Value
from buckets.shards import Item

_ROOM = 1 << 20  # bytes of records per script
_MOST_OCCURRENCES = 1000  # of a schedule at a time
_LENGTH = 4  # bytes before a record, with its length


class Exported(NamedTuple):
    """The result of an export."""

    looked: int
    """How many of the names were examined."""
    left: int
    """How many of these have a schedule or occurrences that must be exported later."""
    key: bytes
    """The hash that keeps the exported schedules."""
    flat: list[bytes]
    """Entry, value, …"""


async def export(pool: Pool, shard: int, names: Sequence[bytes]) -> Exported:
    """Export some schedules from a shard."""
    looked, left, key, *flat = await pool.call(
        *("export_schedules", shard, names),
        now=pool.clock.now(),
        batch=secrets.token_hex(8),
        room=_ROOM,
        most=_MOST_OCCURRENCES,
    )
    return Exported(looked, left, key, flat)


async def names(pool: Pool, pages: Pages, shard: int) -> AsyncIterator[list[bytes]]:
    """The names of a shard's schedules, and the names that only have sets of occurrences."""
    keys = pool.keys[shard]
    async for page in pages.names(keys.schedules):
        yield page
    front = f"{keys.tag}{FAMILIES['OCCURRENCES']}"
    async for page in pages.keys(f"{front}*"):
        yield [key[len(front) :] for key in page]


def are_schedules(flat: Sequence[bytes]) -> bool:
    """Whether the fields of a hash are schedules rather than jobs."""
    return flat[0].startswith(SCHEDULE.encode())


def items(flat: Sequence[bytes]) -> list[Item]:
    """Exported schedules, as items with the names that decide on their shards and the values for a script."""
    return [
        Item(entry[1:].decode("utf-8", "replace"), (entry, value), len(value))
        for entry, value in zip(flat[::2], flat[1::2], strict=True)
    ]


def has_record(item: Item) -> bool:
    """Whether an item has a schedule's record, not only further occurrences of a schedule."""
    return any(item.values[1][:_LENGTH])


async def import_in(pool: Pool, turn: Callable[[], int], shard: int, some: Sequence[Item]) -> list[Any]:
    """Import schedules into a shard; returns for each 1, 0 if its name is known there, or an error. `turn`: returns a
    bucket."""
    own: dict[str, Value] = {"now": pool.clock.now(), "buckets": pool.buckets}
    return await pool.run_in(shard, "import_schedules", some, own, fresh=lambda: {"bucket": turn()})
