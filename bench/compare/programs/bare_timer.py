"""Moves due jobs from the bucket of bare Redis to its ready list, and sleeps until the next one. Argument: `SOCKET`.

A job that is added meanwhile and due sooner is noticed within 1 ms.
"""

from __future__ import annotations

import socket
import sys
import time
from typing import Any

import hiredis

_NAP_S = 0.001
_PAGE = 500


class Connection:
    def __init__(self, path: str) -> None:
        self._socket = socket.socket(socket.AF_UNIX)
        self._socket.connect(path)
        self._reader = hiredis.Reader()

    def ask(self, *commands: tuple[Any, ...]) -> list[Any]:
        self._socket.sendall(b"".join(hiredis.pack_command(each) for each in commands))
        answers: list[Any] = []
        while len(answers) < len(commands):
            answer = self._reader.gets()
            if answer is False:
                data = self._socket.recv(1 << 16)
                if not data:
                    sys.exit()
                self._reader.feed(data)
            else:
                answers.append(answer)
        return answers


def run(redis: Connection) -> None:
    while True:
        now_ms = int(time.time() * 1000)
        (ids,) = redis.ask(("ZRANGEBYSCORE", "b", "-inf", now_ms, "LIMIT", 0, _PAGE))
        if ids:
            redis.ask(("ZREM", "b", *ids), ("RPUSH", "r", *ids))
        if len(ids) < _PAGE:
            (first,) = redis.ask(("ZRANGE", "b", 0, 0, "WITHSCORES"))
            wait_s = float(first[1]) / 1000 - time.time() if first else _NAP_S
            time.sleep(min(_NAP_S, max(0.0, wait_s)))


connection = Connection(sys.argv[1])
print("ready", flush=True)
run(connection)
