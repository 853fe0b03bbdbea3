"""Reads the entries of the stream; their format is described in `buckets/events/__init__.py`."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Sequence
from typing import NamedTuple

from buckets.job import Cause, State, Verb
from buckets.layout import EVENT_NEW, EVENT_VERSION, HEADER, NEW_HEADER, SCHEDULE
from buckets.record import OPTIONAL, VERSION
from buckets.schedules.record import Schedule, unpack_schedule

FIELD = b"m"

_BEFORE = 7  # bytes before the record: the state and `next` before the move
_ENTRY = struct.Struct(">BBBIHB")
_SHORT = struct.Struct(">BBBBBBHIHIHIIHI")
_LONG = struct.Struct(">BBBBBBHIHIHIIHIHHBBIHB")
_STATE, _KEEPS_BODY = 0x07, 0x08
_SCHEDULE = SCHEDULE.encode()
assert _SHORT.size == NEW_HEADER and _LONG.size == HEADER


class Unreadable(ValueError):
    """An entry, or a value in it, that this version cannot read."""


class Entry(NamedTuple):
    """What the events of an entry share."""

    verb: Verb
    """The verb of the script; `verb_of` derives that of each event."""
    is_new: bool
    """True if all jobs are new, so that the values are only records."""
    at: int
    """us since the epoch, by Redis's clock."""
    instance: str
    actor: str
    """Empty if unknown."""


class Event(NamedTuple):
    """One move of a job, or of a schedule, which has only `id`, `verb`, `at`, `next` and `schedule`. Times are in ms
    since the epoch and durations in ms; `at` and `lease` are in us."""

    id: str
    """Empty for a pause or a resume; `~` and the name for a schedule."""
    verb: int
    before: int
    """The state before the move, or 0 for no job or a tombstone."""
    after: int
    """The state after the move, or 0 if the job was set aside or the event is not about a job."""
    at: int
    was: int
    """The record's `next` before the move; for a pause, when it ends, or 0 if only a resume ends it."""
    topic: str
    created: int = 0
    """The id and `created` together identify one life of a job."""
    due: int = 0
    next: int = 0
    priority: int = 0
    cause: int = 0
    bucket: int = 0
    ttr: int = 0
    tries: int = 0
    number: int = 0
    attempts: int = 0
    deliveries: int = 0
    step: int = 0
    lease: int = 0
    keeps_body: bool = False
    has_options: bool = False
    """Whether the job has optional fields, even if this event does not include them."""
    options: bytes | None = None
    """The optional block without its length, or None if this move did not write it."""
    body: bytes | None = None
    """None if this move did not write it, or if it is too large."""
    checksum: int = 0
    lease_ended: bool = False
    """True if the job is dead because the lease of its last try ended."""
    schedule: Schedule | None = None
    """The schedule after the move, without its definition if only its times were written; None if it was removed, or
    for a job."""


def read_entry(head: bytes) -> Entry:
    """Read the value of the field `m`. Raises Unreadable."""
    if len(head) < _ENTRY.size or head[0] != EVENT_VERSION:
        raise Unreadable(f"an entry of version {head[0] if head else 'none'}, or too short")
    _, verb, flags, high, middle, low = _ENTRY.unpack_from(head)
    instance, _, actor = head[_ENTRY.size :].decode("utf-8", "replace").partition(" ")
    try:
        return Entry(Verb(verb), bool(flags & EVENT_NEW), high << 24 | middle << 8 | low, instance, actor)
    except ValueError:
        raise Unreadable(f"an event with the verb {verb}, which this version does not know") from None


_DERIVED: dict[tuple[int, int, int], Verb] = {
    (Verb.DUE, State.READY, State.RESERVED): Verb.POP,  # handed out when it fell due, which has an event of its own
    (Verb.FINISH, State.DELAYED, State.DELETED): Verb.DELETE,  # settled: never delivered
    (Verb.FINISH, State.READY, State.DELETED): Verb.DELETE,
    (Verb.FINISH, State.DEAD, State.DELETED): Verb.DELETE,
    (Verb.OCCUR, 0, State.DELAYED): Verb.ADD,  # an occurrence, in the entry of its schedule
    (Verb.OCCUR, 0, State.READY): Verb.ADD,
}
_OF_SCHEDULES = (Verb.SCHEDULE, Verb.OCCUR, Verb.UNSCHEDULE, Verb.RESTORE)
"""The verbs of entries that may have events of schedules."""


def verb_of(entry: Verb, before: int, after: int) -> int:
    """The verb of an event: the verb of its entry, except for scripts that make several kinds of moves."""
    if entry is Verb.ADD:
        return Verb.REPLACE if before else Verb.ADD
    return _DERIVED.get((entry, before, after), entry)


