"""The switch of events: it stands in the settings of each shard, and makes the stream with the group of its readers.

Each stream has a random word: it tells one stream of a shard from the next, as after Redis was emptied. The word is
kept with the stream, so it stays when events are switched off and on again, or on with other bounds.
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

_TRUSTED_S = 300.0  # that a switch was read
GROUP = "journal"
"""The group of the stream's readers."""


class Stream(NamedTuple):
    """The stream of a shard's events, as it is now."""

    entries: int
    bytes: int
    """Of memory, as Redis estimates it from a few entries."""
    behind: int
    """Entries that the group was not given yet."""
    pending: int
    """Entries that the group was given and has not acknowledged."""
    last: str
    """The id of the last entry that the group was given; `0-0`: none."""


class Events(NamedTuple):
    """The switch of a shard and its stream. Off are None, and the stream that is not there."""

    switch: Switch | None
    word: str
    """Of the stream, according to the switch; empty when that is off."""
    stream: Stream | None


def stream_key(shards: Shards, shard: int) -> str:
    """The key of the stream."""
    return shards.keys[shard].events


async def switch_on(shards: Shards, shard: int, switch: Switch) -> str:
    """Switch the events of a shard on, or on with other bounds; returns the word of the stream. What another program
    has put in the stream's place is set aside. Raises NoMeta."""
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
    """Switch the events of a shard off. With `drop` its stream is emptied, if all in it is acknowledged. Returns
    whether there is nothing in it now, and how many of its entries the group has not acknowledged."""
    dropped, left = await shards.call("switch_off", shard, drop=int(drop))
    _note(shards, shard, None)
    return bool(dropped), left


def _note(shards: Shards, shard: int, switch: Switch | None) -> None:
    shards.switches[shard], shards.switches_read[shard] = switch, time.monotonic()


async def note_switch(shards: Shards, shard: int, events: bytes, touches: bytes, has_stream: int) -> None:
    """Note the switch of a shard, as a script has just read it. Where Redis has forgotten it, and an instance that knew
    nothing of it founded the shard again, events are switched on again: whoever switches them off leaves the
    stream."""
    before, read = shards.switches[shard], shards.switches_read[shard]
    switch = switch_of({"events": events.decode(), "touches": touches.decode()})
    if before and not switch and not has_stream and time.monotonic() - read < _TRUSTED_S:
        log.error("namespace.lost", extra={"shard": shard})
        with contextlib.suppress(JobQueueError):  # tried again at the next look
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
    """The bytes of the streams of the shards whose events were on when this instance looked last: nothing is asked
    where all are off."""
    if not any(shards.switches):
        return {}
    told = await asyncio.gather(*(read_events(shards, shard) for shard in range(len(shards.keys))))
    return {shard: each.stream.bytes for shard, each in enumerate(told) if each.switch and each.stream}
