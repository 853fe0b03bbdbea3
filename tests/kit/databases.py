"""Real database servers for tests: each in a folder of its own, on a Unix socket, never as a service of the machine."""

from __future__ import annotations

import contextlib
import itertools
import os
import shutil
import signal
import subprocess
import tempfile
import time
from pathlib import Path
from types import TracebackType
from typing import Self

_PATIENCE_S = 60.0
_POSTGRESQL = Path("/usr/lib/postgresql")  # Debian's, each version in a folder
_numbers = itertools.count(1)


class Missing(Exception):
    """A server that is not installed."""


class Server:
    """One server process, which a test may freeze, kill and start again; its data stay."""

    kind: str

    def __init__(self) -> None:
        # Not pytest's own folder: the path of a Unix socket has 107 characters at most.
        self.folder = Path(tempfile.mkdtemp(prefix="jq-db-"))
        self._process: subprocess.Popen[bytes] | None = None

    def prepare(self) -> None:
        """Make the folder of the data."""
        raise NotImplementedError

    def command(self) -> list[str]:
        """What runs in the foreground."""
        raise NotImplementedError

    def sql(self, statement: str, database: str | None = None) -> str:
        """Run a statement as the administrator and return what it prints."""
        raise NotImplementedError

    def url(self, database: str) -> str:
        raise NotImplementedError

    def new_database(self) -> str:
        """The URL of a new, empty database."""
        name = f"test_{next(_numbers)}"
        self.sql(f"CREATE DATABASE {name}")
        return self.url(name)

    def start(self) -> None:
        """Start it, unless it runs, and wait until it answers."""
        if self._process is not None and self._process.poll() is None:
            return
        end = time.monotonic() + _PATIENCE_S
        self._process = self._begin()
        while not self._answers():
            if time.monotonic() > end:
                raise RuntimeError(f"{self.kind} did not start: {self._log.read_text()[-2000:]}")
            if self._process.poll() is not None:  # what was killed may still hold its memory for a moment
                self._process = self._begin()
            time.sleep(0.05)

    @property
    def _log(self) -> Path:
        return self.folder / "log"

    def _begin(self) -> subprocess.Popen[bytes]:
        with self._log.open("ab") as log:
            return subprocess.Popen(
                self.command(), stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True
            )

    def _answers(self) -> bool:
        with contextlib.suppress(subprocess.CalledProcessError):
            return bool(self.sql("SELECT 1"))
        return False

    def kill(self) -> None:
        """SIGKILL to all its processes, as by the OOM killer."""
        self._signal(signal.SIGKILL)
        if self._process is not None:
            self._process.wait(_PATIENCE_S)
            self._process = None

    def freeze(self) -> None:
        """SIGSTOP: it neither answers nor closes its connections, as behind a broken network."""
        self._signal(signal.SIGSTOP)

    def thaw(self) -> None:
        self._signal(signal.SIGCONT)

    def _signal(self, number: int) -> None:
        """Send a signal to the process and its children, which are not of its group with PostgreSQL."""
        if self._process is not None:
            children = Path(f"/proc/{self._process.pid}/task/{self._process.pid}/children")
            with contextlib.suppress(OSError):
                for child in (self._process.pid, *map(int, children.read_text().split())):
                    with contextlib.suppress(ProcessLookupError):
                        os.kill(child, number)

    def __enter__(self) -> Self:
        self.prepare()
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.kill()
        shutil.rmtree(self.folder, ignore_errors=True)


def run(command: list[str]) -> str:
    """Run a program to its end and return what it prints. Raises CalledProcessError, with what it printed as a note."""
    try:
        return subprocess.run(command, check=True, capture_output=True, text=True, timeout=_PATIENCE_S).stdout
    except subprocess.CalledProcessError as error:
        error.add_note(f"{error.stdout}{error.stderr}")
        raise


