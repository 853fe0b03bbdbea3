"""The stream of a shard's events, for its one reader: reading in order, acknowledging, trimming, checking the position.

Entries are raw, `[id, [field, value, …]]`, because one entry may contain the id of a job twice. Reads block in Redis,
so the reader needs a client of its own.

`PageSize` learns how many entries to read at once, since an entry may have a few bytes or 1 MiB. `read_tail` reads the
events of one job after a place, which a journal has not read yet. `bound_events` keeps the stream within a number of
bytes even if no journal reads it.
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

_CONSUMER = "r"  # always the same, so that the next reader finds the entries left pending
_ACKNOWLEDGED = 5_000  # entries acknowledged per script
_WALKED_BYTES = 1 << 20

RawEntry = Sequence[Any]
"""An id and its fields, or None instead of the fields if the entry was trimmed after its delivery."""


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
        """The next possible id."""
        return Place(self.ms, self.seq + 1)


START = Place(0, 0)


class View(NamedTuple):
    """A stream at one moment, once the entries up to a position are removed."""

    now_us: int
    is_on: bool
    """Whether events are on."""
    word: str
    """The word of the stream, or empty if it has none."""
    length: int
    """The number of entries, or -1 if there is no stream."""
    added: int
    """How many entries were ever added."""
    last: Place
    """The last entry ever added."""
    first: Place | None
    given: Place | None
    """The last entry delivered to the group, or None if there is no group."""
    off: tuple[Place, int] | None = None
    """If events were off: the place after which and the time until which they were off (ms since the epoch). None if
    they were not, or once `note_off` was called."""


class Gone(JobQueueError):
    """The stream is gone, or its group."""


class Records(NamedTuple):
    """Records of jobs and schedules, as of one place in the stream."""

    now_us: int
    place: Place
    records: list[bytes]
    """As many as one script reads, in the order of the ids; an id without a record has an empty one."""


TOTALS = ("created", "finished", "deleted", "replaced")


class Totals(NamedTuple):
    """How many jobs of topics were ever created, finished and so on (`TOTALS`), as of one place in the stream."""

    now_us: int
    place: Place
    topics: dict[str, tuple[int, ...]]
    """By topic, the numbers in the order of `TOTALS`."""


class Stream:
    """The stream of one shard. `reading`: the client for reads that block."""

    def __init__(self, shards: Shards, shard: int, reading: Redis) -> None:
        self._shards, self._shard, self._reading = shards, shard, reading
        self._key = stream_key(shards, shard)

    async def settle(self, word: str, position: Place, entries: Sequence[bytes] = ()) -> View:
        """Acknowledge entries that the journal has, remove all up to its position, and return the state of the stream.
        A stream with another word, or one that went back to before the position, is left unchanged."""
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
        """Entries after a place that were delivered but not acknowledged. Raises Gone."""
        return await self._read("COUNT", most, "STREAMS", self._key, str(after))

    async def fresh(self, most: int, wait_ms: int = 0) -> list[RawEntry]:
        """Entries that were not delivered yet; waits up to `wait_ms` for the first one if there is none. Raises
        Gone."""
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
        """Count the entries up to a place as delivered."""
        await self._reading.ask(self._key, "XGROUP", "SETID", self._key, GROUP, str(place))

    async def note_off(self, until_ms: int) -> None:
        """Note that the journal knows that events were off until `until_ms`."""
        await self._reading.ask(self._key, "XGROUP", "DESTROY", self._key, f"off:{until_ms}")

    async def restore_group(self) -> None:
        """Create the stream and its group again if events are on and either is gone."""
        switch = (await read_events(self._shards, self._shard)).switch
        if switch:
            await switch_on(self._shards, self._shard, switch)

    async def entries(self, after: Place, upto: Place, most: int) -> list[RawEntry]:
        """Entries after a place, up to another, delivered or not."""
        found: list[RawEntry] = await self._shards.redis.read(
            "XRANGE", self._key, f"({after}", str(upto), "COUNT", most
        )
        return found

    async def records(self, ids: Sequence[str]) -> Records:
        """The records of jobs and schedules, at least the first; the id of a schedule is `~` and its name."""
        now_us, last, *records = await self._shards.call(
            "walk", self._shard, ids, now=self._shards.clock.now(), most_bytes=_WALKED_BYTES
        )
        place = Place.read(last)
        # If the stream has no entry yet, the records are as of now.
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
        """How many jobs of topics were ever created, finished and so on (`TOTALS`), as of one place in the stream."""
        now_us, last, *numbers = await self._shards.call("totals", self._shard, topics, now=self._shards.clock.now())
        width = len(TOTALS)
        rows = (tuple(numbers[at : at + width]) for at in range(0, len(numbers), width))
        return Totals(now_us, Place.read(last), dict(zip(topics, rows, strict=True)))

    async def hold(self, token: str, ms: int) -> bool:
        """Acquire or extend the readers' lock for `ms`, or release it with 0. Returns whether this reader holds it
        now."""
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


_MOST = 250  # entries; 0.3 ms of Redis
_FIRST = 16
_BYTES = 4 << 20  # bytes of a page, judging by the last page


class PageSize:
    """The number of entries of the next page."""

    def __init__(self) -> None:
        self.entries = _FIRST

    def saw(self, page: Sequence[Sequence[Any]]) -> None:
        """Learn from a page, given as ids and fields. The number grows at most fourfold, because the next entries may
        be larger."""
        weight = sum(len(field) for _, fields in page for field in fields or ())
        fitting = _BYTES * len(page) // max(weight, 1)
        self.entries = max(1, min(fitting, 4 * self.entries, _MOST))


MOST_ENTRIES = 10_000


class TailEvent(NamedTuple):
    """An event in the stream."""

    ms: int
    seq: int
    n: int
    """Its index within its entry."""
    entry: Entry
    event: Event


class Tail(NamedTuple):
    """The events that were read."""

    events: list[TailEvent]
    is_whole: bool
    """False if reading stopped after MOST_ENTRIES entries."""


async def read_tail(shards: Shards, shard: int, job_id: str, behind: tuple[int, int]) -> Tail:
    """The events of a job in the stream of its shard, after an entry. Events that cannot be read are left out: the
    stream's reader reports them. Raises Unavailable."""
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
_PAGE = 2_000  # entries per script; with 4 KB each they take half a millisecond


async def bound_events(shards: Shards, shard: int, most_bytes: int) -> int:
    """Remove the oldest entries beyond `most_bytes`; returns how many were removed. If events are on and their stream
    was deleted, it is created again."""
    pages, cut_off = Pages(shards.redis, rest=1.0), 0
    while True:
        call = shards.call("bound_events", shard, bytes=most_bytes, page=_PAGE, fresh=fresh_word())
        some: int = await pages.step(call)
        if not some:
            return cut_off
        cut_off += some
