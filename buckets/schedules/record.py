"""The record of a schedule: Python reads it, and packs it for a script that restores it. Its layout is in
buckets/layout.py; only scripts write it."""

from __future__ import annotations

from typing import NamedTuple

from buckets.layout import SCHEDULE_FIELDS, SCHEDULE_HEADER
from buckets.record import VERSION


class Schedule(NamedTuple):
    """A schedule. Times are ms since the epoch."""

    name: str
    bucket: int
    revision: int
    """us since the epoch, when it was defined; a later definition has a greater revision."""
    start: int
    """Where an interval counts from."""
    next: int
    """When its next occurrence is, or 0 for never."""
    last: int
    """The time of the last occurrence that was created, or 0 if there was none."""
    definition: bytes


def unpack_schedule(name: str, raw: bytes) -> Schedule:
    """Read a record. Raises ValueError if it is not a record of this version."""
    if len(raw) < SCHEDULE_HEADER or raw[0] != VERSION or not SCHEDULE_HEADER <= raw[1] <= len(raw):
        raise ValueError("not the record of a schedule")
    values, at = [], 0
    for size in SCHEDULE_FIELDS.values():
        values.append(int.from_bytes(raw[at : at + size], "big"))
        at += size
    _, length, bucket, revision, start, next_ms, last = values
    return Schedule(name, bucket, revision, start, next_ms, last, raw[length:])


def pack_schedule(schedule: Schedule) -> bytes:
    """The record of a schedule. Raises OverflowError for values that do not fit the layout."""
    _, bucket, revision, start, next_ms, last, definition = schedule
    values = (VERSION, SCHEDULE_HEADER, bucket, revision, start, next_ms, last)
    sizes = SCHEDULE_FIELDS.values()
    return b"".join(value.to_bytes(size, "big") for value, size in zip(values, sizes, strict=True)) + definition
