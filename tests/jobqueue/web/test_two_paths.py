"""The fast path and the complete path answer alike: the same bytes come back, and the connection ends alike."""

from __future__ import annotations

import asyncio
import gzip
import itertools
import random
import zlib
from collections.abc import Callable, Iterable

import pytest
import uvloop

from jobqueue.web import fast_path
from tests.jobqueue.web.two_services import MOST_BYTES, both, fate
from tests.kit.redis_server import RedisServer

BODY = b'{"command":"nope"}'  # needs no Redis, so that the answer comes within a few turns of the loop
LOOPS = pytest.mark.parametrize("loop", [asyncio.new_event_loop, uvloop.new_event_loop])


def request(
    body: bytes = BODY,
    first: bytes = b"POST /command HTTP/1.1",
    host: bytes = b"Host: t\r\n",
    fields: bytes = b"",
    length: bytes | None = None,
) -> bytes:
    """A request, by default a simple one."""
    length = b"Content-Length: %d\r\n" % len(body) if length is None else length
    return first + b"\r\n" + host + fields + length + b"\r\n" + body


def chunked(body: bytes = BODY) -> bytes:
    body = b"%x\r\n%b\r\n0\r\n\r\n" % (len(body), body)
    return request(body, length=b"Transfer-Encoding: chunked\r\n")


SIMPLE = request()
GET = b"GET /healthz HTTP/1.1\r\nHost: t\r\n\r\n"
GZIP = gzip.compress(BODY, 1)

