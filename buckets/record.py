"""The bytes of a record, packing and unpacking, and the record's numbers for the scripts.

A record is one string: a fixed header, the topic, an optional block of tagged fields, the body. The header begins with
the version and its own length, so that a later version may append to it. Moves change the header in place, so that a
large body is not written again, except at the first pop: a job that was never popped has a short header, without the
fields that a delivery fills. The short header saves memory: with a 9-character topic and a 100-byte body, a header of
up to 39 bytes fits an allocation of Valkey that is 16 bytes smaller. In Redis, a header of up to 47 bytes fits an
allocation of 160 bytes; one more byte costs 32 (measured: docs/numbers.md).

The numbers are defined here and, for the header, in layout.py, and nowhere else: `lua_numbers` writes the numbers that
a script uses into it.
"""

from __future__ import annotations

import struct
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from buckets.job import BEFORE_KEY, DEFAULT_RETENTION_MS, Cause, Job, Kind, NewJob, State, Tag, Verb
from buckets.layout import (
    DELIVERY_FIELDS,
    EVENT_BODY,
    EVENT_NEW,
    EVENT_VERSION,
    HEADER,
    LENGTH,
    NEW_FIELDS,
    NEW_HEADER,
    SCHEDULE,
    SCHEDULE_FIELDS,
    SCHEDULE_HEADER,
    SPAN,
)

VERSION = 1
FAR_MS = 86_400_000  # a delayed job that is due later than this is counted by the hour, any other by the minute

# Flags.
_STATE = 0x07
_BODY = 0x08  # its tombstone keeps the body and all other fields
OPTIONAL = 0x10  # has an optional block
_HOURLY = 0x20  # its due time is counted by the hour
_HOLDS = 0x40  # reserved, and the bell rings for its topic when it frees its place under the concurrency limit
_COPY = 0x80  # made by an add to a virtual topic


def _format(sizes: Iterator[int] | Sequence[int], codes: Mapping[int, str], other: str) -> str:
    """A `struct` format for integers of these sizes. `other`: for a size without a code of its own."""
    return ">" + "".join(codes.get(size, other.format(size)) for size in sizes)


_ATTEMPTS, _DELIVERIES, _STEP_AT = SPAN["attempts"], SPAN["deliveries"], SPAN["step"].start
_NEVER_POPPED = bytes(HEADER)
_BUCKET_AT, _TIMES_AT = SPAN["bucket"].start, SPAN["created"].start
_TTR_AT, _NUMBER_AT, _LEASE_AT = SPAN["ttr"].start, SPAN["number"].start, SPAN["lease"].start
_CODES = {1: "B", 2: "H", 4: "I"}
_NEW = struct.Struct(_format(list(NEW_FIELDS.values()), _CODES, "{}x"))  # the times, still unknown, stay zero
_LIMITS = struct.Struct(_format([NEW_FIELDS[name] for name in ("ttr", "tries")], _CODES, ""))
_STATES = {int(state): state for state in State}  # making one from its number costs ten times as much
_CAUSES = {int(cause): cause for cause in Cause}


def pack_front(job: NewJob) -> bytes:
    """The record of a new job up to its body, with the state delayed and without times; the script fills these in."""
    topic = job.topic.encode()
    optional = pack_optional(_optional_of(job)) if _has_optional(job) else b""
    flags = State.DELAYED | (OPTIONAL if optional else 0) | (_BODY if job.keeps_body else 0)
    flags |= _COPY if job.is_copy else 0
    head = _NEW.pack(VERSION, NEW_HEADER, flags, job.priority, 0, len(topic), job.ttr_ms, job.tries, 0)
    return b"".join((head, topic, optional))


class Fields(NamedTuple):
    """All fields of a record. Times are in ms since the epoch, durations in ms, the lease in us since the epoch; their
    ranges are those of the layout. `bucket`, `number` and `hourly` belong to the indexes: the code that stores a record
    sets them."""

    state: int
    topic: str
    created: int
    due: int
    next: int
    ttr: int
    tries: int
    priority: int
    cause: int = 0
    attempts: int = 0
    deliveries: int = 0
    step: int = 0
    lease: int = 0
    """0 if the job was never popped."""
    keeps_body: bool = False
    options: bytes = b""
    """The optional block without its length, unparsed."""
    body: bytes = b""
    bucket: int = 0
    number: int = 0
    hourly: bool = False


