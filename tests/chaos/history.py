"""A history: what every process of a load asked and heard, and what was broken meanwhile; a JSON line an event.

An event is written as it happens, so that what a killed process did is known until its last moment. A command is an
`invoke`, and later one of

- `ok`: it was done; of a pop one event for each job, or one without an id;
- `fail`: it was refused, nothing was done;
- `info`: nobody knows, and it may still be done later.

Both bear the same `op`. A fault is `begin` and `end`, and the last looks at the queue are commands as any other.
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
    """One line. What does not belong to the command is None."""

    at: float  # s, of the machine's monotonic clock: the same for all processes
    process: str
    kind: str
    command: str  # of a fault: the nemesis
    op: int = 0  # counts the commands of a process
    id: str | None = None
    topic: str | None = None
    body: int | None = None
    lease: int | None = None  # µs of Redis's clock, of a pop: when it was delivered
    redis: float | None = None  # unix seconds of Redis's clock when the command was done, where the answer tells
    due: float | None = None  # unix seconds
    until: float | None = None  # unix seconds: the end of a lease that was touched
    delay: float | None = None  # s
    ttr: float | None = None  # s
    ttl: float | None = None  # s
    priority: int | None = None
    attempt: int | None = None  # of a pop: the how manyth; of a release: 0 when the delivery is not to count
    tries: int | None = None
    result: str | None = None
    state: str | None = None
    durability: str | None = None  # of an invoke what was asked for, of an ok what was reached
    code: str | None = None
    url: str | None = None
    counts: dict[str, int] | None = None  # of stats
    totals: dict[str, int] | None = None  # of stats
    faults: int | None = None  # of fsck: how many it found
    forgets: tuple[str, ...] = ()  # of a fault: the classes of durability that it may forget
    forgets_s: float = 0.0  # and how many seconds before its begin what was acknowledged may be among them
    slots: tuple[int, int] | None = None  # of a fault: it touches only shards whose slots lie between these
    line: int = 0  # where it stands in the merged history; not written


_encoder = msgspec.json.Encoder()


class History:
    """The file of one process of the suite; the names of those that write to it come before each line."""

    def __init__(self, path: Path) -> None:
        self._file = path.open("ab", buffering=0)
        self._ops = 0

    def write(self, event: Event) -> None:
        self._file.write(_encoder.encode(event) + b"\n")

    def invoke(self, process: str, command: str, **fields: Any) -> int:
        """A command is about to be sent; the number that its completion bears too."""
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
        """Something is broken while the block runs. See Event for what it may forget, and where it is."""
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
    """All events of the files of a folder (`*.jsonl`) in the order of their times, with their lines numbered from 1.

    A last line that a killed process did not end is left out.
    """
    events: list[Event] = []
    for path in sorted(folder.glob("*.jsonl")):
        *whole, _ = path.read_bytes().split(b"\n")
        events += [msgspec.json.decode(line, type=Event) for line in whole]
    return numbered(events)


def numbered(events: Iterable[Event]) -> list[Event]:
    """In the order of their times, each with its line."""
    ordered = sorted(events, key=lambda event: event.at)
    for line, event in enumerate(ordered, 1):
        event.line = line
    return ordered
