"""A job: its states, the moves between them, and its record in the pool.

The record is one string. A fixed header that begins with its version and its own length, the topic, an optional
block of tagged fields, the body. Moves change the header in place, so a large body is not written again, but for
the first pop: a job that was never popped has a header of 34 bytes, without the fields that a delivery fills.
Memory is why: with a 9-character topic and a 100-byte body, up to 39 bytes of header fit an allocation of Valkey
that is 16 bytes smaller, and 47 are the most that fit one of 160 bytes of Redis; one more costs 32 (measured:
docs/numbers.md).

    byte  0  version               1   length of the header
          2  flags: state (3 bits), 8: kept for a body in the tombstone, 16: has optional fields, 32: due time
             counted by the hour
          3  priority (low 4 bits), cause of death (high 4 bits)
          4  bucket                5   length of the topic
          6  created         6 bytes, ms since the epoch, as all times
         12  due             6       as asked for; ttl and lateness count from it
         18  next            6       delayed: when it is due; reserved: the end of the lease; ready: since when;
                                     dead: when it died; a tombstone: when it ends
         24  ttr             4       ms, of the current lease
         28  tries           2       deliveries that count, at most; 0 is no limit
         30  number          4       of the ready entry that is valid
    once it was popped
         34  attempts        2       deliveries that counted
         36  deliveries      3       all of them
         39  step            1       on the back-off ladder
         40  lease           7       us since the epoch, of the newest delivery
"""

from __future__ import annotations

import enum
import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

VERSION = 1
HEADER = 47
NEW_HEADER = 34  # of a job that was never popped
MAX_PRIORITY = 9
DEFAULT_PRIORITY = 4
DEFAULT_RETENTION_MS = 60_000  # of the format: a record without the field has this one


class State(enum.IntEnum):
    """Where a job is in its life; the numbers are stored."""

    DELAYED = 1
    READY = 2
    RESERVED = 3
    DEAD = 4
    FINISHED = 5
    DELETED = 6

    @property
    def word(self) -> str:
        return self.name.lower()


STATE_WORDS = {state.word.encode(): state.word for state in State}
"""As scripts say them."""
LIVE = (State.DELAYED, State.READY, State.RESERVED, State.DEAD)

# The arrows of the picture, and the scripts that move a job along each. `None`: there was no job, or a tombstone.
MOVES: dict[tuple[State | None, State], set[str]] = {
    (None, State.DELAYED): {"add", "put"},
    (None, State.READY): {"add", "put"},
    (None, State.DEAD): {"put"},  # of another Redis
    (State.DELAYED, State.DELAYED): {"add", "update", "rewrite"},  # replaced; changed
    (State.DELAYED, State.READY): {"add", "due", "run", "update", "rewrite"},
    (State.READY, State.DELAYED): {"add"},  # replaced
    (State.READY, State.READY): {"add", "update", "rewrite"},  # replaced; changed
    (State.DEAD, State.DELAYED): {"add"},  # replaced
    (State.DEAD, State.READY): {"add", "kick"},  # replaced; tried anew
    (State.RESERVED, State.RESERVED): {"touch"},
    (State.READY, State.RESERVED): {"pop"},
    (State.READY, State.FINISHED): {"pop", "finish"},  # popped at most once; a late worker's finish
    (State.READY, State.DEAD): {"due"},  # ttl over
    (State.RESERVED, State.READY): {"due", "release", "unpop"},
    (State.RESERVED, State.DELAYED): {"due", "release"},
    (State.RESERVED, State.DEAD): {"due", "release", "bury"},
    (State.DELAYED, State.DEAD): {"due"},  # ttl over before it was moved
    (State.RESERVED, State.FINISHED): {"finish"},
    (State.DELAYED, State.FINISHED): {"finish"},
    (State.DEAD, State.FINISHED): {"finish"},
    (State.DELAYED, State.DELETED): {"delete", "purge", "take"},  # to another Redis
    (State.READY, State.DELETED): {"delete", "purge_ready", "take"},
    (State.RESERVED, State.DELETED): {"delete", "purge"},
    (State.DEAD, State.DELETED): {"delete", "purge", "bound", "take"},
}


class Cause(enum.IntEnum):
    """Why a job died; the numbers are stored."""

    NONE = 0
    TRIES = 1
    TTL = 2
    BURIED = 3

    @classmethod
    def _missing_(cls, value: object) -> Cause:
        """A cause that only a later version knows does not make the record unreadable."""
        return cls.NONE


