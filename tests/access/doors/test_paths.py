"""With tokens, too, the fast path and the complete path answer alike: the same bytes, whatever is refused."""

from __future__ import annotations

import json
import re
import time
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import pytest

from buckets.redis.client import Redis
from jobqueue.access.tokens import Token
from jobqueue.protocols.command.fast_path import FastPath
from tests.access.doors.issued_twice import Twice
from tests.access.doors.native_requests import REQUESTS
from tests.jobqueue.web.two_services import Line, both, started, without_chance
from tests.kit.redis_server import RedisServer
from tests.kit.waiting import until

NAMESPACES = ("fast", "complete", "odd")
ODD = b"X-Odd:1\r\n"  # such a head is not simple
_OWN = re.compile(
    rb'\b[0-9]{10,16}(?:\.[0-9]+)?\b|\b[0-9]+\.[0-9]+\b|\b[0-9a-f]{32}\b|(?<="retry_after":)[0-9.]+'
    rb'|(?<="workers":)(?:[0-9]+|\[.*\])|(?<="others":)\{[^}]*\}|(?<="actions":)\[.*\]'
    rb'|(?<="instances":)\[.*\]|(?<="findings":)\[.*\]|(?<="settings":)\[.*\](?=,"policies")'
    rb'|(?<="bins":)\[.*\],"total":\{.*\}(?=,"parked")'
)
"""Times, spans, leases, the ids of jobs that services made, which workers they have heard of, figures, which each
service notes every ten seconds, and lists that tell addresses of clients, or ports and namespaces of services."""
_AT_ONCE_S = 0.5
"""Within which two services must have answered, so that none of them has got a permit more."""


def without_own(received: bytes) -> bytes:
    """An answer without what differs from one service to the other: times have more or fewer digits."""
    head, _, body = received.partition(b"\r\n\r\n")
    length = b"\r\nContent-Length: %d\r\n" % len(body)
    assert head.count(length) == 1, received
    return _OWN.sub(b"own", without_chance(head.replace(length, b"\r\n") + b"\r\n\r\n" + body))


class Three:
    """A service with the fast path, one without, and one with it whose requests do not take it."""

    def __init__(self, ports: dict[str, int], twice: Twice) -> None:
        self._ports = ports
        self.make = twice.make

    async def known(self, token: str) -> None:
        """Wait until all know a token. Each answers one request with it: all have spent the same of a rate."""
        for name, port in self._ports.items():

            async def is_known(name: str = name, port: int = port) -> bool:
                return b" 200 " in await self._said(name, port, b'{"command":"whoami"}', token)

            await until(is_known)

    async def ask(self, content: Any, token: str | None) -> bytes:
        """What all of them answer, which must be the same."""
        one, *others = await self._ask(content, token)
        for other in others:
            assert other == one, (content, one, other)
        return one

    async def _ask(self, content: Any, token: str | None) -> list[bytes]:
        body = content if isinstance(content, bytes) else json.dumps(content).encode()
        return [await self._said(name, port, body, token) for name, port in self._ports.items()]

    async def _said(self, name: str, port: int, body: bytes, token: str | None) -> bytes:
        shown = b"" if token is None else b"Authorization: Bearer %b\r\n" % token.encode()
        head = b"POST /command HTTP/1.1\r\nHost: t\r\n%b%bContent-Length: %d\r\n\r\n"
        line = Line(port)
        try:
            await line.write(head % (shown, ODD if name == "odd" else b"", len(body)) + body)
            await line.answers(1)
            await line.quiet()
            return without_own(line.received) + b" closed: %d" % line.closed
        finally:
            line.close()


@asynccontextmanager
async def three(url: str) -> AsyncIterator[Three]:
    async with AsyncExitStack() as stack:
        redis = Redis(url)
        stack.push_async_callback(redis.close)
        fast, complete = await stack.enter_async_context(both(url, access="tokens"))
        odd = await stack.enter_async_context(started(url, "odd", access="tokens"))
        ports = dict(zip(NAMESPACES, (fast, complete, odd), strict=True))
        yield Three(ports, Twice(redis, NAMESPACES))


@pytest.fixture
def begun(monkeypatch: pytest.MonkeyPatch) -> Callable[[], int]:
    """How many requests were answered by the fast path."""
    number = 0
    begin = FastPath.begin

    def counted(*arguments: Any) -> Any:
        nonlocal number
        doing = begin(*arguments)
        number += doing is not None and type(doing) is not tuple
        return doing

    monkeypatch.setattr(FastPath, "begin", counted)
    return lambda: number


