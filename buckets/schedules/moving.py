"""Schedules on their way to another Redis: what a migration exports of them, and what it imports.

An export is a hash like that of jobs: `~` and the name -> the record and those of its occurrences that may be live. The
occurrences themselves are jobs, and move as such.
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

_ROOM = 1 << 20  # bytes of records a script
_MOST_OCCURRENCES = 1000  # of a schedule at a time
_LENGTH = 4  # bytes in front of a record


class Exported(NamedTuple):
    """What an export took."""

    looked: int
    """How many of the names were looked at."""
    left: int
    """How many of these have something that stays until later."""
    key: bytes
    """The hash that keeps it."""
    flat: list[bytes]
    """Entry, value, …"""


async def export(pool: Pool, shard: int, names: Sequence[bytes]) -> Exported:
    """Take some schedules out of a shard."""
    looked, left, key, *flat = await pool.call(
        *("export_schedules", shard, names),
        now=pool.clock.now(),
        batch=secrets.token_hex(8),
        room=_ROOM,
        most=_MOST_OCCURRENCES,
    )
    return Exported(looked, left, key, flat)


async def names(pool: Pool, pages: Pages, shard: int) -> AsyncIterator[list[bytes]]:
    """The names of a shard's schedules, and those that have sets of occurrences only."""
    keys = pool.keys[shard]
    async for page in pages.names(keys.schedules):
        yield page
    front = f"{keys.tag}{FAMILIES['OCCURRENCES']}"
    async for page in pages.keys(f"{front}*"):
        yield [key[len(front) :] for key in page]


def are_schedules(flat: Sequence[bytes]) -> bool:
    """Whether these fields of a hash are schedules; else they are jobs."""
    return flat[0].startswith(SCHEDULE.encode())


def items(flat: Sequence[bytes]) -> list[Item]:
    """Exported schedules, as what decides on their shards and a script takes."""
    return [
        Item(entry[1:].decode("utf-8", "replace"), (entry, value), len(value))
        for entry, value in zip(flat[::2], flat[1::2], strict=True)
    ]


def has_record(item: Item) -> bool:
    """Whether it is a schedule, not only further occurrences of one."""
    return any(item.values[1][:_LENGTH])


async def import_in(pool: Pool, turn: Callable[[], int], shard: int, some: Sequence[Item]) -> list[Any]:
    """Import schedules of a shard; for each 1, 0 where its name is known there, or an error. `turn`: gives a bucket."""
    own: dict[str, Value] = {"now": pool.clock.now(), "buckets": pool.buckets}
    return await pool.run_in(shard, "import_schedules", some, own, fresh=lambda: {"bucket": turn()})
