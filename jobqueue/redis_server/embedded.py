"""The Redis that comes along: a real server of the service's own, for a machine that has none running.

It listens on a Unix socket only and keeps an append-only file in the data directory. It outlives a service that is
killed, and the next start takes it over. Two locks in the data directory say who lives: the service holds
`service.lock`; the server inherits `server.lock` and so holds it to its very end. Two servers thus never write the
same files, whatever happened to the socket, the pid or the service in between.
"""

from __future__ import annotations

import asyncio
import contextlib
import enum
import fcntl
import functools
import json
import logging
import os
import socket
import stat
import subprocess
import tempfile
from collections.abc import AsyncIterator
from pathlib import Path

from redis.asyncio import Redis as Client
from redis.exceptions import RedisError

from buckets.errors import Unfit
from jobqueue.redis_server.program import Build, build_of, find_server, numbers
from jobqueue.redis_server.torn_aof import is_torn, write_anew

log = logging.getLogger(__name__)

_LONGEST_SOCKET = 100  # bytes; the kernels take 103 (macOS) and 107 (Linux)
_LOOK_S = 0.02  # between two looks at a server that starts
_SLOW_S = 2.0  # a longer wait for a server is told
_HANDOVER_S = 0.5  # for the lock of a service that was killed
_PATIENCE_S = 30.0  # for a server that lives and does not listen, and for one that refuses to shut down
_PAUSE_S = 0.1  # after a server died and was started again, doubled while it fails
_LONGEST_PAUSE_S = 10.0


class _State(enum.Enum):
    GONE = enum.auto()  # nobody listens
    LOADING = enum.auto()
    READY = enum.auto()


def _lock(path: Path) -> int | None:
    """Take the lock; its file descriptor, or None when another holds it. A child inherits it only when passed."""
    handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        os.close(handle)
        if isinstance(error, BlockingIOError):
            return None
        raise
    return handle


def _write(path: Path, text: str) -> None:
    """Write whole or not at all."""
    new = path.with_name(f"{path.name}.new")
    new.write_text(text)
    new.replace(path)


def _is_private(folder: Path) -> bool:
    """Whether only we can have put a socket there; in /tmp, others may make a folder of any name."""
    try:
        found = folder.lstat()
    except OSError:
        return False
    return stat.S_ISDIR(found.st_mode) and found.st_uid == os.geteuid() and not found.st_mode & 0o077


def running_at(data: Path) -> str:
    """The URL of the server that runs on a data directory, for a program beside the service. Raises Unfit."""
    path = data.resolve() / "redis.sock"
    with contextlib.suppress(OSError):
        noted = Path(path.with_name("redis.sock.path").read_text())
        path = noted if _is_private(noted.parent) else path
    try:
        with socket.socket(socket.AF_UNIX) as probe:
            probe.connect(str(path))
    except OSError:
        raise Unfit(f"no Redis of ours runs on the data directory {data.resolve()}: start the service first") from None
    return f"unix://{path}"


