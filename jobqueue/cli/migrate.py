"""`jobqueue move`: migrates all jobs of a namespace to another Redis, while services run on both; `jobqueue upgrade`:
changes a namespace to the newest stored format, while its services run."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Mapping
from typing import Any

import click
from rich.console import Console
from rich.table import Table

from buckets.errors import JobQueueError, Unavailable, Unfit
from buckets.job import LIVE, State
from buckets.migration import Migrated, Migration
from buckets.namespace import FORMAT, read_meta, slices_of
from buckets.redis.client import Redis
from buckets.redis.info import facts_of
from buckets.shards import Shards
from buckets.timers.slicing import outdated, upgrade
from jobqueue import logs, settings
from jobqueue.cli.journal.arguments import opened
from jobqueue.errors import SettingsError
from jobqueue.redis_server.opening import redis_at, refuse_old
from jobqueue.settings import Settings

_STATES = [state.word for state in (*LIVE, State.FINISHED, State.DELETED) if state is not State.RESERVED]


def move(old_url: str, new_url: str, namespace: str, rest: float) -> int:
    """Migrate, print what was moved, and return the exit code: 0 if the old Redis has no jobs left, 1 if some are left,
    2 if the migration could not start."""
    logs.set_up("error", "text")
    console = Console(highlight=False)
    try:
        moved, trouble = asyncio.run(_move(old_url, new_url, namespace, rest))
    except JobQueueError as error:
        click.echo(f"Error: {error.message}", err=True)
        return 2
    if moved.jobs:
        console.print(_table(moved), markup=False)
    known = (
        f"; {moved.known:,} of them were already on the new Redis, and stay as they are there" if moved.known else ""
    )
    schedules = f" and {moved.schedules:,} schedules" if moved.schedules else ""
    console.print(f"{moved.jobs:,} jobs and tombstones{schedules} were moved{known}")
    if moved.astray:
        console.print(
            f"{moved.astray:,} jobs are in other shards than their keys, because their ids do not begin with `<key>@`: "
            "the order of these keys holds only within each shard",
            markup=False,
            soft_wrap=True,
        )
    if not moved.done:
        click.echo(f"Error: {trouble}. Nothing is lost: run it again to move the rest", err=True)
    return 0 if moved.done else 1


async def _move(old_url: str, new_url: str, namespace: str, rest: float) -> tuple[Migrated, str]:
    """What was moved, and why it stopped if jobs are left. Raises JobQueueError when it cannot start."""
    timeout_s = Settings().redis_timeout_s
    old, new = _redis_at("--from", old_url, timeout_s), _redis_at("--to", new_url, timeout_s)
    with Console(stderr=True).status("looking at both") as status:  # shown on a terminal only

        def report(moved: int, reserved: int) -> None:
            status.update(f"moved {moved:,}" + (f", waiting for {reserved:,}" if reserved else ""))

        try:
            await _tell_apart(old, new)
            shards, buckets = Settings().numbers(new.is_cluster)
            move = await Migration.open(old, new, namespace, shards=shards, buckets=buckets, rest=rest, progress=report)
            for number in (signal.SIGINT, signal.SIGTERM):
                asyncio.get_running_loop().add_signal_handler(number, move.stop)
            return await _run(move, old, new)
        finally:
            await old.close()
            await new.close()


async def _run(move: Migration, old: Redis, new: Redis) -> tuple[Migrated, str]:
    try:
        return await move.run(), "it was stopped"
    except Unavailable as error:
        return move.migrated, old.trouble or new.trouble or error.message
    except JobQueueError as error:
        return move.migrated, f"the new Redis accepts no more jobs: {error.message}"


def _redis_at(option: str, url: str, timeout_s: float) -> Redis:
    try:
        return redis_at(url, timeout_s)
    except Unfit as error:
        raise Unfit(error.message.replace("the setting redis", option)) from None


async def _tell_apart(*both: Redis) -> None:
    """Raise Unfit if the two share a server, even under different names: the jobs would move in a circle."""
    seen: set[str] = set()
    for redis, option in zip(both, ("--from", "--to"), strict=True):
        try:
            facts = [await facts_of(server) for server in await redis.servers()]
        except Unavailable as error:
            raise Unavailable(f"{option}: {redis.trouble or error.message}") from None
        for each in facts:
            refuse_old(each)
        own = {each.get("run_id", "") for each in facts}
        if seen & own - {""}:
            raise Unfit("--from and --to lead to the same Redis")
        seen |= own


def _table(moved: Migrated) -> Table:
    table = Table("topic", *_STATES)
    for topic, states in sorted(moved.topics.items()):
        table.add_row(topic, *(f"{states[state]:,}" for state in _STATES))
    return table


_JOINED_S = 3.0  # from reading the settings of a namespace until an instance is on the list of members


def upgrade_namespace(flags: Mapping[str, Any], config: str | None) -> int:
    """Change all shards, print the result, and return the exit code: 1 if an instance of an older version joined
    meanwhile, 2 if nothing was changed or not all shards were."""
    try:
        chosen = settings.load(flags, config)
        logs.set_up("error", "text")
        sentence, code = asyncio.run(_upgrade(chosen))
    except (SettingsError, JobQueueError) as error:
        sentence, code = f"Error: {error if isinstance(error, SettingsError) else error.message}", 2
    click.echo(sentence, err=bool(code))
    return code


async def _upgrade(chosen: Settings) -> tuple[str, int]:
    async with opened(chosen) as shards:
        is_new = all([slices_of(await read_meta(shards.redis, keys)) for keys in shards.keys])
        older = await outdated(shards)
        if not is_new:
            if older:
                raise Unfit(f"of an older version, or not ready yet: {', '.join(older)}. Nothing was changed")
            await _upgrade_all(shards)
            await asyncio.sleep(_JOINED_S)
            older = await outdated(shards)
        if older:
            sentence = f"Error: of an older version: {', '.join(older)}. Stop it now: its timers do not know slices"
            return f"{sentence}. The namespace {chosen.namespace} has format {FORMAT}", 1
    already = " already" if is_new else ": far jobs move into slices, which take less memory"
    return f"the namespace {chosen.namespace} has format {FORMAT}{already}", 0


async def _upgrade_all(shards: Shards) -> None:
    for shard in range(len(shards.keys)):
        try:
            await upgrade(shards, shard)
        except JobQueueError as error:
            raise Unfit(f"shard {shard}: {error.message}; run it again to change the other shards, too") from None
