"""Requests of all kinds, made from the OpenAPI description: good ones, nearly good ones, and junk."""

from __future__ import annotations

import enum
import gzip
import json
import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from hypothesis import strategies as st

IDS = ["a", "b", "c", "d", "order:1", "e@1", "e@2"]
TOPICS = ["t", "u", "v:1"]
MAX_REQUEST, MAX_BODY = 65_536, 16_384  # bytes; the fuzzed service has small limits, so that they are met often
HOUR = 3600
Json = st.SearchStrategy[Any]


class Lease(enum.Enum):
    """Leases that are known only when the request is sent."""

    NEWEST = 0
    OLDER = -1


@dataclass(frozen=True)
class Request:
    """A request before it is written: JSON, what is done to its bytes, and the HTTP around it."""

    content: Any
    damage: tuple[str, int] = ("none", 0)
    method: str = "POST"
    path: str = "/command"
    headers: tuple[tuple[str, str], ...] = ()
    frame: str = "plain"


junk: Json = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.sampled_from([2**53, 2**63, 2**64, -(2**63) - 1, 10**400, 1e308, -0.0, math.nan, math.inf, 5e-324])
    | st.floats()
    | st.text(max_size=20)
    | st.sampled_from(["\ud800", "\x00", "{jq:0}:meta", "*", "../..", "a" * 256, "ü" * 255, "٣", "\u202e", "null"]),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=6,
)
names = st.sampled_from(IDS) | st.text("abAB019._-:/@#+=", min_size=1, max_size=12)


def _spans(low: float, high: float, *, quiet: bool) -> Json:
    """Spans in seconds. Quiet ones are over long after the fuzzer: no timer moves a job while it compares."""
    least = HOUR if quiet else max(low, 0.0)
    some = st.sampled_from([least, high]) | st.floats(least, high) | st.integers(math.ceil(least), int(high))
    return some if low > 0 else st.just(0) | some


def _times(*, quiet: bool) -> Json:
    ahead = st.sampled_from([-60, HOUR, 9 * 365 * 86_400]) if quiet else st.sampled_from([-1e6, -1, 0, 0.1, 1, HOUR])
    zones = st.sampled_from([0, 0, 1])
    return st.builds(
        lambda s, zone: datetime.fromtimestamp(int(time.time()) + s, UTC).isoformat() if zone else int(time.time()) + s,
        ahead,
        zones,
    )


def _known(name: str, *, quiet: bool) -> Json | None:
    """Values of the fields that a schema says too little of, or too much for a run without timers."""
    spans = {"delay": (0, 3e8), "ttl": (0.001, 3e8), "retention": (0, 2_592_000), "seconds": (0.001, 3e8)}
    if name in spans:
        return _spans(*spans[name], quiet=quiet)
    return {
        "id": st.sampled_from(IDS) | st.sampled_from(IDS) | names,
        "topic": st.sampled_from(TOPICS),
        "topics": st.lists(st.sampled_from(TOPICS), min_size=1, max_size=4),
        "at": _times(quiet=quiet),
        "ttr": _spans(0.1, 86_400, quiet=quiet),
        "backoff": st.lists(_spans(0, 3e8, quiet=quiet), min_size=1, max_size=4),
        "wait": st.sampled_from([0, 0.001, 0.01]),
        "body": bodies,
        "lease": st.sampled_from([*Lease, Lease.NEWEST, 0, 7, 2**53 - 1]),
        "pattern": st.sampled_from(["*", "t*", "?", "v:*", "x"]),
        "cursor": st.sampled_from(["W10", "e30", "WzAsMF0", "WzAsMSwwXQ", "WzksOSw5LDld", "bm9uc2Vuc2U", "====", "MQ"]),
    }.get(name)


bodies: Json = (
    st.integers(0, 9)
    | junk.filter(lambda value: "\\ud8" not in json.dumps(value) and _finite(value))
    | st.builds(lambda more: "x" * (MAX_BODY - 2 + more), st.integers(-2, 2))
)


def _finite(value: Any) -> bool:
    return not any(word in json.dumps(value) for word in ("NaN", "Infinity"))


