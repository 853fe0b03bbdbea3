"""HTTP/1.1 by hand, on one kept connection."""

from __future__ import annotations

import json
from typing import Any, NamedTuple

from tests.wires.drivers.stream import Stream


class Response(NamedTuple):
    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)


async def exchange(
    stream: Stream, method: str, target: str, body: bytes = b"", headers: dict[str, str] | None = None
) -> Response:
    """Send one request and read its response. A kept connection that the service has closed is opened again."""
    kept = stream.is_open
    lines = {"Host": "localhost", "Content-Length": str(len(body))} | (headers or {})
    head = "".join(f"{name}: {value}\r\n" for name, value in lines.items())
    data = f"{method} {target} HTTP/1.1\r\n{head}\r\n".encode() + body
    try:
        await stream.send(data)
        response = await _read(stream)
    except ConnectionError:
        await stream.close()
        if not kept:
            raise
        await stream.send(data)
        response = await _read(stream)
    if response.headers.get("connection", "").lower() == "close":
        await stream.close()
    return response


async def _read(stream: Stream) -> Response:
    first, *rest = (await stream.line(b"\r\n\r\n")).decode("latin-1").split("\r\n")
    headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in rest)}
    return Response(int(first.split(" ")[1]), headers, await stream.exactly(int(headers.get("content-length", "0"))))
