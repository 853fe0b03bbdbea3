"""The folder in which processes on one machine share their metrics: a set of prometheus_client files per process.

Counters stay there when their process ends. Gauges are removed, by the process itself or by another process that finds
it dead. The folder also contains the list on which all processes must agree: the topics with figures of their own.

The workers of one supervisor share a scratch folder, which the supervisor locks as long as it runs. An unlocked folder
was left by a supervisor that was killed, and the next supervisor that starts removes it. (systemd-tmpfiles does not
remove a locked folder, however old it is.)
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import prometheus_client.values

from buckets.errors import Unfit

_own_name = ""


def worker_name(supervisor: int, worker: int | str) -> str:
    """The part of a worker's file names that identifies the worker. It does not contain the worker's pid, so a
    restarted worker continues to count in the same files."""
    return f"{supervisor}-{worker}"


def share_as(name: str) -> None:
    """Name the files of this process, which otherwise have its pid. Call this before anything is counted."""
    global _own_name  # noqa: PLW0603 - prometheus_client's choice is one of the whole process too
    _own_name = name
    prometheus_client.values.ValueClass = prometheus_client.values.MultiProcessValue(lambda: name)  # type: ignore[no-untyped-call]


def forget(folder: Path, name: str = "") -> None:
    """Remove the gauges of a process that ended; by default, of this process."""
    for path in folder.glob(f"gauge_live*_{name or _own_name or os.getpid()}.db"):
        path.unlink(missing_ok=True)


def forget_killed(folder: Path) -> None:
    """Remove the gauges of processes that were killed, or whose supervisor was killed."""
    for path in folder.glob("gauge_live*.db"):
        name = path.stem.rpartition("_")[2]
        try:
            os.kill(int(name.partition("-")[0]), 0)
        except ProcessLookupError:
            forget(folder, name)
        except PermissionError:
            pass  # the process is alive, under another user


def agreed_topics(folder: Path, name: str, most: int) -> set[str]:
    """The topics that have figures of their own in all processes; adds `name` while there are fewer than `most`."""
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
    """Lock the common files of the folder against other processes. This blocks, so hold the lock only briefly."""
    with (folder / "lock").open("w") as lock:  # closing it releases the lock
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


_PREFIX = "jobqueue-metrics-"


@contextlib.contextmanager
def scratch_folder() -> Iterator[Path]:
    """A new folder in the directory for temporary files, removed on exit. Raises Unfit if it cannot be created."""
    try:
        _remove_stale()
        folder, lock = _locked_folder()
    except OSError as error:
        raise Unfit(f"cannot make a folder for the metrics that workers share: {error}") from None
    try:
        yield folder
    finally:
        os.close(lock)
        shutil.rmtree(folder, ignore_errors=True)


def _locked_folder() -> tuple[Path, int]:
    while True:
        folder = Path(tempfile.mkdtemp(prefix=_PREFIX))
        with contextlib.suppress(FileNotFoundError):
            lock = os.open(folder, os.O_RDONLY)
            fcntl.flock(lock, fcntl.LOCK_SH)
            if folder.exists():
                return folder, lock
            os.close(lock)  # another supervisor that is starting mistook the folder for a stale one


def _remove_stale() -> None:
    for folder in Path(tempfile.gettempdir()).glob(f"{_PREFIX}*"):
        with contextlib.suppress(OSError):  # owned by another user, or removed by another supervisor
            lock = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                if os.fstat(lock).st_uid == os.geteuid():
                    shutil.rmtree(folder)
            finally:
                os.close(lock)