def of_schema(schema: dict[str, Any]) -> Json:
    """Values that a schema allows, its bounds among them."""
    if "anyOf" in schema and "type" not in schema:
        return st.one_of(*map(of_schema, schema["anyOf"]))
    if "enum" in schema:
        return st.sampled_from(schema["enum"])
    if schema["type"] == "integer":
        low, high = schema["minimum"], schema["maximum"]
        return st.sampled_from([low, high]) | st.integers(low, high)
    if schema["type"] == "array":
        return st.lists(of_schema(schema["items"]), min_size=schema.get("minItems", 0), max_size=4)
    return {
        "string": st.text(_letters, max_size=min(schema.get("maxLength", 20), 20)),
        "object": st.dictionaries(st.text(_letters, max_size=8), st.text("ab"), max_size=4),
        "boolean": st.booleans(),
        "null": st.none(),
    }[schema["type"]]


_letters = st.characters(exclude_categories=["Cs"])


def commands(schema: dict[str, Any], *, quiet: bool) -> Json:
    """Commands of one schema, good as far as the schema tells."""
    fields = {
        name: of_schema(each) if (known := _known(name.lower(), quiet=quiet)) is None else known
        for name, each in schema["properties"].items()
        if name != "command"
    }
    name = schema["properties"]["command"]["enum"][0]
    required = {each: fields[each] for each in schema["required"] if each != "command"}
    optional = {each: fields[each] | st.none() for each in fields.keys() - required.keys()}
    made = st.fixed_dictionaries(required, optional=dict(sorted(optional.items())))
    return made.map(lambda given: {"command": name, **_sensible(name, given)})


_EITHER = {"add": ("delay", "at"), "update": ("delay", "at"), "pop": ("topic", "topics"), "kick": ("id", "topic")}


def _sensible(command: str, given: dict[str, Any]) -> dict[str, Any]:
    """Without the one of two fields that exclude each other; which is left depends on how many there are."""
    if "ttr" in given:
        given.pop("TTR", None)
    first, second = _EITHER.get(command, ("", ""))
    if first in given and second in given:
        given.pop((first, second)[len(given) % 2])
    return given


def mutated(good: Json, fields: list[str]) -> Json:
    """A command with something wrong, or at least odd."""
    change = st.sampled_from(["value", "value", "value", "drop", "unknown", "command", "beyond"])
    odd = st.sampled_from([*fields, "dealy", "Id", "", "__class__", "id ", "ü", "x" * 300])
    return st.builds(_mutate, good, change, odd, junk, st.integers(0, 20))


def _mutate(command: dict[str, Any], change: str, name: str, value: Any, place: int) -> Any:
    command = dict(command)
    own = sorted(command)[place % len(command)]
    if change == "drop":
        del command[own]
    elif change == "command":
        command["command"] = value
    elif change == "unknown":
        command[name] = value
    elif change == "beyond":
        command[own] = [-1, -0.001, 1e18, 2**53, 0.05, 65_536, 1001, "", [], {}, True][place % 11]
    else:
        command[own] = value
    return command


DAMAGES = ["cut", "flip", "insert", "utf-16", "latin-1", "bom", "twice", "deep", "spaces", "tail", "nul", "empty"]
FRAMES = ["plain", "chunked", "gzip", "bad gzip", "bad chunk", "short", "old", "no length", "folded", "deflate"]


