"""The most that a client could reach: prepared bytes over one socket, with the answers ignored.

Arguments, like those of all programs here: `URL WORK COUNT TOPIC`. Prints {"seconds": …} as JSON. WORK is `add` (COUNT
adds, one after another), `batch` (the same in batches of 100) or `work` (pop and finish COUNT ready jobs).
"""

from __future__ import annotations

import json
import re
import socket
import sys
import time
from urllib.parse import urlsplit

BATCH = 100
BODY = "x" * 98


class Bare:
    """One connection."""

    def __init__(self, url: str) -> None:
        host = urlsplit(url)
        assert host.hostname and host.port
        self._socket = socket.create_connection((host.hostname, host.port))
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._head = f"POST /command HTTP/1.1\r\nHost: {host.netloc}\r\nContent-Length: "

    def ask(self, body: str) -> bytes:
        self._socket.sendall(f"{self._head}{len(body)}\r\n\r\n{body}".encode())
        answer = b""
        while b"\r\n\r\n" not in answer:
            answer += self._socket.recv(1 << 20)
        begin = answer.index(b"\r\n\r\n") + 4
        length = int(answer.lower().split(b"content-length:")[1].split(b"\r\n")[0])
        while len(answer) < begin + length:
            answer += self._socket.recv(1 << 20)
        return answer[begin:]


def add(topic: str, number: int) -> str:
    job = {"command": "add", "topic": topic, "id": f"{topic}:{number:0{19 - len(topic)}}", "delay": 3600, "body": BODY}
    return json.dumps(job, separators=(",", ":"))


def work(bare: Bare, topic: str, count: int) -> None:
    """One job at a time; the finish of the last one and the next pop share a request."""
    pop = f'{{"command":"pop","topic":"{topic}"}}'
    answer = bare.ask(pop)
    for left in reversed(range(count)):
        job = re.search(rb'"id":"([^"]+)".*?"lease":(\d+)', answer)
        assert job
        finish = f'{{"command":"finish","id":"{job[1].decode()}","lease":{job[2].decode()}}}'
        answer = bare.ask(f"[{finish},{pop}]" if left else finish)


def main(url: str, kind: str, count: str, topic: str) -> None:
    bare, number = Bare(url), int(count)
    adds = [add(topic, each) for each in range(number)]
    batches = [f"[{','.join(adds[begin : begin + BATCH])}]" for begin in range(0, number, BATCH)]
    begun = time.perf_counter()
    if kind == "work":
        work(bare, topic, number)
    else:
        for body in adds if kind == "add" else batches:
            bare.ask(body)
    print(json.dumps({"seconds": time.perf_counter() - begun}))


if __name__ == "__main__":
    main(*sys.argv[1:])
