"""The loop of a shard: first the pending entries, then fresh ones; one transaction per batch, then its acknowledgement.

A lock spares a second reader the same work; correctness does not depend on it. If a stream went back, what it has
forgotten is found by comparing what is left of it with the journal.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import secrets
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field

import structlog

from buckets.errors import JobQueueError, Unfit
from buckets.events.codec import Event
from buckets.events.stream import START, Gone, PageSize, Place, RawEntry, Stream, View
from buckets.redis.outage import Outage
from jobqueue.journal.choices import Change, Choice, held_at, newest, of_shard
from jobqueue.journal.reading import verdict
from jobqueue.journal.reading.entries import WITH_BODY, Options, Unit, Writer, read
from jobqueue.journal.reading.figures import Figures
from jobqueue.journal.reading.sql import Sql
from jobqueue.journal.reading.tokens import TokenReader
from jobqueue.journal.reading.verdict import Verdict, lost, place_of
from jobqueue.journal.reading.walk import Walk
from jobqueue.journal.rows import Collector
from jobqueue.journal.statements import EVENT
from jobqueue.journal.store import Batch, Overtaken, Position

HOLD_MS = 6_000
EVERY_S = 2.0


class Lock:
    """The lock of a shard: acquired when it is free, and renewed, for as long as `run` runs."""

    def __init__(self, stream: Stream) -> None:
        self._stream = stream
        self._token = secrets.token_hex(8)
        self._until = 0.0

    @property
    def is_held(self) -> bool:
        return asyncio.get_running_loop().time() < self._until

    async def run(self) -> None:
        try:
            while True:
                await self._renew()
                await asyncio.sleep(EVERY_S)
        finally:
            await self._give_up()

    async def _renew(self) -> None:
        began = asyncio.get_running_loop().time()
        try:
            held = await self._stream.hold(self._token, HOLD_MS)
        except JobQueueError:  # Redis is away; a lock that is held expires by itself
            return
        self._until = began + HOLD_MS / 1000 if held else 0.0

    async def _give_up(self) -> None:
        self._until = 0.0
        with contextlib.suppress(JobQueueError):
            await self._stream.hold(self._token, 0)


async def forgotten_from(
    stream: Stream, sql: Sql, source: str, shard: int, known: Sequence[Change], position: Position, view: View
) -> Place | None:
    """The last place up to which Redis still has what the journal has, or None if Redis has all of it and only forgot
    that it had delivered some of it. `known`: what the journal keeps of the shard."""
    common = view.given or START
    place, seen, size = START, 0, PageSize()
    is_same = True
    while page := await stream.entries(place, place_of(position), size.entries):
        seen += len(page)
        size.saw(page)
        units = [read(entry) for entry in page]
        here = await sql.checksums(source, shard, place, units[-1].place)
        place = units[-1].place
        for unit in units:
            is_same = is_same and (unit.place <= common or _is_known(unit, here, source, shard, known))
            if is_same:
                common = max(common, unit.place)
    was_delivered = common == place_of(position) or view.given == START  # the group was created again
    has_all = is_same and was_delivered and lost(position, view, seen) >= 0
    return None if has_all else min(common, place_of(position))


def _is_known(
    unit: Unit, here: Mapping[tuple[int, int, int], set[int]], source: str, shard: int, known: Sequence[Change]
) -> bool:
    """Returns True if the journal has all events of an entry, or all of them that it keeps."""
    if unit.entry is None:
        return True
    collector = Collector(source, shard, events=held_at(known, unit.entry.at).events)
    collector.add(*unit.place, unit.entry, unit.events)
    rows = (dict(zip(EVENT, row, strict=True)) for row in collector.rows().events)
    return all(row["checksum"] in here.get((row["ms"], row["seq"], row["n"]), ()) for row in rows)


log = structlog.get_logger()

_BLOCK_MS = 1_000
_LOOK_S = 5.0  # while there is nothing to read
_LIVING_S = HOLD_MS / 1000 + 3  # by then, a live reader has moved its position, and a stalled one has lost its lock
_SHORTEST_S, _LONGEST_S = 0.1, 2.0  # between attempts while Redis is away
_MOST_BYTES = 16 << 20  # of a batch
_LARGE_BODY = 256 << 10  # bytes; the size assumed for a body that must still be fetched
_BEHIND_S = 10.0
_TIMELY_S = 0.5  # the age at which the time of an idle shard is written again


@dataclass(slots=True)
class _Read:
    """What was read for a batch."""

    ids: list[bytes] = field(default_factory=list)
    units: list[Unit] = field(default_factory=list)
    events: int = 0
    bytes: int = 0
    is_all: bool = False
    """True if there was nothing else to read."""

    def add(self, page: Sequence[RawEntry], position: Place) -> None:
        """Add entries, except for those that the journal has or that were cut off: they are only acknowledged."""
        for entry in page:
            self.ids.append(entry[0])
            if entry[1] is None:
                continue
            unit = read(entry)
            if unit.place > position:
                self.units.append(unit)
                self.events += len(unit.events) or 1
                self.bytes += _weight(unit)


def _weight(unit: Unit) -> int:
    large = sum(
        isinstance(each, Event) and each.body is None and each.verb in WITH_BODY and each.after > 0
        for each in unit.events
    )
    return sum(map(len, unit.fields)) + large * _LARGE_BODY


class ShardReader:
    """Drains one shard while it holds the shard's lock."""

    def __init__(
        self,
        stream: Stream,
        shard: int,
        sql: Sql,
        writer: Writer,
        walk: Walk,
        options: Options,
        figures: Figures,
        tokens: TokenReader | None = None,
    ) -> None:
        """`tokens`: reads the tokens of the namespace, for one of its shards; None for the others."""
        self._stream, self._shard, self._sql, self._writer, self._walk = stream, shard, sql, writer, walk
        self._options, self._figures, self._tokens = options, figures, tokens
        self._source = options.source
        self.lock = Lock(stream)
        self.begins = asyncio.Event()
        """Set when the reader begins to drain, and after anything that breaks the sum of its events."""
        self._stopping = asyncio.Event()
        self._forgotten = START
        self._density = float(options.batch)  # events per entry in the last page
        self._size = PageSize()
        self._has_begun = False
        self._is_on = True
        self._is_behind = False
        self._outage = Outage(logging.getLogger(__name__), "journal.interrupted", "journal.resumed")

    def stop(self) -> None:
        """Stop after the batch under way."""
        self._stopping.set()

    async def run(self) -> None:
        """Drain until stopped. Raises Unfit if a live reader of another stream has the source."""
        holding = asyncio.create_task(self.lock.run(), name=f"journal lock {self._shard}")
        pause = _SHORTEST_S
        try:
            while not self._stopping.is_set():
                try:
                    await self._drain()
                    pause = _SHORTEST_S
                except (Overtaken, Gone):
                    await self._pause(_SHORTEST_S)
                except Unfit:
                    raise
                except JobQueueError as error:
                    self._outage.begin(error, shard=self._shard)
                    await self._pause(pause)
                    pause = min(2 * pause, _LONGEST_S)
        finally:
            holding.cancel()
            await asyncio.gather(holding, return_exceptions=True)
            self._figures.left(self._shard)

    async def _pause(self, seconds: float) -> None:
        """Wait, or return early if the reader must stop."""
        try:
            async with asyncio.timeout(seconds):
                await self._stopping.wait()
        except TimeoutError:
            pass

    async def _drain(self) -> None:
        """Drain from the position in SQL on, until the lock is lost or the reader must stop."""
        while not self.lock.is_held:
            if self._stopping.is_set():
                return
            self._has_begun = False
            self._figures.left(self._shard)
            await self._pause(_SHORTEST_S)
        self._walk.reset()
        known = await self._sql.choices(self._source)
        before = await self._sql.position(self._source, self._shard)
        position = await self._ready(of_shard(known, self._shard))
        if position is None:
            return
        await self._choose(known, position)
        if self._tokens:
            await self._tokens.begin((before or position).time)
        if not self._has_begun:
            self._has_begun = True
            self.begins.set()
            log.info("journal.started", shard=self._shard, source=self._source, position=str(place_of(position)))
        self._forgotten = await self._sql.forgotten_until(self._source, self._shard)
        position = await self._drain_pending(position)
        while self.lock.is_held and not self._stopping.is_set():
            position = await self._drain_fresh(position)
            self._outage.end(shard=self._shard)

    async def _choose(self, known: Sequence[Change], position: Position) -> None:
        """From the position on, keep what the options of this reader say, or what the journal has kept until now if
        they say nothing. A walk reads what the journal did not keep until now."""
        own, told = of_shard(known, self._shard), self._options
        before, until_now = newest(own), newest(own or known)
        choice = Choice(told.events or until_now.events, until_now.bodies if told.bodies is None else told.bodies)
        self._writer.choice = self._walk.choice = choice
        if choice == before:
            return
        since = max(position.time, own[-1].since + 1) if own else position.time
        if choice.widens(before):
            await self._sql.ask_for_walk(self._source, self._shard, since)
        await self._sql.choose(self._source, Change(self._shard, since, choice))
        log.warning("journal.chosen", shard=self._shard, events=choice.events, bodies=choice.bodies)

    async def _ready(self, known: Sequence[Change]) -> Position | None:
        """Returns the position, in agreement with the stream, or None if there is no stream now. `known`: what is kept
        of the shard."""
        position = await self._sql.position(self._source, self._shard)
        view = await self._settle(position)
        while (found := verdict.judge(position, view)) is not Verdict.WELL:
            if found is Verdict.NO_STREAM:
                if view.is_on:
                    await self._stream.restore_group()
                await self._pause(_SHORTEST_S if view.is_on else _LOOK_S)
                return None
            position = await self._agreed(position, view, found, known)
            view = await self._settle(position)
        return position

    async def _settle(self, position: Position | None, ids: Sequence[bytes] = ()) -> View:
        """Acknowledge what the journal has. Returns a view of the stream, and reports how far the journal is behind
        it."""
        view = await self._stream.settle(position.stream if position else "", place_of(position), ids)
        if view.is_on is not self._is_on:
            self._is_on = view.is_on
            if view.is_on:
                log.info("journal.on", shard=self._shard)
            else:
                log.warning("journal.off", shard=self._shard)
        if position:
            self._tell_lag((view.now_us - position.time) / 1e6 if view.length > 0 else 0.0, max(0, view.length))
        return view

    def _tell_lag(self, seconds: float, entries: int) -> None:
        self._figures.behind(self._shard, max(0.0, seconds), entries)
        if seconds > _BEHIND_S and not self._is_behind:
            log.warning("journal.behind", shard=self._shard, seconds=round(seconds, 1), entries=entries)
        elif seconds <= _BEHIND_S and self._is_behind:
            log.info("journal.caught_up", shard=self._shard)
        self._is_behind = seconds > _BEHIND_S

    async def _agreed(self, position: Position | None, view: View, found: Verdict, known: Sequence[Change]) -> Position:
        """Write what follows from a verdict; returns the position after it."""
        if position is None:
            return await self._begun(view)
        if found is Verdict.LOST:
            upto = max(place_of(position), verdict.before(view.first, view.last))
            return await self._lost(position, view, place_of(position), upto)
        if found is Verdict.OTHER:
            await self._refuse_if_another_lives(position)
            return await self._went_back(position, view, START)
        after = await forgotten_from(self._stream, self._sql, self._source, self._shard, known, position, view)
        if after is None:
            await self._stream.deliver_behind(place_of(position))
            return position
        return await self._went_back(position, view, after)

    async def _begun(self, view: View) -> Position:
        position = verdict.first_position(view)
        until = verdict.before(view.first, view.last)
        await self._write_gap(None, position, verdict.UNKNOWN, START, until, 0, view)
        return position

    async def _lost(self, position: Position, view: View, after: Place, upto: Place) -> Position:
        """Write that entries were cut off unread, or that events were off, which is a gap of 0 entries."""
        entries = verdict.lost(position, view)
        counted = position._replace(entries=position.entries + entries)
        await self._write_gap(position, counted, verdict.LOST, after, upto, entries, view)
        self._figures.gap(entries)
        self.begins.set()
        log.error("journal.gap", shard=self._shard, entries=entries, after=str(after), upto=str(upto))
        return counted

    async def _went_back(self, position: Position, view: View, after: Place) -> Position:
        """Write that Redis has forgotten what is after a place."""
        upto, again = place_of(position), verdict.next_epoch(position, view)
        is_other = again.stream != position.stream
        kinds = [verdict.FORGOTTEN, verdict.UNKNOWN] if is_other else [verdict.FORGOTTEN]
        gaps = [self._gap(again, kind, after, upto, 0, view) for kind in kinds]
        await self._sql.write(Batch(self._source, self._shard, position, again, gaps=gaps))
        self._forgotten = max(self._forgotten, upto)
        self._figures.went_back()
        self.begins.set()
        log.error("journal.went_back", shard=self._shard, epoch=again.epoch, after=str(after), upto=str(upto))
        return again

    async def _write_gap(
        self, before: Position | None, after: Position, kind: int, first: Place, last: Place, entries: int, view: View
    ) -> None:
        row = self._gap(after, kind, first, last, entries, view)
        await self._sql.write(Batch(self._source, self._shard, before, after, gaps=[row]))

    def _gap(self, position: Position, kind: int, after: Place, upto: Place, entries: int, view: View) -> tuple:  # type: ignore[type-arg]
        return verdict.gap_row(self._source, self._shard, position.epoch, kind, after, upto, entries, view.now_us)

    async def _refuse_if_another_lives(self, position: Position) -> None:
        """Raise Unfit if a live reader of another stream, under the same source name, moves the position."""
        loop = asyncio.get_running_loop()
        until, seen, moves = loop.time() + _LIVING_S, position, 0
        while loop.time() < until and not self._stopping.is_set():
            await self._pause(_SHORTEST_S)
            now = await self._sql.position(self._source, self._shard)
            if now is None or now.stream != position.stream:
                raise Overtaken
            if now == seen:
                continue
            seen, moves = now, moves + 1
            if moves > 1:  # one move may be the batch that a reader had under way when it lost the lock
                raise Unfit(
                    f"another journal run drains another Redis as the source {self._source}; "
                    "give this one a name of its own with --source"
                )
        if moves:
            raise Overtaken

    async def _drain_pending(self, position: Position) -> Position:
        """Drain entries that were delivered but not acknowledged, for example before a crash."""
        after = START

        async def more(count: int) -> list[RawEntry]:
            nonlocal after
            page = await self._stream.pending(count, after)
            after = Place.read(page[-1][0]) if page else after
            return page

        while not self._stopping.is_set():
            found = await self._gather(more, position)
            if not found.ids:
                break
            position = await self._written(position, found, 0, may_repeat=True)
        return position

    async def _drain_fresh(self, position: Position) -> Position:
        """Drain a batch of fresh entries, or wait for a while; then do a step of a walk, if one is due."""
        view = await self._settle(position)
        if verdict.judge(position, view) is not Verdict.WELL:
            raise Gone
        if view.off:
            behind, until_ms = view.off
            position = await self._lost(position, view, behind, max(behind, Place(until_ms, 0)))
            await self._stream.note_off(until_ms)
            return position
        if self._tokens:
            await self._tokens.look()
        if not view.length and view.now_us - position.time >= _TIMELY_S * 1e6:
            position = await self._timely(position, view.now_us)
        wait_ms = 0 if await self._walk.is_due() else _BLOCK_MS

        reached = place_of(position)

        async def more(count: int) -> list[RawEntry]:
            nonlocal wait_ms, reached
            page = await self._stream.fresh(count, wait_ms)
            wait_ms = 0  # entries that were read do not wait for more
            if page:
                await self._refuse_to_pass_over(reached, page[0][0])
                reached = Place.read(page[-1][0])
            return page

        found = await self._gather(more, position)
        told_us = view.now_us if found.is_all else 0
        if found.ids:
            position = await self._written(position, found, told_us)
        if await self._walk.is_due():
            position = await self._walk.step(position, is_all=found.is_all)
        elif found.events < self._options.batch / 2 and found.ids:
            await self._pause(self._options.linger_s)
        return position

    async def _refuse_to_pass_over(self, after: Place, first: bytes) -> None:
        """Raise Gone if the stream has an entry between these two: it is pending, because another reader received it
        and has not written it."""
        if await self._stream.entries(after, verdict.before(Place.read(first), START), 1):
            raise Gone

    async def _gather(self, more: Callable[[int], Awaitable[list[RawEntry]]], position: Position) -> _Read:
        """Read a batch, in pages whose size depends on how many events the entries had until now."""
        found, place = _Read(), place_of(position)
        while found.events < self._options.batch and found.bytes < _MOST_BYTES:
            count = max(1, min(self._size.entries, int((self._options.batch - found.events) / self._density)))
            before = found.events
            page = await more(count)
            found.add(page, place)
            if len(page) < count:
                found.is_all = True
                break
            self._density = max(1.0, (found.events - before) / len(page))
            self._size.saw(page)
        return found

    async def _written(self, position: Position, found: _Read, told_us: int, *, may_repeat: bool = False) -> Position:
        """Write what was read, then acknowledge it, and check that nothing was cut off meanwhile."""
        before = place_of(position)
        if found.units:
            told_us = max(told_us, max((unit.entry.at for unit in found.units if unit.entry), default=0))
            position = await self._writer.write(position, found.units, told_us, self._forgotten, may_repeat)
        view = await self._settle(position, found.ids)
        if verdict.judge(position, view) is Verdict.LOST:  # entries were cut off while this batch was read
            upto = max(place_of(position), verdict.before(view.first, view.last))
            return await self._lost(position, view, before, upto)
        return position

    async def _timely(self, position: Position, told_us: int) -> Position:
        """Write the time until which the journal has everything."""
        after = position._replace(time=told_us)
        await self._sql.write(Batch(self._source, self._shard, position, after))
        return after
