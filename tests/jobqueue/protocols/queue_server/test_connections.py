"""Connections and datagrams of queue_server's clients: what comes in pieces, together, too large, or broken."""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import AsyncIterator

import pytest

from buckets import Redis
from jobqueue.protocols.queue_server.dialect import QueueServerDialect
from tests.jobqueue.protocols.queue_server.clients import Served, Tcp, Udp, serving
from tests.kit.redis_server import RedisServer
from tests.kit.waiting import until

LOOK = b'{"action":2,"queue":"q","seq":%d}'
EMPTY = b'{"action":2,"queue":"q","seq":%d,"code":0}'


@pytest.fixture
async def served(redis_server: RedisServer, redis: Redis) -> AsyncIterator[Served]:
    async with serving(redis_server) as served:
        yield served


async def read_all(client: Tcp) -> bytes:
    """What comes until the connection is closed."""
    async with asyncio.timeout(10):
        return await client.reader.read()


async def test_r9_requests_sent_together_are_answered_in_order(tcp: Tcp) -> None:
    tcp.writer.write(b"\n".join(LOOK % seq for seq in range(50)) + b"\r\n")
    expected = b"".join(EMPTY % seq for seq in range(50))
    answers = b""
    while len(answers) < len(expected):
        answers += await tcp.read()
    assert answers == expected


async def test_r9_a_request_may_come_byte_by_byte(tcp: Tcp) -> None:
    for byte in LOOK % 7:
        tcp.writer.write(bytes([byte]))
        await tcp.writer.drain()
        await asyncio.sleep(0)
    assert await tcp.read() == EMPTY % 7


async def test_r9_an_answer_is_one_write_without_a_delimiter(tcp: Tcp) -> None:
    assert await tcp.exchange(LOOK % 1) == EMPTY % 1