SIMPLE_ONES = {
    "as it should be": SIMPLE,
    "an id of the client's": request(fields=b"X-Request-Id: mine-7\r\n"),
    "an id that is not valid": request(fields=b"X-Request-Id: not one\r\n"),
    "an id that is too long": request(fields=b"X-Request-Id: " + b"x" * 65 + b"\r\n"),
    "names in small letters": SIMPLE.replace(b"Host", b"host").replace(b"Content-Length", b"content-length"),
    "a connection to be kept": request(fields=b"Connection: keep-alive\r\n"),
    "a connection to be kept, in capitals": request(fields=b"CONNECTION: Keep-Alive\r\n"),
    "an empty body": request(b""),
    "a body of spaces": request(b" \r\n"),
    "a body that is not UTF-8": request(b'"\xff"'),
    "a body that looks like a head": request(SIMPLE),
    "an array": request(b"[" + BODY + b"," + BODY + b"]"),
    "an empty array": request(b"[]"),
    "a long body": request(b" " * 200_000 + BODY),
    "the longest body": request(b" " * (MOST_BYTES - len(BODY)) + BODY),
    "a type that does not fit": request(fields=b"Content-Type: text/html; charset=utf-16\r\n"),
    "as aiohttp's client sends it": request(
        fields=b"Accept: */*\r\nAccept-Encoding: gzip, deflate\r\nUser-Agent: Python/3.11 aiohttp/3.14.5\r\n"
        b"Content-Type: application/octet-stream\r\n"
    ),
    "as node sends it": request(
        host=b"host: t\r\n", fields=b"connection: keep-alive\r\naccept: */*\r\nsec-fetch-mode: cors\r\n"
    ),
    "two": SIMPLE * 2,
    "many": SIMPLE * 40,
    "two with different bodies": SIMPLE + request(b"[" + BODY + b"]"),
    "a long and a short one": request(b" " * 100_000 + BODY) + SIMPLE,
}
OTHERS = {
    "a GET": GET,
    "from a page": request(fields=b"Origin: http://evil.example\r\n"),
    "from a page that hides": request(fields=b"Origin: null\r\n"),
    "from a page of the same site": request(fields=b"Sec-Fetch-Site: same-site\r\n"),
    "simple, from a page, simple": SIMPLE + request(fields=b"Origin: http://evil.example\r\n") + SIMPLE,
    "a typed address": request(fields=b"Sec-Fetch-Site: none\r\n"),
    "a GET by another name": GET.replace(b"Host: t", b"Host: evil.example"),
    "a GET of an unknown path": GET.replace(b"/healthz", b"/nowhere"),
    "a GET of the command": GET.replace(b"/healthz", b"/command"),
    "chunked": chunked(),
    "chunked and damaged": request(b"zz\r\n", length=b"Transfer-Encoding: chunked\r\n"),
    "chunked with a length": request(b"0\r\n\r\n", fields=b"Transfer-Encoding: chunked\r\n"),
    "chunked by another name": request(fields=b"Transfer-Encoding: xchunked\r\n"),
    "two chunked": chunked() * 2,
    "simple, then chunked": SIMPLE + chunked(),
    "chunked, then simple": chunked() + SIMPLE,
    "simple, chunked, simple": SIMPLE + chunked() + SIMPLE,
    "simple, then rubbish": SIMPLE + b"rubbish\r\n\r\n",
    "simple, then one with an empty line before it": SIMPLE + b"\r\n" + SIMPLE,
    "simple, then one too large": SIMPLE + request(b" " * (MOST_BYTES + 1)),
    "a GET, then simple": GET + SIMPLE,
    "simple, then a GET": SIMPLE + GET,
    "simple, a GET, simple": SIMPLE + GET + SIMPLE,
    "a GET with a body": request(first=b"GET /healthz HTTP/1.1"),
    "a GET with the longest possible length": request(
        b"", first=b"GET /healthz HTTP/1.1", length=b"Content-Length: 18446744073709551615\r\n"
    ),
    "a GET that is chunked": chunked().replace(b"POST /command", b"GET /healthz"),
    "a GET, the last": GET.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n"),
    "HEAD": request(b"", first=b"HEAD /command HTTP/1.1"),
    "PUT": request(first=b"PUT /command HTTP/1.1"),
    "HTTP/1.0": request(first=b"POST /command HTTP/1.0"),
    "HTTP/1.0, to be kept": request(first=b"POST /command HTTP/1.0", fields=b"Connection: keep-alive\r\n"),
    "HTTP/1.2": request(first=b"POST /command HTTP/1.2"),
    "HTTP/2": request(first=b"PRI * HTTP/2.0"),
    "a query": request(first=b"POST /command?x=1 HTTP/1.1"),
    "another path": request(first=b"POST /nowhere HTTP/1.1"),
    "a whole address": request(first=b"POST http://t/command HTTP/1.1"),
    "a method in small letters": request(first=b"post /command HTTP/1.1"),
    "two spaces": request(first=b"POST  /command HTTP/1.1"),
    "a space behind the version": request(first=b"POST /command HTTP/1.1 "),
    "an empty line before it": b"\r\n" + SIMPLE,
    "lines without CR": SIMPLE.replace(b"\r\n", b"\n"),
    "one line without CR": SIMPLE.replace(b"Host: t\r\n", b"Host: t\n"),
    "a CR within a value": request(fields=b"X-A: a\rb\r\n"),
    "no host": request(host=b""),
    "two hosts": request(fields=b"Host: u\r\n"),
    "two fields of a name": request(fields=b"X-A: a\r\nx-a: b\r\n"),
    "two ids": request(fields=b"X-Request-Id: a\r\nX-Request-Id: b\r\n"),
    "no length": request(length=b""),
    "two lengths": request(fields=b"Content-Length: 18\r\n"),
    "two lengths that differ": request(fields=b"Content-Length: 3\r\n"),
    "two lengths in one": request(length=b"Content-Length: 18, 18\r\n"),
    "+18": request(length=b"Content-Length: +18\r\n"),
    "-18": request(length=b"Content-Length: -18\r\n"),
    "0x12": request(length=b"Content-Length: 0x12\r\n"),
    "018": request(length=b"Content-Length: 018\r\n"),
    "1_8": request(length=b"Content-Length: 1_8\r\n"),
    "18 in other digits": request(length="Content-Length: ١٨\r\n".encode()),
    "18 and a space": request(length=b"Content-Length: 18 \r\n"),
    "18 and a tab": request(length=b"Content-Length: 18\t\r\n"),
    "two spaces and 18": request(length=b"Content-Length:  18\r\n"),
    "no space before 18": request(length=b"Content-Length:18\r\n"),
    "a space before the colon": request(length=b"Content-Length : 18\r\n"),
    "a length in words": request(length=b"Content-Length: many\r\n"),
    "an empty length": request(length=b"Content-Length: \r\n"),
    "a length beyond 64 bits": request(length=b"Content-Length: 18446744073709551634\r\n"),
    "too large": request(b" " * (MOST_BYTES + 1)),
    "the last": request(fields=b"Connection: close\r\n"),
    "the last, then another": request(fields=b"Connection: close\r\n") + SIMPLE,
    "the last, for a proxy": request(fields=b"Proxy-Connection: close\r\n") + SIMPLE,
    "kept and the last": request(fields=b"Connection: keep-alive, close\r\n"),
    "Expect: 100-continue": request(fields=b"Expect: 100-continue\r\n"),
    "Expect: a miracle": request(fields=b"Expect: a miracle\r\n"),
    "gzip": request(GZIP, fields=b"Content-Encoding: gzip\r\n"),
    "deflate": request(zlib.compress(BODY), fields=b"Content-Encoding: deflate\r\n"),
    "gzip that is not gzip": request(fields=b"Content-Encoding: gzip\r\n"),
    "an unknown coding": request(fields=b"Content-Encoding: rot13\r\n"),
    "upgrade": request(fields=b"Connection: Upgrade\r\nUpgrade: websocket\r\n"),
    "upgrade, then simple": request(fields=b"Connection: Upgrade\r\nUpgrade: websocket\r\n") + SIMPLE,
    "upgrade without Connection: Upgrade": request(fields=b"Upgrade: h2c\r\n"),
    "an old WebSocket": request(fields=b"Sec-WebSocket-Key1: x\r\n"),
    "a value with NUL": request(fields=b"X-A: a\0b\r\n"),
    "a value beyond ASCII": request(fields="X-A: ä\r\n".encode()),
    "a value with DEL": request(fields=b"X-A: \x7f\r\n"),
    "a value with a tab": request(fields=b"X-A: a\tb\r\n"),
    "an empty value": request(fields=b"X-A:\r\n"),
    "a name with a space": request(fields=b"X A: a\r\n"),
    "a name with an underscore": request(fields=b"X_A: a\r\n"),
    "no name": request(fields=b": a\r\n"),
    "no colon": request(fields=b"X-A\r\n"),
    "folded": request(fields=b"X-A: a\r\n b\r\n"),
    "folded at the first": request(host=b" x\r\nHost: t\r\n"),
    "a long head": request(fields=b"X-A: " + b"x" * 5000 + b"\r\n"),
    "a head that is too long": request(fields=b"X-A: " + b"x" * 9000 + b"\r\n"),
    "a long first line": request(first=b"POST /command?" + b"x" * 9000 + b" HTTP/1.1"),
    "many fields": request(fields=b"".join(b"X-%d: a\r\n" % number for number in range(100))),
    "too many fields": request(fields=b"".join(b"X-%d: a\r\n" % number for number in range(200))),
    "nothing": b"",
    "an empty line": b"\r\n",
    "half a first line": b"POST /com",
    "half a first line of another": b"POST /con",
    "half a head": SIMPLE[:40],
    "half a head that is bad": SIMPLE[:30] + b"\0",
    "half a body": SIMPLE[:-1],
    "a head without its body": request(length=b"Content-Length: 18\r\n", body=b""),
    "one and a half": SIMPLE + SIMPLE[:-1],
    "TLS": b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
}
ALL = SIMPLE_ONES | OTHERS


