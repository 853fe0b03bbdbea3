"""The folder in which processes of one machine share their metrics: files of prometheus_client, a set a process.

Counters stay there when their process ends. Gauges go: its own hand takes them away, or whoever learns that it is dead.
Beside them stands what all processes have to agree on: which topics have figures of their own.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
from collections.abc import Iterator
from pathlib import Path

import prometheus_client.values

_own_name = ""


def worker_name(supervisor: int, worker: int) -> str:
    """What the files of a worker are called by: not by its own pid, so that the process which comes after one that
    died counts on in the same files."""
    return f"{supervisor}-{worker}"


def share_as(name: str) -> None:
    """Call the files of this process by a name; without this, by its pid. To be called before anything is counted."""
    global _own_name  # noqa: PLW0603 - prometheus_client's choice is one of the whole process too
    _own_name = name
    prometheus_client.values.ValueClass = prometheus_client.values.MultiProcessValue(lambda: name)  # type: ignore[no-untyped-call]


def forget(folder: Path, name: str = "") -> None:
    """Take away the gauges of a process that ended; by default, our own."""
    for path in folder.glob(f"gauge_live*_{name or _own_name or os.getpid()}.db"):
        path.unlink(missing_ok=True)


def forget_killed(folder: Path) -> None:
    """Take away the gauges of processes that were killed, or whose supervisor was."""
    for path in folder.glob("gauge_live*.db"):
        name = path.stem.rpartition("_")[2]
        try:
            os.kill(int(name.partition("-")[0]), 0)
        except ProcessLookupError:
            forget(folder, name)
        except PermissionError:
            pass  # it lives, as another user


def agreed_topics(folder: Path, name: str, most: int) -> set[str]:
    """The topics that have figures of their own, in all processes; `name` is one of them while there is room."""
    file = folder / "topics"
    with locked(folder):
        topics = file.read_text().splitlines() if file.exists() else []
        if name not in topics and len(topics) < most:
            topics.append(name)
            with file.open("a") as lines:
                lines.write(f"{name}\n")
    return set(topics)


@contextlib.contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Keep other processes from what stands in the folder for all. For moments: it blocks."""
    with (folder / "lock").open("w") as lock:  # closed, it is free
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
