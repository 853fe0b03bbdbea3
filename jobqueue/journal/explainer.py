"""Explains a job to callers of the service: joins what Redis knows, what the journal has, and what the stream has after
the journal's position, so that the answer is up to date."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

import structlog

from buckets import Bounds, Pollers, Pool, State
from buckets.events.stream import read_tail
from buckets.keys import shard_of
from buckets.pool.standing import Standing, closed, standing
from jobqueue.commands.answers import Answer
from jobqueue.journal.explaining.answer import Life, answer, chosen, unknown, within_reach
from jobqueue.journal.explaining.sentence import Now
from jobqueue.journal.explaining.timeline import Wait, waits
from jobqueue.journal.explaining.told import History, Meanwhile, Place
from jobqueue.journal.store import Away
from jobqueue.journal.url import Refused

if TYPE_CHECKING:
    from jobqueue.journal.history import Journal

log = structlog.get_logger()
T = TypeVar("T")

READ_S = 2.0
"""For how long an answer waits for the journal."""
MOST_EXPLAINED = 10
"""How many waits of a job are looked up in the journal, the longest first."""
NO_JOURNAL = "this service has no journal: this is what the record alone knows"
AWAY = "the journal cannot be read now: this is what the record alone knows"
_SLOW = "the journal did not say in time why it waited"
_BEHIND = "the journal is far behind: what happened last is not known"
_OFF = "events are switched off: the journal learns nothing new"
ALONE = "Redis was not asked: this is what the journal alone knows"
_CUT = "there are older events, which are left out"


class Explainer:
    """Explains jobs, with a journal or without one."""

    def __init__(
        self, pool: Pool, pollers: Pollers, bounds: Callable[[str], Bounds], url: str = "", source: str = ""
    ) -> None:
        """`url`: the URL of the journal, or empty if there is none. `source`: the name of this namespace in the
        journal. `bounds`: returns the bounds of a topic's dead letters."""
        self._pool = pool
        self._pollers = pollers
        self._bounds = bounds
        self._url = url
        self._source = source
        self._opening = asyncio.Lock()
        self._opened: Journal | None = None

    async def close(self) -> None:
        """Close the connections to the journal."""
        if self._opened:
            await self._opened.close()

    async def explain(self, job_id: str, life: Life = None, within: str = "") -> Answer:
        """The answer about a job. `within`: the topics that the caller may reach. Raises NotFound, Unavailable."""
        reading = _Reading(asyncio.get_running_loop().time() + READ_S)
        shard = shard_of(job_id, len(self._pool.keys))
        journal = await reading.of(self._journal(), AWAY) if self._url else None
        # This order misses nothing: an entry that is drained meanwhile is in SQL before it leaves the stream.
        begin = await reading.of(journal.position(shard), AWAY) if journal else None
        found = await standing(self._pool, job_id, within)
        now = Now(found, notes=reading.notes)
        history = await self._history(reading, journal, job_id, shard, begin) if journal else None
        if not self._url:
            now.notes.append(NO_JOURNAL)
        if history:
            history = within_reach(history, within)
        if not (found.job or found.is_aside or found.is_unreadable or (history and (history.events or history.newest))):
            raise unknown(history)
        lives = chosen(life, found, history)
        await self._ask(now, found)
        explained = await self._explained(reading, journal, now, history, lives[0]) if journal and history else {}
        return answer(job_id, lives, now, history, explained)

    async def _journal(self) -> Journal:
        """The journal, opened at its first use. Raises Away, Refused."""
        # A service without a journal does not load these modules.
        from jobqueue.journal.database import open_engine  # noqa: PLC0415
        from jobqueue.journal.history import Journal  # noqa: PLC0415

        async with self._opening:
            if self._opened is None:
                self._opened = Journal(await open_engine(self._url), self._source)
            return self._opened

    async def _history(
        self, reading: _Reading, journal: Journal, job_id: str, shard: int, begin: Place | None
    ) -> History | None:
        from jobqueue.journal.history import joined  # noqa: PLC0415 - as above

        tail = await read_tail(self._pool, shard, job_id, begin or (0, 0))
        history = await reading.of(journal.history(job_id, shard), AWAY)
        if history:
            joined(history, tail)
            reading.notes += [_BEHIND] * (not tail.is_whole) + [_CUT] * history.is_cut
        return history

    async def _ask(self, now: Now, found: Standing) -> None:
        """Complete `now` with what is not in the job's shard."""
        job = found.job
        if job is None:
            return
        if found.timer:
            now.timer = await self._pollers.name_of(found.timer)
        if job.state is State.READY:
            known = await self._pollers.read()
            rows = [row for row in known.rows if job.topic in row.topics]
            # If there are many workers, only some are listed: whether others poll the topic is not known.
            now.polling = rows if rows or not (known.other_waiting or known.other_jobs) else None
            now.closed, now.limit = await closed(self._pool, job.topic), self._pool.limits.get(job.topic)
        if job.state is State.DEAD:
            now.bounds = self._bounds(job.topic)

    async def _explained(
        self, reading: _Reading, journal: Journal, now: Now, history: History, lives: Sequence[int]
    ) -> dict[Place, Meanwhile]:
        """What is known about the waits of some lives, by the places that ended them. What is known about a wait that
        still lasts goes to `now`."""
        found = now.standing
        assert found is not None  # Redis was asked
        if not found.is_told:
            now.notes.append(_OFF)
        explained: dict[Place, Meanwhile] = {}
        for wait in self._waits(found, history, lives)[:MOST_EXPLAINED]:
            known = await reading.of(journal.meanwhile(wait, history), _SLOW)
            if known is None:
                break
            if wait.place is None:
                now.since_ready = known
            else:
                explained[wait.place] = known
        if found.job and found.job.state is State.READY:
            now.last_delivery = await reading.of(journal.last_delivery(found.job.topic, found.now_us), _SLOW)
        return explained

    def _waits(self, found: Standing, history: History, lives: Sequence[int]) -> list[Wait]:
        """The waits of some lives: first the one that still lasts, then the others, the longest first."""
        job = found.job
        lasting = []
        if job and job.state is State.READY and job.created in lives:
            lasting.append(Wait(None, job.topic, job.priority, job.next * 1000, found.now_us))
        over = [wait for life in lives for wait in waits(history.of_life(life))]
        return lasting + sorted(over, key=lambda wait: wait.begin - wait.end)


