"""An HTTP server that does nothing; argument: `PORT`. It answers an add, or an array of them, with the same bytes each
time."""

from __future__ import annotations

import asyncio
import sys
from typing import cast

import uvloop

_ADDED = b'{"success":true,"id":"job:0000000000000001","state":"delayed","due":1795310000.123,"result":"created"}'
_LARGE = 1000  # bytes of an array request
_HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%b"


def _response(body: bytes) -> bytes:
    return _HEAD % (len(body), body)


class Trivial(asyncio.Protocol):
    """A request is taken as whole when its bytes have arrived, by their known length."""

    one = _response(_ADDED)
    many = _response(b"[" + b",".join([_ADDED] * 100) + b"]")

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's own class does not inherit from it
        self._missing = 0

    def data_received(self, data: bytes) -> None:
        if not self._missing:
            head = data.index(b"\r\n\r\n") + 4
            length = int(data[data.index(b"Content-Length: ") + 16 : head - 4])
            self._missing, self._answer = head + length, self.many if length > _LARGE else self.one
        self._missing -= len(data)
        if not self._missing:
            self._transport.write(self._answer)


async def main(port: int) -> None:
    server = await asyncio.get_running_loop().create_server(Trivial, "127.0.0.1", port)
    await server.serve_forever()


uvloop.run(main(int(sys.argv[1])))
