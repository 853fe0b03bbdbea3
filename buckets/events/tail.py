"""Reading what the stream of a shard has of one job behind a place: what a journal has not drained yet."""

from __future__ import annotations

from typing import NamedTuple

from buckets.errors import JobQueueError
from buckets.events.codec import FIELD, Entry, Event, Unreadable, read_entry, read_event
from buckets.events.pages import PageSize
from buckets.shards import Shards

MOST_ENTRIES = 10_000


class TailEvent(NamedTuple):
    """An event in the stream."""

    ms: int
    seq: int
    n: int
    """Its number in its entry."""
    entry: Entry
    event: Event


class Tail(NamedTuple):
    """What was read."""

    events: list[TailEvent]
    is_whole: bool
    """Whether that is all; there may be more than MOST_ENTRIES."""


async def read_tail(shards: Shards, shard: int, job_id: str, behind: tuple[int, int]) -> Tail:
    """The events of a job in the stream of its shard, behind an entry. What cannot be read is left out: whoever drains
    the stream tells it. Raises Unavailable."""
    key, wanted = shards.keys[shard].events, job_id.encode()
    found: list[TailEvent] = []
    looked, last, size = 0, f"{behind[0]}-{behind[1]}".encode(), PageSize()
    while looked < MOST_ENTRIES:
        entries: list[tuple[bytes, list[bytes] | None]] = []
        try:
            entries = await shards.redis.read("XRANGE", key, b"(" + last, "+", "COUNT", size.entries)
        except JobQueueError as error:
            if "WRONGTYPE" not in error.message:
                raise  # else it is another program's key
        for raw_id, fields in entries:
            found += _of_job(raw_id, fields or [], wanted)
        looked += len(entries)
        if len(entries) < size.entries:
            return Tail(found, is_whole=True)
        last = entries[-1][0]
        size.saw(entries)
    return Tail(found, is_whole=False)


def _of_job(raw_id: bytes, fields: list[bytes], wanted: bytes) -> list[TailEvent]:
    if wanted not in fields or len(fields) < 2 or fields[0] != FIELD:
        return []
    ms, _, seq = raw_id.partition(b"-")
    found = []
    try:
        entry = read_entry(fields[1])
        for n, (name, value) in enumerate(zip(fields[2::2], fields[3::2], strict=False)):
            if name == wanted:
                found.append(TailEvent(int(ms), int(seq), n, entry, read_event(entry, name, value)))
    except Unreadable:
        pass
    return found
