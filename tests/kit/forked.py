"""`jobqueue`, or a Python script, in a process that is forked from one that has loaded the modules.

It takes a tenth of the work of a start, and there are thousands of starts in a run of all tests. A forked service forks
its workers, too.
"""

from __future__ import annotations

import asyncio
import gc
import importlib
import json
import multiprocessing
import os
import runpy
import signal
import socket
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from multiprocessing.process import BaseProcess
from multiprocessing.reduction import DupFd
from pathlib import Path
from typing import IO, Any, NamedTuple, NoReturn, Protocol, Self

import prometheus_client.values
import structlog

import jobqueue.app
import jobqueue.cli.main
import jobqueue.testing  # noqa: F401  # all three: to have them loaded
from jobqueue import settings
from jobqueue.cli.entry import main

_forks = multiprocessing.get_context("forkserver")
_forks.set_forkserver_preload(
    [
        *(__name__, "jobqueue_client", "jobqueue_client.worker", "uvloop", "encodings.idna"),
        *(f"jobqueue.{name}" for name in ("journal.database", "journal.reading.running", "sinks.pump.deliver")),
        *(f"jobqueue.{name}" for name in ("workers.supervisor", "workers.worker", "cli.tables", "cli.fsck")),
    ]
)

settings.load({"port": 1}, environment={})  # what msgspec makes of a type once is made

# What a Python, its libraries or the loader read when they start.
_READ_AT_START = ("PYTHON", "LD_", "FAKETIME", "LC_", "LANG", "MALLOC_", "SSL_")
_FREE = "PYTHONPATH"  # the modules are loaded
PROGRAM = [sys.executable, "-m", "jobqueue"]


def _read_at_start(environment: Mapping[str, str]) -> dict[str, str]:
    names = (name for name in environment if name.startswith(_READ_AT_START) and name != _FREE)
    return {name: environment[name] for name in names}


_OURS = _read_at_start(os.environ)


def can_fork(environment: Mapping[str, str]) -> bool:
    """Whether a forked process is as one that starts with this environment. Only in a process of pytest-xdist: the
    program of any other one, such as a benchmark, would be loaded again in each forked process."""
    return "PYTEST_XDIST_WORKER" in os.environ and _read_at_start(environment) == _OURS


class HasFile(Protocol):
    """What a process may have for an input or output: a file, or a socket."""

    def fileno(self) -> int: ...


class Forked:
    """A process that runs `jobqueue` or a script, with what tests use of asyncio.subprocess.Process."""

    def __init__(
        self,
        arguments: Sequence[str],
        environment: Mapping[str, str],
        *,
        stdin: HasFile | None = None,
        stdout: HasFile,
        stderr: HasFile,
        script: Path | None = None,
    ) -> None:
        """The caller may close the files afterwards. `stdin`: None for an empty one. `script`: None for `jobqueue`."""
        with Path(os.devnull).open("rb") as empty:
            descriptors = [_Passed(each.fileno()) for each in (stdin or empty, stdout, stderr)]
            self._start(list(arguments), dict(environment), descriptors, script)

    def _start(self, *given: Any) -> None:
        self._process: BaseProcess = _forks.Process(target=_run, args=given, daemon=True)
        self._process.start()
        assert self._process.pid
        self.pid = self._process.pid

    @property
    def returncode(self) -> int | None:
        return self._process.exitcode

    def send_signal(self, number: int) -> None:
        if self.returncode is None:
            os.kill(self.pid, number)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)

    async def wait(self) -> int:
        """Wait until it has ended; its exit code."""
        loop, ended = asyncio.get_running_loop(), asyncio.Event()
        loop.add_reader(self._process.sentinel, ended.set)
        try:
            await ended.wait()
        finally:
            loop.remove_reader(self._process.sentinel)
        self._process.join()
        assert self.returncode is not None
        return self.returncode


Process = asyncio.subprocess.Process | Forked


async def started(
    arguments: Sequence[str],
    environment: Mapping[str, str],
    *,
    stdin: IO[bytes] | None = None,
    stdout: IO[bytes],
    stderr: IO[bytes],
) -> Process:
    """A process that runs `jobqueue`, forked where that is as good as a start."""
    if can_fork(environment):
        return Forked(arguments, environment, stdin=stdin, stdout=stdout, stderr=stderr)
    given = asyncio.subprocess.DEVNULL if stdin is None else stdin
    return await asyncio.create_subprocess_exec(
        *PROGRAM, *arguments, stdin=given, stdout=stdout, stderr=stderr, env=environment
    )


