"""The layout of a record's header: its fields in their order, and where each of them is.

Integers are big-endian; times are ms since the epoch. A job that was never popped has a short header, without the
fields that a delivery fills.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import accumulate

NEW_FIELDS = {
    "version": 1,
    "length": 1,  # of the header
    "flags": 1,  # the state (3 bits), and the flags of buckets/record.py
    "priority": 1,  # in the low 4 bits; the cause of death is in the high 4 bits
    "bucket": 1,
    "topic_length": 1,
    "created": 6,
    "due": 6,  # as the caller asked; ttl and lateness count from it
    "next": 6,  # delayed: when due; reserved or a tombstone: when it ends; ready or dead: since when
    "ttr": 4,  # ms, of the current lease
    "tries": 2,  # the most deliveries that count; 0 for no limit
    "number": 4,  # of the ready entry that is valid
}
"""The fields of every header, and their sizes in bytes."""
DELIVERY_FIELDS = {
    "attempts": 2,  # deliveries that counted
    "deliveries": 3,  # all of them
    "step": 1,  # on the back-off ladder
    "lease": 7,  # us since the epoch, of the newest delivery
}
"""Further fields, from the first pop on."""
NEW_HEADER = sum(NEW_FIELDS.values())  # bytes, of a job that was never popped
HEADER = NEW_HEADER + sum(DELIVERY_FIELDS.values())

SCHEDULE_FIELDS = {
    "version": 1,
    "length": 1,  # of the header
    "bucket": 1,
    "revision": 7,  # us since the epoch, when it was defined; a later definition has a greater one
    "start": 6,  # where an interval counts from
    "next": 6,  # when its next occurrence is; 0 for never
    "last": 6,  # when the last created occurrence is; 0 for none
}
"""The fields of a schedule's header, and their sizes in bytes; its definition follows. Times are as in a job's
header."""
SCHEDULE_HEADER = sum(SCHEDULE_FIELDS.values())
SCHEDULE = "~"
"""The prefix of a schedule's entry in a bucket, before its name. No job id begins with it."""


def _spans(fields: Mapping[str, int]) -> dict[str, slice]:
    ends = accumulate(fields.values())
    return {name: slice(end - size, end) for (name, size), end in zip(fields.items(), ends, strict=True)}


SPAN = _spans(NEW_FIELDS | DELIVERY_FIELDS)
"""Where each field is."""
EVENT_VERSION = 1
"""The version of the entries of events (buckets/events)."""
EVENT_NEW = 1
"""The flag of an entry whose jobs are all new."""
EVENT_BODY = 4096
"""The largest body that an event includes, in bytes."""
LENGTH: int = SPAN["length"].start
