"""Findings about the journal of the settings: whether it can be written, how far its reader has come, and whether Redis
lost jobs that it has."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from buckets.errors import JobQueueError, Unfit
from buckets.keys import Keys
from buckets.namespace import join, numbers_of, read_meta
from buckets.redis.client import Redis
from buckets.shards import Shards
from jobqueue.health import lost, words
from jobqueue.health.findings import Finding, Findings
from jobqueue.journal.url import Empty, Refused, address
from jobqueue.settings import Settings

if TYPE_CHECKING:
    from sqlalchemy import Connection
    from sqlalchemy.ext.asyncio import AsyncEngine

_SUBJECT = "journal"
_ANSWER_S = 5.0
"""For a database to answer."""
_BEHIND_S = 60.0
"""After which a reader that has written nothing is warned of. It writes its position every few seconds."""

_NEXT = "Mend that, then: jobqueue check. Events wait in Redis meanwhile"


class _Namespace(NamedTuple):
    """What Redis says of the namespace."""

    now_us: int
    is_there: bool
    shards: Shards | None
    """None: there is none, or it cannot be read."""


async def check_journal(chosen: Settings, redis: Redis | None = None) -> Findings:
    """All findings; none without a journal. Changes nothing. `redis`: None: it does not answer, or none runs."""
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
    """The findings about a journal that is there. Raises Empty where there is none yet, Refused where it cannot be
    used, OSError where it cannot be reached."""
    # Loaded here: a service without a journal does without the library, which takes 30 MB.
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
    """An engine on the journal. Raises as `_examined`; Refused where the tables that are missing cannot be made."""
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
    """The namespace, which is not founded; None: Redis does not answer, which is a finding of its own."""
    try:
        seconds, us = map(int, await redis.read("TIME"))
        meta = await read_meta(redis, Keys(name, 0))
    except JobQueueError:
        return None
    now_us = seconds * 1_000_000 + us
    try:
        numbers = numbers_of(meta) or await join(redis, name)
    except Unfit:  # it is not there, or damaged
        return _Namespace(now_us, bool(meta), None)
    except JobQueueError:
        return None
    return _Namespace(now_us, True, Shards(redis, name, *numbers))


async def _lost(engine: AsyncEngine, source: str, namespace: _Namespace) -> list[Finding]:
    """The finding about jobs that Redis lost. Raises Away."""
    from jobqueue.journal.database import run_in  # noqa: PLC0415

    if namespace.is_there and namespace.shards is None:
        return []  # it is damaged
    losses = await run_in(engine, partial(lost.read_losses, source=source, now_us=namespace.now_us))
    try:
        shards = await lost.lost_shards(namespace.shards, losses)
        if not shards:
            return []
        live = await run_in(engine, partial(lost.read_live, source=source, lost=shards))
        return await lost.judge(namespace.shards, live) if live.ids else []
    except JobQueueError:
        return []


def _lag(chosen: Settings, shown: str, written: Mapping[int, int], namespace: _Namespace | None) -> Finding:
    """Up to when events are written. `written`: by shard, in us since the epoch by the clock of Redis."""
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
    """Where to look for the reader."""
    if chosen.journal_run:
        return "the process that serve runs for it ended, or is behind: journal.ended and database.lost in its log"
    return "its reader does not run, or is behind: jobqueue journal run"


def _look(connection: Connection, source: str) -> dict[int, int]:
    """By shard, up to when (us) it is in the journal."""
    from sqlalchemy import false, select, update  # noqa: PLC0415

    from jobqueue.journal.tables import position  # noqa: PLC0415

    # Changes nothing, but is refused to who may not write.
    connection.execute(update(position).where(false()).values(time=position.c.time))
    written = select(position.c.shard, position.c.time).where(position.c.source == source)
    return {row.shard: row.time for row in connection.execute(written)}