def read_event(entry: Entry, raw_id: bytes, value: bytes) -> Event:
    """Read a value of an entry. Raises Unreadable."""
    job_id = raw_id.decode("utf-8", "replace")
    checksum = zlib.crc32(value, zlib.crc32(raw_id))
    if entry.is_new:
        before = was = at = 0
    else:
        if len(value) < _BEFORE:
            raise Unreadable(f"a value of {len(value)} bytes")
        before, was, at = value[0], int.from_bytes(value[1:_BEFORE], "big"), _BEFORE
        if not raw_id:
            topic = value[at:].decode("utf-8", "replace")
            return Event("", entry.verb, 0, 0, entry.at, was, topic, checksum=checksum)
        if len(value) == _BEFORE:
            return Event(job_id, Verb.ASIDE, before, 0, entry.at, was, "", checksum=checksum)
    return _read_record(entry, job_id, before, was, value, at, checksum)


def read_schedule(entry: Entry, raw_id: bytes, value: bytes) -> Event:
    """Read the value of a schedule, whose id is `~` and its name. Raises Unreadable."""
    schedule_id, record = raw_id.decode("utf-8", "replace"), value if entry.is_new else value[_BEFORE:]
    schedule = None
    if record or entry.verb is not Verb.UNSCHEDULE:
        try:
            schedule = unpack_schedule(schedule_id.removeprefix(SCHEDULE), record)
        except ValueError as error:
            raise Unreadable(str(error)) from None
    checksum = zlib.crc32(value, zlib.crc32(raw_id))
    return Event(
        *(schedule_id, entry.verb, 0, 0, entry.at, 0, ""),
        next=schedule.next if schedule else 0,
        checksum=checksum,
        schedule=schedule,
    )


def _read_either(entry: Entry, raw_id: bytes, value: bytes) -> Event:
    return (read_schedule if raw_id.startswith(_SCHEDULE) else read_event)(entry, raw_id, value)


def _read_record(entry: Entry, job_id: str, before: int, was: int, value: bytes, at: int, checksum: int) -> Event:
    size = len(value) - at
    if (
        size < NEW_HEADER
        or value[at] != VERSION
        or (value[at + 1] != NEW_HEADER and not HEADER <= value[at + 1] <= size)
    ):
        raise Unreadable("a record of another version, or too short")
    if value[at + 1] == NEW_HEADER:
        (_, length, flags, level, bucket, topic_size, c1, c2, d1, d2, n1, n2, ttr, tries, number) = _SHORT.unpack_from(
            value, at
        )
        attempts = deliveries = step = lease = 0
    else:
        (_, length, flags, level, bucket, topic_size, c1, c2, d1, d2, n1, n2, ttr, tries, number, attempts, *rest) = (
            _LONG.unpack_from(value, at)
        )
        high, low, step, l1, l2, l3 = rest
        deliveries, lease = high << 8 | low, l1 << 24 | l2 << 8 | l3
    after, topic_end = flags & _STATE, at + length + topic_size
    if topic_end > len(value) or not topic_size or after == 0:
        raise Unreadable("a record without its topic or its state")
    lease_ended = after == State.DEAD and level >> 4 == Cause.LEASE
    options, body = _read_rest(value, topic_end, bool(flags & OPTIONAL))
    return Event(
        job_id,
        verb_of(entry.verb, before, after),
        before,
        after,
        entry.at,
        was,
        value[at + length : topic_end].decode("utf-8", "replace"),
        c1 << 32 | c2,
        d1 << 32 | d2,
        n1 << 32 | n2,
        level & 0x0F,
        Cause.TRIES if lease_ended else level >> 4 if level >> 4 <= max(Cause) else 0,
        bucket,
        ttr,
        tries,
        number,
        attempts,
        deliveries,
        step,
        lease,
        bool(flags & _KEEPS_BODY),
        bool(flags & OPTIONAL),
        options,
        body,
        checksum,
        lease_ended,
    )


def _read_rest(value: bytes, at: int, has_options: bool) -> tuple[bytes | None, bytes | None]:
    """The optional block and the body; None for what the value does not include."""
    if at == len(value):
        return None, None
    options: bytes | None = b""
    if has_options:
        end = at + 2 + int.from_bytes(value[at : at + 2], "big")
        if end > len(value):
            raise Unreadable("a record whose optional fields are cut off")
        options, at = value[at + 2 : end], end
    return options, value[at:] or None


def read_all(fields: Sequence[bytes]) -> tuple[Entry, list[Event | tuple[bytes, bytes, str]]]:
    """The events of a stream entry, given as field, value, field, value, …; an event that cannot be read is replaced by
    its id, its value, and the reason. Raises Unreadable if the entry cannot be read at all."""
    if len(fields) < 2 or fields[0] != FIELD or len(fields) % 2:
        raise Unreadable("an entry without the field m")
    entry = read_entry(fields[1])
    read = _read_either if entry.verb in _OF_SCHEDULES else read_event
    events: list[Event | tuple[bytes, bytes, str]] = []
    for raw_id, value in zip(fields[2::2], fields[3::2], strict=True):
        try:
            events.append(read(entry, raw_id, value))
        except Unreadable as error:
            events.append((raw_id, value, str(error)))
    return entry, events
