"""Requests of all kinds, made from the OpenAPI description: good ones, nearly good ones, and junk.

They come from a plain random generator: hypothesis, which shrinks failures, took 15 ms to make a request.
"""

from __future__ import annotations

import enum
import gzip
import json
import math
import random
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

IDS = ["a", "b", "c", "d", "e", "order:1", "e@1", "e@2", "t%3A1:%E2%82%AC"]
TOPICS = ["t", "both", "u", "v:1", "%2A%25"]  # `both` is virtual, `u` has room for three jobs
MAX_REQUEST, MAX_BODY = 65_536, 16_384  # bytes; small limits are hit often
HOUR = 3600


class Lease(enum.Enum):
    """Leases that are not known before the request is sent."""

    NEWEST = 0
    OLDER = -1


@dataclass(frozen=True)
class Request:
    """A request before it is written: JSON, the damage to its bytes, and the HTTP around it."""

    content: Any
    damage: tuple[str, int] = ("none", 0)
    method: str = "POST"
    path: str = "/command"
    headers: tuple[tuple[str, str], ...] = ()
    frame: str = "plain"


DAMAGES = ["cut", "flip", "insert", "utf-16", "latin-1", "bom", "twice", "deep", "spaces", "tail", "nul", "empty"]
FRAMES = ["plain", "chunked", "gzip", "bad gzip", "bad chunk", "short", "old", "no length", "folded", "deflate"]