def damaged(data: bytes, damage: tuple[str, int]) -> bytes:
    """What is done to the bytes of a request."""
    kind, number = damage
    place = number % (len(data) + 1)
    ways: dict[str, Callable[[], bytes]] = {
        "none": lambda: data,
        "cut": lambda: data[:place],
        "flip": lambda: data[:place] + bytes([number % 256]) + data[place + 1 :],
        "insert": lambda: data[:place] + bytes([number % 256, number // 256 % 256]) + data[place:],
        "utf-16": lambda: data.decode().encode("utf-16"),
        "latin-1": lambda: data.replace(b"a", b"\xfc"),
        "bom": lambda: b"\xef\xbb\xbf" + data,
        "twice": lambda: data.replace(b"{", b'{"id":"a","command":"delete","delay":7,', 1),
        "deep": lambda: data.replace(b"}", b',"body":' + b"[" * number + b"]" * number + b"}", 1),
        "spaces": lambda: b" \n\t" * (number % 9) + data + b"\r\n" * (number % 9),
        "tail": lambda: data + data[: number % 9 + 1],
        "nul": lambda: data + b"\x00",
        "empty": lambda: b"",
    }
    return ways[kind]()


def written(content: Any) -> bytes:
    """JSON as bytes; every second content with its characters as they are."""
    try:
        return json.dumps(content, ensure_ascii=len(repr(content)) % 2 == 0).encode()
    except UnicodeEncodeError:  # a lone surrogate has no bytes of its own
        return json.dumps(content).encode()


def framed(request: Request, data: bytes) -> bytes:
    """The bytes that go over the wire."""
    lines = [f"{request.method} {request.path} HTTP/{'1.0' if request.frame == 'old' else '1.1'}"]
    headers = {"Host": "t", **dict(request.headers)}
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


odd_headers = st.lists(
    st.tuples(
        st.sampled_from(["X-Request-Id", "Content-Type", "Accept", "Cookie", "Origin", "X-Forwarded-For", "TE"]),
        st.text(st.characters(min_codepoint=32, max_codepoint=255, exclude_characters="\x7f"), max_size=70),
    )
    | st.sampled_from(
        [
            ("Expect", "100-continue"),
            ("Expect", "a miracle"),
            ("Connection", "close"),
            ("Connection", "Upgrade"),
            ("Upgrade", "websocket"),
            ("X-Long", "x" * 9000),
            ("X-Request-Id", "mine-7"),
            ("Content-Type", "text/html; charset=utf-16"),
            ("X-HTTP-Method-Override", "DELETE"),
            ("Bad Name", "x"),
        ]
    ),
    max_size=3,
).map(tuple)
methods = st.sampled_from(["POST", "GET", "PUT", "HEAD", "DELETE", "OPTIONS", "PATCH", "TRACE", "POSTS", "post", "ÄÖ"])
paths = st.sampled_from(
    [
        *("/command", "/command?topic=t", "/command/", "//command", "/COMMAND", "/command%00", "/%63ommand"),
        *("/", "/healthz", "/readyz", "/openapi.json", "/nowhere", "/../etc/passwd", "*", "http://t/command"),
        *("/" + "x" * 9000, "/\ud800", "/ü", "/command#x", "command", "/%zz", "/command;x=1", "http://[::1/command"),
    ]
)


def requests(document: dict[str, Any], *, quiet: bool) -> st.SearchStrategy[Request]:
    """All kinds together."""
    schemas = document["components"]["schemas"]
    kinds = [each for each in schemas.values() if "command" in each.get("properties", {})]
    by_name = {kind["properties"]["command"]["enum"][0]: commands(kind, quiet=quiet) for kind in kinds}
    # Without jobs, and workers who have some, the other commands would meet nothing.
    good = st.one_of(*by_name.values(), *[by_name["add"]] * 4, *[by_name["pop"]] * 4)
    fields = sorted({name for kind in kinds for name in kind["properties"]})
    bad = mutated(good, fields)
    arrays = st.lists(good | good | bad | junk, max_size=6) | st.just([{"command": "stats"}] * 1001)
    damage = st.tuples(st.sampled_from(DAMAGES), st.integers(0, 3000))
    any_content = good | bad | arrays
    return st.one_of(
        st.builds(Request, good),
        st.builds(Request, good),
        st.builds(Request, bad),
        st.builds(Request, bad),
        st.builds(Request, arrays),
        st.builds(Request, junk | st.builds(lambda more: "x" * (MAX_REQUEST + more), st.integers(-3, 3))),
        st.builds(Request, any_content, damage),
        st.builds(Request, any_content, st.just(("none", 0)), methods, paths, odd_headers, st.sampled_from(FRAMES)),
        st.builds(Request, good, st.just(("none", 0)), headers=odd_headers, frame=st.sampled_from(FRAMES)),
    )
