"""Keep-alive connections for threads, on the standard library's http.client. Safe to use across a fork."""

from __future__ import annotations

import http.client
import os
import select
import time
from collections import deque
from urllib.parse import urlsplit

from jobqueue_client.access import speaks_tls
from jobqueue_client.errors import Unreachable
from jobqueue_client.http import SPEAKS_TLS, Reply, Request, command_url, words
from jobqueue_client.options import Options

_IDLE_S = 10.0
_PART_BYTES = 1 << 16


class _Connection(http.client.HTTPConnection):
    """One connection. The headers and the body of a request are sent in one write."""

    body = b""
    pid = 0
    idle_since = 0.0

    def send(self, data: object) -> None:
        """Send the headers and the body; http.client calls this once per request, with the headers."""
        assert isinstance(data, bytes)
        super().send(data + self.body)

    def is_usable(self) -> bool:
        """Return True if this process opened the connection, and it is neither stale nor closed by the peer."""
        if self.pid != os.getpid() or time.monotonic() - self.idle_since > _IDLE_S:
            return False
        poll = select.poll()  # select() fails for file descriptors above 1023
        poll.register(self.sock, select.POLLIN)
        return not poll.poll(0)


class _SecureConnection(_Connection, http.client.HTTPSConnection):
    """One connection over TLS."""


class Connections:
    """The connections to one address. A thread never waits for a connection: if none is idle, it opens another."""

    def __init__(self, url: str, options: Options) -> None:
        self._url = url
        self._options = options
        parts = urlsplit(command_url(url))
        self._host = parts.hostname or ""
        self._port = parts.port or (443 if parts.scheme == "https" else 80)  # else http.client parses the host for one
        self._path = parts.path
        self._is_secure = parts.scheme == "https"
        self._is_known = self._is_secure  # True if the scheme of the URL is known to be right
        self._idle: deque[_Connection] = deque()  # atomic methods: needs no lock, which a fork could leave held

    def post(self, request: Request, authorization: str | None) -> Reply:
        """Send a request and read its reply, which must arrive within `timeout_s` + `wait_s`. Raises Unreachable."""
        within_s = self._options.timeout_s + request.wait_s
        connection = self._take()
        try:
            reply, keep = self._exchange(connection, request.data, within_s, self._options.headers_with(authorization))
        except (OSError, http.client.HTTPException) as error:
            connection.close()
            late = isinstance(error, TimeoutError)
            if not (late or self._is_known) and speaks_tls(self._url, self._options.connect_timeout_s):
                raise Unreachable(f"{self._url}: {SPEAKS_TLS}", maybe_done=False) from None
            why = f"no answer within {within_s:g} s" if late else f"no answer: {words(error)}"
            raise Unreachable(f"{self._url}: {why}", maybe_done=True) from None
        except BaseException:
            connection.close()
            raise
        self._is_known = True
        if keep:
            self._give_back(connection)
        else:
            connection.close()
        return reply

    def close(self) -> None:
        """Close the idle connections."""
        while (connection := self._pop()) is not None:
            connection.close()

    def _exchange(
        self, connection: _Connection, data: bytes, within_s: float, headers: dict[str, str]
    ) -> tuple[Reply, bool]:
        end = time.monotonic() + within_s
        connection.sock.settimeout(within_s)
        connection.body = data
        connection.putrequest("POST", self._path, skip_accept_encoding=True)
        for name, value in headers.items():
            connection.putheader(name, value)
        connection.putheader("Content-Length", str(len(data)))
        connection.endheaders()
        with connection.getresponse() as response:
            reply = Reply(response.status, response.getheader("Retry-After"), _read(response, end))
            return reply, not response.will_close

    def _take(self) -> _Connection:
        while (connection := self._pop()) is not None:
            if connection.is_usable():
                return connection
            connection.close()
        return self._open()

    def _pop(self) -> _Connection | None:
        try:
            return self._idle.pop()
        except IndexError:
            return None

    def _open(self) -> _Connection:
        connection = self._made()
        connection.pid = os.getpid()
        try:
            connection.connect()
        except TimeoutError:
            connection.close()
            message = f"{self._url}: no connection within {self._options.connect_timeout_s:g} s"
            raise Unreachable(message, maybe_done=False) from None
        except (OSError, UnicodeError) as error:  # UnicodeError: an invalid host name
            connection.close()
            raise Unreachable(f"{self._url}: {words(error)}", maybe_done=False) from None
        return connection

    def _made(self) -> _Connection:
        connect_s = self._options.connect_timeout_s
        if not self._is_secure:
            return _Connection(self._host, self._port, timeout=connect_s)
        return _SecureConnection(self._host, self._port, timeout=connect_s, context=self._options.access.tls)

    def _give_back(self, connection: _Connection) -> None:
        connection.body = b""
        connection.idle_since = time.monotonic()
        self._idle.append(connection)
        try:
            while connection.idle_since - self._idle[0].idle_since > _IDLE_S:
                self._idle.popleft().close()
        except IndexError:  # another thread closed them first
            pass


def _read(response: http.client.HTTPResponse, end: float) -> bytes:
    """Read the body in parts: its declared length may be wrong, and a trickling sender must not evade the time-out."""
    parts = []
    while part := response.read1(_PART_BYTES):
        parts.append(part)
        if time.monotonic() > end:
            raise TimeoutError
    if response.length:
        raise http.client.IncompleteRead(b"", response.length)
    return b"".join(parts)
