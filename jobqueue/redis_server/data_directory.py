"""The data directory of an embedded Redis: its locks, the path of its socket, and notes about its server.

Two locks show which processes are alive. The service holds `service.lock`. The server inherits `server.lock`, and so
holds it until its process ends. Thus two servers never write the same files, whatever happened to the socket, the pid
or the service.

If a power cut leaves an append-only file with an incomplete end, the file is rewritten without that end. A script's
writes are between MULTI and EXEC. If the file ends between the two, the server ignores these writes, as it should; but
most versions truncate the file only after the last complete write. So the next start finds the MULTI, reads later
writes as the rest of the script, and runs half of the script. Seen with Redis 7.0.15; Valkey has fixed this
(valkey-io/valkey#4342).
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import fcntl
import json
import logging
import os
import socket
import stat
import tempfile
from pathlib import Path
from typing import Any

from redis.asyncio import Redis as Client
from redis.exceptions import RedisError

from buckets.errors import Unfit
from jobqueue.redis_server.program import Build, numbers

_LONGEST_SOCKET = 100  # bytes; the kernels accept 103 (macOS) and 107 (Linux)
_LOOK_S = 0.02  # between two attempts to take a lock
_HANDOVER_S = 0.5  # how long to wait for the lock of a service that was killed


class DataDirectory:
    """One data directory. `claim` it for a service, and `leave` it at the end."""

    def __init__(self, path: Path) -> None:
        self.path = path.resolve()
        self.socket = self.path / "redis.sock"
        self.log = self.path / "redis.log"
        self._lock_file = self.path / "service.lock"
        self._server_lock_file = self.path / "server.lock"
        self.pid_file = self.path / "redis.pid"  # for people; the locks show which processes are alive
        self._far_note = self.path / "redis.sock.path"
        self._last_build = self.path / "server.json"
        self._service_lock: int | None = None

    @property
    def is_claimed(self) -> bool:
        """Whether `claim` has taken the directory for this service."""
        return self._service_lock is not None

    async def claim(self) -> None:
        """Lock the directory for this service, and find the path of the socket. Raises Unfit if another service has the
        directory, OSError if it is not writable."""
        check_writable(self._lock_file)
        self.path.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._service_lock = await self._lock_for_service()
        if len(os.fsencode(self.socket)) > _LONGEST_SOCKET:
            self.socket = self._far_socket()

    def leave(self) -> None:
        """Unlock the directory, and remove a socket elsewhere if no server needs it any longer."""
        if self._service_lock is None:
            return
        if self.socket.parent != self.path and not self.has_server:
            with contextlib.suppress(OSError):
                self.socket.unlink(missing_ok=True)
                self.socket.parent.rmdir()
                self._far_note.unlink()
        os.close(self._service_lock)
        self._service_lock = None

    def find_socket(self) -> None:
        """Find the path of the socket without changing anything."""
        with contextlib.suppress(OSError):
            far = Path(self._far_note.read_text())
            self.socket = far if _is_private(far.parent) else self.socket

    def lock_for_server(self) -> int | None:
        """Take the lock that a server holds until it ends; returns a file descriptor, or None while a server has it."""
        return _lock(self._server_lock_file)

    @property
    def has_server(self) -> bool:
        """Whether a server has the data open."""
        return _is_locked(self._server_lock_file)

    @property
    def has_snapshot(self) -> bool:
        """Whether the append-only file begins with a snapshot."""
        return any((self.path / "appendonlydir").glob("*.base.rdb"))

    def note_build(self, build: Build) -> None:
        """Remember which server writes the data."""
        _write(self._last_build, json.dumps({"vendor": build.vendor, "version": ".".join(map(str, build.version))}))

    def last_build(self) -> Build | None:
        """The server that wrote the data last, or None if it is unknown."""
        try:
            noted = json.loads(self._last_build.read_text())
            return Build(noted["vendor"], numbers(noted["version"]))
        except (OSError, ValueError, KeyError, TypeError):
            return None

    def log_size(self) -> int:
        """The current size of the server's log, in bytes."""
        return self.log.stat().st_size if self.log.exists() else 0

    def log_from(self, offset: int) -> str:
        """The server's log from an offset on."""
        with self.log.open("rb") as file:
            file.seek(offset)
            return file.read().decode("utf-8", "replace")

    def is_at(self, folder: str) -> bool:
        """Whether a path leads to this directory."""
        return Path(folder).resolve() == self.path

    def check_may_claim(self) -> None:
        """Raise Unfit or OSError if `claim` would; changes nothing."""
        check_writable(self._lock_file)
        if _is_locked(self._lock_file):
            raise self._is_taken()

    def _is_taken(self) -> Unfit:
        pid = self._lock_file.read_text()
        return Unfit(f"a service (pid {pid}) already runs on the data directory {self.path}")

    async def _lock_for_service(self) -> int:
        """Take the service's lock. If a service is killed while it starts a server, the server's process keeps the lock
        for a moment, until it runs the server's program and is no longer a copy of the service."""
        end = asyncio.get_running_loop().time() + _HANDOVER_S
        while (lock := _lock(self._lock_file)) is None:
            if asyncio.get_running_loop().time() > end:
                raise self._is_taken()
            await asyncio.sleep(_LOOK_S)
        os.ftruncate(lock, 0)
        os.pwrite(lock, str(os.getpid()).encode(), 0)
        return lock

    def _far_socket(self) -> Path:
        """A socket in a short temporary directory, the same as last time if it still exists."""
        with contextlib.suppress(FileNotFoundError):
            noted = Path(self._far_note.read_text())
            if _is_private(noted.parent):
                return noted
        path = Path(tempfile.mkdtemp(prefix="jobqueue-")) / "redis.sock"
        _write(self._far_note, str(path))
        return path


