"""Findings about events: whether they are on, and how much of them waits for a journal."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence

from buckets.events.switch import Events, Stream, read_events
from buckets.redis.client import Redis
from buckets.redis.info import facts_of
from buckets.shards import Shards
from jobqueue.health.findings import Finding, Findings

_SUBJECT = "events"
_NEARLY = 0.9  # of a limit


async def check_events(shards: Shards, most_mb: int) -> Findings:
    """All findings. `most_mb`: of the stream of a shard. Raises JobQueueError."""
    told = await asyncio.gather(*(read_events(shards, shard) for shard in range(len(shards.keys))))
    for finding in _switched(told):
        yield finding
    for finding in _full(told, most_mb):
        yield finding
    if any(each.switch for each in told):
        async for finding in _memory(shards.redis, told, most_mb):
            yield finding


def _switched(told: Sequence[Events]) -> Iterator[Finding]:
    """Where they are on, and what is in the streams."""
    off = [shard for shard, each in enumerate(told) if not each.switch]
    streams = [each.stream for each in told if each.stream]
    holds = f"; {_held(streams)}" if any(each.entries for each in streams) else ""
    if len(off) == len(told):
        yield Finding("ok", _SUBJECT, f"off{holds}")
    elif off:
        where = ", ".join(map(str, off))
        yield Finding("warn", _SUBJECT, f"on, but not in these shards: {where}{holds}: jobqueue journal on")
    else:
        yield Finding("ok", _SUBJECT, f"on{holds or '; nothing is waiting for the journal'}")


def _held(streams: Sequence[Stream]) -> str:
    entries, behind = sum(each.entries for each in streams), sum(each.behind for each in streams)
    pending, mb = sum(each.pending for each in streams), sum(each.bytes for each in streams) / (1 << 20)
    return f"entries: {entries:,}, of {mb:,.1f} MB; not yet read: {behind:,}, being written: {pending:,}"


def _full(told: Sequence[Events], most_mb: int) -> Iterator[Finding]:
    """The shards whose oldest events are, or soon will be, cut off unread."""
    for shard, (switch, _, stream) in enumerate(told):
        if not (switch and stream and stream.behind):
            continue
        if stream.entries >= _NEARLY * switch.entries or stream.bytes >= _NEARLY * (most_mb << 20):
            limits = f"at most {switch.entries:,} entries and {most_mb:,} MB (events_max_mb)"
            yield Finding(
                "warn",
                _SUBJECT,
                f"the stream of shard {shard} is nearly full: {limits}; the oldest events are cut off unread."
                " Start its reader: jobqueue journal run",
            )


async def _memory(redis: Redis, told: Sequence[Events], most_mb: int) -> Findings:
    """The servers where full streams would take room that jobs need; shards count as evenly spread over them."""
    servers = await redis.servers()
    shards = -(-len(told) // len(servers))
    held_mb = sum(each.stream.bytes for each in told if each.stream) / len(servers) / (1 << 20)
    for server in servers:
        info = await facts_of(server)
        limit, used = int(info.get("maxmemory", 0)), int(info.get("used_memory", 0))
        left_mb = (limit - used) / (1 << 20) + held_mb
        if limit and left_mb < shards * most_mb:
            yield Finding(
                "warn",
                _SUBJECT,
                f"the maxmemory of {server.name} leaves {max(left_mb, 0):,.0f} MB for them, and they may take"
                f" {shards * most_mb:,} MB while no journal runs (events_max_mb {most_mb} in each shard); then Redis"
                " takes no more jobs",
            )
