"""Step 3: jobs that Redis does not know are read again, and it is judged what becomes of each."""

from __future__ import annotations

from collections.abc import Sequence

from jobqueue.journal.restoring.choice import ENDED, LEFT, Choice, Sums
from jobqueue.journal.restoring.fates import Fate, fate_of
from jobqueue.journal.restoring.gaps import Gaps
from jobqueue.journal.restoring.listing import Candidate
from jobqueue.journal.restoring.past import Past
from jobqueue.journal.restoring.reading import JobRow, Reading


class Judging:
    """Judges for one run. `begun_ms`: when it began, by Redis's clock; `past`: where jobs come back as they were."""

    def __init__(
        self, reading: Reading, choice: Choice, sums: Sums, gaps: Gaps, past: Past | None, begun_ms: int
    ) -> None:
        self._reading, self._choice, self._sums = reading, choice, sums
        self._gaps, self._past, self._begun_ms = gaps, past, begun_ms

    async def judge(self, wanted: Sequence[Candidate], now_ms: int) -> dict[str, Fate]:
        """What becomes of those that come back, by id. The others are counted."""
        rows = await self._reading.jobs([each.id for each in wanted])
        then = await self._past.then(rows) if self._past else {}
        return self.coming({each.id: self._of(each, rows.get(each.id), then, now_ms) for each in wanted})

    def coming(self, fates: dict[str, Fate]) -> dict[str, Fate]:
        """Those of what comes back, by id. The others are counted."""
        for some_id, fate in fates.items():
            if not fate.record:
                self._count(fate.counted, some_id)
        return {some_id: fate for some_id, fate in fates.items() if fate.record}

    def _of(self, candidate: Candidate, row: JobRow | None, then: dict[str, JobRow | str], now_ms: int) -> Fate:
        if row is None:
            return Fate("ended")  # its row is not kept any more
        if row.place != candidate.place:
            return Fate("ended" if row.ended is not None else "known")  # Redis has told of it since
        if row.state == 0 or self._gaps.hide(row):
            return Fate("unsure")
        as_it_was = then.get(row.id, "absent") if self._past else row
        if isinstance(as_it_was, str):
            return Fate(as_it_was)
        if as_it_was.state in ENDED and as_it_was.next <= now_ms:
            return Fate("ended")
        spread_to_ms = self._begun_ms + round(candidate.share * self._choice.spread_s * 1000)
        return fate_of(as_it_was, self._choice, now_ms, spread_to_ms)

    def _count(self, why: str, job_id: str) -> None:
        if why in LEFT:
            self._sums.name(why, job_id)
        else:
            self._sums.counts[why] += 1
