"""Findings about events and about the journal in the settings.

They say whether events are on, and how many of them wait for a journal; whether the journal can be written, and how far
its reader has come; whether Redis lost live jobs that the journal has, so that somebody restores them.

Redis lost the data of a shard if the shard's stream of events is not the one that the journal reads, or was replaced
recently. Only then are some live jobs read from the journal, and Redis is asked which of them it knows.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from buckets.errors import JobQueueError, Unfit
from buckets.events.restoring import PAGE, Restoring
from buckets.events.switch import Events, Stream, read_events
from buckets.job import State
from buckets.keys import Keys
from buckets.namespace import join, numbers_of, read_meta
from buckets.pages import chunks
from buckets.redis.client import Redis
from buckets.redis.info import facts_of
from buckets.shards import Shards
from jobqueue.health import words
from jobqueue.health.findings import Finding, Findings
from jobqueue.journal.url import Empty, Refused, address
from jobqueue.settings import Settings

if TYPE_CHECKING:
    from sqlalchemy import Connection
    from sqlalchemy.ext.asyncio import AsyncEngine


_RECENT_US = 7 * 86_400_000_000
"""A loss that nobody has repaired for this long is no longer reported."""
_MOST = 1_000  # the most jobs that are counted, and that are read per topic
_MOST_READ = 5_000  # the most jobs that are read in total
_MOST_S = 1.0
_PENDING = tuple(int(state) for state in (State.RESERVED, State.READY, State.DELAYED))

Place = tuple[int, int]
"""`ms` and `seq` of an entry of a stream."""
_ALL: Place = (1 << 63, 0)


class Losses(NamedTuple):
    """What a journal knows about a source, as needed to find losses."""

    streams: Mapping[int, str]
    """By shard, the word of the stream that the journal reads."""
    upto: Mapping[int, Place]
    """By shard, the last place in a previous stream whose loss nobody has repaired."""


def read_losses(connection: Connection, source: str, now_us: int) -> Losses:
    """Read what the journal knows about the losses of a source."""
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
    """When the last completed `restore --all` began, in us by the clock of Redis, or 0 if none was completed."""
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
    """Live jobs of a journal about which nothing was recorded since a loss."""

    ids: list[str]
    are_all: bool
    """True if there are no others."""


async def lost_shards(shards: Shards | None, losses: Losses) -> dict[int, Place]:
    """By shard, the place up to which Redis may have lost the journal's events. `shards`: None if the namespace does
    not exist. Raises JobQueueError."""
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
    """Live jobs about which nothing was recorded since the loss. The number of jobs that are read, per topic and in
    total, is limited, so that reading takes a second at most. `lost`: by shard, the place up to which events may be
    lost."""
    from sqlalchemy import func, select  # noqa: PLC0415

    from jobqueue.journal.tables import job  # noqa: PLC0415

    of, found, read, topic, are_all = job.c, list[str](), 0, "", True
    end = time.monotonic() + _MOST_S
    while True:
        # The next topic by the index: a list of all topics would read all jobs.
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


_EVENTS = "events"
_NEARLY = 0.9  # of a limit


async def check_events(shards: Shards, most_mb: int) -> Findings:
    """All findings about events. `most_mb`: the limit of the stream of a shard. Raises JobQueueError."""
    told = await asyncio.gather(*(read_events(shards, shard) for shard in range(len(shards.keys))))
    for finding in _switched(told):
        yield finding
    for finding in _full(told, most_mb):
        yield finding
    if any(each.switch for each in told):
        async for finding in _memory(shards.redis, told, most_mb):
            yield finding


def _switched(told: Sequence[Events]) -> Iterator[Finding]:
    """Where events are on, and what is in the streams."""
    off = [shard for shard, each in enumerate(told) if not each.switch]
    streams = [each.stream for each in told if each.stream]
    holds = f"; {_held(streams)}" if any(each.entries for each in streams) else ""
    if len(off) == len(told):
        yield Finding("ok", _EVENTS, f"off{holds}")
    elif off:
        where = ", ".join(map(str, off))
        yield Finding("warn", _EVENTS, f"on, but not in these shards: {where}{holds}: jobqueue journal on")
    else:
        yield Finding("ok", _EVENTS, f"on{holds or '; nothing is waiting for the journal'}")


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
                _EVENTS,
                f"the stream of shard {shard} is nearly full: {limits}; the oldest events are cut off unread."
                " Start its reader: jobqueue journal run",
            )


async def _memory(redis: Redis, told: Sequence[Events], most_mb: int) -> Findings:
    """A warning for each server on which full streams would take memory that jobs need. Shards are assumed to be evenly
    spread over the servers."""
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
                _EVENTS,
                f"the maxmemory of {server.name} leaves {max(left_mb, 0):,.0f} MB for them, and they may take"
                f" {shards * most_mb:,} MB while no journal runs (events_max_mb {most_mb} in each shard); then Redis"
                " takes no more jobs",
            )


_SUBJECT = "journal"
_ANSWER_S = 5.0
"""How long a database may take to answer."""
_BEHIND_S = 60.0
"""A reader that has written nothing for this long gets a warning. Readers write their position every few seconds."""

_NEXT = "Mend that, then: jobqueue check. Events wait in Redis meanwhile"


class _Namespace(NamedTuple):
    """What Redis says about the namespace."""

    now_us: int
    is_there: bool
    shards: Shards | None
    """None if there is no namespace, or it cannot be read."""


async def check_journal(chosen: Settings, redis: Redis | None = None) -> Findings:
    """All findings about the journal, if the settings name one. Changes nothing. `redis`: None if no Redis runs, or it
    does not answer."""
    if not chosen.journal:
        return
    try:
        where = address(chosen.journal)
        async with asyncio.timeout(_ANSWER_S):
            found = await _examined(chosen, where.shown, redis)
    except Empty as error:
        run = "serve makes one" if chosen.journal_run else "jobqueue journal run makes one"
        yield Finding("ok" if chosen.journal_run else "warn", _SUBJECT, f"{str(error).partition(';')[0]}; {run}")
    except (Refused, OSError) as error:
        yield Finding("bad", _SUBJECT, f"it cannot be written: {str(error) or type(error).__name__}. {_NEXT}")
    except TimeoutError:
        yield Finding("bad", _SUBJECT, f"{where.shown} does not answer: {_ANSWER_S:.0f} s passed. {_NEXT}")
    else:
        for finding in found:
            yield finding


async def _examined(chosen: Settings, shown: str, redis: Redis | None) -> list[Finding]:
    """The findings about a journal that exists. Raises Empty if there is none yet, Refused if it cannot be used,
    OSError if it cannot be reached."""
    # Loaded here: a service without a journal does not need the library, which takes 30 MB.
    from jobqueue.journal.database import run_in  # noqa: PLC0415
    from jobqueue.journal.store import Away  # noqa: PLC0415

    try:
        engine = await _opened(chosen)
        try:
            written = await run_in(engine, partial(_look, source=chosen.namespace))
            namespace = await _namespace(redis, chosen.namespace) if redis else None
            found = [_lag(chosen, shown, written, namespace)]
            if written and namespace:
                found += await _lost(engine, chosen.namespace, namespace)
            return found
        finally:
            await engine.dispose()
    except Away as error:
        raise OSError(str(error)) from None


async def _opened(chosen: Settings) -> AsyncEngine:
    """An engine on the journal. Raises the errors of `_examined`, and Refused if the missing tables cannot be made."""
    from jobqueue.journal.database import engine_of, open_engine, run_in  # noqa: PLC0415
    from jobqueue.journal.schema import may_make_tables  # noqa: PLC0415

    try:
        return await open_engine(chosen.journal)
    except Empty:
        where = address(chosen.journal)
        if chosen.journal_run and where.kind != "sqlite":
            engine = await engine_of(where)
            try:
                if not await run_in(engine, may_make_tables):
                    raise Refused("its user may not make tables: run what `jobqueue journal ddl` prints") from None
            finally:
                await engine.dispose()
        raise


async def _namespace(redis: Redis, name: str) -> _Namespace | None:
    """The namespace, which is not created here, or None if Redis does not answer, which is a separate finding."""
    try:
        seconds, us = map(int, await redis.read("TIME"))
        meta = await read_meta(redis, Keys(name, 0))
    except JobQueueError:
        return None
    now_us = seconds * 1_000_000 + us
    try:
        numbers = numbers_of(meta) or await join(redis, name)
    except Unfit:  # it does not exist, or is damaged
        return _Namespace(now_us, bool(meta), None)
    except JobQueueError:
        return None
    return _Namespace(now_us, True, Shards(redis, name, *numbers))


async def _lost(engine: AsyncEngine, source: str, namespace: _Namespace) -> list[Finding]:
    """The finding about jobs that Redis lost. Raises Away."""
    from jobqueue.journal.database import run_in  # noqa: PLC0415

    if namespace.is_there and namespace.shards is None:
        return []  # it is damaged
    losses = await run_in(engine, partial(read_losses, source=source, now_us=namespace.now_us))
    try:
        shards = await lost_shards(namespace.shards, losses)
        if not shards:
            return []
        live = await run_in(engine, partial(read_live, source=source, lost=shards))
        return await judge(namespace.shards, live) if live.ids else []
    except JobQueueError:
        return []


def _lag(chosen: Settings, shown: str, written: Mapping[int, int], namespace: _Namespace | None) -> Finding:
    """The finding about how far events are written. `written`: by shard, the time up to which all its events are
    written, in us since the epoch by the clock of Redis."""
    if not written:
        return Finding("warn", _SUBJECT, f"{shown} has nothing of {chosen.namespace} yet; {_reader(chosen)}")
    number = len(namespace.shards.keys) if namespace and namespace.shards else 0
    missing = [shard for shard in range(number) if shard not in written]
    if missing:
        which = f"shard{'s' * (len(missing) > 1)} {', '.join(map(str, missing))}"
        return Finding("warn", _SUBJECT, f"{shown} has nothing of {which} yet; {_reader(chosen)}")
    now = namespace.now_us / 1e6 if namespace else time.time()
    until = min(written.values()) / 1e6
    sentence = f"{shown} has all events until {words.when(until, now)}"
    if now - until < _BEHIND_S:
        return Finding("ok", _SUBJECT, sentence)
    return Finding("warn", _SUBJECT, f"{sentence}; {_reader(chosen)}")


def _reader(chosen: Settings) -> str:
    """What may be wrong with the reader, and where to look."""
    if chosen.journal_run:
        return "the process that serve runs for it ended, or is behind: journal.ended and database.lost in its log"
    return "its reader does not run, or is behind: jobqueue journal run"


def _look(connection: Connection, source: str) -> dict[int, int]:
    """By shard, the time (us) up to which its events are in the journal."""
    from sqlalchemy import false, select, update  # noqa: PLC0415

    from jobqueue.journal.tables import position  # noqa: PLC0415

    # Changes nothing, but fails for a user who may not write.
    connection.execute(update(position).where(false()).values(time=position.c.time))
    written = select(position.c.shard, position.c.time).where(position.c.source == source)
    return {row.shard: row.time for row in connection.execute(written)}