class PostgreSQL(Server):
    """The newest PostgreSQL of the machine. It does not run as root, so that it then runs as nobody."""

    kind = "postgresql"

    def __init__(self) -> None:
        programs = sorted(_POSTGRESQL.glob("*/bin/initdb"), key=lambda path: int(path.parts[-3]))
        if not programs:
            raise Missing("PostgreSQL is not installed; .ci/run installs it")
        self._programs = programs[-1].parent
        as_root = os.geteuid() == 0
        self._as_other = ["setpriv", "--reuid=nobody", "--regid=nogroup", "--clear-groups"] if as_root else []
        super().__init__()
        if as_root:
            shutil.chown(self.folder, "nobody", "nogroup")

    def prepare(self) -> None:
        where = ["-D", str(self.folder / "data"), "-U", "jobqueue"]
        run([*self._as_other, str(self._programs / "initdb"), *where, "-A", "trust", "--no-locale", "-E", "UTF8", "-N"])

    def command(self) -> list[str]:
        settings = {"listen_addresses": "", "fsync": "off", "max_connections": "50", "shared_buffers": "64MB"}
        options = [part for name, value in settings.items() for part in ("-c", f"{name}={value}")]
        server = [str(self._programs / "postgres"), "-D", str(self.folder / "data"), "-k", str(self.folder)]
        return [*self._as_other, *server, *options]

    def sql(self, statement: str, database: str | None = None) -> str:
        client = [str(self._programs / "psql"), "-h", str(self.folder), "-U", "jobqueue", "-XAtq"]
        return run([*client, "-v", "ON_ERROR_STOP=1", "-d", database or "postgres", "-c", statement])

    def url(self, database: str) -> str:
        return f"postgresql://jobqueue@/{database}?host={self.folder}"


_NO_AIO = "--innodb-use-native-aio=0"  # the kernel's own is limited for all programs of the machine together


class MariaDB(Server):
    """The MariaDB of the machine, which may be only unpacked."""

    kind = "mariadb"

    def __init__(self, memory: str = "64M") -> None:
        server = shutil.which("mariadbd", path=f"{os.environ.get('PATH', '')}:/usr/sbin")
        if server is None:
            raise Missing("MariaDB is not installed; .ci/run installs it")
        self._server = server
        self._prefix = Path(server).parent.parent  # /usr, or below where it was unpacked
        self._memory = memory
        self._as_root = ["--user=root"] if os.geteuid() == 0 else []
        super().__init__()
        # One that starts removes the temporary tables of all others from a folder that they share.
        self._own_tmp = f"--tmpdir={self.folder}"

    def prepare(self) -> None:
        where = ["--no-defaults", f"--basedir={self._prefix}", f"--datadir={self.folder / 'data'}", *self._as_root]
        program = str(self._prefix / "bin" / "mariadb-install-db")
        run([program, *where, self._own_tmp, _NO_AIO, "--auth-root-authentication-method=normal", "--skip-test-db"])

    def command(self) -> list[str]:
        where = [f"--datadir={self.folder / 'data'}", f"--socket={self.folder / 's'}", "--skip-networking"]
        words = f"--lc-messages-dir={self._prefix / 'share/mysql/english'}"
        # A killed process loses nothing without syncing; a machine that fails is not tried.
        lighter = [
            "--innodb-flush-log-at-trx-commit=2",
            f"--innodb-buffer-pool-size={self._memory}",
            "--max-connections=50",
            _NO_AIO,
            self._own_tmp,
        ]
        return [self._server, "--no-defaults", *where, words, *lighter, *self._as_root]

    def sql(self, statement: str, database: str | None = None) -> str:
        client = str(self._prefix / "bin" / "mariadb")
        where = ["--no-defaults", f"--socket={self.folder / 's'}", "-u", "root", "-N", "-B"]
        return run([client, *where, "-e", statement, *([database] if database else [])])

    def url(self, database: str) -> str:
        return f"mariadb://root@/{database}?unix_socket={self.folder / 's'}"
