"""The stream of a shard's events, for its one reader: read in order, acknowledged, trimmed, compared with its position.

Entries are raw, `[id, [field, value, …]]`, as an id of a job may stand in one twice. Reading waits in Redis, so that
the reader needs a client of its own.

`PageSize` learns how many entries to read at once, as an entry may have a few bytes or 1 MiB. `read_tail` reads the
events of one job after a place: those that a journal has not drained yet. `bound_events` keeps the stream within its
bytes, however long no journal reads it.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from typing import Any, NamedTuple, Self

from buckets.errors import JobQueueError
from buckets.events.codec import FIELD, Entry, Event, Unreadable, read_entry, read_event
from buckets.events.switch import GROUP, read_events, stream_key, switch_on
from buckets.namespace import fresh_word
from buckets.pages import Pages
from buckets.redis.client import Redis
from buckets.shards import Shards

_CONSUMER = "r"  # always the same: whoever comes next finds what it left pending
_ACKNOWLEDGED = 5_000  # in one script
_WALKED_BYTES = 1 << 20

RawEntry = Sequence[Any]
"""An id and its fields; None instead of the fields: it was cut off after it had been delivered."""


class Place(NamedTuple):
    """The id of an entry."""

    ms: int
    seq: int

    @classmethod
    def read(cls, raw: bytes) -> Self:
        ms, _, seq = raw.partition(b"-")
        return cls(int(ms), int(seq))

    def __str__(self) -> str:
        return f"{self.ms}-{self.seq}"

    @property
    def behind(self) -> Place:
        """The next one that there may be."""
        return Place(self.ms, self.seq + 1)


START = Place(0, 0)


class View(NamedTuple):
    """A stream as it is at one moment, without the entries up to a position."""

    now_us: int
    is_on: bool
    """Whether events are."""
    word: str
    """Of the stream; empty: it has none."""
    length: int
    """Entries; -1: there is no stream."""
    added: int
    """Entries ever."""
    last: Place
    """The last one ever."""
    first: Place | None
    given: Place | None
    """The last one that the group was given; None: there is no group."""
    off: tuple[Place, int] | None = None
    """Events were off: behind this place, until this time (ms since the epoch). It stands here until it is noted."""


class Gone(JobQueueError):
    """The stream is gone, or its group."""


class Records(NamedTuple):
    """Records of jobs and schedules as they are at one place of the stream."""

    now_us: int
    place: Place
    records: list[bytes]
    """As many as one script reads, in their order; empty: there is none."""


TOTALS = ("created", "finished", "deleted", "replaced")


class Totals(NamedTuple):
    """What has ever happened to the jobs of topics, as of one place of the stream."""

    now_us: int
    place: Place
    topics: dict[str, tuple[int, ...]]
    """Numbers in the order of `TOTALS`."""


class Stream:
    """The stream of one shard. `reading` is the client on which reads wait."""

    def __init__(self, shards: Shards, shard: int, reading: Redis) -> None:
        self._shards, self._shard, self._reading = shards, shard, reading
        self._key = stream_key(shards, shard)

    async def settle(self, word: str, position: Place, entries: Sequence[bytes] = ()) -> View:
        """Acknowledge entries that the journal has, remove all up to its position, and see what there is. A stream of
        another word, or one that went back behind the position, is left as it is."""
        view = None
        for at in range(0, max(1, len(entries)), _ACKNOWLEDGED):
            reply = await self._shards.call(
                "settle",
                self._shard,
                entries[at : at + _ACKNOWLEDGED],
                now=self._shards.clock.now(),
                word=word,
                position=str(position),
                behind=str(position.behind),
            )
            view = _view(reply)
        assert view
        return view

    async def pending(self, most: int, after: Place = START) -> list[RawEntry]:
        """Entries behind a place that were delivered and not acknowledged. Raises Gone."""
        return await self._read("COUNT", most, "STREAMS", self._key, str(after))

    async def fresh(self, most: int, wait_ms: int = 0) -> list[RawEntry]:
        """Entries that were not delivered yet; waits for the first one if there is none. Raises Gone."""
        wait = ("BLOCK", wait_ms) if wait_ms else ()
        return await self._read("COUNT", most, *wait, "STREAMS", self._key, ">")

    async def _read(self, *how: str | int) -> list[RawEntry]:
        try:
            reply = await self._reading.ask(self._key, "XREADGROUP", "GROUP", GROUP, _CONSUMER, *how)
        except JobQueueError as error:
            if error.message.startswith(("NOGROUP", "WRONGTYPE", "UNBLOCKED")):
                raise Gone from None
            raise
        return reply[0][1] if reply else []

    async def deliver_behind(self, place: Place) -> None:
        """Count what is up to a place as delivered."""
        await self._reading.ask(self._key, "XGROUP", "SETID", self._key, GROUP, str(place))

    async def note_off(self, until_ms: int) -> None:
        """The journal knows that events were off until then."""
        await self._reading.ask(self._key, "XGROUP", "DESTROY", self._key, f"off:{until_ms}")

    async def restore_group(self) -> None:
        """Make the stream and its group where events are on and these are gone."""
        switch = (await read_events(self._shards, self._shard)).switch
        if switch:
            await switch_on(self._shards, self._shard, switch)

    async def entries(self, after: Place, upto: Place, most: int) -> list[RawEntry]:
        """Entries behind a place, up to another, delivered or not."""
        found: list[RawEntry] = await self._shards.redis.read(
            "XRANGE", self._key, f"({after}", str(upto), "COUNT", most
        )
        return found

    async def records(self, ids: Sequence[str]) -> Records:
        """The records of jobs and schedules, of the first one at least; the id of a schedule is `~` and its name."""
        now_us, last, *records = await self._shards.call(
            "walk", self._shard, ids, now=self._shards.clock.now(), most_bytes=_WALKED_BYTES
        )
        place = Place.read(last)
        # Of a stream that nothing was told in yet, they are as of now.
        return Records(now_us, place if place > START else Place(now_us // 1000, 0), records)

    async def schedules(self) -> AsyncIterator[list[str]]:
        """The names of the shard's schedules, in pages."""
        key = self._shards.keys[self._shard].schedules.encode()
        try:
            async for names in Pages(self._shards.redis, 1.0).names(key):
                yield [name.decode("utf-8", "replace") for name in names]
        except JobQueueError as error:
            if "WRONGTYPE" not in error.message:
                raise  # else it is another program's key

    async def topics(self) -> list[str]:
        """The topics of the shard."""
        key = self._shards.keys[self._shard].topics.encode()
        found = {topic async for page in Pages(self._shards.redis, 1.0).members(key) for topic in page}
        return sorted(topic.decode("utf-8", "replace") for topic in found)

    async def totals(self, topics: Sequence[str]) -> Totals:
        """What has ever happened to the jobs of topics, as of one place."""
        now_us, last, *numbers = await self._shards.call("totals", self._shard, topics, now=self._shards.clock.now())
        width = len(TOTALS)
        rows = (tuple(numbers[at : at + width]) for at in range(0, len(numbers), width))
        return Totals(now_us, Place.read(last), dict(zip(topics, rows, strict=True)))

    async def hold(self, token: str, ms: int) -> bool:
        """Take or keep the lock of the readers for some ms; 0 gives it up. Whether it is held now."""
        return bool(await self._shards.call("hold", self._shard, token=token, ms=ms))


