"""The embedded Redis: a real server that the service starts on a machine that has none running.

It listens on a Unix socket only and keeps an append-only file in the data directory. It outlives a service that is
killed, and the next start takes it over.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import logging
import os
import subprocess
from collections.abc import AsyncIterator
from pathlib import Path

from buckets.errors import Unfit
from jobqueue.redis_server.data_directory import DataDirectory, is_torn, rewrite
from jobqueue.redis_server.program import (
    Build,
    State,
    build_of,
    find_server,
    hung_up,
    identity_of,
    launch,
    shut_down,
    state_of,
)

log = logging.getLogger(__name__)

_LOOK_S = 0.02  # between two looks at a server that starts
_SLOW_S = 2.0  # a longer wait for a server is logged
_PATIENCE_S = 30.0  # for a server that is alive and does not listen, and for one that refuses to shut down
_PAUSE_S = 0.1  # after restarting a server that died, doubled while restarts fail
_LONGEST_PAUSE_S = 10.0


class EmbeddedRedis:
    """The server of one data directory. Call `start`, then `watch` in a task; `stop` shuts the server down cleanly."""

    def __init__(self, data: Path, binary: str | None = None, appendfsync: str | None = "everysec") -> None:
        """`binary`: the server program, or None to search for one. `appendfsync`: Redis's own setting for a server that
        is started, or None to write nothing to disk; a server that is taken over keeps its own setting."""
        self._directory = DataDirectory(data)
        self._binary = binary
        self._appendfsync = appendfsync
        self._child: subprocess.Popen[bytes] | None = None  # None for a server that was taken over
        self._changing = asyncio.Lock()  # start, restart and stop exclude each other
        self._stopping = False

    @property
    def data(self) -> Path:
        """The data directory."""
        return self._directory.path

    @property
    def url(self) -> str:
        """The URL at which the server listens."""
        return f"unix://{self._directory.socket}"

    async def start(self) -> str:
        """Take over the server that runs on the data, or start one; returns its URL once it answers.

        Waits while the server loads its data. Raises Unfit with the reason if no server can be started or taken over.
        """
        async with self._changing:
            assert not self._directory.is_claimed, "started already"
            self._stopping = False
            try:
                await self._directory.claim()
                await self._bring_up()
            except BaseException as error:
                await self._end_child()
                self._directory.leave()
                if isinstance(error, OSError):
                    raise self._unusable(error) from error
                raise
        return self.url

    def check_may_claim(self) -> None:
        """Raise Unfit if `start` could not claim the data directory for a service; changes nothing."""
        try:
            self._directory.check_may_claim()
        except OSError as error:
            raise self._unusable(error) from None

    def check_nobody_has_data(self) -> None:
        """Raise Unfit if a server has the data open; call it when none listens on the socket."""
        if self._directory.has_server:
            raise self._is_hidden()

    def _is_hidden(self) -> Unfit:
        file = self._directory.pid_file
        pid = file.read_text().strip() if file.exists() else "unknown"
        return Unfit(f"a server (pid {pid}) runs on {self.data}, but not on its socket: end it with kill {pid}")

    def program(self) -> Path:
        """The program of the server that would be started. Raises Unfit if none is found that can read the data."""
        program = find_server(self._binary)
        self._refuse_unreadable(program)
        return program

    def _unusable(self, error: OSError) -> Unfit:
        return Unfit(f"the data directory {self.data} cannot be used: {error}")

    async def seen(self) -> bool:
        """Return True if a server for the data listens, and then `url` is its URL; changes nothing on disk."""
        self._directory.find_socket()
        return await self._state() is not State.GONE

    async def watch(self) -> None:
        """Restart the server whenever it dies, until `stop`."""
        pause = _PAUSE_S
        while not self._stopping:
            await hung_up(self._directory.socket)
            try:
                await self._revive()
                pause = _PAUSE_S
            except Exception as error:
                log.error("redis.restart_failed", extra={"error": str(error)})
                pause = min(pause * 2, _LONGEST_PAUSE_S)
            await asyncio.sleep(pause)

    async def stop(self) -> None:
        """Shut the server down cleanly, with its data on disk, and release the data directory."""
        self._stopping = True
        async with self._changing:
            try:
                await self._shut_down()
            finally:
                self._directory.leave()

    async def _state(self) -> State:
        return await state_of(self._directory.socket)

    async def _bring_up(self) -> None:
        async with self._logged_when_slow():
            lock = await self._take_over()
            if lock is not None:
                await self._spawn(lock)

    @contextlib.asynccontextmanager
    async def _logged_when_slow(self) -> AsyncIterator[None]:
        report = functools.partial(log.info, "redis.awaited", extra={"socket": str(self._directory.socket)})
        timer = asyncio.get_running_loop().call_later(_SLOW_S, report)
        try:
            yield
        finally:
            timer.cancel()

    async def _take_over(self) -> int | None:
        """Wait until the server that runs on the data is ready. If none runs, return the server's lock, for a new
        one."""
        clock = asyncio.get_running_loop().time
        end = clock() + _PATIENCE_S
        while (state := await self._state()) is not State.READY:
            if state is State.LOADING:
                end = clock() + _PATIENCE_S
            elif (lock := self._directory.lock_for_server()) is not None:
                return lock
            elif clock() > end:
                raise self._is_hidden()
            await asyncio.sleep(_LOOK_S)
        build = await self._identified()
        log.info("redis.taken_over", extra={"server": str(build), "socket": str(self._directory.socket)})
        return None

    async def _identified(self) -> Build:
        """Identify the running server, and note its build beside the data. Raises Unfit if its data is elsewhere."""
        build, folder = await identity_of(self._directory.socket)
        if not self._directory.is_at(folder):
            raise Unfit(f"the Redis on {self._directory.socket} has its data in {folder}, not in {self.data}")
        self._directory.note_build(build)
        return build

    async def _spawn(self, lock: int) -> None:
        try:
            if self._child:  # the lock shows that it is dead; this only reaps it
                await asyncio.to_thread(self._child.wait)
            path = await asyncio.to_thread(self.program)
            offset = self._directory.log_size()
            outlives_us = self._appendfsync is not None  # otherwise it has no data to take over
            self._child = launch(path, self._settings(), self._directory.log, lock, outlives_us=outlives_us)
        finally:
            os.close(lock)
        while await self._state() is not State.READY:
            if self._child.poll() is not None:
                raise Unfit(self._why_it_ended(path, self._child.returncode, offset))
            await asyncio.sleep(_LOOK_S)
        build = await self._identified()
        socket = self._directory.socket
        if is_torn(self._directory.log_from(offset)):
            await rewrite(socket)
        log.info("redis.started", extra={"server": str(build), "pid": self._child.pid, "socket": str(socket)})

    def _refuse_unreadable(self, path: Path) -> None:
        """Refuse a server that could not read the data.

        Our append-only file is plain commands (`aof-use-rdb-preamble no`), and every server since 7.0 reads the files
        of every other version, newer or older: tested with Redis 7.0.15 and Valkey 9.1.2 in turn, with equal digests. A
        command that an older server does not know ends that server at start with a clear log line, never silently. So
        the version alone is no reason to refuse. A snapshot inside the file is a reason: its format changes, and
        servers then advise to "fix" the file, which cuts off the data. We never write a snapshot, but a CONFIG SET by
        hand makes the server write one.
        """
        build, last = build_of(path), self._directory.last_build()
        if build is None or last is None or not self._directory.has_snapshot:
            return
        if build.vendor != last.vendor or build.version < last.version:
            raise Unfit(
                f"{self.data} holds a snapshot that {last} wrote and {build} ({path}) may not be able to read: start"
                f" it with {last}, send it CONFIG SET aof-use-rdb-preamble no and BGREWRITEAOF, and stop it"
            )

    def _settings(self) -> dict[str, str]:
        return {
            "port": "0",
            "unixsocket": str(self._directory.socket),
            "unixsocketperm": "700",
            "dir": str(self.data),
            "logfile": str(self._directory.log),
            "pidfile": str(self._directory.pid_file),
            **self._persistence(),
            "save": "",
            "maxmemory-policy": "noeviction",
            "daemonize": "no",
        }

    def _persistence(self) -> dict[str, str]:
        if self._appendfsync is None:
            return {"appendonly": "no"}
        return {"appendonly": "yes", "appendfsync": self._appendfsync, "aof-use-rdb-preamble": "no"}

    def _why_it_ended(self, path: Path, code: int, offset: int) -> str:
        lines = self._directory.log_from(offset).splitlines()
        last = self._directory.last_build()
        wrote = f", on data that {last} wrote last" if last else ""
        end = "\n".join(lines[-6:])
        return f"{path} ended at its start with code {code}{wrote}; {self._directory.log} ends: {end}"

    async def _revive(self) -> None:
        """Restart the server if it is dead, not if it only closed our connection."""
        async with self._changing:
            if not self._stopping and await self._state() is State.GONE:
                log.error("redis.died", extra={"socket": str(self._directory.socket)})
                await self._bring_up()

    async def _shut_down(self) -> None:
        socket = self._directory.socket
        try:
            refusal = await shut_down(socket, _PATIENCE_S)
        except OSError:
            return await self._end_child()  # dead, or not listening yet
        if refusal:
            # The server cannot write its data now. Killing it would lose the data; the next start takes it over.
            log.error("redis.left_running", extra={"reason": refusal, "socket": str(socket)})
            return None
        while self._directory.has_server:  # noqa: ASYNC110  # the process ends just after its connections, unannounced
            await asyncio.sleep(_LOOK_S)
        if self._child:
            await asyncio.to_thread(self._child.wait)
            self._child = None
        log.info("redis.stopped")
        return None

    async def _end_child(self) -> None:
        """End our server process. SIGTERM is as clean as SHUTDOWN, and reaches a server that does not listen yet."""
        child, self._child = self._child, None
        if child:
            child.terminate()
            await asyncio.to_thread(child.wait)