def pack_record(job: Fields) -> bytes:
    """The record of a job with any history. Raises OverflowError for a value that does not fit the layout."""
    topic = job.topic.encode()
    flags = job.state | (OPTIONAL if job.options else 0) | (_BODY if job.keeps_body else 0)
    flags |= _HOURLY if job.hourly else 0
    head = {
        **{"version": VERSION, "length": HEADER if job.lease else NEW_HEADER, "flags": flags},
        **{"priority": job.priority + 16 * job.cause, "bucket": job.bucket, "topic_length": len(topic)},
        **{name: getattr(job, name) for name in ("created", "due", "next", "ttr", "tries", "number")},
        **({name: getattr(job, name) for name in DELIVERY_FIELDS} if job.lease else {}),
    }
    sizes = NEW_FIELDS | DELIVERY_FIELDS
    block = len(job.options).to_bytes(2, "big") + job.options if job.options else b""
    return b"".join((*(value.to_bytes(sizes[name], "big") for name, value in head.items()), topic, block, job.body))


def _has_optional(job: NewJob) -> bool:
    """Whether the job has any optional field; most have none."""
    return bool(
        job.retention_ms != DEFAULT_RETENTION_MS
        or job.ttl_ms is not None
        or (job.backoff_ms or job.headers or job.tags or job.note or job.key)
    )


def _optional_of(job: NewJob) -> Iterator[tuple[Tag, bytes]]:
    if job.key:
        limits = job.key_concurrency.to_bytes(2, "big") + job.key_gap_us.to_bytes(4, "big")
        yield Tag.KEY, limits + bytes(4) + job.key.encode()
    if job.ttl_ms is not None:
        yield Tag.TTL, job.ttl_ms.to_bytes(6, "big")
    if job.retention_ms != DEFAULT_RETENTION_MS:
        yield Tag.RETENTION, job.retention_ms.to_bytes(4, "big")
    if job.backoff_ms:
        yield Tag.BACKOFF, pack_ladder(job.backoff_ms)
    if job.headers:
        yield Tag.HEADERS, job.headers
    if job.tags:
        yield Tag.TAGS, job.tags
    if job.note:
        yield Tag.NOTE, job.note


def pack_ladder(delays_ms: Iterable[int]) -> bytes:
    """A back-off ladder, in the form of records and scripts."""
    return b"".join(delay.to_bytes(6, "big") for delay in delays_ms)


def pack_optional(fields: Iterator[tuple[Tag, bytes]]) -> bytes:
    """The optional block: its length (2 bytes), then tag (1), length (2) and value of each field; empty if there are
    none."""
    block = b"".join(bytes((tag,)) + len(value).to_bytes(2, "big") + value for tag, value in fields)
    return len(block).to_bytes(2, "big") + block if block else b""


def unpack_optional(block: bytes) -> dict[int, bytes]:
    """The fields of an optional block without its length, unknown tags included."""
    fields, at = {}, 0
    while at < len(block):
        size = int.from_bytes(block[at + 1 : at + 3], "big")
        fields[block[at]] = block[at + 3 : at + 3 + size]
        at += 3 + size
    return fields


def _is_header(length: int) -> bool:
    return length == NEW_HEADER or length >= HEADER


_MOST_KINDS = 256  # remembered; the part of a record before the body has at most a few KB
_KINDS: dict[bytes, Kind] = {}


def _kind(raw: bytes) -> Kind:
    """The kind of a record. Raises ValueError if this is not a record of this version."""
    if len(raw) < NEW_HEADER or raw[0] != VERSION or not _is_header(raw[1]) or len(raw) < raw[1]:
        raise ValueError("not a record of this version")
    length, flags, _, _, topic_length = raw[LENGTH:_TIMES_AT]
    body_at = length + topic_length
    if flags & OPTIONAL:
        body_at += 2 + int.from_bytes(raw[body_at : body_at + 2], "big")
    popped = length >= HEADER
    # All before the body except bucket, times, number and lease.
    head = raw[:_BUCKET_AT] + raw[_TIMES_AT - 1 : _TIMES_AT] + raw[_TTR_AT:_NUMBER_AT]
    key = head + (raw[NEW_HEADER:_LEASE_AT] + raw[HEADER:body_at] if popped else raw[NEW_HEADER:body_at])
    kind = _KINDS.get(key)
    if kind is None:
        kind = _read_kind(raw, body_at)
        if Tag.KEY in kind.optional:  # no other job is of its kind
            return kind
        if len(_KINDS) >= _MOST_KINDS:
            _KINDS.clear()
        _KINDS[key] = kind
    return kind


