"""The scratch folder: where the workers of one supervisor share their metrics while it lives.

The supervisor locks it. A folder that nobody has locked was left by a supervisor that was killed, and the next start
removes it. (systemd-tmpfiles leaves a locked folder alone, however old it is.)
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

from buckets.errors import Unfit

_PREFIX = "jobqueue-metrics-"


@contextlib.contextmanager
def scratch_folder() -> Iterator[Path]:
    """A new folder in the directory of temporary files, removed at the end. Raises Unfit when it cannot be made."""
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
            os.close(lock)  # another supervisor that is starting took it for a stale one


def _remove_stale() -> None:
    for folder in Path(tempfile.gettempdir()).glob(f"{_PREFIX}*"):
        with contextlib.suppress(OSError):  # another user's, or removed by another start
            lock = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                if os.fstat(lock).st_uid == os.geteuid():
                    shutil.rmtree(folder)
            finally:
                os.close(lock)
