"""The switch of events, kept in the settings of each shard. Switching on creates the stream and the group of its
readers.

Each stream has a random word, which distinguishes it from other streams of the shard, such as the one before Redis was
emptied. The word is kept with the stream, so it does not change when events are switched off and on again, or when
their bounds change.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from typing import NamedTuple

from buckets.errors import JobQueueError
from buckets.namespace import Switch, fresh_word, switch_of
from buckets.shards import Shards

log = logging.getLogger(__name__)

_TRUSTED_S = 300.0  # how long a switch is trusted after it was read
GROUP = "journal"
"""The group of the stream's readers."""


class Stream(NamedTuple):
    """The stream of a shard's events, as it is now."""

    entries: int
    bytes: int
    """The memory used, as Redis estimates it from a few entries."""
    behind: int
    """Entries not delivered to the group yet."""
    pending: int
    """Entries delivered to the group but not acknowledged."""
    last: str
    """The id of the last entry delivered to the group, or `0-0` if there is none."""


class Events(NamedTuple):
    """The switch and the stream of a shard. `switch` is None if events are off, `stream` if there is no stream."""

    switch: Switch | None
    word: str
    """The word of the stream, according to the switch; empty if events are off."""
    stream: Stream | None


def stream_key(shards: Shards, shard: int) -> str:
    """The key of the stream."""
    return shards.keys[shard].events


async def switch_on(shards: Shards, shard: int, switch: Switch) -> str:
    """Switch on the events of a shard, or change their bounds; returns the word of the stream. Another program's key in
    the place of the stream is set aside. Raises NoMeta."""
    word = await shards.call(
        "switch_on",
        shard,
        now=shards.clock.now(),
        entries=switch.entries,
        touches=int(switch.touches),
        fresh=fresh_word(),
    )
    _note(shards, shard, switch)
    return str(word.decode())


async def switch_off(shards: Shards, shard: int, *, drop: bool = False) -> tuple[bool, int]:
    """Switch off the events of a shard. With `drop`, its stream is emptied if all entries are acknowledged. Returns
    whether the stream is empty or missing now, and how many of its entries the group has not acknowledged."""
    dropped, left = await shards.call("switch_off", shard, drop=int(drop))
    _note(shards, shard, None)
    return bool(dropped), left


def _note(shards: Shards, shard: int, switch: Switch | None) -> None:
    shards.switches[shard], shards.switches_read[shard] = switch, time.monotonic()


async def note_switch(shards: Shards, shard: int, events: bytes, touches: bytes, has_stream: int) -> None:
    """Note the switch of a shard, as a script has just read it. If events are suddenly off and the stream is gone,
    Redis was emptied and an instance without the switch founded the shard again: then events are switched on again.
    (Switching events off leaves the stream.)"""
    before, read = shards.switches[shard], shards.switches_read[shard]
    switch = switch_of({"events": events.decode(), "touches": touches.decode()})
    if before and not switch and not has_stream and time.monotonic() - read < _TRUSTED_S:
        log.error("namespace.lost", extra={"shard": shard})
        with contextlib.suppress(JobQueueError):  # retried at the next look
            await switch_on(shards, shard, before)
            log.info("namespace.found", extra={"shard": shard})
    else:
        _note(shards, shard, switch)


async def read_events(shards: Shards, shard: int) -> Events:
    """The switch of a shard and the state of its stream."""
    fields, stream = await shards.call("read_stream", shard)
    names = ("events", "touches", "stream")
    meta = {name: value.decode() for name, value in zip(names, fields, strict=True) if value is not None}
    return Events(switch_of(meta), meta.get("stream", ""), _stream(*stream) if stream else None)


def _stream(entries: int, size: int, behind: int, pending: int, last: bytes) -> Stream:
    return Stream(entries, size, behind, pending, last.decode())


async def stream_bytes(shards: Shards) -> dict[int, int]:
    """By shard, the bytes of its stream if events are on. If events were off in all shards when this instance last
    looked, Redis is not asked."""
    if not any(shards.switches):
        return {}
    told = await asyncio.gather(*(read_events(shards, shard) for shard in range(len(shards.keys))))
    return {shard: each.stream.bytes for shard, each in enumerate(told) if each.switch and each.stream}
