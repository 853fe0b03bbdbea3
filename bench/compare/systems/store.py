"""The Redis of a system: the same server with the same settings for all of them, where its description says no more.

It is the redis-server on PATH, on a Unix socket, without persistence (no RDB, no AOF). It checks the timeouts of
waiting commands 100 times a second instead of 10, because some libraries sleep in such a command until the next job is
due.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import hiredis

from bench.compare.load.conversations import connect, pack
from tests.kit.redis_server import RedisServer, binary, version

_HZ = 100  # the maximum that Redis recommends


class RunningStore:
    """A Redis that runs, and a plain connection to it, for what drivers ask besides the work."""

    def __init__(self, path: Path) -> None:
        self.socket = path
        self.url = f"unix://{path}"
        self._connection = connect(str(path))
        self._reader = hiredis.Reader()
        self.pid = int(self.info("server")["process_id"])

    def ask(self, *commands: tuple[Any, ...]) -> list[Any]:
        """The answers to some commands in one pipeline. Raises the first error among them."""
        self._connection.sendall(b"".join(pack(*each) for each in commands))
        answers: list[Any] = []
        while len(answers) < len(commands):
            answer = self._reader.gets()
            if answer is False:
                self._reader.feed(self._connection.recv(1 << 16))
            elif isinstance(answer, hiredis.HiredisError):
                raise answer
            else:
                answers.append(answer)
        return answers

    def info(self, section: str) -> dict[str, str]:
        """A section of INFO."""
        lines = self.ask(("INFO", section))[0].decode().splitlines()
        return dict(line.split(":", 1) for line in lines if ":" in line)

    def cpu_us(self) -> float:
        """CPU microseconds since its start."""
        info = self.info("cpu")
        return 1e6 * (float(info["used_cpu_sys"]) + float(info["used_cpu_user"]))

    def memory(self) -> int:
        """`used_memory`, bytes."""
        return int(self.info("memory")["used_memory"])

    def connections(self) -> int:
        """Connections of clients, including this one."""
        return int(self.info("clients")["connected_clients"])

    def blocked(self) -> int:
        """Clients waiting in a blocking command."""
        return int(self.info("clients")["blocked_clients"])

    def calls(self) -> int:
        """Commands since its start, including those inside scripts."""
        found = (re.match(r"calls=(\d+)", each) for each in self.info("commandstats").values())
        return sum(int(each[1]) for each in found if each)

    def clear(self) -> None:
        self.ask(("FLUSHALL", "SYNC"))

    def stop(self) -> None:
        """Close the connection."""
        self._connection.close()


class Store(RunningStore):
    """A Redis that the constructor starts."""

    def __init__(self, folder: Path, server: str | None = None) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._server = RedisServer(folder, "--hz", str(_HZ), server=server)
        self._server.start()
        super().__init__(self._server.socket)

    def stop(self) -> None:
        super().stop()
        self._server.kill()


def redis_version(server: str | None = None) -> str:
    """The version of a server, by default of the one that all systems with a Redis use."""
    path = server or binary()
    return f"{Path(path).name} {'.'.join(map(str, version(path)))}"
