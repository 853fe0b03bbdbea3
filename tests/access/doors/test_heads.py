"""Heads with odd `Authorization` values, sent to a service with the fast path and to one without: the answers are the
same, none is a fault of the service, and nothing but a live token in its form opens anything. TEST_FUZZ sets the
number of heads, TEST_FUZZ_SEED makes them differ."""

from __future__ import annotations

import asyncio
import os
import re
from collections import Counter
from contextlib import AsyncExitStack

import pytest
import uvloop

from buckets.redis.client import Redis
from jobqueue.access.tokens import Token
from tests.access.doors.heads import Heads
from tests.access.doors.issued_twice import Twice
from tests.jobqueue.web.two_services import Line, both, fate
from tests.kit.redis_server import RedisServer
from tests.kit.waiting import until

HEADS = int(os.environ.get("TEST_FUZZ", "2000"))
SEED = int(os.environ.get("TEST_FUZZ_SEED", "0"))
_WHO = b'{"command":"whoami"}'
_ADD = b'{"command":"add","topic":"t","id":"a","body":1}'
_STATUS = re.compile(rb"HTTP/1\.[01] ([0-9]{3}) ")


@pytest.mark.timeout(3600)
def test_odd_heads_are_answered_alike_and_open_nothing(own_server: RedisServer) -> None:
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        seen = runner.run(_compare(own_server.url))
    print(f"{HEADS} heads of TEST_FUZZ_SEED={SEED}:", dict(seen))
    assert min(seen["200"], seen["400"], seen["401"]) > HEADS / 20, seen


async def _compare(url: str) -> Counter[str]:
    seen = Counter[str]()
    async with AsyncExitStack() as stack:
        redis = Redis(url)
        stack.push_async_callback(redis.close)
        ports = await stack.enter_async_context(both(url, access="tokens"))
        twice = Twice(redis, ("fast", "complete"))
        live = await twice.make("live", "admin")
        heads = Heads(SEED, live, [Token.make().text, await twice.make("ended", "admin", revoked=True)])
        shown = b"POST /command HTTP/1.1\r\nHost: t\r\nAuthorization: Bearer %b\r\n" % live.encode()

        async def known() -> bool:
            answers = [await fate(port, [request(shown, _WHO)]) for port in ports]
            return all(b" 200 " in answer[0] for answer in answers)

        await until(known)
        for turn in range(HEADS):
            head, opens = heads.make()
            seen[await _answered(ports, head, opens=opens, turn=turn)] += 1
        for port in ports:
            line = Line(port)
            await line.write(request(shown, b'{"command":"get","id":"a"}'))
            assert b'"NOT_FOUND"' in await line.answers(1)
            line.close()
    return seen


def request(head: bytes, body: bytes) -> bytes:
    return head + b"Content-Length: %d\r\n\r\n%b" % (len(body), body)


async def _answered(ports: tuple[int, int], head: bytes, *, opens: bool, turn: int) -> str:
    """The status that both answer. One that may not come in tries to add a job."""
    data = request(head, _WHO if opens else _ADD)
    what = f"head {turn} of TEST_FUZZ_SEED={SEED}: {data!r:.3000}"
    fast, complete = [await fate(port, [data]) for port in ports]
    assert fast == complete, what
    statuses = _STATUS.findall(fast[0] + fast[2])
    assert len(statuses) == 1, (what, fast)
    status = str(statuses[0].decode())
    assert status in ("400", "401") or (opens and status == "200"), (what, fast)
    return status