class _Reading:
    """Reads from the journal for one answer, until a deadline and without raising errors."""

    def __init__(self, deadline: float) -> None:
        self._deadline = deadline
        self._is_away = False
        self.notes: list[str] = []

    async def of(self, asked: Coroutine[Any, Any, T], note: str) -> T | None:
        """Returns what the journal answers. If it does not answer, adds the note and returns None, also for all later
        questions."""
        if self._is_away:
            asked.close()
            return None
        try:
            async with asyncio.timeout_at(self._deadline):
                return await asked
        except (Away, Refused, TimeoutError) as error:
            self._is_away = True
            self.notes.append(note)
            log.warning("journal.unread", reason=str(error) or f"no answer within {READ_S:g} s")
            return None


async def explain_from(url: str, source: str | None, job_id: str, life: Life = None) -> Answer:
    """The answer from a journal alone. `source`: None for the only source of the journal. Raises NotFound, Away,
    Refused."""
    from jobqueue.journal.database import open_engine  # noqa: PLC0415 - as above
    from jobqueue.journal.history import Journal, source_of  # noqa: PLC0415

    engine = await open_engine(url)
    try:
        return await explain_of(Journal(engine, await source_of(engine, source)), job_id, life)
    finally:
        await engine.dispose()


async def explain_of(journal: Journal, job_id: str, life: Life = None) -> Answer:
    """Like `explain_from`, for a journal that is already open."""
    history = await journal.history(job_id)
    if not (history.events or history.newest):
        raise unknown(history, is_asked=False)
    lives = chosen(life, None, history)
    over = [wait for each in lives[0] for wait in waits(history.of_life(each))]
    explained = {
        wait.place: await journal.meanwhile(wait, history)
        for wait in sorted(over, key=lambda wait: wait.begin - wait.end)[:MOST_EXPLAINED]
        if wait.place is not None
    }
    return answer(job_id, lives, Now(None, notes=[ALONE, *[_CUT] * history.is_cut]), history, explained)
