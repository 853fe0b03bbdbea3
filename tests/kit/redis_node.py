"""One server of a set (tests/kit/redis_sentinels.py, tests/kit/redis_cluster.py): a process on a port of this machine.

A server keeps its port when it is killed and restarted. It dies with the process that started it.
"""

from __future__ import annotations

import asyncio
import ctypes
import signal
import ssl
import subprocess
import time
from collections.abc import Awaitable, Callable, Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

import hiredis
import trustme

from tests.kit.redis_server import binary
from tests.kit.waiting import until

HOST = "127.0.0.1"
_PATIENCE_S = 30.0
_ANSWER_S = 10.0
_PR_SET_PDEATHSIG = 1

_libc = ctypes.CDLL(None)


async def until_servers(reached: Callable[[], Awaitable[Any]], within_s: float = _PATIENCE_S) -> None:
    """Wait for a condition that asks servers; one that does not answer is asked again. Raises TimeoutError."""

    async def answered() -> bool:
        try:
            return bool(await reached())
        except (OSError, hiredis.ReplyError):
            return False

    await until(answered, within_s, every_s=0.02)


class Access(NamedTuple):
    """Credentials: an ACL user, or the default user where `user` is empty. Without a password anyone may connect."""

    user: str = ""
    password: str = ""

    @property
    def in_url(self) -> str:
        return f"{self.user}:{self.password}@" if self.password else ""

    def words(self) -> list[str]:
        """The arguments of AUTH."""
        return [word for word in self if word]

    def lines(self) -> list[str]:
        """Lines of a server's configuration; its replicas authenticate the same way."""
        if not self.password:
            return []
        lines = [f"requirepass {self.password}", f"masterauth {self.password}"]
        if self.user:
            lines += [f"user {self.user} on >{self.password} ~* &* +@all", f"masteruser {self.user}"]
        return lines


EVERYBODY = Access()


class Tls:
    """An authority of one's own, a certificate of the servers, and one of their clients, as files in a folder. Servers
    speak nothing but TLS then, to each other too, and take no client without a certificate of the authority."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        authority = trustme.CA()
        self.ca = folder / "ca.pem"
        authority.cert_pem.write_to_path(self.ca)
        self.server = _issued(authority, folder / "server", HOST, "localhost")
        self.client = _issued(authority, folder / "client", "jobqueue.internal")
        certificate, key = self.client
        self.in_url = f"?ssl_ca_certs={self.ca}&ssl_certfile={certificate}&ssl_keyfile={key}"

    def lines(self, port: int) -> list[str]:
        """Lines of a server's configuration."""
        certificate, key = self.server
        return [
            *("port 0", f"tls-port {port}", f"tls-cert-file {certificate}", f"tls-key-file {key}"),
            *(f"tls-ca-cert-file {self.ca}", "tls-auth-clients yes", "tls-replication yes", "tls-cluster yes"),
        ]

    def context(self) -> ssl.SSLContext:
        """For a client."""
        context = ssl.create_default_context(cafile=str(self.ca))
        context.load_cert_chain(*self.client)
        return context


def _issued(authority: trustme.CA, path: Path, *names: str) -> tuple[Path, Path]:
    """A certificate and its key, written beside each other."""
    issued = authority.issue_cert(*names)
    files = path.with_suffix(".pem"), path.with_suffix(".key")
    issued.cert_chain_pems[0].write_to_path(files[0])
    issued.private_key_pem.write_to_path(files[1])
    return files