class Ran(NamedTuple):
    """The result of a process: exit code and output."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        """The one line of standard output."""
        assert self.out.count("\n") == 1, self
        return json.loads(self.out)

    @property
    def lines(self) -> list[Any]:
        return [json.loads(line) for line in self.out.splitlines()]


async def ran(
    arguments: Sequence[str], environment: Mapping[str, str], stdin: bytes = b"", within_s: float = 120.0
) -> Ran:
    """`jobqueue`, run to its end."""
    with tempfile.TemporaryFile() as given, tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        given.write(stdin)
        given.seek(0)
        process = await started(arguments, environment, stdin=given, stdout=out, stderr=err)
        async with asyncio.timeout(within_s):
            code = await process.wait()
        for written in (out, err):
            written.seek(0)
        return Ran(code, out.read().decode(), err.read().decode())


class ForkedScript(Forked):
    """A process that runs a script and is talked to over its standard input and output."""

    stdin: asyncio.StreamWriter
    stdout: asyncio.StreamReader
    stderr: asyncio.StreamReader
    _log: asyncio.StreamWriter

    @classmethod
    async def started(
        cls, script: Path, arguments: Sequence[str], environment: Mapping[str, str], *, stderr: int | None, limit: int
    ) -> Self:
        """`stderr`: asyncio.subprocess.PIPE, or None for that of this process. `limit`: of a line, in bytes."""
        ours, theirs = socket.socketpair()
        our_log, their_log = socket.socketpair()
        with theirs, their_log:
            log = their_log if stderr else sys.__stderr__
            assert log
            process = cls(arguments, environment, stdin=theirs, stdout=theirs, stderr=log, script=script)
        process.stdout, process.stdin = await asyncio.open_connection(sock=ours, limit=limit)
        process.stderr, process._log = await asyncio.open_connection(sock=our_log)
        return process

    def close(self) -> None:
        """Close this end of its inputs and outputs."""
        self.stdin.close()
        self._log.close()


class _Passed:
    """A file descriptor that becomes one of the forked process."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor

    def __reduce__(self) -> tuple[Callable[[Any], int], tuple[Any]]:
        return _received, (DupFd(self._descriptor),)


def _received(passed: Any) -> int:
    return int(passed.detach())


def _run(arguments: list[str], environment: dict[str, str], descriptors: list[int], script: Path | None) -> None:
    """Run the command line or a script in the forked process."""
    gc.freeze()  # a collection would copy the pages of all that is loaded: it took two thirds of a service's start
    for place, descriptor in enumerate(descriptors):
        os.dup2(descriptor, place)
        os.close(descriptor)
    # Made again, as they depend on whether it is a terminal; they live as long as the process.
    sys.stdin = open(0, closefd=False)  # noqa: SIM115
    sys.stdout = open(1, "w", closefd=False)  # noqa: SIM115
    sys.stderr = open(2, "w", buffering=1, closefd=False)  # noqa: SIM115
    os.environ.clear()
    os.environ.update(environment)
    time.tzset()
    prometheus_client.values.ValueClass = prometheus_client.values.get_value_class()  # type: ignore[no-untyped-call]
    sys.argv = [str(script or "jobqueue"), *arguments]
    if script is None:
        asyncio.create_subprocess_exec = _forked_worker  # type: ignore[assignment]
        main()
    else:
        sys.path.insert(0, str(script.parent))
        runpy.run_path(str(script), run_name="__main__")


class _Worker:
    """A process forked by the service in this one, with what a slot uses of asyncio.subprocess.Process."""

    returncode: int | None = None

    def __init__(self, pid: int, stdout: asyncio.StreamReader, stdin: asyncio.StreamWriter) -> None:
        self.pid, self.stdout, self.stdin = pid, stdout, stdin
        self._ended = asyncio.Event()
        handle = os.pidfd_open(pid)
        asyncio.get_running_loop().add_reader(handle, self._end, handle)

    def _end(self, handle: int) -> None:
        asyncio.get_running_loop().remove_reader(handle)
        os.close(handle)
        self.returncode = os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])
        self._ended.set()

    async def wait(self) -> int | None:
        await self._ended.wait()
        return self.returncode

    def terminate(self) -> None:
        os.kill(self.pid, signal.SIGTERM)

    def kill(self) -> None:
        os.kill(self.pid, signal.SIGKILL)


async def _forked_worker(*command: str, pass_fds: Sequence[int], env: Mapping[str, str], **_: Any) -> _Worker:
    """A process that runs a module as `python -P -m MODULE ARGUMENTS`, in a session of its own: what a supervisor
    starts (jobqueue/workers/slot.py)."""
    ours, theirs = socket.socketpair()
    with theirs:
        every = signal.pthread_sigmask(signal.SIG_SETMASK, signal.valid_signals())  # until they are the worker's own
        try:
            if (pid := os.fork()) == 0:
                _work(command[3], command[4:], theirs.fileno(), pass_fds, env)
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, every)
    return _Worker(pid, *await asyncio.open_connection(sock=ours))


def _work(
    module: str, arguments: Sequence[str], pipe: int, kept: Sequence[int], environment: Mapping[str, str]
) -> NoReturn:
    """Run a module in the process that was just forked, with nothing of its parent's loop and files.

    The frames below never go on and their objects stay, so each of the files becomes the null device: were it closed,
    such an object might close another file of its number.
    """
    code = 1
    try:
        gc.freeze()
        os.setsid()
        signal.set_wakeup_fd(-1)
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2):
            signal.signal(number, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_SETMASK, ())
        os.dup2(pipe, 0)
        os.dup2(pipe, 1)
        null = os.open(os.devnull, os.O_RDWR)
        for held in map(int, os.listdir("/proc/self/fd")):  # noqa: PTH208  # only the numbers
            if held > 2 and held not in kept:
                os.dup2(null, held)
        os.environ.clear()
        os.environ.update(environment)
        sys.argv = [module, *arguments]
        logger = type(structlog.get_logger())
        for loaded in list(sys.modules.values()):
            if isinstance(log := getattr(loaded, "log", None), logger):
                vars(log).pop("bind", None)  # it has kept the parent's settings
        importlib.import_module(module).main()
        code = 0
    except SystemExit as ended:
        code = int(ended.code or 0)
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)
