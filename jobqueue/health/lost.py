"""A finding about live jobs that the journal has and Redis lost, so that somebody brings them back.

Redis lost what a shard had where its stream of events is another one than the journal reads, or became another one not
long ago. Only then some live jobs of the journal are looked at, and Redis is asked which of them it knows.
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, NamedTuple

from buckets.events.restoring import PAGE, Restoring
from buckets.events.switch import read_events
from buckets.job import State
from buckets.pages import chunks
from buckets.shards import Shards
from jobqueue.health.findings import Finding

if TYPE_CHECKING:
    from sqlalchemy import Connection

_RECENT_US = 7 * 86_400_000_000
"""A loss that nobody has mended for so long is to stay."""
_MOST = 1_000  # jobs that are counted, and of a topic looked at
_MOST_READ = 5_000  # of all topics
_MOST_S = 1.0
_PENDING = tuple(int(state) for state in (State.RESERVED, State.READY, State.DELAYED))

Place = tuple[int, int]
"""`ms` and `seq` of an entry of a stream."""
_ALL: Place = (1 << 63, 0)


class Losses(NamedTuple):
    """What a journal has of a source, as far as a loss goes."""

    streams: Mapping[int, str]
    """By shard, the word of the stream that is read."""
    upto: Mapping[int, Place]
    """By shard, the last place of the stream before, whose loss nobody has mended."""


def read_losses(connection: Connection, source: str, now_us: int) -> Losses:
    """What the journal knows of losses."""
    from sqlalchemy import select  # noqa: PLC0415

    from jobqueue.journal.reading.verdict import FORGOTTEN  # noqa: PLC0415
    from jobqueue.journal.tables import gap, position  # noqa: PLC0415

    streams = connection.execute(select(position.c.shard, position.c.stream).where(position.c.source == source))
    since = max(now_us - _RECENT_US, _mended(connection, source))
    wanted = select(gap.c.shard, gap.c.to_ms, gap.c.to_seq).where(
        gap.c.source == source, gap.c.kind == FORGOTTEN, gap.c.from_ms == 0, gap.c.found > since
    )
    upto: dict[int, Place] = {}
    for shard, ms, seq in connection.execute(wanted):
        upto[shard] = max((ms, seq), upto.get(shard, (0, 0)))
    return Losses({row.shard: row.stream for row in streams}, upto)


def _mended(connection: Connection, source: str) -> int:
    """When the last `restore --all` began that came to its end, in us by the clock of Redis; 0: none did."""
    from sqlalchemy import select  # noqa: PLC0415

    from jobqueue.journal.tables import restore  # noqa: PLC0415

    run = restore.c
    wanted = select(run.begun, run.options).where(run.source == source, run.ended.is_not(None))
    for begun, options in connection.execute(wanted.order_by(run.number.desc()).limit(20)):
        chosen = json.loads(options)
        is_whole = chosen["kind"] == "restore" and chosen["topics"] == "*" and not chosen["ids"]
        if is_whole and set(_PENDING) <= set(chosen["states"]):
            return int(begun)
    return 0


class Live(NamedTuple):
    """Live jobs of a journal, of which nothing was recorded since a loss."""

    ids: list[str]
    are_all: bool
    """Whether there are no others."""


async def lost_shards(shards: Shards | None, losses: Losses) -> dict[int, Place]:
    """By shard, up to which place what the journal has of it may be lost. `shards`: None: the namespace is not there.
    Raises JobQueueError."""
    if shards is None:
        return dict.fromkeys(losses.streams, _ALL)
    found = dict(losses.upto)
    for shard, stream in losses.streams.items():
        if shard < len(shards.keys):
            events = await read_events(shards, shard)
            if events.stream is None or (events.word and events.word != stream):
                found[shard] = _ALL
    return found


def read_live(connection: Connection, source: str, lost: Mapping[int, Place]) -> Live:
    """Live jobs of which nothing was recorded since the loss. Of many some are read, of each topic and of all, so that
    it takes a second at most. `lost`: by shard, up to which place."""
    from sqlalchemy import func, select  # noqa: PLC0415

    from jobqueue.journal.tables import job  # noqa: PLC0415

    of, found, read, topic, are_all = job.c, list[str](), 0, "", True
    end = time.monotonic() + _MOST_S
    while True:
        # The next one by the index: a list of all topics would read all jobs.
        following = select(func.min(of.topic)).where(of.source == source, of.topic > topic)
        topic = connection.execute(following).scalar() or ""
        if not topic:
            return Live(found[:_MOST], are_all and len(found) <= _MOST)
        if read >= _MOST_READ or len(found) > _MOST or time.monotonic() > end:
            return Live(found[:_MOST], are_all=False)
        wanted = select(of.id, of.shard, of.ms, of.seq).where(
            of.source == source, of.topic == topic, of.state.in_(_PENDING)
        )
        rows = connection.execute(wanted.limit(_MOST)).all()
        read += len(rows)
        are_all = are_all and len(rows) < _MOST
        found += [job_id for job_id, shard, ms, seq in rows if (ms, seq) <= lost.get(shard, (-1, -1))]


async def judge(shards: Shards | None, live: Live) -> list[Finding]:
    """The finding about live jobs of the journal that may be lost. Raises JobQueueError."""
    unknown = len(live.ids)
    if shards is not None:
        asked = [each for some in chunks(live.ids, PAGE) for each in await Restoring(shards, "").ask(some)]
        unknown = sum(len(each.unknown) for each in asked)
    if not unknown:
        return []
    number = f"{'' if live.are_all else 'at least '}{unknown:,} live job{'s' * (unknown > 1)}"
    return [Finding("bad", "jobs", f"the journal knows {number} that Redis does not: docs/redis-lost.md")]