class Tag(enum.IntEnum):
    """The optional fields of a record. A reader skips the tags that it does not know."""

    TTL = 1  # 6 bytes, ms from the due time
    RETENTION = 2  # 4 bytes, ms
    BACKOFF = 3  # 6 bytes a step, ms
    TTR = 4  # 4 bytes, ms: the job's own, while a pop has asked for another
    WORKER = 5  # text: who popped it last
    REASON = 6  # text: why it was given back last
    HEADERS = 7  # JSON
    TAGS = 8  # JSON
    TRACE = 9  # text: trace context


_NEW = struct.Struct(">6B18xIHI")  # a new job's header
_LIMITS = struct.Struct(">IHI")
_STATES = {int(state): state for state in State}  # to make one of its number costs ten times as much
_CAUSES = {int(cause): cause for cause in Cause}
_STATE = 0x07
_OPTIONAL = 0x10
_HOURLY = 0x20


@dataclass(slots=True)
class NewJob:
    """What `add` takes. Times in ms. `due_ms` (since the epoch) wins over `delay_ms` (from now)."""

    id: str
    topic: str
    body: bytes
    delay_ms: int = 0
    due_ms: int = 0
    ttr_ms: int = 60_000  # 0: at most once
    priority: int = DEFAULT_PRIORITY
    tries: int = 16
    backoff_ms: tuple[int, ...] = ()
    ttl_ms: int | None = None
    retention_ms: int = DEFAULT_RETENTION_MS
    headers: bytes = b""
    tags: bytes = b""
    if_exists: str = "keep"  # keep, reject, replace
    most_pending: int = 0  # jobs that the topic may have delayed and ready, for this one to be taken; 0 is no bound

    def front(self) -> bytes:
        """The record up to the body. Of times it has none yet, the state is delayed, and the script knows the rest."""
        topic = self.topic.encode()
        optional = pack_optional(self._optional()) if self._has_optional() else b""
        flags = State.DELAYED | _OPTIONAL if optional else State.DELAYED
        head = _NEW.pack(VERSION, NEW_HEADER, flags, self.priority, 0, len(topic), self.ttr_ms, self.tries, 0)
        return b"".join((head, topic, optional))

    def _has_optional(self) -> bool:
        """Whether there is one at all; mostly not."""
        return bool(
            self.retention_ms != DEFAULT_RETENTION_MS
            or self.ttl_ms is not None
            or self.backoff_ms
            or self.headers
            or self.tags
        )

    def _optional(self) -> Iterator[tuple[Tag, bytes]]:
        if self.ttl_ms is not None:
            yield Tag.TTL, self.ttl_ms.to_bytes(6, "big")
        if self.retention_ms != DEFAULT_RETENTION_MS:
            yield Tag.RETENTION, self.retention_ms.to_bytes(4, "big")
        if self.backoff_ms:
            yield Tag.BACKOFF, b"".join(delay.to_bytes(6, "big") for delay in self.backoff_ms)
        if self.headers:
            yield Tag.HEADERS, self.headers
        if self.tags:
            yield Tag.TAGS, self.tags


@dataclass(slots=True)
class Kind:
    """What a record says before its body, but for the times that differ from job to job: jobs that are popped together
    mostly share it, so it is read once for all of them. Spans in ms."""

    head: bytes  # of the record: version to length of the topic
    rest: bytes  # ttr to the end of the optional block
    topic: str
    body_at: int
    state: State
    priority: int
    cause: Cause
    bucket: int
    ttr: int
    tries: int
    attempts: int
    deliveries: int
    step: int
    number: int
    lease: int
    optional: dict[int, bytes]

    def fits(self, raw: bytes) -> bool:
        """Whether a record is of this kind."""
        return raw[:6] == self.head and raw[24 : self.body_at] == self.rest