def whole(data: bytes) -> list[bytes]:
    return [data]


def bytewise(data: bytes) -> list[bytes]:
    """A byte at a time; a long body in large pieces."""
    head = min(len(data), 300)
    return [data[place : place + 1] for place in range(head)] + [
        data[place : place + 50_000] for place in range(head, len(data), 50_000)
    ]


def apart(pieces: list[bytes]) -> list[bytes]:
    """The same bytes with a new piece after each simple command at the front, for aiohttp: when a part of what it reads
    at once is bad, it forgets the good requests before it. The fast path answers those."""
    data = b"".join(pieces)
    cuts = {0, *itertools.accumulate(map(len, pieces))}
    begin = 0
    while (end := data.find(b"\r\n\r\n", begin) + 4) > 3:
        head = fast_path.read(data[begin:end])
        if head is None:
            break
        begin = end + head.length
        cuts.add(begin)
    return [data[one:other] for one, other in itertools.pairwise(sorted(cuts))]


def compare(
    server: RedisServer, loop: Callable[[], asyncio.AbstractEventLoop], cases: Iterable[tuple[str, list[bytes]]]
) -> None:
    """Send each case to both services and compare their answers."""

    async def run() -> None:
        async with both(server.url) as (fast, complete):
            for name, pieces in cases:
                assert await fate(fast, pieces) == await fate(complete, apart(pieces)), (name, pieces)

    with asyncio.Runner(loop_factory=loop) as runner:
        runner.run(run())