def check_writable(file: Path) -> None:
    """Raise OSError if a file cannot be written or folders missing on its path cannot be created; changes nothing."""
    while not file.parent.exists():
        file = file.parent
    code = 0 if os.access(file.parent, os.W_OK | os.X_OK) else errno.EACCES
    if code := code if file.parent.is_dir() else errno.ENOTDIR:
        raise OSError(code, os.strerror(code), str(file))


def running_at(data: Path) -> str:
    """The URL of the server that runs on a data directory, for a program that runs beside the service. Raises Unfit."""
    directory = DataDirectory(data)
    directory.find_socket()
    try:
        with socket.socket(socket.AF_UNIX) as probe:
            probe.connect(str(directory.socket))
    except OSError:
        raise Unfit(
            f"no embedded Redis runs on the data directory {directory.path}: start the service, or name the settings of"
            " the one that runs (--config FILE, --data DIR, --redis URL)"
        ) from None
    return f"unix://{directory.socket}"


def _lock(path: Path) -> int | None:
    """Take a lock; returns its file descriptor, or None while another process has the lock. A child process inherits
    the lock only if it is passed the descriptor."""
    handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        os.close(handle)
        if isinstance(error, BlockingIOError):
            return None
        raise
    return handle


def _is_locked(path: Path) -> bool:
    """Return True if another process has the lock; creates no file."""
    if not path.exists():
        return False
    lock = _lock(path)
    if lock is not None:
        os.close(lock)
    return lock is None


def _write(path: Path, text: str) -> None:
    """Write the whole text or nothing."""
    new = path.with_name(f"{path.name}.new")
    new.write_text(text)
    new.replace(path)


def _is_private(folder: Path) -> bool:
    """Return True if only we can have put a socket in a folder; in /tmp, others may create a folder with any name."""
    try:
        found = folder.lstat()
    except OSError:
        return False
    return stat.S_ISDIR(found.st_mode) and found.st_uid == os.geteuid() and not found.st_mode & 0o077


log = logging.getLogger(__name__)

_SHORT = "short read while loading the AOF file"  # in the server's log


def is_torn(log_text: str) -> bool:
    """Whether a server that has started logged that its append-only file ended too early."""
    return _SHORT in log_text


async def rewrite(socket: Path) -> None:
    """Have the server on a Unix socket rewrite its append-only file, and wait until it has; a failure is logged."""
    log.warning("redis.torn", extra={"socket": str(socket)})
    try:
        async with Client(unix_socket_path=str(socket), socket_timeout=None, protocol=2) as client:
            await client.bgrewriteaof()
            while _is_rewriting(info := await client.info("persistence")):  # noqa: ASYNC110 - it announces nothing
                await asyncio.sleep(_LOOK_S)
            trouble = "" if info["aof_last_bgrewrite_status"] == "ok" else "its log says why"
    except RedisError as error:
        trouble = str(error)
    if trouble:
        log.error("redis.still_torn", extra={"socket": str(socket), "error": trouble})


def _is_rewriting(info: dict[str, Any]) -> bool:
    return bool(info["aof_rewrite_scheduled"] or info["aof_rewrite_in_progress"])
