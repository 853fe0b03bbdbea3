"""Real database servers for tests: each in a folder of its own, on a Unix socket, never as a service of the machine."""

from __future__ import annotations

import contextlib
import itertools
import os
import shutil
import subprocess
import time
from pathlib import Path
from types import TracebackType
from typing import Self

from tests.kit.program import PATIENCE_S, Missing, Program

_POSTGRESQL = Path("/usr/lib/postgresql")  # Debian's, each version in a folder
_numbers = itertools.count(1)


class Server(Program):
    """The server of databases."""

    def prepare(self) -> None:
        """Make the folder of the data."""
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
        if self.runs:
            return
        end = time.monotonic() + PATIENCE_S
        self.begin()
        while not self._answers():
            if time.monotonic() > end:
                raise self.failure()
            if not self.runs:  # what was killed may still hold its memory for a moment
                self.begin()
            time.sleep(0.05)

    def _answers(self) -> bool:
        with contextlib.suppress(subprocess.CalledProcessError):
            return bool(self.sql("SELECT 1"))
        return False

    def signal(self, number: int) -> None:
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
        self.remove()


def run(command: list[str]) -> str:
    """Run a program to its end and return what it prints. Raises CalledProcessError, with what it printed as a note."""
    try:
        return subprocess.run(command, check=True, capture_output=True, text=True, timeout=PATIENCE_S).stdout
    except subprocess.CalledProcessError as error:
        error.add_note(f"{error.stdout}{error.stderr}")
        raise


class PostgreSQL(Server):
    """The newest PostgreSQL of the machine. It does not run as root, so that it then runs as nobody."""

    kind = "postgresql"

    def __init__(self) -> None:
        programs = sorted(_POSTGRESQL.glob("*/bin/initdb"), key=lambda path: int(path.parts[-3]))
        if not programs:
            raise Missing("PostgreSQL")
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
            raise Missing("MariaDB")
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