def _read_kind(raw: bytes, body_at: int) -> Kind:
    number = int.from_bytes
    length, flags, priority, _, topic_length = raw[LENGTH:_TIMES_AT]
    topic_end = length + topic_length
    ttr, tries = _LIMITS.unpack_from(raw, _TTR_AT)
    popped = raw if length >= HEADER else _NEVER_POPPED
    return Kind(
        topic=raw[length:topic_end].decode("utf-8", "replace"),  # reading a job must not fail because of one bad byte
        body_at=body_at,
        state=_STATES.get(flags & _STATE) or State(flags & _STATE),
        priority=priority & 0x0F,
        cause=_CAUSES.get(priority >> 4, Cause.NONE),
        ttr=ttr,
        tries=tries,
        attempts=number(popped[_ATTEMPTS], "big"),
        deliveries=number(popped[_DELIVERIES], "big"),
        step=popped[_STEP_AT],
        optional=unpack_optional(raw[topic_end + 2 : body_at]) if flags & OPTIONAL else {},
    )


def unpack(job_id: str, raw: bytes) -> Job:
    """Read a record. Raises ValueError if it is not a record of this version."""
    kind, number = _kind(raw), int.from_bytes
    lease = number(raw[SPAN["lease"]], "big") if raw[LENGTH] >= HEADER else 0
    return Job(job_id, raw, kind, number(raw[SPAN["due"]], "big"), lease)


# The same for jobs that were popped together, which are mostly similar: one look at the header shows it. Only bucket,
# times, number and lease differ.
_POPPED = struct.Struct(">IxB6xHI6xIH4xHIBHI")
assert _POPPED.size == HEADER


def unpack_all(pairs: Sequence[bytes]) -> list[Job]:
    """Read id, record, id, record, … Raises ValueError as `unpack` does."""
    jobs: list[Job] = []
    kind: Kind | None = None
    before: tuple[int, ...] = ()
    behind, body_at = b"", 0
    for raw_id, raw in zip(pairs[::2], pairs[1::2], strict=True):
        job_id = raw_id.decode()
        if len(raw) < HEADER or raw[LENGTH] < HEADER:
            jobs.append(unpack(job_id, raw))
            continue
        first, topic, due_1, due_2, ttr, tries, attempts, counts, lease_1, lease_2, lease_3 = _POPPED.unpack_from(raw)
        like = (first, topic, ttr, tries, attempts, counts)
        if kind is None or like != before or raw[HEADER:body_at] != behind:
            kind = _kind(raw)
            before, body_at = like, kind.body_at
            behind = raw[HEADER:body_at]
        jobs.append(Job(job_id, raw, kind, due_1 << 32 | due_2, (lease_1 << 16 | lease_2) << 32 | lease_3))
    return jobs


def _lua(value: int | str) -> str:
    return f"'{value}'" if isinstance(value, str) else str(int(value))


_LUA_CODES = {1: "B", 2: "H"}
_LUA = {
    **{state.word: _lua(state) for state in State},
    "WORDS": "{" + ", ".join(_lua(state.word) for state in State) + "}",
    **{f"CAUSE_{cause.name}": _lua(cause) for cause in Cause},
    "VERSION": _lua(VERSION),
    "SHORT": _lua(NEW_HEADER),
    "LONG": _lua(HEADER),
    "HEADER": _lua(_format(list(NEW_FIELDS.values()), _LUA_CODES, "I{}")),
    "DELIVERY": _lua(_format(list(DELIVERY_FIELDS.values()), _LUA_CODES, "I{}")),
    "BODY": _lua(_BODY),
    "OPTIONAL": _lua(OPTIONAL),
    "HOURLY": _lua(_HOURLY),
    "HOLDS": _lua(_HOLDS),
    "COPY": _lua(_COPY),
    **{f"TAG_{tag.name}": _lua(tag) for tag in Tag},
    "BEFORE_KEY": _lua(BEFORE_KEY),
    "DEFAULT_RETENTION": _lua(DEFAULT_RETENTION_MS),
    "FAR": _lua(FAR_MS),
    **{f"VERB_{verb.name}": _lua(verb) for verb in Verb},
    "SCHEDULE": _lua(SCHEDULE),
    "SCHEDULE_HEADER": _lua(_format(list(SCHEDULE_FIELDS.values()), _LUA_CODES, "I{}")),
    "SCHEDULE_LENGTH": _lua(SCHEDULE_HEADER),
    "EVENT_VERSION": _lua(EVENT_VERSION),
    "EVENT_NEW": _lua(EVENT_NEW),
    "EVENT_BODY": _lua(EVENT_BODY),
}
"""The numbers of the record, by their names in scripts."""


def lua_numbers(words: Collection[str]) -> str:
    """The Lua line that defines the record's numbers that a script uses. `words`: the words of the script."""
    used = [name for name in _LUA if name in words]
    return f"local {', '.join(used)} = {', '.join(_LUA[name] for name in used)}\n" if used else ""
