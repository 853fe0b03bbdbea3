"""What a stream that went back has forgotten: found by comparing what is left of it with the journal."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from buckets.events.stream import START, PageSize, Place, Stream, View
from jobqueue.journal.choices import Change, held_at
from jobqueue.journal.reading.sql import Sql
from jobqueue.journal.reading.verdict import lost, place_of
from jobqueue.journal.reading.writing import Unit, read
from jobqueue.journal.rows import Collector
from jobqueue.journal.store import Position
from jobqueue.journal.writing import EVENT


async def forgotten_from(
    stream: Stream, sql: Sql, source: str, shard: int, known: Sequence[Change], position: Position, view: View
) -> Place | None:
    """The last place up to which Redis still has what the journal has. None: it has all, and only forgot that it had
    delivered some of it. `known`: what the journal keeps of the shard."""
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
    was_delivered = common == place_of(position) or view.given == START  # a group that was made again
    has_all = is_same and was_delivered and lost(position, view, seen) >= 0
    return None if has_all else min(common, place_of(position))


def _is_known(
    unit: Unit, here: Mapping[tuple[int, int, int], set[int]], source: str, shard: int, known: Sequence[Change]
) -> bool:
    """Whether the journal has the events of an entry, as far as it keeps such."""
    if unit.entry is None:
        return True
    collector = Collector(source, shard, events=held_at(known, unit.entry.at).events)
    collector.add(*unit.place, unit.entry, unit.events)
    rows = (dict(zip(EVENT, row, strict=True)) for row in collector.rows().events)
    return all(row["checksum"] in here.get((row["ms"], row["seq"], row["n"]), ()) for row in rows)