@dataclass(slots=True)
class Job:
    """A record as it was read. Times in ms since the epoch, spans in ms; the lease in us since the epoch."""

    id: str
    raw: bytes
    kind: Kind

    @property
    def topic(self) -> str:
        return self.kind.topic

    @property
    def state(self) -> State:
        return self.kind.state

    @property
    def priority(self) -> int:
        return self.kind.priority

    @property
    def cause(self) -> Cause:
        return self.kind.cause

    @property
    def ttr(self) -> int:
        return self.kind.ttr

    @property
    def tries(self) -> int:
        return self.kind.tries

    @property
    def attempts(self) -> int:
        return self.kind.attempts

    @property
    def deliveries(self) -> int:
        return self.kind.deliveries

    @property
    def lease(self) -> int:
        return self.kind.lease

    @property
    def optional(self) -> dict[int, bytes]:
        return self.kind.optional

    @property
    def body(self) -> bytes:
        return self.raw[self.kind.body_at :]

    @property
    def created(self) -> int:
        return int.from_bytes(self.raw[6:12], "big")

    @property
    def due(self) -> int:
        return int.from_bytes(self.raw[12:18], "big")

    @property
    def next(self) -> int:
        return int.from_bytes(self.raw[18:24], "big")

    @property
    def ttl(self) -> int | None:
        return int.from_bytes(self.optional[Tag.TTL], "big") if Tag.TTL in self.optional else None

    @property
    def own_ttr(self) -> int:
        """The job's ttr, whatever the last pop asked for."""
        return int.from_bytes(self.optional[Tag.TTR], "big") if Tag.TTR in self.optional else self.ttr

    @property
    def retention(self) -> int:
        raw = self.optional.get(Tag.RETENTION)
        return DEFAULT_RETENTION_MS if raw is None else int.from_bytes(raw, "big")

    @property
    def backoff(self) -> tuple[int, ...]:
        raw = self.optional.get(Tag.BACKOFF, b"")
        return tuple(int.from_bytes(raw[at : at + 6], "big") for at in range(0, len(raw), 6))

    def text(self, tag: Tag) -> str | None:
        raw = self.optional.get(tag)
        return None if raw is None else raw.decode("utf-8", "replace")


def pack_optional(fields: Iterator[tuple[Tag, bytes]]) -> bytes:
    """The optional block: its length in 2 bytes, then tag (1), length (2), value for each field; empty for none."""
    block = b"".join(bytes((tag,)) + len(value).to_bytes(2, "big") + value for tag, value in fields)
    return len(block).to_bytes(2, "big") + block if block else b""


def unpack_optional(block: bytes) -> dict[int, bytes]:
    """The fields of an optional block, without its length; unknown tags too."""
    fields, at = {}, 0
    while at < len(block):
        size = int.from_bytes(block[at + 1 : at + 3], "big")
        fields[block[at]] = block[at + 3 : at + 3 + size]
        at += 3 + size
    return fields


def _is_header(length: int) -> bool:
    return length == NEW_HEADER or length >= HEADER


def _read_kind(raw: bytes) -> Kind:
    """Raises ValueError when the record is not one of ours."""
    if len(raw) < NEW_HEADER or raw[0] != VERSION or not _is_header(raw[1]) or len(raw) < raw[1]:
        raise ValueError("not a record of this version")
    length, flags, priority, bucket, topic_length = raw[1:6]
    topic_end = body_at = length + topic_length
    optional: dict[int, bytes] = {}
    if flags & _OPTIONAL:
        body_at = topic_end + 2 + int.from_bytes(raw[topic_end : topic_end + 2], "big")
        optional = unpack_optional(raw[topic_end + 2 : body_at])
    ttr, tries, ready_number = _LIMITS.unpack_from(raw, 24)
    popped = raw[NEW_HEADER:HEADER] if length >= HEADER else bytes(HEADER - NEW_HEADER)
    number = int.from_bytes
    return Kind(  # by position: by name it costs half as much again
        raw[:6],
        raw[24:body_at],
        raw[length:topic_end].decode("utf-8", "replace"),  # who reads a job must not fail on one
        body_at,
        _STATES.get(flags & _STATE) or State(flags & _STATE),
        priority & 0x0F,
        _CAUSES.get(priority >> 4, Cause.NONE),
        bucket,
        ttr,
        tries,
        number(popped[:2], "big"),
        number(popped[2:5], "big"),
        popped[5],
        ready_number,
        number(popped[6:], "big"),
        optional,
    )


def unpack(job_id: str, raw: bytes) -> Job:
    """Read a record. Raises ValueError when it is not one of ours."""
    return Job(job_id, raw, _read_kind(raw))


def unpack_all(pairs: Sequence[bytes]) -> list[Job]:
    """Read id, record, id, record, …; as `unpack`."""
    jobs: list[Job] = []
    kind: Kind | None = None
    for job_id, raw in zip(pairs[::2], pairs[1::2], strict=True):
        if kind is None or not kind.fits(raw):
            kind = _read_kind(raw)
        jobs.append(Job(job_id.decode(), raw, kind))
    return jobs
