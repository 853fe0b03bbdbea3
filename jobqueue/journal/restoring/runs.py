"""The runs of restore, as the journal records them: `jq_restore`, and `jq_left` for the jobs that did not come back.

A run begins only if the journal has its source and keeps what the run needs. The run then waits until the journal has
all events up to the beginning of the run.
"""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import Sequence
from typing import Any, NamedTuple, Self

from sqlalchemy import Executable, insert, select, update

from buckets.events.restoring import Asked
from buckets.pages import chunks
from buckets.shards import Shards
from jobqueue.journal import tables
from jobqueue.journal.restoring import candidates
from jobqueue.journal.restoring.candidates import Cursor
from jobqueue.journal.restoring.reading import PENDING, Choice, NotBegun, Reading, Stopped, Sums

_RUN, _LEFT = tables.restore.c, tables.left.c
_ROWS = 1_000  # per insert, which has 3 parameters per row


class Found(NamedTuple):
    """The last run, as it was left."""

    choice: Choice
    cursor: Cursor | None
    sums: Sums


class Run:
    """A run that is recorded in the journal. Its times are by Redis's clock, like the times of what Redis lost."""

    def __init__(self, reading: Reading, shards: Shards, number: int) -> None:
        self._reading, self._shards = reading, shards
        self._noted: Counter[str] = Counter()  # how many ids are stored, by count
        self.number = number

    @property
    def actor(self) -> str:
        """The actor of its moves, as their events record it."""
        return f"restore:{self.number}"

    @classmethod
    async def begin(cls, reading: Reading, shards: Shards, choice: Choice, kind: str = "restore") -> Self:
        """Record that a run begins. Raises Stopped, Unavailable."""
        options = json.dumps({"kind": kind, **choice.stored()})
        begun = {"source": reading.source, "begun": await shards.now_us(), "options": options}
        result = await reading.run(insert(tables.restore).values(**begun, cursor="null", sums="{}"))
        return cls(reading, shards, int(result.inserted_primary_key[0]))

    @classmethod
    async def last(cls, reading: Reading, shards: Shards) -> tuple[Self, Found]:
        """The last run of the source. Raises NotBegun if there is none to resume."""
        newest = (
            select(_RUN.number, _RUN.ended, _RUN.options, _RUN.cursor, _RUN.sums)
            .where(reading.of_source(tables.restore))
            .order_by(_RUN.number.desc())
            .limit(1)
        )
        rows = await reading.rows(newest)
        if not rows or rows[0].ended is not None:
            raise NotBegun("the last run has ended: there is nothing to resume" if rows else "there was no run yet")
        number, _, options, cursor, sums = rows[0]
        kept: dict[str, Any] = json.loads(options)
        if kept.pop("kind") != "restore":
            raise NotBegun("the last run cannot be resumed; repeat it")
        run = cls(reading, shards, number)
        named = await run._named()
        return run, Found(Choice.read(kept), json.loads(cursor), Sums(Counter(json.loads(sums)), named))

    async def _named(self) -> dict[str, list[str]]:
        """The ids that are stored with the run, by count."""
        of_it = select(_LEFT.why, _LEFT.id).where(_LEFT.run == self.number).order_by(_LEFT.number)
        named: dict[str, list[str]] = {}
        for why, job_id in await self._reading.rows(of_it):
            named.setdefault(why, []).append(job_id)
        self._noted = Counter({why: len(ids) for why, ids in named.items()})
        return named

    async def note(self, cursor: Cursor | None, sums: Sums) -> None:
        """Record how far the run is."""
        await self._write(sums, cursor=json.dumps(cursor))

    async def end(self, sums: Sums) -> None:
        """Record that the run has ended. Raises Stopped, Unavailable."""
        await self._write(sums, ended=await self._shards.now_us())

    async def _write(self, sums: Sums, **values: Any) -> None:
        counts = json.dumps(sums.counts)
        statements: list[Executable] = [
            update(tables.restore).where(_RUN.number == self.number).values(**values, sums=counts)
        ]
        fresh = [(why, each) for why, ids in sums.named.items() for each in ids[self._noted[why] :]]
        for some in chunks(fresh, _ROWS):
            rows = [{"run": self.number, "why": why, "id": job_id} for why, job_id in some]
            statements.append(insert(tables.left).values(rows))
        await self._reading.run(*statements)
        self._noted = Counter({why: len(ids) for why, ids in sums.named.items()})


