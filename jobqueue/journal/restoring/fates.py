"""Decides what becomes of a job that comes back, and makes its record, from its row in the journal and the time.

In step 3 (see the package's docstring), jobs that Redis does not know are read again, and each gets its fate.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from buckets.job import LEASE_ENDED, Cause, State, Tag
from buckets.record import Fields, pack_optional, pack_record, unpack, unpack_optional
from jobqueue.journal.restoring.candidates import Candidate, Gaps, Past
from jobqueue.journal.restoring.reading import ENDED, LEFT, Choice, JobRow, Reading, Sums

OVERDUE = "overdue at restore"
"""The reason given to jobs that come back as dead letters because they are overdue."""
_MOST_PRIORITY = 9


class Fate(NamedTuple):
    """What becomes of a job."""

    counted: str
    """The count of `Sums` that rises in addition to `put`, or instead of it; empty if the job comes back as it was."""
    record: bytes = b""
    """Empty if the job does not come back."""


def fate_of(row: JobRow, choice: Choice, now_ms: int, spread_to_ms: int) -> Fate:
    """What becomes of a job or tombstone. `spread_to_ms`: when an overdue job becomes due if overdue jobs are
    spread."""
    try:
        fate = _tombstone(row) if row.state in ENDED else _live(row, choice, now_ms, spread_to_ms)
        if fate.record:
            unpack(row.id, fate.record)
    except (ValueError, OverflowError, IndexError):
        return Fate("unreadable")
    return fate


def record_of(row: JobRow) -> bytes:
    """The record of a job. Raises ValueError, OverflowError for values that no record can have."""
    if not row.topic or not 0 <= row.priority <= _MOST_PRIORITY:
        raise ValueError("no record of ours")
    lease_ended = row.cause == Cause.TRIES and row.reason == LEASE_ENDED and row.state == State.DEAD
    return pack_record(
        Fields(
            State(row.state),
            *(row.topic, row.life, row.due, row.next, row.ttr, row.tries, row.priority),
            Cause.LEASE if lease_ended else row.cause,
            *(row.attempts, row.deliveries, row.step, row.lease, bool(row.keeps_body), row.options or b""),
            (row.body or "").encode(),
        )
    )


def _tombstone(row: JobRow) -> Fate:
    """The tombstone has a body and options only if the add asked for that; without them it still recognises a repeated
    add."""
    whole = row.keeps_body and row.body is not None and row.options is not None
    return Fate("tombstones", record_of(row if whole else row._replace(keeps_body=0, options=b"", body=None)))


def _live(row: JobRow, choice: Choice, now_ms: int, spread_to_ms: int) -> Fate:
    if row.body is None:
        return Fate("without_body")
    if row.options is None:
        return Fate("unsure")
    if row.state not in (State.DELAYED, State.READY):
        return Fate("", record_of(row))
    ttl = unpack_optional(row.options).get(Tag.TTL)
    if ttl is not None and row.due + int.from_bytes(ttl, "big") <= now_ms:
        return Fate("expired", record_of(_dead(row, Cause.TTL, now_ms)))
    return Fate("", record_of(row)) if row.next > now_ms else _overdue(row, row.options, choice, now_ms, spread_to_ms)


def _overdue(row: JobRow, options: bytes, choice: Choice, now_ms: int, spread_to_ms: int) -> Fate:
    if choice.overdue == "skip":
        return Fate("skipped")
    if choice.overdue == "dead":
        buried = _dead(row, Cause.BURIED, now_ms)
        return Fate("buried", record_of(buried._replace(options=_with_reason(options))))
    if choice.spread_s:
        return Fate("overdue", record_of(row._replace(state=State.DELAYED, next=max(spread_to_ms, now_ms + 1))))
    return Fate("overdue", record_of(row._replace(state=State.READY)))


def _dead(row: JobRow, cause: Cause, now_ms: int) -> JobRow:
    return row._replace(state=State.DEAD, cause=cause, next=now_ms)


def _with_reason(options: bytes) -> bytes:
    fields = {**unpack_optional(options), Tag.REASON: OVERDUE.encode()}
    return pack_optional(iter(fields.items()))[2:]  # type: ignore[arg-type]  # unknown tags stay


class Judging:
    """Decides the fates of jobs for one run. `begun_ms`: when the run began, by Redis's clock; `past`: set if jobs come
    back as of a time."""

    def __init__(
        self, reading: Reading, choice: Choice, sums: Sums, gaps: Gaps, past: Past | None, begun_ms: int
    ) -> None:
        self._reading, self._choice, self._sums = reading, choice, sums
        self._gaps, self._past, self._begun_ms = gaps, past, begun_ms

    async def judge(self, wanted: Sequence[Candidate], now_ms: int) -> dict[str, Fate]:
        """Returns the fates of the jobs that come back, by id. Counts the others."""
        rows = await self._reading.jobs([each.id for each in wanted])
        then = await self._past.then(rows) if self._past else {}
        return self.coming({each.id: self._of(each, rows.get(each.id), then, now_ms) for each in wanted})

    def coming(self, fates: dict[str, Fate]) -> dict[str, Fate]:
        """Returns the fates of what comes back, by id. Counts the others."""
        for some_id, fate in fates.items():
            if not fate.record:
                self._count(fate.counted, some_id)
        return {some_id: fate for some_id, fate in fates.items() if fate.record}

    def _of(self, candidate: Candidate, row: JobRow | None, then: dict[str, JobRow | str], now_ms: int) -> Fate:
        if row is None:
            return Fate("ended")  # its row is no longer kept
        if row.place != candidate.place:
            return Fate("ended" if row.ended is not None else "known")  # a newer event of the job has arrived since
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