def damaged(data: bytes, damage: tuple[str, int]) -> bytes:
    """The bytes of a request after some damage."""
    kind, number = damage
    place = number % (len(data) + 1)
    byte = bytes([number % 256])
    if byte in b"0123456789.eE":  # could shorten a time; a timer's work would then look like the request's
        byte = b"!"
    ways: dict[str, Callable[[], bytes]] = {
        "none": lambda: data,
        "cut": lambda: data[:place],
        "flip": lambda: data[:place] + byte + data[place + 1 :],
        "insert": lambda: data[:place] + byte + bytes([number // 256]) + data[place:],
        "utf-16": lambda: data.decode().encode("utf-16"),
        "latin-1": lambda: data.replace(b"a", b"\xfc"),
        "bom": lambda: b"\xef\xbb\xbf" + data,
        "twice": lambda: data.replace(b"{", b'{"id":"a","command":"delete","delay":7000000,', 1),
        "deep": lambda: data.replace(b"}", b',"body":' + b"[" * number + b"]" * number + b"}", 1),
        "spaces": lambda: b" \n\t" * (number % 9) + data + b"\r\n" * (number % 9),
        "tail": lambda: data + data[: number % 9 + 1],
        "nul": lambda: data + b"\x00",
        "empty": lambda: b"",
    }
    return ways[kind]()


def written(content: Any) -> bytes:
    """JSON as bytes; every other content with unescaped characters."""
    try:
        return json.dumps(content, ensure_ascii=len(repr(content)) % 2 == 0).encode()
    except UnicodeEncodeError:  # a lone surrogate has no bytes of its own
        return json.dumps(content).encode()


def framed(request: Request, data: bytes) -> bytes:
    """The bytes that go over the wire."""
    lines = [f"{request.method} {request.path} HTTP/{'1.0' if request.frame == 'old' else '1.1'}"]
    headers = {"Host": "localhost", **dict(request.headers)}
    if request.frame in ("gzip", "bad gzip", "deflate"):
        headers["Content-Encoding"] = "deflate" if request.frame == "deflate" else "gzip"
        data = data if request.frame == "bad gzip" else gzip.compress(data, 1)
    if request.frame in ("chunked", "bad chunk"):
        headers["Transfer-Encoding"] = "chunked"
        size = b"%x" % len(data) if request.frame == "chunked" else b"zz"
        data = size + b"\r\n" + data + b"\r\n0\r\n\r\n" if data else b"0\r\n\r\n"
    elif request.frame != "no length":
        headers["Content-Length"] = str(len(data) + 5 * (request.frame == "short"))
    lines += [f"{name}: {value}" for name, value in headers.items()]
    if request.frame == "folded":
        lines.append(" folded: as long ago")
    return "\r\n".join(lines).encode("utf-8", "surrogatepass") + b"\r\n\r\n" + data


METHODS = ["POST", "GET", "PUT", "HEAD", "DELETE", "OPTIONS", "PATCH", "TRACE", "POSTS", "post", "ÄÖ"]
PATHS = [
    *("/command", "/command?topic=t", "/command/", "//command", "/COMMAND", "/command%00", "/%63ommand"),
    *("/", "/healthz", "/readyz", "/openapi.json", "/nowhere", "/../etc/passwd", "*", "http://t/command"),
    *("/" + "x" * 9000, "/\ud800", "/ü", "/command#x", "command", "/%zz", "/command;x=1", "http://[::1/command"),
]
HEADERS = [
    *(("Expect", "100-continue"), ("Expect", "a miracle"), ("Connection", "close"), ("Connection", "Upgrade")),
    *(("Upgrade", "websocket"), ("X-Long", "x" * 9000), ("X-Request-Id", "mine-7"), ("Bad Name", "x")),
    *(("Content-Type", "text/html; charset=utf-16"), ("Accept", "text/html"), ("X-HTTP-Method-Override", "DELETE")),
]
ODD: list[Any] = [
    *(None, True, False, 0, 1, -1, -0.0, 0.05, 2**53, 2**63, 2**64, -(2**63) - 1, 10**400, 1e308, 5e-324, 1e18, 1001),
    *(
        math.nan,
        math.inf,
        -math.inf,
        "",
        "3",
        "null",
        "%2a",
        "%41",
        "%",
        "\ud800",
        "\x00",
        "{jq:0}:meta",
        "*",
        "../..",
        "a" * 256,
    ),
    *("ü" * 255, "٣", "\u202e", "a\n", "2030-01-01T00:00:00", [], {}, [[]], {"": None}, ["a"] * 101, {"a": 1}),
]
_TIMES = ("delay", "at", "spread", "ttr", "TTR", "ttl", "retention", "backoff", "seconds", "every", "start")
CRONS = ["0 0 29 2 *", "30 2 29 FEB SUN#5", "59 59 23 29 2 0"]  # none occurs during a run, or hardly ever
ZONES = ["UTC", "Europe/Berlin", "Australia/Lord_Howe", "Europe/Berlni"]
NO_PLAN = "0123456789ab"
_EITHER = {
    "schedule": ("every", "cron"),
    "add": ("delay", "at"),
    "update": ("delay", "at"),
    "pop": ("topic", "topics", "id"),
    "kick": ("id", "topic"),
}
# Without jobs, some of them reserved, most commands would find nothing.
_OFTEN = {"add": 12, "pop": 8, "finish": 2, "release": 3, "touch": 2, "bury": 2, "kick": 2, "run": 4, "update": 2}


class Maker:
    """Makes requests. In quiet ones no span ends while the fuzzer runs, so that no timer moves a job."""

    def __init__(self, document: dict[str, Any], number: int, *, quiet: bool) -> None:
        self.random = random.Random(number)
        self._quiet = quiet
        kinds = [kind["properties"] | {"": kind} for kind in document["components"]["schemas"].values()]
        self._kinds = {kind["command"]["enum"][0]: kind.pop("") for kind in kinds if "command" in kind}
        self._weights = [_OFTEN.get(name, 1) for name in self._kinds]
        self._fields = sorted({name for kind in self._kinds.values() for name in kind["properties"]})

    def request(self) -> Request:
        """A request of any kind."""
        kind = self.random.choices(["good", "bad", "array", "junk", "damaged", "framed"], [10, 5, 3, 1, 3, 3])[0]
        if kind == "damaged":
            return Request(self.content(), (self.random.choice(DAMAGES), self.random.randrange(3000)))
        if kind == "framed":
            return self.framed()
        if kind == "junk":
            return Request(self.random.choice([self.junk(), "x" * (MAX_REQUEST + self.random.randint(-3, 3))]))
        return Request({"good": self.good, "bad": self.bad, "array": self.array}[kind]())

    def framed(self) -> Request:
        """A command in odd HTTP, or to an odd path."""
        choice = self.random.choice
        method, path = (choice(METHODS), choice(PATHS)) if self.random.random() < 0.5 else ("POST", "/command")
        headers = tuple(choice(HEADERS) for _ in range(choice([0, 0, 1, 2])))
        return Request(self.content(), method=method, path=path, headers=headers, frame=choice(FRAMES))

    def content(self) -> Any:
        return self.random.choice([self.good, self.good, self.bad, self.array])()

    def array(self) -> Any:
        """Good and bad members; rarely too many."""
        if self.random.random() < 0.01:
            return [{"command": "stats"}] * 1001
        return [self.random.choice([self.good, self.good, self.bad])() for _ in range(self.random.randrange(6))]

    def good(self) -> dict[str, Any]:
        """A command that is correct as far as its schema says."""
        name = self.random.choices([*self._kinds], self._weights)[0]
        schema = self._kinds[name]
        few = self.random.random() < 0.5
        command = {"command": name}
        for field, each in schema["properties"].items():
            wanted = field in schema["required"] or field in ("id", "topic") or (name, field) == ("add", "body")
            if field != "command" and (wanted or self.random.random() < (0.1 if few else 0.4)):
                command[field] = None if not wanted and self.random.random() < 0.1 else self.value(field, each)
        return self._sensible(command)

    def _sensible(self, command: dict[str, Any]) -> dict[str, Any]:
        """Without one of two fields that exclude each other, and so that jobs stay alive."""
        if command["command"] == "add" and self.random.random() < 0.7:
            command["if_exists"] = "replace"  # else an ended job would be remembered until the end of the run
        if command.get("if_exists") in ("later", "sooner") and self.random.random() < 0.5:
            del command["body"]
        if command["command"] == "operation":
            return self._operation(command["do"])
        if "ttr" in command:
            command.pop("TTR", None)
        if command["command"] == "schedule":
            command.setdefault("every", self._span(1, 31_536_000))
        given = [name for name in _EITHER.get(command["command"], ()) if name in command]
        kept = self.random.choice(given) if given else ""
        for name in {*given} - {kept} | ({"count", "wait"} if (command["command"], kept) == ("pop", "id") else set()):
            command.pop(name, None)
        if command["command"] == "schedule":
            command.pop("start" if kept == "cron" else "zone", None)
        if command["command"] == "purge" and command["topic"] != TOPICS[-1] and self.random.random() < 0.9:
            command["topic"] = TOPICS[-1]
        return command

    def _operation(self, do: str) -> dict[str, Any]:
        """With the fields that go with what is done. No plan's id is known, so nothing is started."""
        command: dict[str, Any] = {"command": "operation", "do": do}
        if do == "plan":
            kind = self.random.choice(["kick", "delete", "run", "reschedule", "find"])
            command |= {"kind": kind, "filter": self._filter()}
            command |= {"shift": self._span(1, 3e8)} if kind == "reschedule" else {}
        elif do == "start":
            command |= {"plan": NO_PLAN, "expect": self.random.choice([0, 1, 2**53 - 1])}
        elif do != "list":
            command["operation"] = NO_PLAN
        return command

    def _filter(self) -> dict[str, Any]:
        wanted = {"topic": self.random.choice([*TOPICS, "*", "?"]), "prefix": self.random.choice(IDS)}
        wanted |= {"tag": "x", "created_to": self._time(), "due_from": self._time()}
        kept = {"topic", *self.random.sample([*wanted], self.random.randrange(3))}
        return {name: wanted[name] for name in wanted if name in kept}

    def bad(self) -> Any:
        """A command with something wrong, or at least odd."""
        command = self.good()
        own = self.random.choice(sorted(command))
        change = self.random.choice(["value", "value", "value", "drop", "unknown", "command"])
        if change == "drop":
            del command[own]
        elif change == "unknown":
            field = self.random.choice([*self._fields, "dealy", "Id", "", "__class__", "id ", "ü", "x" * 300])
            command[field] = self._at_rest(field, 1)
        else:
            own = "command" if change == "command" else own
            command[own] = self._at_rest(own, self.junk())
        return command

    def _at_rest(self, field: str, value: Any) -> Any:
        """A value for a field; in a quiet run no time in the near future or the past."""
        if not self._quiet or field not in _TIMES:
            return value
        if isinstance(value, list):
            return [*value, "x"]
        return -abs(value) if isinstance(value, int | float) and not isinstance(value, bool) else value

    def junk(self, depth: int = 3) -> Any:
        """Any JSON, and what Python writes as JSON."""
        kind = self.random.randrange(6 if depth else 3)
        if kind == 0:
            return self.random.uniform(-1e3, 1e3)
        if kind == 1:
            return self.text(20)
        if kind <= 3:
            return self.random.choice(ODD)
        inner = [self.junk(depth - 1) for _ in range(self.random.randrange(4))]
        return inner if kind == 4 else {self.text(8): each for each in inner}

    def text(self, most: int) -> str:
        """Characters of all planes, at most that many."""
        tops = [0x7F, 0x7F, 0x7FF, 0xD7FF, 0x10FFFF]
        points = (self.random.randrange(self.random.choice(tops)) for _ in range(self.random.randrange(most + 1)))
        return "".join(chr(point) for point in points if not 0xD800 <= point < 0xE000)

    def value(self, field: str, schema: dict[str, Any]) -> Any:
        """A value that a schema allows; where it says too little, or too much for a quiet run, one made here."""
        spans = {"delay": (0, 3e8), "ttl": (0.001, 3e8), "retention": (0, 2_592_000), "seconds": (0.001, 3e8)}
        made: dict[str, Callable[[], Any]] = {
            "id": lambda: self.random.choice([*IDS * 4, "nobody", self.text(5)]),
            "name": lambda: self.random.choice(["n", "m", "n.1", self.text(5)]),
            "prefix": lambda: self.random.choice([*(each[:1] for each in IDS), *IDS, self.text(5)]),
            "topic": lambda: self.random.choice(TOPICS),
            "filter": self._filter,
            "every": lambda: self._span(1, 31_536_000),
            "cron": lambda: self.random.choice(CRONS),
            "zone": lambda: self.random.choice(ZONES),
            "topics": lambda: self.random.choices(TOPICS, k=self.random.randint(1, 4)),
            **dict.fromkeys(("at", "from", "start", "since", "until", "expires"), self._time),
            "spread": lambda: 0 if self._quiet else self.random.choice([0, 0.5, 86_400]),
            "ttr": lambda: self._span(0.1, 86_400),
            "TTR": lambda: self._span(0.1, 86_400),
            "backoff": lambda: [self._span(0, 3e8) for _ in range(self.random.randint(1, 4))],
            "wait": lambda: self.random.choice([0, 0.001, 0.01]),
            "body": self._body,
            "lease": lambda: self.random.choice([*[Lease.NEWEST] * 5, Lease.OLDER, 0, 7, 2**53 - 1]),
            "pattern": lambda: self.random.choice(["*", "t*", "?", "v:*", "x"]),
            "cursor": lambda: self.random.choice(["W10", "e30", "WzAsMF0", "WzAsMSwwXQ", "bm9uc2Vuc2U", "====", "MQ"]),
            **{name: lambda name=name: self._span(*spans[name]) for name in spans},  # type: ignore[misc]
        }
        return made[field]() if field in made else self.of_schema(schema)

    def of_schema(self, schema: dict[str, Any]) -> Any:
        """A value that a schema allows, often one of its limits."""
        if "anyOf" in schema:
            return self.of_schema(schema["anyOf"][0])
        if "enum" in schema:
            return self.random.choice(schema["enum"])
        ways: dict[str, Callable[[], Any]] = {
            "integer": lambda: self.random.choice(
                [schema["minimum"], schema["maximum"], self.random.randint(schema["minimum"], schema["maximum"])]
            ),
            "number": lambda: self.random.choice([schema["minimum"], schema["maximum"], 1.5]),
            "array": lambda: [self.of_schema(schema["items"]) for _ in range(self.random.randrange(4))],
            "string": lambda: self.text(schema.get("maxLength", 40) if self.random.random() < 0.1 else 10),
            "object": lambda: {self.text(8): self.text(8) for _ in range(self.random.randrange(4))},
            "boolean": lambda: self.random.random() < 0.5,
        }
        return ways[schema["type"]]()

    def _span(self, low: float, high: float) -> float:
        """Seconds; quiet ones end long after the run, or are 0."""
        least = HOUR if self._quiet else max(low, 0.05)
        some = [0, least, high, self.random.uniform(least, high), int(self.random.uniform(least + 1, high))]
        return self.random.choice(some if low in (0, 0.1) else some[1:])

    def _time(self) -> Any:
        ahead = [-60, HOUR, 9 * 365 * 86_400] if self._quiet else [-1e6, -1, 0, 0.1, 1, HOUR]
        when = int(time.time()) + self.random.choice(ahead)
        return datetime.fromtimestamp(when, UTC).isoformat() if self.random.random() < 0.3 else when

    def _body(self) -> Any:
        if self.random.random() < 0.03:
            return "x" * (MAX_BODY - 2 + self.random.randint(-2, 2))
        return self.random.choice([self.random.randrange(9), self.junk()])
