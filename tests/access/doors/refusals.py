"""`make bench-refusals`: how long a request takes that is refused for want of a valid token, by what is wrong with it.

The kinds take turns, in an order by chance. A connection ends with its refusal, so connections are opened ahead, and
only the request and its answer are timed. Each head has an id of its own, so that no head is known from before. It
fails where the answers differ in a byte but for the date and the id. `python -m tests.access.doors.refusals 2000` sets
the number of requests of a kind.
"""

from __future__ import annotations

import asyncio
import random
import re
import socket
import statistics
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from tests.access.doors.credentials import KINDS, credentials
from tests.kit.guarded import guarded

REQUESTS = 10_000
_AHEAD = 10  # connections of each kind that are opened together
_ACCEPTED_S = 0.02  # after which the service has accepted them
_BODY = b'{"command":"stats"}'
_OWN = re.compile(rb"\r\n(Date|X-Request-Id): [^\r]*")


def refused(port: int, shown: str | None, *, more: bytes = b"", first: bytes = b"POST /command") -> bytes:
    """The whole answer to a request on a connection of its own, until the service hangs up. `more`: lines of its
    head."""
    with socket.create_connection(("127.0.0.1", port)) as connection:
        connection.sendall(_request(shown, b"mine", more, first))
        parts = []
        while part := connection.recv(1 << 16):
            parts.append(part)
    return without_own(b"".join(parts))


def without_own(answer: bytes) -> bytes:
    """An answer without its date and the id of its request."""
    return _OWN.sub(b"", answer)


def _request(shown: str | None, request_id: bytes, more: bytes = b"", first: bytes = b"POST /command") -> bytes:
    lines = [b"Host: localhost", b"X-Request-Id: " + request_id, b"Content-Length: %d" % len(_BODY)]
    lines += [] if shown is None else [b"Authorization: Bearer " + shown.encode()]
    return first + b" HTTP/1.1\r\n" + b"\r\n".join(lines) + b"\r\n" + more + b"\r\n" + _BODY


class Timing:
    """The seconds of requests by kind."""

    def __init__(self, port: int, shown: dict[str, str]) -> None:
        self._port = port
        self._shown = shown
        self._chance = random.Random(1)
        self._sent = 0
        self.seconds: dict[str, list[float]] = {kind: [] for kind in shown}
        self.answers: set[bytes] = set()

    def round(self) -> None:
        """Some requests of each kind, in turn."""
        order = list(self._shown) * _AHEAD
        self._chance.shuffle(order)
        connections = [socket.create_connection(("127.0.0.1", self._port)) for _ in order]
        time.sleep(_ACCEPTED_S)
        for kind, connection in zip(order, connections, strict=True):
            self._sent += 1
            request = _request(self._shown[kind], b"%012d" % self._sent)
            begun = time.perf_counter()
            connection.sendall(request)
            answer = connection.recv(1 << 16)
            self.seconds[kind].append(time.perf_counter() - begun)
            self.answers.add(without_own(answer))
            connection.close()


def table(seconds: dict[str, list[float]]) -> str:
    """The medians, and by how much the longest exceeds the shortest."""
    medians = {kind: statistics.median(each) * 1e6 for kind, each in seconds.items()}
    lines = [f"{kind:36} {us:8.1f} us" for kind, us in medians.items()]
    most = max(medians.values()) / min(medians.values()) - 1
    return "\n".join([*lines, f"largest difference of two medians {most:8.2%}"])


async def main(arguments: Sequence[str]) -> None:
    requests = int(arguments[0]) if arguments else REQUESTS
    with tempfile.TemporaryDirectory(prefix="jq-") as name:
        async with guarded(Path(name)) as service:
            texts = (await credentials(service)).texts
            shown = {kind: text for kind in KINDS if (text := texts[kind]) is not None}
            timing = Timing(service.service.port, shown)
            timing.round()  # to warm up
            for each in timing.seconds.values():
                each.clear()
            while len(timing.seconds[KINDS[1]]) < requests:
                timing.round()
    assert len(timing.answers) == 1, timing.answers
    print(f"{requests} refusals of each kind, one answer: {timing.answers.pop()!r}")
    print(table(timing.seconds))


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1:]))
