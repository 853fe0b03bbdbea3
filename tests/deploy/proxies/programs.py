"""nginx and HAProxy, started with the files of deploy/, in which ports and paths alone are replaced."""

from __future__ import annotations

import asyncio
import contextlib
import csv
import getpass
import grp
import os
import ssl
import subprocess
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import ClassVar, Self

import trustme

from tests.deploy.programs import program
from tests.kit.ports import free_port
from tests.kit.service import ROOT
from tests.kit.waiting import until


class Proxy(ABC):
    """A proxy in front of what it serves, `async with`. `at`: the ports of that; `change`: replaces more in its
    file."""

    name: ClassVar[str]
    serves: ClassVar[tuple[str, ...]] = ("10.0.0.11:8000", "10.0.0.12:8000")
    """The addresses in its file: two instances."""

    def __init__(self, folder: Path, at: Sequence[int], change: Mapping[str, str] | None = None) -> None:
        self._at = at
        self._change = change or {}
        self._process: asyncio.subprocess.Process | None = None
        self.folder = folder / self.name
        self.folder.mkdir()
        self.port = free_port()
        self.url = f"https://localhost:{self.port}"
        authority = trustme.CA()
        self.ca = self.folder / "ca.pem"
        authority.cert_pem.write_to_path(str(self.ca))
        made = authority.issue_cert("localhost", "127.0.0.1")
        made.cert_chain_pems[0].write_to_path(str(self.folder / "queue.crt"))
        made.private_key_pem.write_to_path(str(self.folder / "queue.key"))
        made.private_key_and_cert_chain_pem.write_to_path(str(self.folder / "queue.pem"))

    def _fill(self, file: str, places: Mapping[str, str]) -> str:
        """A file of deploy/ with other ports and paths."""
        text = (ROOT / "deploy" / file).read_text()
        instances = {there: f"127.0.0.1:{here}" for there, here in zip(self.serves, self._at, strict=True)}
        for old, new in {**instances, **places, **self._change}.items():
            assert old in text, f"{file} has no {old}"
            text = text.replace(old, new)
        return text

    @abstractmethod
    def check(self) -> str:
        """What the program says of its file. Raises CalledProcessError for a bad one."""

    @abstractmethod
    def _command(self) -> list[str]:
        """The command that runs it in the foreground."""

    @abstractmethod
    async def uses(self, port: int) -> bool:
        """Whether it sends requests to the instance on a port."""

    @abstractmethod
    async def errors(self) -> int:
        """How many answers of 500 and above its clients got."""

    async def __aenter__(self) -> Self:
        log = (self.folder / "output").open("ab")
        with log:
            self._process = await asyncio.create_subprocess_exec(*self._command(), stdout=log, stderr=log)
        await until(self._accepts)
        return self

    async def __aexit__(self, *exception: object) -> None:
        assert self._process
        if self._process.returncode is None:
            self._process.terminate()
        await self._process.wait()

    async def _accepts(self) -> bool:
        assert self._process
        assert self._process.returncode is None, (self.folder / "output").read_text()
        with contextlib.suppress(OSError):
            _, writer = await asyncio.open_connection("127.0.0.1", self.port)
            writer.close()
            return True
        return False

    @property
    def tls(self) -> ssl.SSLContext:
        """For a client."""
        return ssl.create_default_context(cafile=str(self.ca))

    @staticmethod
    def _said(*command: str) -> str:
        done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=30)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout + done.stderr


class Nginx(Proxy):
    """With an nginx.conf around the file, as a distribution's includes conf.d."""

    name = "nginx"
    file: ClassVar[str] = "jobqueue.conf"
    certificate: ClassVar[str] = "queue"
    """The name of its files in nginx's folder."""

    def __init__(self, folder: Path, at: Sequence[int], change: Mapping[str, str] | None = None) -> None:
        super().__init__(folder, at, change)
        own, self._log = self.folder, self.folder / "access.log"
        paths = {f"tls/{self.certificate}.pem": own / "queue.crt", f"tls/{self.certificate}.key": own / "queue.key"}
        places = {f"/etc/nginx/{name}": str(path) for name, path in paths.items()}
        (own / "jobqueue.conf").write_text(
            self._fill(f"nginx/{self.file}", {"listen 443 ssl": f"listen {self.port} ssl", **places})
        )
        temporary = ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
        (own / "nginx.conf").write_text(
            f"user {getpass.getuser()}; worker_processes 2; daemon off; pid {own}/pid; error_log stderr;\n"
            "events { worker_connections 1024; }\n"
            "http {\n"
            '  log_format instances "$upstream_addr|$upstream_status|$status";\n'
            f"  access_log {self._log} instances;\n"
            + "".join(f"  {each}_temp_path {own}/{each};\n" for each in temporary)
            + "  include jobqueue.conf;\n}\n"
        )

    def check(self) -> str:
        return self._said(*self._command(), "-t")

    def _command(self) -> list[str]:
        return [program("nginx"), "-c", str(self.folder / "nginx.conf"), "-e", "stderr"]

    async def uses(self, port: int) -> bool:
        """Whether the instance answered when it was last asked."""
        for asked, statuses, _ in reversed(self._requests()):
            answers = dict(zip(asked.split(", "), statuses.split(", "), strict=True))
            if f"127.0.0.1:{port}" in answers:
                return answers[f"127.0.0.1:{port}"] == "200"
        return False

    async def errors(self) -> int:
        return sum(status >= "500" for *_, status in self._requests())

    def _requests(self) -> list[list[str]]:
        """For each request the instances that were asked, their statuses, and the one that the client got."""
        return [line.split("|") for line in self._log.read_text().splitlines()]


class ConsoleNginx(Nginx):
    """In front of a console."""

    serves = ("127.0.0.1:8001",)
    file = "console.conf"
    certificate = "queue-console"


class Haproxy(Proxy):
    """The file is the whole configuration."""

    name = "haproxy"

    def __init__(self, folder: Path, at: Sequence[int], change: Mapping[str, str] | None = None) -> None:
        super().__init__(folder, at, change)
        self._socket = self.folder / "admin.sock"
        places = {
            "user haproxy": f"user {getpass.getuser()}",  # Debian's package is only unpacked
            "group haproxy": f"group {grp.getgrgid(os.getgid()).gr_name}",
            "chroot /var/lib/haproxy": f"chroot {self.folder}" if os.geteuid() == 0 else "",
            "bind :443 ssl": f"bind 127.0.0.1:{self.port} ssl",
            "crt /etc/haproxy/queue.pem": f"crt {self.folder}/queue.pem",
            "socket /run/haproxy/admin.sock": f"socket {self._socket}",
        }
        self._file = self.folder / "haproxy.cfg"
        self._file.write_text(self._fill("haproxy/haproxy.cfg", places))

    def check(self) -> str:
        return self._said(program("haproxy"), "-c", "-f", str(self._file))

    def _command(self) -> list[str]:
        return [program("haproxy"), "-db", "-f", str(self._file)]

    async def uses(self, port: int) -> bool:
        return any(row["addr"] == f"127.0.0.1:{port}" and row["status"] == "UP" for row in await self._figures())

    async def errors(self) -> int:
        return sum(int(row["hrsp_5xx"]) for row in await self._figures() if row["svname"] == "FRONTEND")

    async def _figures(self) -> list[dict[str, str]]:
        reader, writer = await asyncio.open_unix_connection(str(self._socket))
        writer.write(b"show stat\n")
        said = (await reader.read()).decode()
        writer.close()
        return list(csv.DictReader(said.removeprefix("# ").splitlines()))


PROXIES: list[type[Proxy]] = [Nginx, Haproxy]
