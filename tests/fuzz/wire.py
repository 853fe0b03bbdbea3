"""HTTP by hand: any bytes can be sent, and every byte of the answer is checked."""

from __future__ import annotations

import contextlib
import json
import socket
from dataclasses import dataclass
from typing import Any

PATIENCE_S = 10.0  # far more than any answer takes; a pop of the fuzzer waits 0.01 s at most


@dataclass(frozen=True)
class Response:
    """What came back."""

    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        """The body. Raises ValueError if it is not standard JSON."""
        return json.loads(self.body.decode(), parse_constant=_no_json)


def _no_json(word: str) -> None:
    raise ValueError(f"{word} is not JSON")


class Wire:
    """One connection at a time to a service, kept open as long as the service does."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._socket: socket.socket | None = None
        self._data = b""

    def exchange(self, data: bytes, *, head: bool = False, half: bool = False) -> Response | None:
        """Send bytes; returns the answer, or None if the service closes without one. `half`: close the sending side
        after them. A kept connection may have been closed in the meantime; then a new one is used."""
        kept = self._socket is not None
        try:
            response = self._once(data, head, half)
        except ConnectionError:
            response = None
        if response is None and kept:
            self.close()
            return self.exchange(data, head=head, half=half)
        if response is None or half or response.headers.get("connection", "").lower() == "close":
            self.close()
        return response

    def _once(self, data: bytes, head: bool, half: bool) -> Response | None:
        if self._socket is None:
            self._socket = socket.create_connection(("127.0.0.1", self._port), PATIENCE_S)
            self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        with contextlib.suppress(OSError):  # refused before it was read to the end: the answer is there
            self._socket.sendall(data)
            if half:
                self._socket.shutdown(socket.SHUT_WR)
        status, headers = 100, dict[str, str]()
        while status == 100:
            lines = self._until(b"\r\n\r\n")
            if lines is None:
                return None
            first, *rest = lines.decode("latin-1").split("\r\n")
            status = int(first.split(" ")[1])
            headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in rest)}
        length = 0 if head else int(headers.get("content-length", "0"))
        while len(self._data) < length:
            if not self._more():
                return None
        body, self._data = self._data[:length], self._data[length:]
        return Response(status, headers, body)

    def _until(self, mark: bytes) -> bytes | None:
        while mark not in self._data:
            if not self._more():
                return None
        found, _, self._data = self._data.partition(mark)
        return found

    def _more(self) -> bool:
        assert self._socket
        some = self._socket.recv(1 << 16)
        self._data += some
        return bool(some)

    def close(self) -> None:
        if self._socket is not None:
            self._socket.close()
        self._socket, self._data = None, b""