@pytest.mark.parametrize(
    "data",
    [b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n", b'POST / HTTP/1.1\r\n\r\n{"action":8}', b"[1]", b"x", b"\0\0\0\1"],
)
async def test_r9_a4_what_does_not_begin_with_a_brace_is_closed_without_an_answer(tcp: Tcp, data: bytes) -> None:
    tcp.writer.write(data)
    assert await read_all(tcp) == b""


@pytest.mark.parametrize(
    "data",
    [
        b"{]}",
        b'{"a":}',
        b"{'a':1}",
        b'{"a":"\xff"}',
        b'{"a":' + b"[" * 3000 + b"]" * 3000 + b"}",
        b"{" * 600,
        b'{"a":Infinity}',
        b'{"a":"\\ud800","b":NaN}',
    ],
)
async def test_r9_what_is_not_json_is_refused_and_closed(tcp: Tcp, data: bytes) -> None:
    tcp.writer.write(LOOK % 1 + data + LOOK % 2)
    answers = (await read_all(tcp)).removeprefix(EMPTY % 1)
    refused = json.loads(answers)
    assert (refused["code"], refused["reason"]) == (-1, "field error") and refused["detail"]


async def test_r9_an_object_that_is_too_large_is_refused_while_it_comes(tcp: Tcp) -> None:
    """And the refusal arrives, though the client goes on sending."""
    tcp.writer.write(b'{"action":1,"data":"' + b"x" * 3_000_000)
    refused = json.loads(await read_all(tcp))
    assert (refused["code"], refused["reason"]) == (-1, "too large")


async def test_r9_what_comes_behind_a_refusal_is_not_kept(served: Served, tcp: Tcp) -> None:
    refused = json.loads(await tcp.exchange(b"{]}"))
    assert refused["reason"] == "field error"
    tcp.writer.write(b"{" + b"x" * 3_000_000)
    await tcp.writer.drain()
    await served.native(command="stats")  # meanwhile it is read
    (dialect,) = served.service._dialects.values()
    assert isinstance(dialect, QueueServerDialect)
    assert [len(connection.received) for connection in dialect._streams.open] == [0]


async def test_r9_an_object_may_have_a_body_and_16_kib_more(tcp: Tcp) -> None:
    most = 256 * 1024 + 16 * 1024
    request = b'{"action":3,"queue":"q","x":"%b"}'
    room = most - len(request % b"")
    await tcp.exchange(LOOK % 1)
    tcp.writer.write(request % (b"x" * room))
    answer = b""
    while len(answer) < most:
        answer += await tcp.read()
    assert answer.endswith(b'","code":0}')
    tcp.writer.write(request % (b"x" * (room + 1)))
    assert json.loads(await read_all(tcp))["reason"] == "too large"


async def test_r9_a_client_that_ends_what_it_sends_gets_its_answers(tcp: Tcp) -> None:
    confirm = b'{"action":3,"queue":"q"}'
    tcp.writer.write(confirm * 3 + b'{"half')
    tcp.writer.write_eof()
    assert await read_all(tcp) == (confirm[:-1] + b',"code":0}') * 3


@pytest.mark.parametrize("wait", [0, 60])
async def test_t2_a_client_that_is_gone_when_its_consume_is_read_gets_no_job(served: Served, wait: int) -> None:
    await served.native(command="add", topic="q", id="x", body=1)
    async with served.tcp() as client:
        client.writer.write(b'{"action":2,"queue":"q","wait":%d}' % wait)
        client.writer.write_eof()
        assert await read_all(client) == b""
    job = await served.native(command="get", id="x")
    assert (job["state"], job["attempt"]) == ("ready", 0)


async def test_other_connections_go_on_beside_a_broken_one(served: Served, tcp: Tcp) -> None:
    async with served.tcp() as other:
        other.writer.write(b'{"a":"' + b"x" * 100_000)
        for seq in range(20):
            assert await tcp.exchange(LOOK % seq) == EMPTY % seq


@pytest.mark.parametrize(
    "data", [b"", b"x", b"[]", b"{", b'{"action":8}{"action":8}', b"\xff\xfe", b'{"a":"\xff"}', b"{]}", b"\0" * 60_000]
)
async def test_r10_a_datagram_that_is_no_object_gets_no_answer(udp: Udp, data: bytes) -> None:
    udp.transport.sendto(data)
    assert await udp.exchange(LOOK % 5) == EMPTY % 5, "the next one does, and nothing before it"


async def test_r10_a_datagram_may_have_blanks_around_its_object(udp: Udp) -> None:
    assert await udp.exchange(b" \r\n" + LOOK % 5 + b"\n") == EMPTY % 5


async def test_r10_the_largest_datagram_is_taken(udp: Udp) -> None:
    request = b'{"action":1,"queue":"q","data":"%b"}'
    answer = json.loads(await udp.exchange(request % (b"x" * (65_507 - len(request) + 2))))
    assert answer["code"] == 0


async def test_r10_an_answer_has_at_most_60_000_bytes_and_nothing_is_done_for_a_longer_one(
    served: Served, udp: Udp
) -> None:
    answer = await udp.ask(action=1, queue="q", data="x", seq=7, junk="x" * 60_000)
    assert answer == {"action": 1, "queue": "q", "seq": 7, "code": -1, "reason": "too large"} | {
        "detail": answer["detail"]
    }
    assert (await served.native(command="stats"))["counts"]["ready"] == 0


async def test_r10_a_list_that_is_too_long_is_refused(served: Served, udp: Udp) -> None:
    for number in range(320):
        await served.native(command="add", topic=f"{number:0200}", body=1, delay=100)
    answer = await udp.ask(action=7, seq=7)
    assert (answer["reason"], answer["seq"]) == ("too large", 7)
    async with served.tcp() as tcp:
        assert (await tcp.ask(action=7))["queue_count"] == 320


async def test_r10_udp_may_be_off(redis_server: RedisServer, redis: Redis) -> None:
    async with serving(redis_server, {"udp": False}) as served, served.tcp() as tcp:
        assert await tcp.exchange(LOOK % 1) == EMPTY % 1
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as free:
            free.bind(("127.0.0.1", served.port))


async def test_t7_an_idle_client_is_disconnected_as_theirs_does(redis_server: RedisServer, redis: Redis) -> None:
    async with (
        serving(redis_server, client_timeout_s=0.3) as served,
        served.tcp() as idle,
        served.tcp() as slow,
        served.tcp() as waiting,
    ):
        slow.writer.write(b'{"action":')
        waiting.writer.write(b'{"action":2,"queue":"q","wait":60}')
        assert await read_all(idle) == b""
        assert await read_all(slow) == b""
        await served.native(command="add", topic="q", body="x")
        assert json.loads(await waiting.read())["data"] == "x", "a client that waits for a job keeps nobody waiting"


async def test_t8_a_stop_answers_what_was_read_and_closes(redis_server: RedisServer, redis: Redis) -> None:
    async with serving(redis_server) as served:
        stack = [await asyncio.open_connection("127.0.0.1", served.port) for _ in range(3)]
        idle, busy, waiting = (Tcp(*each) for each in stack)
        busy.writer.write((LOOK % 1) * 200)
        waiting.writer.write(b'{"action":2,"queue":"q","wait":60,"seq":3}' + LOOK % 4)
        await until(lambda: served.is_parked(1))
    assert await read_all(busy) == (EMPTY % 1) * 200
    assert await read_all(waiting) == EMPTY % 3 + EMPTY % 4
    assert await read_all(idle) == b""
    for _, writer in stack:
        writer.close()


async def test_commands_are_counted_under_the_protocols_name(served: Served, tcp: Tcp) -> None:
    await tcp.ask(action=1, queue="q", data="x")
    await tcp.ask(action=1, queue="q", data=7)
    figures = await served.metrics()
    assert 'jobqueue_commands_total{code="OK",command="add",protocol="queue_server"} 1.0' in figures
    assert 'jobqueue_commands_total{code="BAD_FIELD",command="unreadable",protocol="queue_server"} 1.0' in figures
