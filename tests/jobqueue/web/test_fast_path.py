"""Which requests are simple, and that aiohttp's parser reads each of them as the fast path does."""

from __future__ import annotations

import asyncio
import random
import shutil

import pytest
from aiohttp.base_protocol import BaseProtocol
from aiohttp.http import HttpRequestParser, HttpVersion11

from jobqueue.web import fast_path
from jobqueue.web.fast_path import Head, begun, read

FIRST = b"POST /command HTTP/1.1\r\n"
SIMPLE = FIRST + b"Host: t\r\nContent-Length: 7\r\n\r\n"


def test_a_simple_head_has_a_length_and_an_id() -> None:
    assert read(SIMPLE) == Head(7, "", b"")
    assert read(SIMPLE.replace(b"Host", b"x-request-ID: a b\r\nHost")) == Head(7, "a b", b"")
    assert read(SIMPLE.replace(b"7", b"0")) == Head(0, "", b"")


def test_a_field_that_is_not_simple(subtests: pytest.Subtests) -> None:
    cases: list[str] = [
        *("Transfer-Encoding: identity", "content-encoding: gzip", "Expect: x", "UPGRADE: h2c", "Connection: close"),
        *("Proxy-Connection: keep-alive", "Connection: keep-alive, x", "Sec-WebSocket-Key1: x", "Host: u", "host: t"),
        *("Origin: http://t", "origin: null", "Sec-Fetch-Site: cross-site", "sec-fetch-site: none"),
        *(
            "Content-Length: 7",
            "X:a",
            "X : a",
            "X:  a",
            "X: a ",
            "X: ",
            "X: a\tb",
            "X: ä",
            "X: \x7f",
            "X: a\rb",
            "X_: a",
        ),
        *("X", "X_: a", ": a", " X: a", "\tX: a", "X: a\nY: b", "X: \0", "", "x" * 65 + ": a", "X: " + "x" * 5000),
        "\r\n".join(f"X-{number}: a" for number in range(63)),
    ]
    for field in cases:
        with subtests.test(field=field):
            line = field.encode() + b"\r\n"
            for head in (FIRST + line + SIMPLE[len(FIRST) :], SIMPLE[:-2] + line + b"\r\n"):
                assert len(head) > fast_path.LONGEST_HEAD or read(head) is None


def test_a_length_that_is_not_simple(subtests: pytest.Subtests) -> None:
    cases: list[str] = ["+7", "-7", "07", "0x7", "7,7", "7_0", "seven", "7 7", "1" * 16, "\u0667"]
    for length in cases:
        with subtests.test(length=length):
            assert read(SIMPLE.replace(b"7", length.encode())) is None


def test_host_and_length_are_required_and_a_get_is_not_simple() -> None:
    assert read(SIMPLE.replace(b"Host", b"Hose")) is None
    assert read(SIMPLE.replace(b"Content-Length", b"Content-Size")) is None
    for get in (b"GET /command HTTP/1.1\r\nHost: t\r\n\r\n", SIMPLE.replace(b"POST", b"GET")):
        assert read(get) is None


def test_any_part_of_a_simple_head_may_become_one() -> None:
    head = SIMPLE.replace(b"Host", b"X-A: b, c d\r\nHost")
    assert all(begun(head[:end]) for end in range(len(head)))


def test_what_cannot_become_a_simple_head_is_not_waited_for(subtests: pytest.Subtests) -> None:
    cases: list[bytes] = [
        b"P ",
        b"GET",
        b"POST /command HTTP/1.0",
        b"\r",
        FIRST + b"\0",
        FIRST + b"X-A: \r",
        FIRST + b" X",
        SIMPLE,
    ]
    for part in cases:
        with subtests.test(part=part):
            assert not begun(part)


def test_a_head_is_not_waited_for_without_limit() -> None:
    part = FIRST + b"X: " + b"a" * fast_path.LONGEST_HEAD
    assert begun(part[: fast_path.LONGEST_HEAD - 1]) and not begun(part)


NAMES = [
    *(
        "Host",
        "Content-Length",
        "content-length",
        "X-Request-Id",
        "Connection",
        "Transfer-Encoding",
        "X-A",
        "x-a",
        "TE",
    ),
    *("Content-Type", "TE", "Trailer", "Keep-Alive", "Upgrade", "Expect", "Content-Encoding", "Proxy-Connection"),
    *("Content-Length-", "-", "0", "Sec-WebSocket-Key1", "HTTP2-Settings", "Cookie", "Range", "Server", "Date"),
]
VALUES = [
    "t",
    "5",
    "0",
    "05",
    "5 ",
    "55",
    "+5",
    "5, 5",
    "keep-alive",
    "close",
    "chunked",
    "identity",
    "a b",
    "a\tb",
    "é",
]
ENDS = ["\r\n"] * 30 + ["\n", "\r", "\r\n ", " \r\n"]


def random_head(chance: random.Random) -> bytes:
    """Often simple, often nearly so."""
    fields = [("Host", "t"), ("Content-Length", "5")]
    fields += [(chance.choice(NAMES), chance.choice(VALUES)) for _ in range(chance.randrange(4))]
    chance.shuffle(fields)
    first = chance.choice(["POST /command HTTP/1.1"] * 8 + ["GET /x HTTP/1.1", "POST /command HTTP/1.0"])
    colons = [": "] * 20 + [":", " :", ":  "]
    lines = "".join(f"{name}{chance.choice(colons)}{value}{chance.choice(ENDS)}" for name, value in fields)
    head = bytearray(f"{first}\r\n{lines}\r\n".encode())
    if chance.random() < 0.2:
        head[chance.randrange(len(head))] = chance.randrange(256)
    return bytes(head)


async def test_aiohttp_reads_simple_requests_as_the_fast_path_does() -> None:
    """Bytes that end a request for one never stand in its middle for the other."""
    chance = random.Random(3)
    accepted = 0
    loop = asyncio.get_running_loop()
    for _ in range(20_000):
        head = random_head(chance)
        end = head.find(b"\r\n\r\n") + 4
        simple = read(head) if end == len(head) else None
        if simple is None:
            continue
        accepted += 1
        parser = HttpRequestParser(BaseProtocol(loop), loop, 1 << 16)
        body = b"x" * simple.length
        messages, upgraded, _ = parser.feed_data(head + body + SIMPLE)
        (message, payload), (behind, _) = messages
        assert (message.method, message.path) == ("POST", "/command")
        assert (message.version, message.should_close, message.upgrade, upgraded) == (
            HttpVersion11,
            False,
            False,
            False,
        )
        assert (message.chunked, message.compression) == (False, None)
        assert await payload.read() == body
        assert message.headers.get("X-Request-Id", "") == simple.request_id
        assert behind.path == "/command"
    assert accepted > 1000


@pytest.mark.skipif(not shutil.which("node"), reason="node is missing")
async def test_a_request_as_nodes_fetch_sends_it_is_simple() -> None:
    heads: asyncio.Queue[bytes] = asyncio.Queue()

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        heads.put_nowait(await reader.readuntil(b"\r\n\r\n"))
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
        writer.close()

    async with await asyncio.start_server(answer, "127.0.0.1", 0) as server:
        url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/command"
        script = f"await fetch({url!r}, {{ method: 'POST', body: '{{}}' }})"
        node = await asyncio.create_subprocess_exec("node", "--input-type=module", "--eval", script)
        head = await heads.get()
        assert await node.wait() == 0
    assert b"sec-fetch-mode: cors" in head.lower()
    assert read(head) == Head(2, "", b"")