class RedisNode:
    """A server, or with `sentinel` a Sentinel. `lines` go into its configuration file, which it may rewrite.

    `host` is its own address where there is a network (see redis_network.py); others find it at `address`. With `tls`
    it speaks nothing else. `server`: its program.
    """

    def __init__(
        self,
        folder: Path,
        port: int,
        lines: Iterable[str] = (),
        access: Access = EVERYBODY,
        sentinel: bool = False,
        host: str = HOST,
        tls: Tls | None = None,
        server: str | None = None,
    ) -> None:
        self.host = host
        self.port = port
        self.folder = folder
        self.log = folder / "log"
        self.address = f"{HOST}:{port}"
        self.url = f"redis{'s' if tls else ''}://{access.in_url}{self.address}{tls.in_url if tls else ''}"
        self._access = access
        self._tls = tls.context() if tls else None
        self._arguments = ["--sentinel"] if sentinel else []
        self._server = server or binary()
        self._process: subprocess.Popen[bytes] | None = None
        folder.mkdir()
        at = tls.lines(port) if tls else [f"port {port}"]
        own = (*at, f"bind {host}", f"bind-source-addr {host}", f"dir {folder}", f"logfile {self.log}")
        self._file = folder / "redis.conf"
        self._file.write_text("\n".join((*own, *access.lines(), *lines, "")))

    def __repr__(self) -> str:
        return f"<RedisNode {self.port}>"

    @property
    def alive(self) -> bool:
        return self._process is not None

    async def start(self) -> None:
        """Start or restart it, and wait until it takes commands."""
        self.spawn()
        await self.up()

    def spawn(self) -> None:
        """Start it, without waiting for it."""
        assert self._process is None
        self._process = subprocess.Popen(
            [self._server, str(self._file), *self._arguments],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            preexec_fn=die_with_parent,  # noqa: PLW1509  # one system call, no lock
        )

    async def up(self) -> None:
        """Wait until it takes commands. Raises RuntimeError if it exits instead."""
        end = time.monotonic() + _PATIENCE_S
        while not await self._takes_commands():
            if self._process is None or self._process.poll() is not None or time.monotonic() > end:
                said = self.log.read_text()[-2000:] if self.log.exists() else ""
                raise RuntimeError(f"{self} did not start: {said}")
            await asyncio.sleep(0.005)

    async def _takes_commands(self) -> bool:
        try:
            return bool(await self.ask("PING") == "PONG")
        except (OSError, hiredis.ReplyError):
            return False

    async def ask(self, *command: str | int, within_s: float = _ANSWER_S, by: Access | None = None) -> Any:
        """One command on a connection of its own, `by` another user if given. Raises OSError (a time-out is one), or
        hiredis.ReplyError."""
        access = by or self._access
        reader = hiredis.Reader(encoding="utf-8", errors="replace")
        async with asyncio.timeout(within_s):
            incoming, outgoing = await asyncio.open_connection(self.host, self.port, ssl=self._tls)
            try:
                if access.password:
                    outgoing.write(_packed("AUTH", *access.words()))
                    await _reply(incoming, reader)
                outgoing.write(_packed(*command))
                return await _reply(incoming, reader)
            finally:
                outgoing.close()
                with suppress(OSError):
                    await outgoing.wait_closed()  # otherwise the transport would outlive the event loop

    async def has_all_of(self, master: RedisNode) -> bool:
        """Whether it is a replica of `master` and has everything that the master had when asked."""
        role, offset, *_ = await master.ask("ROLE")
        own = await self.ask("ROLE")
        follows = own[0] == "slave" and own[2:4] == [master.port, "connected"]
        return bool(role == "master" and follows and own[4] >= offset)

    def kill(self) -> None:
        """SIGKILL; works on a frozen server, and does nothing to a dead one."""
        if self._process is not None:
            self._process.kill()
            self._process.wait(_PATIENCE_S)
            self._process = None

    def freeze(self) -> None:
        """SIGSTOP: it neither answers nor closes its connections."""
        self._signal(signal.SIGSTOP)

    def thaw(self) -> None:
        """SIGCONT: it resumes where it stopped."""
        self._signal(signal.SIGCONT)

    def _signal(self, number: int) -> None:
        assert self._process is not None
        self._process.send_signal(number)


def _packed(*command: str | int) -> bytes:
    packed: bytes = hiredis.pack_command(command)  # type: ignore[arg-type]  # its types take one value only
    return packed


async def _reply(incoming: asyncio.StreamReader, reader: hiredis.Reader) -> Any:
    reply = reader.gets()
    while reply is False:
        data = await incoming.read(1 << 16)
        if not data:
            raise ConnectionError("the server hung up")
        reader.feed(data)
        reply = reader.gets()
    if isinstance(reply, hiredis.ReplyError):
        raise reply
    return reply


def die_with_parent() -> None:
    """For a new process, before it becomes a program: the kernel kills it when this one ends."""
    _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
