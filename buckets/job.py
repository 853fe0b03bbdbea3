"""A job: its states, the moves between them, and the forms in which callers add and read it.

Times are in ms since the epoch and durations in ms, except the lease, which is in us since the epoch. How a job is
stored is defined in buckets/layout.py and buckets/record.py.
"""

from __future__ import annotations

import enum
import hashlib
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple, Self

from buckets.layout import LENGTH, SPAN

DEFAULT_PRIORITY = 4
DEFAULT_RETENTION_MS = 60_000  # part of the record's format: used if a record lacks the field
_BUCKET = SPAN["bucket"].start
_CREATED, _NEXT, _NUMBER = SPAN["created"], SPAN["next"], SPAN["number"]


class State(enum.IntEnum):
    """Where a job is in its life. The numbers are stored."""

    DELAYED = 1
    READY = 2
    RESERVED = 3
    DEAD = 4
    FINISHED = 5
    DELETED = 6

    def __init__(self, _number: int) -> None:
        self.word = self.name.lower()


def later_ms(job_id: str, most_ms: int) -> int:
    """By how many ms the job with this id is later than its time, up to `most_ms`: evenly spread over ids, and always
    the same for the same id."""
    digest = hashlib.blake2b(job_id.encode(), digest_size=8).digest()
    return int.from_bytes(digest) * (most_ms + 1) >> 64


STATE_WORDS = {state.word.encode(): state.word for state in State}
"""The states as scripts spell them."""
LIVE = (State.DELAYED, State.READY, State.RESERVED, State.DEAD)

# The arrows of the picture in buckets/__init__.py, and the scripts that move a job along each. `None` means no job, or
# a tombstone.
MOVES: dict[tuple[State | None, State], set[str]] = {
    (None, State.DELAYED): {"add", "occur", "import"},
    (None, State.READY): {"add", "occur", "import"},
    (None, State.RESERVED): {"import"},  # restored from a journal
    (None, State.DEAD): {"import"},  # migrated from another Redis
    (State.DELAYED, State.DELAYED): {"add", "update", "rewrite", "apply_operation"},  # replaced; changed
    (State.DELAYED, State.READY): {"add", "due", "run", "update", "rewrite", "apply_operation"},
    (State.READY, State.DELAYED): {"add"},  # replaced
    (State.READY, State.READY): {"add", "update", "rewrite"},  # replaced; changed
    (State.DEAD, State.DELAYED): {"add"},  # replaced
    (State.DEAD, State.READY): {"add", "kick", "apply_operation"},  # replaced; kicked
    (State.RESERVED, State.RESERVED): {"touch"},
    (State.READY, State.RESERVED): {"pop", "pop_by_priority", "pop_limited", "take"},
    (State.DELAYED, State.RESERVED): {"due", "take"},  # due while a pop waited; taken
    (State.DEAD, State.RESERVED): {"take"},
    # Delivered at most once, or finished by a late worker.
    (State.READY, State.FINISHED): {"pop", "pop_by_priority", "pop_limited", "take", "finish", "end_life"},
    (State.READY, State.DEAD): {"due"},  # ttl over
    (State.RESERVED, State.READY): {"due", "release", "unpop"},
    (State.RESERVED, State.DELAYED): {"due", "release"},
    (State.RESERVED, State.DEAD): {"due", "release", "bury"},
    (State.DELAYED, State.DEAD): {"due"},  # ttl over before the timer moved it
    (State.RESERVED, State.FINISHED): {"finish", "end_life"},
    (State.DELAYED, State.FINISHED): {"take", "finish", "end_life"},
    (State.DEAD, State.FINISHED): {"take", "finish", "end_life"},
    # `export`: moved to another Redis; `end_life`: ended again after a failover.
    (State.DELAYED, State.DELETED): {"delete", "finish", "purge", "export", "end_life", "apply_operation"},
    (State.READY, State.DELETED): {
        "delete",
        "finish",
        "purge_ready",
        "purge_blocked",
        "export",
        "end_life",
        "apply_operation",
    },
    (State.RESERVED, State.DELETED): {"delete", "purge", "end_life", "apply_operation"},
    (State.DEAD, State.DELETED): {"delete", "finish", "purge", "trim_dead", "export", "end_life", "apply_operation"},
}