_LOOK_S = 0.02
_ON = "let the service start, or run `jobqueue journal on`"


class Passing:
    """How far the journal is, shard by shard."""

    def __init__(self, reading: Reading) -> None:
        self._reading = reading
        self._positions: dict[int, Any] = {}

    async def begin(self, asked: Sequence[Asked]) -> None:
        """Like `wait`, before anything is done. Raises NotBegun, at once if events are off."""
        deaf = [each.shard for each in asked if not each.stream]
        if deaf:
            raise NotBegun(f"events are off in shard {deaf[0]}, so finishes would not be recorded; {_ON}")
        try:
            await self.wait(asked)
        except Stopped as error:
            raise NotBegun(f"{error}; see that `jobqueue journal run` does its work, or take --stale") from error

    async def wait(self, asked: Sequence[Asked]) -> None:
        """Wait until the journal has passed the time at which the shards were asked. Raises Stopped if the journal
        makes no progress."""
        loop = asyncio.get_running_loop()
        end, before = 0.0, None
        while behind := [each for each in asked if not self._has_passed(each)]:
            self._positions = await self._read()
            reached = [self._reached(each) for each in behind]
            if reached != before:
                end, before = loop.time() + self._reading.patience_s, reached
            elif loop.time() > end:
                raise Stopped(_behind(behind[0], self._positions.get(behind[0].shard)))
            else:
                await asyncio.sleep(_LOOK_S)

    def _reached(self, asked: Asked) -> int:
        """The time until which the journal has the events of the stream; 0 while the journal reads another stream."""
        position = self._positions.get(asked.shard)
        return position.time if position is not None and position.stream == asked.stream else 0

    def _has_passed(self, asked: Asked) -> bool:
        return self._reached(asked) > asked.at

    async def _read(self) -> dict[int, Any]:
        found = await self._reading.rows(select(tables.position).where(self._reading.of_source(tables.position)))
        return {row.shard: row for row in found}


def _behind(asked: Asked, position: Any) -> str:
    if position is None:
        return f"nothing of shard {asked.shard} is in the journal"
    if position.stream != asked.stream:
        return f"the journal reads another stream than that of shard {asked.shard} in this Redis"
    return f"the journal is {(asked.at - position.time) / 1e6:.1f} s behind shard {asked.shard}, and does not get on"


_JOB, _POSITION = tables.job.c, tables.position.c


async def check(reading: Reading, choice: Choice) -> None:
    """Check that a run can begin. Raises NotBegun, Stopped."""
    await check_source(reading)
    if not choice.ids:
        await _check_bodies(reading)
    if choice.as_of is not None:
        await candidates.check(reading, choice.as_of)


async def check_source(reading: Reading) -> None:
    """Raises NotBegun if the journal has nothing of the source."""
    sources = [row[0] for row in await reading.rows(select(_POSITION.source).distinct())]
    if reading.source in sources:
        return
    others = f"it has {', '.join(sorted(sources))}; --source names one" if sources else "it is empty"
    raise NotBegun(f"the journal has nothing of the source {reading.source}: {others}")


async def _check_bodies(reading: Reading) -> None:
    lives = select(_JOB.id).where(reading.of_source(tables.job), _JOB.state.in_([int(state) for state in PENDING]))
    if await reading.rows(lives.limit(1)) and not await reading.rows(lives.where(_JOB.body_kept != 0).limit(1)):
        raise NotBegun("the journal keeps no bodies (`journal run --bodies none`), without which no job can come back")
