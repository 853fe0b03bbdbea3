"""`jobqueue journal on` and `off`: the switch of events, shard by shard."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import click

from buckets.errors import JobQueueError
from buckets.events import switch
from buckets.namespace import Switch
from buckets.shards import Shards
from jobqueue import logs, settings
from jobqueue.cli.journal.arguments import opened
from jobqueue.errors import SettingsError
from jobqueue.settings import Settings

_Turn = Callable[[Shards, int], Awaitable[str]]
"""Switches a shard. Returns what is wrong with it, or an empty string."""


def switch_on(flags: Mapping[str, Any], config: str | None, entries: int, *, touches: bool) -> int:
    """Switch events on in all shards, print the result, and return the exit code."""

    async def turn(shards: Shards, shard: int) -> str:
        await switch.switch_on(shards, shard, Switch(entries, touches))
        return ""

    also = ", touches too" if touches else ""
    return _switch(flags, config, turn, f"events are on in {{shards}}: at most {entries:,} entries in each{also}")


def switch_off(flags: Mapping[str, Any], config: str | None, *, drop: bool) -> int:
    """Switch events off in all shards, print the result, and return the exit code."""

    async def turn(shards: Shards, shard: int) -> str:
        dropped, left = await switch.switch_off(shards, shard, drop=drop)
        is_kept = drop and not dropped
        return f"its stream stays: no journal has acknowledged {left:,} of its entries" if is_kept else ""

    return _switch(
        flags, config, turn, "events are off in {shards}" + (", and their streams are empty" if drop else "")
    )


def _switch(flags: Mapping[str, Any], config: str | None, turn: _Turn, done: str) -> int:
    try:
        chosen = settings.load(flags, config)
        logs.set_up("error", "text")
        told = asyncio.run(_switch_all(chosen, turn))
    except SettingsError as error:
        return _refused(str(error))
    except JobQueueError as error:
        return _refused(error.message)
    wrong = {shard: what for shard, what in enumerate(told) if what}
    for shard, what in wrong.items():
        click.echo(f"shard {shard}: {what}", err=True)
    number = len(told) - len(wrong)
    if number:
        click.echo(done.format(shards=f"{number} shard{'s' if number > 1 else ''} of {len(told)}"))
    return 1 if wrong else 0


def _refused(why: str) -> int:
    click.echo(f"Error: {why}", err=True)
    return 2


async def _switch_all(chosen: Settings, turn: _Turn) -> list[str]:
    """For each shard, what is wrong with it, or an empty string. Raises JobQueueError if no shard could be asked."""

    async def switched(shards: Shards, shard: int) -> str:
        try:
            return await turn(shards, shard)
        except JobQueueError as error:
            return error.message

    async with opened(chosen) as shards:
        return await asyncio.gather(*(switched(shards, shard) for shard in range(len(shards.keys))))
