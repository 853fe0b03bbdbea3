"""The bytes of a record, both ways, and their numbers for the scripts.

A record is one string: a fixed header, the topic, an optional block of tagged fields, the body. The header begins with
the version and its own length, so that a later version may append to it. Moves change the header in place, so that a
large body is not written again, except at the first pop: a job that was never popped has a short header, without the
fields that a delivery fills. The reason is memory: with a 9-character topic and a 100-byte body, a header of up to 39
bytes fits an allocation of Valkey that is 16 bytes smaller, and 47 bytes are the most that fit one of 160 bytes in
Redis; one more costs 32 (measured: docs/numbers.md).

The numbers stand here and nowhere else: `lua_numbers` writes those that a script uses into it.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import accumulate

from buckets.job import DEFAULT_RETENTION_MS, Cause, Job, Kind, NewJob, State, Tag

VERSION = 1
FAR_MS = 86_400_000  # a delayed job that is due later than this is counted by the hour, any other by the minute

# The fields of the header in their order, and their sizes in bytes. Integers, big-endian; times are ms since the epoch.
_NEW_FIELDS = {
    "version": 1,
    "length": 1,  # of the header
    "flags": 1,  # the state (3 bits), and the flags below
    "priority": 1,  # low 4 bits; the cause of death in the high 4 bits
    "bucket": 1,
    "topic_length": 1,
    "created": 6,
    "due": 6,  # as the caller asked; ttl and lateness count from it
    "next": 6,  # delayed: when due; reserved, or a tombstone: when that ends; ready, dead: since when
    "ttr": 4,  # ms, of the current lease
    "tries": 2,  # deliveries that count, at most; 0: no limit
    "number": 4,  # of the ready entry that is valid
}
# Further fields, from the first pop on.
_DELIVERY_FIELDS = {
    "attempts": 2,  # deliveries that counted
    "deliveries": 3,  # all of them
    "step": 1,  # on the back-off ladder
    "lease": 7,  # us since the epoch, of the newest delivery
}
NEW_HEADER = sum(_NEW_FIELDS.values())  # bytes, of a job that was never popped
HEADER = NEW_HEADER + sum(_DELIVERY_FIELDS.values())

# Flags.
_STATE = 0x07
_BODY = 0x08  # its tombstone keeps the body, and all else
_OPTIONAL = 0x10  # has an optional block
_HOURLY = 0x20  # its due time is counted by the hour


def _spans(fields: Mapping[str, int]) -> dict[str, slice]:
    ends = accumulate(fields.values())
    return {name: slice(end - size, end) for (name, size), end in zip(fields.items(), ends, strict=True)}


def _format(sizes: Iterator[int] | Sequence[int], codes: Mapping[int, str], other: str) -> str:
    """A format of `struct` for integers of these sizes; `other` is used for a size without a code of its own."""
    return ">" + "".join(codes.get(size, other.format(size)) for size in sizes)


_SPAN = _spans(_NEW_FIELDS | _DELIVERY_FIELDS)
_CREATED, _DUE, _NEXT = _SPAN["created"], _SPAN["due"], _SPAN["next"]
_ATTEMPTS, _DELIVERIES, _LEASE = _SPAN["attempts"], _SPAN["deliveries"], _SPAN["lease"]
_STEP_AT = _SPAN["step"].start
_NEVER_POPPED = bytes(HEADER)
_HEAD_END = _CREATED.start  # before it: what jobs of a kind share, the times follow
_LIMITS_AT = _SPAN["ttr"].start
_CODES = {1: "B", 2: "H", 4: "I"}
_NEW = struct.Struct(_format(list(_NEW_FIELDS.values()), _CODES, "{}x"))  # the times, still unknown, are left zero
_LIMITS = struct.Struct(_format([_NEW_FIELDS[name] for name in ("ttr", "tries", "number")], _CODES, ""))
_STATES = {int(state): state for state in State}  # making one from its number costs ten times as much
_CAUSES = {int(cause): cause for cause in Cause}


def pack_front(job: NewJob) -> bytes:
    """The record of a new job up to its body: delayed and without times, which the script fills in."""
    topic = job.topic.encode()
    optional = pack_optional(_optional_of(job)) if _has_optional(job) else b""
    flags = State.DELAYED | (_OPTIONAL if optional else 0) | (_BODY if job.keeps_body else 0)
    head = _NEW.pack(VERSION, NEW_HEADER, flags, job.priority, 0, len(topic), job.ttr_ms, job.tries, 0)
    return b"".join((head, topic, optional))


def _has_optional(job: NewJob) -> bool:
    """Whether the job has any optional field; most have none."""
    return bool(
        job.retention_ms != DEFAULT_RETENTION_MS
        or job.ttl_ms is not None
        or (job.backoff_ms or job.headers or job.tags or job.note)
    )


def _optional_of(job: NewJob) -> Iterator[tuple[Tag, bytes]]:
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
    """A back-off ladder, as records and scripts have it."""
    return b"".join(delay.to_bytes(6, "big") for delay in delays_ms)


def pack_optional(fields: Iterator[tuple[Tag, bytes]]) -> bytes:
    """The optional block: its length (2 bytes), then tag (1), length (2), value of each field; empty without fields."""
    block = b"".join(bytes((tag,)) + len(value).to_bytes(2, "big") + value for tag, value in fields)
    return len(block).to_bytes(2, "big") + block if block else b""


def unpack_optional(block: bytes) -> dict[int, bytes]:
    """The fields of an optional block that comes without its length, unknown tags included."""
    fields, at = {}, 0
    while at < len(block):
        size = int.from_bytes(block[at + 1 : at + 3], "big")
        fields[block[at]] = block[at + 3 : at + 3 + size]
        at += 3 + size
    return fields


def _is_header(length: int) -> bool:
    return length == NEW_HEADER or length >= HEADER


def _read_kind(raw: bytes) -> Kind:
    """Raises ValueError if this is not a record of this version."""
    if len(raw) < NEW_HEADER or raw[0] != VERSION or not _is_header(raw[1]) or len(raw) < raw[1]:
        raise ValueError("not a record of this version")
    number = int.from_bytes
    length, flags, priority, bucket, topic_length = raw[1:_HEAD_END]
    topic_end = body_at = length + topic_length
    ttr, tries, ready_number = _LIMITS.unpack_from(raw, _LIMITS_AT)
    optional: dict[int, bytes] = {}
    if flags & _OPTIONAL:
        body_at = topic_end + 2 + number(raw[topic_end : topic_end + 2], "big")
        optional = unpack_optional(raw[topic_end + 2 : body_at])
    popped = raw if length >= HEADER else _NEVER_POPPED
    return Kind(  # by position: by name it takes half as long again
        raw[:_HEAD_END],
        raw[_LIMITS_AT:body_at],
        raw[length:topic_end].decode("utf-8", "replace"),  # reading a job must not fail because of one bad byte
        body_at,
        _STATES.get(flags & _STATE) or State(flags & _STATE),
        priority & 0x0F,
        _CAUSES.get(priority >> 4, Cause.NONE),
        bucket,
        ttr,
        tries,
        number(popped[_ATTEMPTS], "big"),
        number(popped[_DELIVERIES], "big"),
        popped[_STEP_AT],
        ready_number,
        number(popped[_LEASE], "big"),
        optional,
    )


def _is_of(kind: Kind, raw: bytes) -> bool:
    return raw[:_HEAD_END] == kind.head and raw[_LIMITS_AT : kind.body_at] == kind.rest


def _job(job_id: str, raw: bytes, kind: Kind) -> Job:
    number = int.from_bytes
    return Job(job_id, raw, kind, number(raw[_CREATED], "big"), number(raw[_DUE], "big"), number(raw[_NEXT], "big"))


def unpack(job_id: str, raw: bytes) -> Job:
    """Read a record. Raises ValueError if it is not one of this version."""
    return _job(job_id, raw, _read_kind(raw))


def unpack_all(pairs: Sequence[bytes]) -> list[Job]:
    """Read id, record, id, record, … Raises ValueError as `unpack` does."""
    jobs: list[Job] = []
    kind: Kind | None = None
    for job_id, raw in zip(pairs[::2], pairs[1::2], strict=True):
        if kind is None or not _is_of(kind, raw):
            kind = _read_kind(raw)
        jobs.append(_job(job_id.decode(), raw, kind))
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
    "HEADER": _lua(_format(list(_NEW_FIELDS.values()), _LUA_CODES, "I{}")),
    "DELIVERY": _lua(_format(list(_DELIVERY_FIELDS.values()), _LUA_CODES, "I{}")),
    "BODY": _lua(_BODY),
    "OPTIONAL": _lua(_OPTIONAL),
    "HOURLY": _lua(_HOURLY),
    **{f"TAG_{tag.name}": _lua(tag) for tag in Tag},
    "DEFAULT_RETENTION": _lua(DEFAULT_RETENTION_MS),
    "FAR": _lua(FAR_MS),
}
"""The numbers of the record by the names that scripts have for them."""
_WORD = re.compile(r"(?<![.\w])\w+")


def lua_numbers(source: str) -> str:
    """The Lua line that defines those of the record's numbers that `source` uses."""
    words = set(_WORD.findall(source))
    used = [name for name in _LUA if name in words]
    return f"local {', '.join(used)} = {', '.join(_LUA[name] for name in used)}\n" if used else ""