@LOOPS
def test_whole_requests_are_answered_alike(
    redis_server: RedisServer, loop: Callable[[], asyncio.AbstractEventLoop]
) -> None:
    compare(redis_server, loop, [(name, whole(data)) for name, data in ALL.items()])


def test_requests_that_come_in_bytes_are_answered_alike(redis_server: RedisServer) -> None:
    compare(redis_server, uvloop.new_event_loop, [(name, bytewise(data)) for name, data in ALL.items()])


@pytest.mark.parametrize(
    "name", ["an id of the client's", "two", "simple, then chunked", "simple, a GET, simple", "two lengths that differ"]
)
def test_a_request_may_be_split_anywhere(redis_server: RedisServer, name: str) -> None:
    data = ALL[name]
    splits = [(name, [data[:place], data[place:]]) for place in range(1, len(data))]
    compare(redis_server, uvloop.new_event_loop, splits)


def test_requests_of_all_kinds_follow_each_other_on_a_connection(redis_server: RedisServer) -> None:
    """One after the other, each after the answer to the previous one, until the service hangs up."""
    chance = random.Random(1)
    short = [data for data in ALL.values() if len(data) < 2000]
    mild = [SIMPLE, GET, *(data for data in SIMPLE_ONES.values() if len(data) < 2000)]
    rows = [[*chance.choices(mild, k=chance.randrange(1, 5)), *chance.choices(short, k=3)] for _ in range(100)]
    compare(redis_server, uvloop.new_event_loop, [(str(number), row) for number, row in enumerate(rows)])


def test_damaged_requests_are_answered_alike(redis_server: RedisServer) -> None:
    """Bytes changed, left out or put in at random, in one piece or two."""
    chance = random.Random(2)
    rows = []
    for number in range(300):
        data = bytearray(chance.choice([SIMPLE, SIMPLE * 2, SIMPLE + chunked(), ALL["as node sends it"], GET + SIMPLE]))
        for _ in range(chance.randrange(1, 3)):
            place = chance.randrange(len(data))
            odd = chance.choice([b"", b"\0", b"\n", b"\r", b"\r\n", b" ", b"\t", b":", b",", b"0", b"9", b"\xff", b"x"])
            data[place : place + chance.randrange(2)] = odd
        place = chance.randrange(len(data))
        rows.append((str(number), chance.choice([[bytes(data)], [bytes(data[:place]), bytes(data[place:])]])))
    compare(redis_server, uvloop.new_event_loop, rows)


def test_the_list_holds_simple_requests_and_others() -> None:
    """So that what is compared takes both paths."""
    heads = {name: fast_path.read(data[: data.find(b"\r\n\r\n") + 4]) for name, data in ALL.items()}
    begin_simple = ("simple, ", "too large", "one and", "half a body", "a head without")
    for name in OTHERS:
        assert (heads[name] is not None) == name.startswith(begin_simple) or "long head" in name or "too long" in name
    assert None not in [heads[name] for name in SIMPLE_ONES]
