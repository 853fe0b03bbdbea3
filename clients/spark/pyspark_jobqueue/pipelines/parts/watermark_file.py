"""The file in which an incremental run keeps how far it came."""

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
    """The highest value of a column that was sent. `ids` are those of the rows that had just this value: of the rows
    that come later with the same value they tell which are new. They are none where there were too many to keep: then
    all rows at the mark are sent again, which their ids make harmless."""

    topic: str
    column: str
    type: str
    value: str
    ids: tuple[str, ...] = ()


@contextlib.contextmanager
def held(path: str) -> Iterator[None]:
    """Keep other runs off a file meanwhile. Raises BadOption where it cannot be, JobQueueError while another has it."""
    import fcntl  # noqa: PLC0415 - Windows has none, and the other pipelines need none

    lock = f"{path}.lock"
    try:
        descriptor = os.open(lock, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o644)
    except OSError as error:
        raise BadOption(f"--state: {lock} cannot be opened: {error.strerror}") from None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)  # the kernel lets go of it when the process dies
        yield
    except BlockingIOError:
        raise JobQueueError(f"another run works with --state {path} now; wait for its end") from None
    finally:
        os.close(descriptor)


def load(path: str, topic: str, column: str) -> Watermark | None:
    """What the last run left; None before the first. Raises BadOption for a file that is not of this run's kind."""
    try:
        told = json.loads(Path(path).read_text())
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as error:
        raise BadOption(f"--state {path} cannot be read: {error}") from None
    if not isinstance(told, dict) or told.get("pipeline") != "emit":
        raise BadOption(f"--state {path} is no state of emit")
    if told.get("version") != _VERSION:
        raise BadOption(f"--state {path} is of version {told.get('version')!r}; this emit knows {_VERSION}")
    try:
        texts = {name: str(told[name]) for name in ("topic", "column", "type", "value")}
        mark = Watermark(**texts, ids=tuple(map(str, told["ids"])))
    except (KeyError, TypeError):
        raise BadOption(f"--state {path} is damaged: something is missing in it") from None
    for flag, kept, now in (("--topic", mark.topic, topic), ("--watermark", mark.column, column)):
        if kept != now:
            raise BadOption(f"--state {path} is of {flag} {kept}, not {now}: take another file")
    return mark


def save(path: str, mark: Watermark) -> None:
    """Replace the file, whole or not at all."""
    text = json.dumps({"version": _VERSION, "pipeline": "emit", **dataclasses.asdict(mark)})
    fresh = Path(f"{path}.tmp")  # of this run alone, which holds the lock
    with fresh.open("w") as file:
        file.write(text + "\n")
        file.flush()
        os.fsync(file.fileno())
    fresh.replace(path)
    folder = os.open(Path(path).parent, os.O_RDONLY)
    try:
        os.fsync(folder)  # else the rename may be lost with the machine's power
    finally:
        os.close(folder)
