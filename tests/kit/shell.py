"""The command line as users run it: a process of its own, piped or on a terminal."""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import os
import pty
import re
import signal
import struct
import termios
from types import TracebackType
from typing import Self

from tests.kit import forked
from tests.kit.forked import Ran
from tests.kit.service import JOBQUEUE, ROOT
from tests.kit.waiting import PATIENCE_S

_ESCAPES = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
_ROWS, _COLUMNS = 24, 120


def environment(url: str) -> dict[str, str]:
    """The environment of this process, without settings of jobqueue, and with the URL of a service."""
    ours = ("JOBQUEUE_", "LINES", "COLUMNS")  # LINES and COLUMNS would hide the size of the terminal
    own = {name: value for name, value in os.environ.items() if not name.startswith(ours)}
    return own | {"TERM": "xterm", "JOBQUEUE_URL": url, "PYTHONPATH": str(ROOT)}


class Shell:
    """Runs `jobqueue` against the service at a URL."""

    def __init__(self, url: str, **environment: str) -> None:
        """`environment`: variables besides."""
        self.url = url
        self._environment = environment

    @property
    def _whole_environment(self) -> dict[str, str]:
        return environment(self.url) | self._environment

    async def run(self, *arguments: str, stdin: bytes | None = None) -> Ran:
        """Piped, as in a script."""
        return await forked.ran(arguments, self._whole_environment, stdin or b"", PATIENCE_S)

    async def script(self, text: str) -> Ran:
        """Run a script of `sh`, in which `jobqueue` is this project's and `field NAME` prints a field of JSON."""
        python, *rest = JOBQUEUE
        head = (
            f'jobqueue() {{ {python} {" ".join(rest)} "$@"; }}\n'
            f"field() {{ {python} -c \"import json, sys; print(json.load(sys.stdin)['$1'])\"; }}\n"
        )
        process = await asyncio.create_subprocess_exec(
            *("sh", "-c", head + text),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            env=self._whole_environment,
        )
        async with asyncio.timeout(PATIENCE_S):
            out, err = await process.communicate()
        assert process.returncode is not None
        return Ran(process.returncode, out.decode(), err.decode())

    def terminal(self, *arguments: str) -> Terminal:
        return Terminal([*JOBQUEUE, *arguments], self._whole_environment)

    async def shown(self, *arguments: str) -> str:
        """What a command shows on a terminal when nothing is typed."""
        async with self.terminal(*arguments) as terminal:
            assert await terminal.end() == 0, terminal.text
            return terminal.text


class Terminal:
    """A process on a pseudo terminal (`async with`): `see` its output, `type` to it, wait for its `end`."""

    def __init__(self, command: list[str], env: dict[str, str]) -> None:
        self._command = command
        self._env = env
        self.raw = b""

    @property
    def text(self) -> str:
        """Everything it has shown so far, without colours and cursor movements."""
        return _ESCAPES.sub("", self.raw.decode("utf-8", "replace")).replace("\r\n", "\n")

    async def __aenter__(self) -> Self:
        self._ours, theirs = pty.openpty()
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", _ROWS, _COLUMNS, 0, 0))
        self._process = await self._started(theirs)
        os.close(theirs)
        self._more, self._over = asyncio.Event(), False
        asyncio.get_running_loop().add_reader(self._ours, self._read)
        return self

    async def _started(self, theirs: int) -> forked.Process:
        ours, arguments = self._command[: len(JOBQUEUE)], self._command[len(JOBQUEUE) :]
        if ours == [*JOBQUEUE] and forked.can_fork(self._env):
            with open(theirs, "r+b", buffering=0, closefd=False) as file:  # noqa: ASYNC230  # it is open
                return forked.Forked(arguments, self._env, stdin=file, stdout=file, stderr=file)
        return await asyncio.create_subprocess_exec(
            *self._command, stdin=theirs, stdout=theirs, stderr=theirs, env=self._env
        )

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with contextlib.suppress(ProcessLookupError):
            self._process.send_signal(signal.SIGKILL)
        await self._process.wait()
        asyncio.get_running_loop().remove_reader(self._ours)
        os.close(self._ours)

    def _read(self) -> None:
        try:
            some = os.read(self._ours, 65536)
        except OSError:  # on Linux: the other end is closed
            some = b""
        self.raw += some
        if not some:
            self._over = True
            asyncio.get_running_loop().remove_reader(self._ours)
        self._more.set()

    async def see(self, pattern: str, begin: int = 0) -> None:
        """Wait until its output, from character `begin` on, matches the pattern."""
        try:
            async with asyncio.timeout(PATIENCE_S):
                while not re.search(pattern, self.text[begin:]):
                    assert not self._over, self.text
                    self._more.clear()
                    await self._more.wait()
        except TimeoutError:
            raise AssertionError(f"{pattern!r} was not shown, but: {self.text[begin:]}") from None

    def type(self, text: str) -> None:
        os.write(self._ours, text.encode())

    def interrupt(self) -> None:
        """Ctrl-C."""
        self._process.send_signal(signal.SIGINT)

    async def end(self) -> int:
        """Wait until it exits; returns the exit code."""
        async with asyncio.timeout(PATIENCE_S):
            code = await self._process.wait()
            while not self._over:
                self._more.clear()
                await self._more.wait()
        return code