class Verb(enum.IntEnum):
    """What happened to a job, as its event says. The numbers are stored.

    An entry of the stream has one verb, that of its script; `buckets/events` derives the verb for each job.
    """

    ADD = 1
    REPLACE = 2  # an add over a live job
    DUE = 3  # fell due, or its lease or its ttl ended: the state before the move says which
    POP = 4
    UNPOP = 5
    TOUCH = 6
    RELEASE = 7
    BURY = 8
    FINISH = 9
    DELETE = 10
    KICK = 11
    RUN = 12
    UPDATE = 13
    REWRITE = 14
    PURGE = 15
    TRIM = 16  # deleted, as a dead letter beyond its topic's limits
    TAKE = 17  # a pop of one id
    EXPORT = 18
    IMPORT = 19
    MEND = 20  # corrected by fsck
    ASIDE = 21  # unreadable, and set aside
    RESTORE = 22
    PAUSE = 23  # of a topic
    RESUME = 24
    WALK = 25  # not a move: the journal read the record
    VANISHED = 26  # not a move: the journal has it as live, and Redis does not know it
    SCHEDULE = 27  # a schedule was defined
    OCCUR = 28  # a schedule's time had come; the jobs that were created have events of their own
    UNSCHEDULE = 29

    @property
    def word(self) -> str:
        return self.name.lower()


class Cause(enum.IntEnum):
    """Why a job died, or how the last delivery of a delayed or ready one ended. The numbers are stored."""

    NONE = 0
    TRIES = 1
    TTL = 2
    BURIED = 3
    LEASE = 4  # its lease ended, followed by nothing except its back-off or its death by TRIES

    @classmethod
    def _missing_(cls, value: object) -> Cause:
        """Read a cause that only a later version knows as NONE, so that the record stays readable."""
        return cls.NONE


LEASE_ENDED = "lease ended"
"""The reason of a job whose lease ended."""


class Tag(enum.IntEnum):
    """The optional fields of a job. The numbers are stored; a reader skips those that it does not know."""

    TTL = 1  # 6 bytes, ms from the due time
    RETENTION = 2  # 4 bytes, ms
    BACKOFF = 3  # 6 bytes a step, ms
    TTR = 4  # 4 bytes, ms: the job's own ttr, while a pop has set another
    WORKER = 5  # text: who popped it last
    REASON = 6  # text: why it was last released or buried
    HEADERS = 7  # JSON
    TAGS = 8  # JSON
    TRACE = 9  # text: trace context
    READY = 10  # 6 bytes, ms: since when it was ready again; only in the reply to a pop
    NOTE = 11  # bytes: data that a dialect keeps with the job
    # 2 bytes: how many jobs of the key may run at a time; 4 bytes: us between their deliveries; 4 bytes: how many jobs
    # of the topic were created or replaced before (written by add.lua); text: the key. The first field of a new record.
    KEY = 12


_KEY_HEAD = struct.Struct(">HII")
BEFORE_KEY = _KEY_HEAD.size
"""The bytes of the optional field before the key."""


class KeyOf(NamedTuple):
    """What a job's record says about its key; see `Tag.KEY`."""

    name: str
    concurrency: int
    gap_us: int

    @classmethod
    def among(cls, optional: Mapping[int, bytes]) -> Self | None:
        """The key among the optional fields of a record, or None."""
        raw = optional.get(Tag.KEY, b"")
        if len(raw) <= BEFORE_KEY:
            return None
        concurrency, gap_us, _ = _KEY_HEAD.unpack_from(raw)
        return cls(raw[BEFORE_KEY:].decode("utf-8", "replace"), concurrency, gap_us)


@dataclass(slots=True)
class NewJob:
    """A job to add. If `due_ms` (since the epoch) is given, `delay_ms` (from now) is ignored."""

    id: str
    topic: str
    body: bytes
    delay_ms: int = 0
    due_ms: int = 0
    ttr_ms: int = 60_000  # 0 for at most one delivery
    priority: int = DEFAULT_PRIORITY
    tries: int = 16  # the most deliveries that count; 0 for no limit
    backoff_ms: tuple[int, ...] = ()
    ttl_ms: int | None = None
    retention_ms: int = DEFAULT_RETENTION_MS
    headers: bytes = b""
    tags: bytes = b""
    if_exists: str = "keep"  # keep, reject, renew, replace; later, sooner: an empty body keeps the old one
    most_pending: int = 0  # the job is refused if its topic has this many delayed and ready jobs; 0 for no limit
    note: bytes = b""  # up to 64 bytes, which the queue does not read
    keeps_body: bool = False  # its tombstone keeps the body and all other fields, unless it is purged
    is_copy: bool = False  # made by an add to a virtual topic, which its record notes
    key: str = ""  # jobs of a topic with the same key run one after the other; without `@`; empty for none
    key_concurrency: int = 1  # how many of them may run at a time; 0 for any number
    key_gap_us: int = 0  # the least time between their deliveries


