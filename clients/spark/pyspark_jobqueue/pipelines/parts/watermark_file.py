"""The file that records how far an incremental run got."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from pyspark_jobqueue.errors import BadOption, JobQueueError

_VERSION = 1


@dataclass(frozen=True)
class Watermark:
    """The highest value of a column that was sent.

    `ids` are the ids of the rows with exactly this value; they show which rows that come later with the same value are
    new. If there were too many to keep, `ids` is empty: all rows at the watermark are sent again, which their ids make
    harmless.
    """

    topic: str
    column: str
    type: str
    value: str
    ids: tuple[str, ...] = ()


@contextlib.contextmanager
def held(path: str) -> Iterator[None]:
    """Lock a file against other runs. Raises BadOption if that is impossible, JobQueueError while another run has
    it."""
    import fcntl  # noqa: PLC0415 - Windows has none, and the other pipelines need none

    lock = f"{path}.lock"
    try:
        descriptor = os.open(lock, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o644)
    except OSError as error:
        raise BadOption(f"--state: {lock} cannot be opened: {error.strerror}") from None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)  # the kernel releases it when the process dies
        yield
    except BlockingIOError:
        raise JobQueueError(f"another run is using --state {path}; wait until it has ended") from None
    finally:
        os.close(descriptor)


def load(path: str, topic: str, column: str) -> Watermark | None:
    """The watermark of the last run; None before the first. Raises BadOption for a file of another kind of run."""
    try:
        stored = json.loads(Path(path).read_text())
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as error:
        raise BadOption(f"--state {path} cannot be read: {error}") from None
    if not isinstance(stored, dict) or stored.get("pipeline") != "emit":
        raise BadOption(f"--state {path} is not a state file of emit")
    if stored.get("version") != _VERSION:
        raise BadOption(f"--state {path} has version {stored.get('version')!r}; this emit supports {_VERSION}")
    try:
        texts = {name: str(stored[name]) for name in ("topic", "column", "type", "value")}
        mark = Watermark(**texts, ids=tuple(map(str, stored["ids"])))
    except (KeyError, TypeError):
        raise BadOption(f"--state {path} is damaged: it lacks a field") from None
    for flag, kept, now in (("--topic", mark.topic, topic), ("--watermark", mark.column, column)):
        if kept != now:
            raise BadOption(f"--state {path} belongs to {flag} {kept}, not {now}: use another file")
    return mark


def save(path: str, mark: Watermark) -> None:
    """Replace the file atomically."""
    text = json.dumps({"version": _VERSION, "pipeline": "emit", **dataclasses.asdict(mark)})
    fresh = Path(f"{path}.tmp")  # only this run writes it: it holds the lock
    with fresh.open("w") as file:
        file.write(text + "\n")
        file.flush()
        os.fsync(file.fileno())
    fresh.replace(path)
    folder = os.open(Path(path).parent, os.O_RDONLY)
    try:
        os.fsync(folder)  # without it a power failure may lose the rename
    finally:
        os.close(folder)
