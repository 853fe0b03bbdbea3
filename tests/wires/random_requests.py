"""Requests to the dialects from a plain random generator: good ones, nearly good ones, and junk."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from urllib.parse import quote, urlencode

_NUMBERS = ["0", "1", "7", "60", "-1", "1.5", "x", "", "4294967295", "4294967296", str(2**63), str(2**64), "9" * 99]
_NAMES = ["a", "b", "default", "订单", "%41", "x" * 200, "x" * 300, "", "a b", "-a", "\u202e", "a/b", "#1", "\x00"]
_TEXTS = ["", "words", '{"a":1}', "[", '"', "é", "\x00", "{" * 500, "x" * 3000, "null", "%s%n"]
_JSON: list[object] = [
    *(None, True, -1, 0, 1, 1.5, 2**31, 2**63, 10**300, "", "1", "x", "\ud800", [], {}, [[]], {"a": 1}, 1e308)
]


class Maker:
    """Makes requests to the dialect of a name; the same number makes the same ones."""

    def __init__(self, dialect: str, number: int) -> None:
        self._random = random.Random(f"{dialect} {number}")
        makers: dict[str, Callable[[], bytes]] = {
            "beanstalkd": self._beanstalkd,
            "camellia": self._camellia,
            "lmstfy": self._lmstfy,
            "mykit": self._mykit,
            "queue_server": self._queue_server,
        }
        self._make = makers[dialect]

    def request(self) -> bytes:
        """One request: half of them whole, others damaged, a few of random bytes."""
        chance = self._random.random()
        if chance < 0.05:
            return self._random.randbytes(self._random.choice((1, 10, 300)))
        data = self._make()
        return data if chance < 0.6 else self._damaged(data)

    def _damaged(self, data: bytes) -> bytes:
        place, byte = self._random.randrange(len(data) + 1), self._random.randbytes(1)
        return self._random.choice(
            [
                data[:place],
                data[:place] + byte + data[place + 1 :],
                data[:place] + byte * 5 + data[place:],
                data.replace(b"\r\n", b"\n"),
                data + data[:place],
                data[place:],
            ]
        )

    def _number(self) -> str:
        """Mostly a good one."""
        return self._random.choice(_NUMBERS[:4]) if self._random.random() < 0.8 else self._random.choice(_NUMBERS)

    def _name(self) -> str:
        return self._random.choice(_NAMES[:3]) if self._random.random() < 0.7 else self._random.choice(_NAMES)

    def _beanstalkd(self) -> bytes:
        number, name = self._number, self._name
        data = self._random.choice(_TEXTS).encode()
        length = str(len(data)) if self._random.random() < 0.8 else number()
        line = self._random.choice(
            [
                f"put {number()} {number()} {number()} {length}\r\n" + data.decode(),
                f"put {number()} 0 60 {length}\r\n" + data.decode(),
                *(f"{word} {name()}" for word in ("use", "watch", "ignore", "stats-tube")),
                *(f"{word} {number()}" for word in ("delete", "touch", "peek", "kick", "kick-job", "reserve-job")),
                *(f"{word} {number()} {number()}" for word in ("bury", "stats-job")),
                f"release {number()} {number()} {number()}",
                f"reserve-with-timeout {self._random.choice(['0', '0', 'x', '-1'])}",
                f"pause-tube {name()} {number()}",
                *("list-tubes", "list-tube-used", "list-tubes-watched", "stats", "peek-ready", "peek-buried"),
                *("nothing", "x" * 300, "PUT"),
            ]
        )
        return line.encode() + b"\r\n"

    def _queue_server(self) -> bytes:
        good: dict[str, object] = {
            "action": self._random.choice([1, 1, 1, 2, 2, 3, 4, 7, 8, 104, 107, 5, 6, 9, None]),
            "queue": self._name(),
            "data": self._random.choice(_TEXTS),
            "msg_id": self._random.randrange(20),
            "seq": self._random.randrange(1 << 31),
        }
        for name in ("delay", "ttl", "retry", "pattern", "queue", "action", "data", "msg_id", "token"):
            if self._random.random() < 0.1:
                good[name] = self._random.choice(_JSON)
            if self._random.random() < 0.1:
                good.pop(name, None)
        return json.dumps(good).encode()

    def _camellia(self) -> bytes:
        operation = self._random.choice(
            ["sendMsg"] * 4
            + [
                "pullMsg",
                "pullMsg",
                "ackMsg",
                "deleteMsg",
                "getMsg",
                "getTopicInfo",
                "getTopicInfoList",
                "getMonitorData",
            ]
        )
        form = {"topic": self._name(), "msg": self._random.choice(_TEXTS), "msgId": self._name()}
        for name in ("delayMillis", "ttlMillis", "maxRetry", "batch", "ackTimeoutMillis"):
            form[name] = self._number()
        if self._random.random() < 0.2:
            form.pop(self._random.choice([*form]))
        return self._http("POST", f"/camellia/delayQueue/{operation}", urlencode(form).encode())

    def _mykit(self) -> bytes:
        if self._random.random() < 0.5:
            members: dict[str, object] = {"topic": self._name(), "id": self._name(), "delay": 1000, "body": "x"}
            for name in ("topic", "id", "delay", "ttl", "body", "status", "createTime", "bizKey"):
                if self._random.random() < 0.15:
                    members[name] = self._random.choice(_JSON)
            return self._http("POST", "/push", json.dumps(members).encode())
        path = self._random.choice(["delete", "finish", "reStoreJob", "reStore", "clearAll", "nothing"])
        return self._http("GET", f"/{path}?{urlencode({'jobId': self._name()})}")

    def _lmstfy(self) -> bytes:
        method = self._random.choice(["PUT", "PUT", "GET", "GET", "DELETE", "POST"])
        rest = self._random.choice(["", "", "/job/1", "/job/~2F", "/peek", "/size", "/deadletter", "/bulk", "/nothing"])
        query = {name: self._number() for name in ("delay", "ttl", "tries", "ttr", "count", "limit")}
        path = f"/api/{quote(self._name(), safe='%/')}/{quote(self._name(), safe='%/')}{rest}"
        body = self._random.choice(_TEXTS).encode() if method == "PUT" else b""
        return self._http(method, f"{path}?{urlencode(query)}", body)

    def _http(self, method: str, target: str, body: bytes = b"") -> bytes:
        return f"{method} {target} HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(body)}\r\n\r\n".encode() + body