@dataclass(slots=True)
class Kind:
    """The part of a record that similar jobs share, decoded once for all of them."""

    topic: str
    body_at: int
    state: State
    priority: int
    cause: Cause
    ttr: int
    tries: int
    attempts: int
    deliveries: int
    step: int  # on the back-off ladder
    optional: dict[int, bytes]  # by tag, unknown ones included

    __hash__ = object.__hash__  # so that a dictionary can cache what is derived from a kind


@dataclass(slots=True)
class Job:
    """A job as it was read. Fields that few callers need are decoded from the record on access."""

    id: str
    raw: bytes
    kind: Kind
    due: int
    lease: int  # of the newest delivery; 0 before the first

    @property
    def bucket(self) -> int:
        number: int = self.raw[_BUCKET]
        return number

    @property
    def created(self) -> int:
        return int.from_bytes(self.raw[_CREATED], "big")

    @property
    def next(self) -> int:
        return int.from_bytes(self.raw[_NEXT], "big")

    @property
    def number(self) -> int:
        """The number of its valid entry in a ready list."""
        return int.from_bytes(self.raw[_NUMBER], "big")

    @property
    def header(self) -> bytes:
        """The beginning of its record: all fields that moves change. No other job with the same id has the same
        header."""
        return self.raw[: self.raw[LENGTH]]

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
        cause = self.kind.cause
        return Cause.TRIES if cause is Cause.LEASE and self.state is State.DEAD else cause

    @property
    def reason(self) -> str | None:
        """Why it came back or died: the worker's reason, or `LEASE_ENDED`."""
        told = self.kind.cause is Cause.LEASE and self.state in (State.DELAYED, State.READY, State.DEAD)
        return LEASE_ENDED if told else self.text(Tag.REASON)

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
    def optional(self) -> dict[int, bytes]:
        return self.kind.optional

    @property
    def body(self) -> bytes:
        return self.raw[self.kind.body_at :]

    @property
    def size(self) -> int:
        """The size of its body in bytes."""
        return len(self.raw) - self.kind.body_at

    @property
    def note(self) -> bytes:
        return self.optional.get(Tag.NOTE, b"")

    @property
    def key(self) -> str | None:
        key = KeyOf.among(self.optional)
        return key and key.name

    @property
    def ttl(self) -> int | None:
        return int.from_bytes(self.optional[Tag.TTL], "big") if Tag.TTL in self.optional else None

    @property
    def own_ttr(self) -> int:
        """The job's own ttr, even if the last pop set another."""
        return int.from_bytes(self.optional[Tag.TTR], "big") if Tag.TTR in self.optional else self.ttr

    @property
    def retention(self) -> int:
        raw = self.optional.get(Tag.RETENTION)
        return DEFAULT_RETENTION_MS if raw is None else int.from_bytes(raw, "big")

    @property
    def backoff(self) -> tuple[int, ...]:
        raw = self.optional.get(Tag.BACKOFF, b"")
        return tuple(int.from_bytes(raw[at : at + 6], "big") for at in range(0, len(raw), 6))

    @property
    def lease_ended(self) -> int | None:
        """When its last lease ended, as its timer saw it; None if anything else has happened to it since."""
        if self.cause is not Cause.LEASE or self.state not in (State.DELAYED, State.READY):
            return None
        ladder, step = self.backoff, self.kind.step  # the step was advanced when the lease ended
        return self.next - (ladder[min(step, len(ladder)) - 1] if ladder else 0)

    @property
    def ready_again(self) -> int | None:
        """Since when a popped job was ready, if it had been delivered before; otherwise None."""
        raw = self.optional.get(Tag.READY)
        return None if raw is None else int.from_bytes(raw, "big")

    def text(self, tag: Tag) -> str | None:
        """An optional field as text; None if the job does not have it."""
        raw = self.optional.get(tag)
        return None if raw is None else raw.decode("utf-8", "replace")