class EmbeddedRedis:
    """The server of one data directory. `start`, then `watch` in a task; `stop` ends the server in order."""

    def __init__(self, data: Path, binary: str | None = None, appendfsync: str = "everysec") -> None:
        """`appendfsync`: as Redis has it, for a server that is started; one that is taken over keeps its own."""
        self.data = data.resolve()
        self._binary = binary
        self._appendfsync = appendfsync
        self._socket = self.data / "redis.sock"
        self._far_note = self.data / "redis.sock.path"
        self._log = self.data / "redis.log"
        self._pid = self.data / "redis.pid"  # for people; the locks say who lives
        self._service_lock: int | None = None
        self._child: subprocess.Popen[bytes] | None = None  # None for a server that was taken over
        self._changing = asyncio.Lock()  # start, restart and stop exclude each other
        self._stopping = False

    @property
    def url(self) -> str:
        return f"unix://{self._socket}"

    async def start(self) -> str:
        """Take over the server that runs on the data, or start one; its URL, when it answers.

        Waits as long as it loads its data. Raises Unfit with the reason when there can be no server.
        """
        async with self._changing:
            assert self._service_lock is None, "started already"
            self._stopping = False
            try:
                await self._settle()
                await self._bring_up()
            except BaseException as error:
                await self._end_child()
                self._leave()
                if isinstance(error, OSError):
                    raise Unfit(f"the data directory {self.data} cannot be used: {error}") from error
                raise
        return self.url

    async def seen(self) -> bool:
        """Whether a server listens for the data, which then is at `url`; looks, and changes nothing."""
        with contextlib.suppress(OSError):
            far = Path(self._far_note.read_text())
            self._socket = far if _is_private(far.parent) else self._socket
        return await self._look() is not _State.GONE

    async def watch(self) -> None:
        """Start the server again whenever it dies; for ever, or until `stop`."""
        pause = _PAUSE_S
        while not self._stopping:
            await self._death()
            try:
                await self._revive()
                pause = _PAUSE_S
            except Exception as error:
                log.error("redis.restart_failed", extra={"error": str(error)})
                pause = min(pause * 2, _LONGEST_PAUSE_S)
            await asyncio.sleep(pause)

    async def stop(self) -> None:
        """End the server in order, its data on the disk, and give the data directory free."""
        self._stopping = True
        async with self._changing:
            try:
                await self._shut_down()
            finally:
                self._leave()

    async def _settle(self) -> None:
        """Make the data directory ours, and know where the socket is."""
        self.data.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._service_lock = await self._owned()
        if len(os.fsencode(self._socket)) > _LONGEST_SOCKET:
            self._socket = self._far_socket()

    async def _owned(self) -> int:
        """The service's lock. One that was killed while it started a server leaves it to the server's process for
        a moment: until that is the server's program and no longer a copy of the service."""
        path = self.data / "service.lock"
        end = asyncio.get_running_loop().time() + _HANDOVER_S
        while (lock := _lock(path)) is None:
            if asyncio.get_running_loop().time() > end:
                raise Unfit(f"a service (pid {path.read_text()}) already runs on the data directory {self.data}")
            await asyncio.sleep(_LOOK_S)
        os.ftruncate(lock, 0)
        os.pwrite(lock, str(os.getpid()).encode(), 0)
        return lock

    def _far_socket(self) -> Path:
        """A socket in a short temporary directory, the same as the last time if it is still there."""
        with contextlib.suppress(FileNotFoundError):
            noted = Path(self._far_note.read_text())
            if _is_private(noted.parent):
                return noted
        path = Path(tempfile.mkdtemp(prefix="jobqueue-")) / "redis.sock"
        _write(self._far_note, str(path))
        return path

    def _leave(self) -> None:
        if self._service_lock is None:
            return
        if self._socket.parent != self.data and self._is_over():
            with contextlib.suppress(OSError):
                self._socket.unlink(missing_ok=True)
                self._socket.parent.rmdir()
                self._far_note.unlink()
        os.close(self._service_lock)
        self._service_lock = None

    def _is_over(self) -> bool:
        """Whether no server has the data open."""
        lock = _lock(self.data / "server.lock")
        if lock is not None:
            os.close(lock)
        return lock is not None

    async def _bring_up(self) -> None:
        async with self._told_when_slow():
            lock = await self._take_over()
            if lock is not None:
                await self._spawn(lock)

    @contextlib.asynccontextmanager
    async def _told_when_slow(self) -> AsyncIterator[None]:
        tell = functools.partial(log.info, "redis.awaited", extra={"socket": str(self._socket)})
        timer = asyncio.get_running_loop().call_later(_SLOW_S, tell)
        try:
            yield
        finally:
            timer.cancel()

    async def _take_over(self) -> int | None:
        """Wait for the server that runs on the data. When there is none: the server's lock, for a new one."""
        clock = asyncio.get_running_loop().time
        end = clock() + _PATIENCE_S
        while (state := await self._look()) is not _State.READY:
            if state is _State.LOADING:
                end = clock() + _PATIENCE_S
            elif (lock := _lock(self.data / "server.lock")) is not None:
                return lock
            elif clock() > end:
                pid = self._pid.read_text().strip() if self._pid.exists() else "unknown"
                raise Unfit(f"a server (pid {pid}) runs on {self.data}, but not on its socket: end it with kill {pid}")
            await asyncio.sleep(_LOOK_S)
        build = await self._introduced()
        log.info("redis.taken_over", extra={"server": str(build), "socket": str(self._socket)})
        return None

    async def _look(self) -> _State:
        """One PING. It may take long: a server that is busy answers when it is not."""
        try:
            reader, writer = await asyncio.open_unix_connection(self._socket)
        except OSError:
            return _State.GONE
        with contextlib.closing(writer), contextlib.suppress(OSError):
            writer.write(b"PING\r\n")
            answer = await reader.readline()
            if answer.startswith((b"-LOADING", b"-ERR max number of clients")):
                return _State.LOADING
            return _State.READY if answer else _State.GONE
        return _State.GONE

    async def _introduced(self) -> Build:
        """Ask the server who it is and whether the data are ours, and note it in `server.json`."""
        # With a time-out redis-py sends through asyncio.wait_for, which in Python 3.11 may swallow a cancellation.
        path = str(self._socket)
        try:
            async with Client(unix_socket_path=path, socket_timeout=None, protocol=2, decode_responses=True) as client:
                info = await client.info("server")
                folder = (await client.config_get("dir"))["dir"]
        except RedisError as error:
            raise Unfit(f"the Redis on {path} does not say who it is: {error}") from error
        self._refuse_strange(str(folder))
        vendor = "valkey" if "valkey_version" in info else "redis"
        version = str(info[f"{vendor}_version"])
        _write(self.data / "server.json", json.dumps({"vendor": vendor, "version": version}))
        return Build(vendor, numbers(version))

    def _refuse_strange(self, folder: str) -> None:
        if Path(folder).resolve() != self.data:
            raise Unfit(f"the Redis on {self._socket} has its data in {folder}, not in {self.data}")

    async def _spawn(self, lock: int) -> None:
        try:
            if self._child:  # the lock says that it is dead; this only buries it
                await asyncio.to_thread(self._child.wait)
            path = await asyncio.to_thread(find_server, self._binary)
            await asyncio.to_thread(self._refuse_unreadable, path)
            begun = self._log.stat().st_size if self._log.exists() else 0
            self._child = self._launch(path, lock)
        finally:
            os.close(lock)
        while await self._look() is not _State.READY:
            if self._child.poll() is not None:
                raise Unfit(self._last_words(path, self._child.returncode, begun))
            await asyncio.sleep(_LOOK_S)
        build = await self._introduced()
        if is_torn(self._said(begun)):
            await write_anew(self._socket)
        log.info("redis.started", extra={"server": str(build), "pid": self._child.pid, "socket": str(self._socket)})

    def _refuse_unreadable(self, path: Path) -> None:
        """Refuse a server that could not read the data.

        Our append-only file is plain commands (`aof-use-rdb-preamble no`), and every server since 7.0 reads those of
        every other, newer or older: tried with Redis 7.0.15 and Valkey 9.1.2 in turns, digests equal. A command that
        an older server does not know ends it at start with a clear line, never silently. So the version alone is no
        reason to refuse. A snapshot inside the file is: its format changes, and the servers' advice is then to
        "fix" the file, which cuts the data off. We never write one, but a CONFIG SET by hand does.
        """
        build, last = build_of(path), self._last_build()
        if build is None or last is None or not any((self.data / "appendonlydir").glob("*.base.rdb")):
            return
        if build.vendor != last.vendor or build.version < last.version:
            raise Unfit(
                f"{self.data} holds a snapshot that {last} wrote and {build} ({path}) may not be able to read: start"
                f" it with {last}, send it CONFIG SET aof-use-rdb-preamble no and BGREWRITEAOF, and stop it"
            )

    def _last_build(self) -> Build | None:
        """Who wrote the data last, as far as it is known."""
        try:
            noted = json.loads((self.data / "server.json").read_text())
            return Build(noted["vendor"], numbers(noted["version"]))
        except (OSError, ValueError, KeyError, TypeError):
            return None

    def _launch(self, path: Path, lock: int) -> subprocess.Popen[bytes]:
        settings = {
            "port": "0",
            "unixsocket": str(self._socket),
            "unixsocketperm": "700",
            "dir": str(self.data),
            "logfile": str(self._log),
            "pidfile": str(self._pid),
            "appendonly": "yes",
            "appendfsync": self._appendfsync,
            "aof-use-rdb-preamble": "no",
            "save": "",
            "maxmemory-policy": "noeviction",
            "daemonize": "no",
        }
        with self._log.open("ab") as out:  # what it says before it opens its log
            return subprocess.Popen(
                [str(path), *(word for name, value in settings.items() for word in (f"--{name}", value))],
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=subprocess.STDOUT,
                start_new_session=True,  # Ctrl-C on the terminal is for the service, which then stops the server
                pass_fds=(lock,),
                umask=0o077,
            )

    def _said(self, begun: int) -> str:
        """The server's log from a place on."""
        with self._log.open("rb") as file:
            file.seek(begun)
            return file.read().decode("utf-8", "replace")

    def _last_words(self, path: Path, code: int, begun: int) -> str:
        lines = self._said(begun).splitlines()
        last = self._last_build()
        wrote = f", on data that {last} wrote last" if last else ""
        return f"{path} ended at its start with code {code}{wrote}; {self._log} ends: " + "\n".join(lines[-6:])

    async def _death(self) -> None:
        """Return when the server closes an idle connection, as the kernel does for one that dies."""
        with contextlib.suppress(OSError):
            reader, writer = await asyncio.open_unix_connection(self._socket)
            with contextlib.closing(writer):
                await reader.read()

    async def _revive(self) -> None:
        """Start the server again, if it is dead and did not only close our connection."""
        async with self._changing:
            if not self._stopping and await self._look() is _State.GONE:
                log.error("redis.died", extra={"socket": str(self._socket)})
                await self._bring_up()

    async def _shut_down(self) -> None:
        try:
            reader, writer = await asyncio.open_unix_connection(self._socket)
        except OSError:
            return await self._end_child()  # dead, or so young that it does not listen
        with contextlib.closing(writer):
            refusal = await self._ask_to_end(reader, writer)
        if refusal:
            # It cannot write its data now. Forced, it would lose them; left alone, the next start takes it over.
            log.error("redis.left_running", extra={"reason": refusal, "socket": str(self._socket)})
            return None
        while not self._is_over():  # noqa: ASYNC110  # the process ends a moment after its connections, and tells nobody
            await asyncio.sleep(_LOOK_S)
        if self._child:
            await asyncio.to_thread(self._child.wait)
            self._child = None
        log.info("redis.stopped")
        return None

    async def _ask_to_end(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> str:
        """SHUTDOWN, again while it is refused; the last refusal, or nothing when the server ends."""
        clock = asyncio.get_running_loop().time
        end = clock() + _PATIENCE_S
        answer = b""
        with contextlib.suppress(OSError):
            while clock() < end:
                writer.write(b"SHUTDOWN\r\n")
                answer = await reader.readline()
                if not answer:  # the connection ended, after the data were written
                    break
                await asyncio.sleep(0.2)
            return answer.decode("utf-8", "replace").strip()
        return ""

    async def _end_child(self) -> None:
        """SIGTERM is as orderly as SHUTDOWN, and reaches a server that does not listen yet."""
        child, self._child = self._child, None
        if child:
            child.terminate()
            await asyncio.to_thread(child.wait)