def add(name: str, topic: str = "t", **fields: Any) -> dict[str, Any]:
    return {"command": "add", "topic": topic, "id": name, "body": 1, **fields}


def contents() -> list[Any]:
    """Single commands and arrays, readable and not, plain and not, some of whose members tokens may be refused."""
    alone = {**REQUESTS, "token": {"command": "token", "action": "list"}}
    one, other, far = add("one"), add("mail:1", "mail"), add("far", "else")
    finish, pop = {"command": "finish", "id": "one"}, {"command": "pop", "topic": "t"}
    mailed = {"command": "pop", "topics": ["mail", "mail-b"], "count": 5}
    arrays: list[Any] = [
        [one, other, far],
        [one, add("two")],
        [finish, finish],
        [one, {"command": "nope"}, other],
        [one, 7, {"command": "add"}, far],
        [one, add("bad", delay=-1), other],
        [pop],
        [finish, pop],
        [finish, finish, {"command": "pop", "topics": ["mail", "t"], "count": 2}],
        [finish, mailed, other],
        [{"command": "finish", "id": "mail:1"}, mailed],
        [{"command": "get", "id": "one", "body": True}, {"command": "get", "id": "mail:1"}, {"command": "whoami"}],
        [*alone.values()],
        [],
        [[one]],
    ]
    raw = [b"", b"{", b"[1", b"null", b'"\xff"', b"[" + b" " * 9, b'{"command":"add","topic":"t","topic":"u","body":1}']
    return [*alone.values(), one, other, far, pop, finish, mailed, *arrays, *raw, add("x" * 999), add("a", "*")]


async def test_requests_with_tokens_of_all_kinds_are_answered_alike(
    redis_server: RedisServer, redis: Redis, begun: Callable[[], int]
) -> None:
    async with three(redis_server.url) as services:
        live = [
            await services.make("all", "admin"),
            await services.make("produce", "produce"),
            await services.make("consume", "consume"),
            await services.make("look", "look"),
            await services.make("nothing", "actor"),
            await services.make("mail", "produce", "consume", "look", "operate", topics=["mail*"]),
            await services.make("own", "produce", "consume", topics=["mail*", "t"], own_ids=True),
            await services.make("quick", "produce", "consume", rate=100_000, bytes=10_000_000),
        ]
        dead = [None, Token.make().text, await services.make("ended", "admin", revoked=True)]
        for token in live:
            await services.known(token)
        codes = set()
        for shown in (*live, *dead):
            for content in contents():
                codes |= {*re.findall(rb'"code":"([A-Z_]+)"', await services.ask(content, shown))}
        assert begun() > 30, "hardly any was answered by the fast path"
        assert codes > {b"UNAUTHORIZED", b"FORBIDDEN", b"BAD_JSON", b"BAD_FIELD", b"UNKNOWN_COMMAND", b"NOT_FOUND"}


async def test_requests_beyond_a_rate_are_answered_alike(redis_server: RedisServer, redis: Redis) -> None:
    adds = [add(f"a{number}") for number in range(15)]
    finish = {"command": "finish", "id": "a1"}
    rates: list[dict[str, Any]] = [{"rate": 1, "burst": 12}, {"rate": 1, "burst": 12, "topics": ["t"]}]
    async with three(redis_server.url) as services:
        for number, limits in enumerate(rates * 5):
            token = await services.make(f"n{number}", "produce", "consume", **limits)
            begun = time.monotonic()  # since then permits come back
            await services.known(token)  # spends some
            answers = await services._ask([*adds, finish, adds[0], {"command": "pop", "topic": "t"}], token)
            answers += await services._ask(adds[0], token)
            answers += await services._ask([finish, {"command": "pop", "topic": "t"}], token)
            if time.monotonic() - begun < _AT_ONCE_S:
                for three_ in (answers[:3], answers[3:6], answers[6:]):
                    assert len({*three_}) == 1, three_
                assert b" 429 Too Many " in answers[3] and b"\r\nRetry-After: " in answers[3]
                assert answers[0].count(b"TOO_FAST") > 3
                return
    pytest.fail("the services were never quick enough to be compared")


async def test_a_request_whose_token_has_ended_is_the_last_of_its_connection_on_all_paths(
    redis_server: RedisServer, redis: Redis
) -> None:
    async with three(redis_server.url) as services:
        token = await services.make("ends", "produce", expires=time.time() + 1)
        await services.known(token)
        assert b" 200 " in await services.ask(add("a"), token)

        async def has_ended() -> bool:
            answers = await services._ask(add("b"), token)
            return all(b" 401 " in each for each in answers)

        await until(has_ended)
        assert b"closed: 1" in await services.ask(add("b"), token)