def _view(reply: list[Any]) -> View:
    now_us, is_on, word, length, added, last, first, given, behind, until = reply
    return View(
        now_us,
        bool(is_on),
        word.decode(),
        length,
        added,
        Place.read(last),
        Place.read(first) if first else None,
        Place.read(given) if given else None,
        (Place.read(behind), int(until)) if until else None,
    )


_MOST = 250  # 0.3 ms of Redis
_FIRST = 16
_BYTES = 4 << 20  # of a page, as far as the last one tells


class PageSize:
    """The number of entries of the next page."""

    def __init__(self) -> None:
        self.entries = _FIRST

    def saw(self, page: Sequence[Sequence[Any]]) -> None:
        """Learn from a page: its entries are ids and fields. It grows fourfold at most, as the next may be larger."""
        weight = sum(len(field) for _, fields in page for field in fields or ())
        fitting = _BYTES * len(page) // max(weight, 1)
        self.entries = max(1, min(fitting, 4 * self.entries, _MOST))


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


MOST_BYTES = 256 << 20
_PAGE = 2_000  # entries a script; of 4 KB each they take half a millisecond


async def bound_events(shards: Shards, shard: int, most_bytes: int) -> int:
    """Cut off the oldest entries beyond the bytes; returns how many. Where events are on and their stream was deleted,
    it is made again."""
    pages, cut_off = Pages(shards.redis, rest=1.0), 0
    while True:
        call = shards.call("bound_events", shard, bytes=most_bytes, page=_PAGE, fresh=fresh_word())
        some: int = await pages.step(call)
        if not some:
            return cut_off
        cut_off += some
