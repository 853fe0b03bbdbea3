"""Findings about the journal of the settings: whether it can be written, and how far its reader has come."""

from __future__ import annotations

import asyncio
import time
from functools import partial
from typing import TYPE_CHECKING

from jobqueue.health import words
from jobqueue.health.findings import Finding, Findings
from jobqueue.journal.url import Empty, Refused, address
from jobqueue.settings import Settings

if TYPE_CHECKING:
    from sqlalchemy import Connection

_SUBJECT = "journal"
_ANSWER_S = 5.0
"""For a database to answer."""
_BEHIND_S = 60.0
"""After which a reader that has written nothing is warned of. It writes its position every few seconds."""


async def check_journal(chosen: Settings) -> Findings:
    """All findings; none without a journal. Changes nothing."""
    if not chosen.journal:
        return
    try:
        where = address(chosen.journal)
        async with asyncio.timeout(_ANSWER_S):
            until_us = await _written_until(chosen)
    except Empty as error:
        run = "serve makes one" if chosen.journal_run else "jobqueue journal run makes one"
        yield Finding("ok" if chosen.journal_run else "warn", _SUBJECT, f"{str(error).partition(';')[0]}; {run}")
    except (Refused, OSError) as error:
        yield Finding("bad", _SUBJECT, f"it cannot be written: {str(error) or type(error).__name__}")
    except TimeoutError:
        yield Finding("bad", _SUBJECT, f"{where.shown} does not answer: {_ANSWER_S:.0f} s passed")
    else:
        yield _lag(chosen, where.shown, until_us)


def _lag(chosen: Settings, shown: str, until_us: int | None) -> Finding:
    """Up to when events are written. `until_us`: us since the epoch, of the shard that is furthest behind."""
    if until_us is None:
        return Finding("warn", _SUBJECT, f"{shown} has nothing of {chosen.namespace} yet; {_reader(chosen)}")
    behind_s = time.time() - until_us / 1e6
    sentence = f"{shown} has all events until {words.when(until_us / 1e6)}"
    if behind_s < _BEHIND_S:
        return Finding("ok", _SUBJECT, sentence)
    return Finding("warn", _SUBJECT, f"{sentence}; {_reader(chosen)}")


def _reader(chosen: Settings) -> str:
    """Where to look for the reader."""
    if chosen.journal_run:
        return "the process that serve runs for it ended, or is behind: journal.ended and database.lost in its log"
    return "its reader does not run, or is behind: jobqueue journal run"


async def _written_until(chosen: Settings) -> int | None:
    """Up to when (us since the epoch) all shards are in the journal, or None before the first. Raises Empty where
    there is none yet, Refused where it cannot be used, OSError where it cannot be reached."""
    # Loaded here: a service without a journal does without the library, which takes 30 MB.
    from jobqueue.journal.database import open_engine, run_in  # noqa: PLC0415
    from jobqueue.journal.store import Away  # noqa: PLC0415

    try:
        engine = await open_engine(chosen.journal)
        try:
            return await run_in(engine, partial(_look, source=chosen.namespace))
        finally:
            await engine.dispose()
    except Away as error:
        raise OSError(str(error)) from None


def _look(connection: Connection, source: str) -> int | None:
    from sqlalchemy import false, func, select, update  # noqa: PLC0415

    from jobqueue.journal.tables import position  # noqa: PLC0415

    # Changes nothing, but is refused to who may not write.
    connection.execute(update(position).where(false()).values(time=position.c.time))
    found = connection.execute(select(func.min(position.c.time)).where(position.c.source == source)).scalar()
    return None if found is None else int(found)
