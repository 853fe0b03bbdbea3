"""A history: what every process of a load asked and heard, and what was broken meanwhile. One JSON line per event.

Events are written as they happen, so that the history of a killed process is complete up to its end. A command is an
`invoke`, and later one of

- `ok`: it was done; a pop has one event per job, or one without an id;
- `fail`: it was refused, nothing was done;
- `info`: nobody knows; it may still be done later.

Both have the same `op`. A fault has a `begin` and an `end`. The final reads of the queue are commands like any other.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any

import msgspec

KINDS = ("invoke", "ok", "fail", "info", "begin", "end")


class Event(msgspec.Struct, omit_defaults=True, kw_only=True):
    """One line. Fields that do not apply to the command are None."""

    at: float  # s, on the monotonic clock of the machine, which all processes share
    process: str
    kind: str
    command: str  # the nemesis, for a fault
    op: int = 0  # number of the command within its process
    id: str | None = None
    topic: str | None = None
    key: str | None = None
    body: int | None = None
    lease: int | None = None  # µs on Redis's clock: when a pop was delivered
    redis: float | None = None  # unix seconds on Redis's clock when the command was done, if the answer reports it
    due: float | None = None  # unix seconds; of a schedule, its next time
    until: float | None = None  # unix seconds: the end of a lease after a touch
    created: float | None = None  # unix seconds: for a pop, when the job was added
    every: float | None = None  # s: the times of a schedule are so far apart,
    start: float | None = None  # unix seconds: and count from here
    catch_up: str | None = None
    overlap: str | None = None
    delay: float | None = None  # s
    ttr: float | None = None  # s
    ttl: float | None = None  # s
    priority: int | None = None
    attempt: int | None = None  # for a pop, the number of the attempt; for a release, 0 if the delivery is not to count
    tries: int | None = None
    result: str | None = None
    state: str | None = None
    durability: str | None = None  # requested in an invoke, reached in an ok
    code: str | None = None
    url: str | None = None
    counts: dict[str, int] | None = None  # of stats
    totals: dict[str, int] | None = None  # of stats
    faults: int | None = None  # from fsck: the number of faults it found
    forgets: tuple[str, ...] = ()  # for a fault: the durability classes that it may forget
    forgets_s: float = 0.0  # and how many seconds before it began acknowledged changes may be among them
    slots: tuple[int, int] | None = None  # for a fault: it affects only shards whose slots are in this range
    line: int = 0  # line in the merged history; not written


_encoder = msgspec.json.Encoder()


class History:
    """The history file of one process of the suite. Each line names the participant that wrote it."""

    def __init__(self, path: Path) -> None:
        self._file = path.open("ab", buffering=0)
        self._ops = 0

    def write(self, event: Event) -> None:
        self._file.write(_encoder.encode(event) + b"\n")

    def invoke(self, process: str, command: str, **fields: Any) -> int:
        """Record that a command is about to be sent. Returns the number that its completion will carry."""
        self._ops += 1
        self._note(process, "invoke", command, self._ops, fields)
        return self._ops

    def complete(self, process: str, kind: str, command: str, op: int, **fields: Any) -> None:
        self._note(process, kind, command, op, fields)

    def _note(self, process: str, kind: str, command: str, op: int, fields: Mapping[str, Any]) -> None:
        self.write(Event(at=time.monotonic(), process=process, kind=kind, command=command, op=op, **fields))

    @contextmanager
    def fault(
        self,
        nemesis: str,
        forgets: tuple[str, ...] = (),
        forgets_s: float = 0.0,
        slots: tuple[int, int] | None = None,
    ) -> Iterator[None]:
        """Record a fault for as long as the block runs. Event says what it may forget, and where it is."""
        self._ops += 1
        op = self._ops
        self._note("nemesis", "begin", nemesis, op, {"forgets": forgets, "forgets_s": forgets_s, "slots": slots})
        try:
            yield
        finally:
            self._note("nemesis", "end", nemesis, op, {})

    def close(self) -> None:
        self._file.close()

    def __enter__(self) -> History:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def read(folder: Path) -> list[Event]:
    """All events in the files of a folder (`*.jsonl`), ordered by time, with lines numbered from 1.

    A last line that a killed process left incomplete is skipped.
    """
    events: list[Event] = []
    for path in sorted(folder.glob("*.jsonl")):
        *whole, _ = path.read_bytes().split(b"\n")
        events += [msgspec.json.decode(line, type=Event) for line in whole]
    return numbered(events)


def numbered(events: Iterable[Event]) -> list[Event]:
    """Order events by time, and number their lines."""
    ordered = sorted(events, key=lambda event: event.at)
    for line, event in enumerate(ordered, 1):
        event.line = line
    return ordered
