"""A request for each call of each dialect, made from the dialects' own tables: a new call is in it by itself."""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple
from urllib.parse import quote

from jobqueue.protocols import lmstfy, mykit
from jobqueue.protocols.beanstalkd.dialect import COMMANDS
from jobqueue.protocols.beanstalkd.parser import REFUSED
from jobqueue.protocols.camellia import dialect as camellia
from jobqueue.protocols.queue_server.actions import Actions

ID = "kept"
_ANSWER_S = 20.0


class Call(NamedTuple):
    """A request to a dialect over HTTP."""

    method: str
    path: str
    query: str = ""
    body: bytes = b""

    @property
    def target(self) -> str:
        return f"{self.path}?{self.query}"


def _of_lmstfy(name: str) -> Call:
    method, *rest = name.split()
    path = "/".join(["/api/ns/q", *rest, *([ID] if rest == ["job"] else [])])
    return Call(method, path, body=b"[1]" if method == "PUT" else b"")


def _of_camellia(name: str, method: str) -> Call:
    query = f"topic=q&msg=x&msgId={ID}&delayMillis=0&longPollingTimeoutMillis=1"
    return Call(method, f"/camellia/delayQueue/{name}", query)


def _of_mykit(path: str) -> Call:
    if path == "/push":
        return Call("POST", path, body=json.dumps({"topic": "q", "id": ID, "delay": 1, "body": "x"}).encode())
    return Call("GET", path, f"jobId={ID}")


HTTP: dict[str, list[Call]] = {
    "lmstfy": [_of_lmstfy(name) for name in ("PUT", "GET", *lmstfy._ACTIONS)],
    "camellia": [_of_camellia(name, each.method) for name, each in camellia._OPERATIONS.items()],
    "mykit": [_of_mykit(path) for path in mykit._ACTIONS],
}
"""By dialect, the calls, first one that adds."""

Placing = Callable[[Call, str], tuple[str, dict[str, str]]]
PLACES: dict[str, Placing] = {
    "as a bearer": lambda call, token: (call.target, {"Authorization": f"Bearer {token}"}),
    "in X-Token": lambda call, token: (call.target, {"X-Token": token}),
    "in the query": lambda call, token: (f"{call.target}&token={quote(token)}", {}),
    "in the path": lambda call, token: (f"/~{quote(token)}{call.target}", {}),
}
"""Where a token may be shown: the target and the headers of a request that shows one."""


def queue_server_requests(token: str | None) -> list[dict[str, Any]]:
    """A request for each action."""
    shown = {} if token is None else {"token": token}
    numbers = Actions(None)._actions  # type: ignore[arg-type]  # the table needs no dialect
    return [{"action": number, "queue": "q", "data": "x", "msg_id": 1, **shown} for number in sorted(numbers)]  # type: ignore[type-var]


async def by_tcp(port: int, request: dict[str, Any]) -> Any:
    """The answer of queue_server."""
    return json.loads(await said(port, json.dumps(request).encode(), lines=0))


async def by_udp(port: int, request: dict[str, Any]) -> Any:
    """The same by a datagram."""
    loop = asyncio.get_running_loop()
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as client:
        client.connect(("127.0.0.1", port))
        client.setblocking(False)
        await loop.sock_sendall(client, json.dumps(request).encode())
        async with asyncio.timeout(_ANSWER_S):
            return json.loads(await loop.sock_recv(client, 1 << 16))


_ARGUMENTS = {
    "put": "0 0 60 1\r\nx",
    **dict.fromkeys(("use", "watch", "ignore", "stats-tube"), "q"),
    "pause-tube": "default 9",
    "reserve-with-timeout": "0",
    "kick": "9",
    **dict.fromkeys(("delete", "touch", "peek", "kick-job", "reserve-job", "stats-job"), "1"),
    "release": "1 0 0",
    "bury": "1 0",
}
BEANSTALKD: Sequence[bytes] = [
    f"{name} {_ARGUMENTS[name]}\r\n".encode() if name in _ARGUMENTS else f"{name}\r\n".encode()
    for name in COMMANDS
    if name != REFUSED
]
"""Each command of beanstalkd, first one that adds."""


async def said(port: int, data: bytes, lines: int = 1) -> bytes:
    """What a service answers on a connection of its own: so many lines, or, with 0, what comes first; less where it
    hangs up."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        async with asyncio.timeout(_ANSWER_S):
            writer.write(data)
            if not lines:
                return await reader.read(1 << 16)
            return b"".join([await reader.readline() for _ in range(lines)])
    finally:
        writer.close()
