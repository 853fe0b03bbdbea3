"""Whether a run can begin: what the journal has of the source, and what it keeps."""

from __future__ import annotations

from sqlalchemy import select

from jobqueue.journal import tables
from jobqueue.journal.restoring import candidates
from jobqueue.journal.restoring.choice import PENDING, Choice, NotBegun
from jobqueue.journal.restoring.reading import Reading

_JOB, _POSITION = tables.job.c, tables.position.c


async def check(reading: Reading, choice: Choice) -> None:
    """Raises NotBegun, Stopped."""
    await check_source(reading)
    if not choice.ids:
        await _check_bodies(reading)
    if choice.as_of is not None:
        await candidates.check(reading, choice.as_of)


async def check_source(reading: Reading) -> None:
    """Raises NotBegun where the journal has nothing of the source."""
    sources = [row[0] for row in await reading.rows(select(_POSITION.source).distinct())]
    if reading.source in sources:
        return
    others = f"it has {', '.join(sorted(sources))}; --source names one" if sources else "it is empty"
    raise NotBegun(f"the journal has nothing of the source {reading.source}: {others}")


async def _check_bodies(reading: Reading) -> None:
    lives = select(_JOB.id).where(reading.of_source(tables.job), _JOB.state.in_([int(state) for state in PENDING]))
    if await reading.rows(lives.limit(1)) and not await reading.rows(lives.where(_JOB.body_kept != 0).limit(1)):
        raise NotBegun("the journal keeps no bodies (`journal run --bodies none`), without which no job can come back")
