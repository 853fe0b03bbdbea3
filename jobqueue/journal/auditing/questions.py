"""The questions, and asking them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import NamedTuple

from sqlalchemy import func, select
from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.ext.asyncio import AsyncConnection

from jobqueue.journal import choices, tables
from jobqueue.journal.auditing import events, gaps, minutes
from jobqueue.journal.auditing.asked import Asked, Found
from jobqueue.journal.auditing.ranges import MINUTE_US
from jobqueue.journal.database import open_engine
from jobqueue.journal.explaining.words import moment
from jobqueue.journal.history import source_of
from jobqueue.journal.store import Away
from jobqueue.journal.url import Refused

_event, _minute, _position = tables.event.c, tables.minute.c, tables.position.c
_LAG_US = 60_000_000  # which is not worth a note


class Question(NamedTuple):
    """A question, and whether the sums by minute answer it."""

    ask: Callable[[AsyncConnection, str, Asked], Awaitable[Found]]
    by_minute: bool = False
    by_ends: bool = False
    """Whether the events that begin or end a life, and deaths, answer it. By worker none does: deliveries name them."""


QUESTIONS = {
    "late": Question(minutes.late, by_minute=True),
    "waited": Question(events.waited),
    "dead": Question(events.dead, by_ends=True),
    "deleted": Question(events.deleted, by_ends=True),
    "kicked": Question(events.kicked),
    "expired-leases": Question(events.expired_leases),
    "slow": Question(events.slow, by_ends=True),
    "volume": Question(minutes.volume, by_minute=True),
    "gaps": Question(gaps.gaps),
}


async def ask(url: str, source: str | None, name: str, asked: Asked) -> Found:
    """Ask a journal. `source`: None where it has only one. Raises Refused, Away, Inexact."""
    question = QUESTIONS[name]
    engine = await open_engine(url)
    try:
        source = await source_of(engine, source)
        async with engine.connect() as connection:
            if not question.by_minute and name != "gaps":
                await _check_kept(connection, source, question, asked)
            found = await question.ask(connection, source, asked)
            found.notes += await _notes(connection, source, name, question, asked)
            return found
    except (SQLAlchemyError, OSError) as error:
        raise Away(str(getattr(error, "orig", None) or error)) from error
    finally:
        await engine.dispose()


async def _check_kept(connection: AsyncConnection, source: str, question: Question, asked: Asked) -> None:
    """Raises Refused where the events of that time that answer the question are not kept."""
    known = choices.changes(await connection.execute(choices.query(source)))
    for each in choices.unkept(known, asked.since, asked.until):
        if each.events == "none" or not question.by_ends or asked.by == "worker":
            raise Refused(f"{each.words}; this question needs the others, too: ask about another time")


async def _notes(connection: AsyncConnection, source: str, name: str, question: Question, asked: Asked) -> list[str]:
    """What the answer cannot have."""
    if question.by_minute:
        oldest = (await connection.execute(select(func.min(_minute.minute)))).scalar()
        first = None if oldest is None else oldest * MINUTE_US
    else:
        oldest = (await connection.execute(select(func.min(_event.ms)))).scalar()
        first = None if oldest is None else oldest * 1000
    ends = select(func.min(_position.since), func.min(_position.time)).where(_position.source == source)
    begun, until = (await connection.execute(ends)).one()
    since = max(begun // MINUTE_US * MINUTE_US, first or begun) if question.by_minute else max(begun, first or begun)
    notes = []
    if asked.since < since:
        notes.append(f"the journal goes back to {moment(since)} UTC")
    if asked.until > until + _LAG_US:
        notes.append(f"the journal has what was recorded until {moment(until)} UTC")
    return notes if name == "gaps" else notes + await gaps.lost(connection, source, asked)
