"""The exact exchanges of queue_server's actions, by TCP and by UDP: each row of the tables, and each refusal."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from buckets import Redis
from jobqueue.settings import TopicSettings
from tests.jobqueue.protocols.queue_server.clients import Served, Tcp, Udp, now, serving
from tests.kit.redis_server import RedisServer

QUEUE = '"queue":"task#test:order:event"'

DOCUMENT = Path(__file__).parents[4] / "docs" / "protocols" / "queue_server.md"
TAKEN = 64
"""The counter after a first number: a process takes a block."""


@pytest.fixture
async def served(redis_server: RedisServer, redis: Redis) -> AsyncIterator[Served]:
    async with serving(redis_server) as served:
        yield served


@pytest.fixture(params=["tcp", "udp"])
async def client(served: Served, request: pytest.FixtureRequest) -> AsyncIterator[Tcp | Udp]:
    async with getattr(served, request.param)() as client:
        yield client


async def test_the_example_byte_for_byte(client: Tcp | Udp) -> None:
    due = now()
    produce = f'{{"action":1,{QUEUE},"data":"test_1","delay":{due},"ttl":{due + 10},"retry":2,"seq":1861326798}}'
    for request, answer in [
        (produce, f'{{"action":1,{QUEUE},"seq":1861326798,"msg_id":1,"code":0}}'),
        (
            f'{{"action":2,{QUEUE},"seq":212554808}}',
            f'{{"action":2,{QUEUE},"seq":212554808,"msg_id":1,"data":"test_1","code":0}}',
        ),
        (
            f'{{"action":3,{QUEUE},"msg_id":1,"seq":1629681448}}',
            f'{{"action":3,{QUEUE},"msg_id":1,"seq":1629681448,"code":0}}',
        ),
        (f'{{"action":2,{QUEUE},"seq":1}}', f'{{"action":2,{QUEUE},"seq":1,"code":0}}'),
        (f'{{"action":3,{QUEUE},"msg_id":1,"seq":2}}', f'{{"action":3,{QUEUE},"msg_id":1,"seq":2,"code":0}}'),
        (f'{{"action":3,{QUEUE},"seq":3}}', f'{{"action":3,{QUEUE},"seq":3,"code":0}}'),
    ]:
        assert await client.exchange(request.encode()) == answer.encode()


async def test_the_session_of_the_document_goes_as_it_says(client: Tcp | Udp) -> None:
    lines = DOCUMENT.read_text().partition("## A session")[2].split("```")[1].strip().splitlines()
    assert len(lines) >= 10
    for request, answer in zip(lines[::2], lines[1::2], strict=True):
        assert (await client.exchange(request.encode())).decode() == answer


@pytest.mark.parametrize("action", [4, 104])
async def test_monitor(client: Tcp | Udp, action: int) -> None:
    for retry in (0, 0, 60):
        await client.ask(action=1, queue="q", data="x", retry=retry, ttl=now() + 100)
    await client.ask(action=1, queue="q", data="x", delay=now() + 1000)
    assert (await client.ask(action=2, queue="q"))["code"] == 0
    assert await client.exchange(b'{"action":%d,"queue":"q","seq":5}' % action) == (
        b'{"action":%d,"queue":"q","seq":5,"size":3,"max_id":%d,"wait_status":0,'
        b'"leader_node_id":1,"node_id":1,"trans_id":%d,"code":0}' % (action, TAKEN, TAKEN)
    )


async def test_a_look_makes_no_queue(client: Tcp | Udp) -> None:
    answer = await client.ask(action=4, queue="unknown")
    assert (answer["code"], answer["size"], answer["max_id"]) == (0, 0, 0)
    await client.ask(action=2, queue="unknown")
    assert (await client.ask(action=7))["queue_list"] == []


@pytest.mark.parametrize("action", [7, 107])
async def test_list(client: Tcp | Udp, action: int) -> None:
    for queue in ("order:paid", "order:sent", "mail", "订单 %"):
        await client.ask(action=1, queue=queue, data="x")
    assert await client.exchange(b'{"action":%d,"pattern":"paid","seq":5}' % action) == (
        b'{"action":%d,"pattern":"paid","seq":5,"queue_count":1,'
        b'"queue_list":[{"size":1,"wait_status":0,"name":"order:paid"}],'
        b'"leader_node_id":1,"node_id":1,"trans_id":%d,"code":0}' % (action, TAKEN)
    )
    answer = await client.ask(action=action)
    assert {each["name"] for each in answer["queue_list"]} == {"order:paid", "order:sent", "mail", "订单 %"}
    assert answer["queue_count"] == 4
    assert (await client.ask(action=action, pattern="no"))["queue_list"] == []


async def test_leader(client: Tcp | Udp, served: Served) -> None:
    assert await client.exchange(b'{"action":8,"seq":1}') == (
        b'{"action":8,"seq":1,"leader_node_id":1,"leader_host":"127.0.0.1","leader_port":%d,"code":0}' % served.port
    )


async def test_a_leader_may_have_a_number_and_a_host_from_the_settings(redis_server: RedisServer) -> None:
    async with serving(redis_server, {"node_id": 7, "advertise": "queue.example"}) as served, served.tcp() as client:
        answer = await client.ask(action=8)
        assert (answer["leader_node_id"], answer["leader_host"]) == (7, "queue.example")
        assert (await client.ask(action=4, queue="q"))["node_id"] == 7


async def test_a_refusal_has_a_reason_and_our_sentence_and_changes_nothing(
    subtests: pytest.Subtests, client: Tcp | Udp, served: Served
) -> None:
    cases: list[tuple[str, str]] = [
        ('"action":1', "field error"),
        ('"action":1,"queue":"","data":"x"', "field error"),
        ('"action":1,"queue":7,"data":"x"', "field error"),
        ('"action":1,"queue":null,"data":"x"', "field error"),
        ('"action":1,"queue":"q\\ud83d","data":"x"', "field error"),
        ('"action":1,"queue":"%s","data":"x"' % ("é" * 43), "field error"),
        ('"action":1,"queue":"q"', "field error"),
        ('"action":1,"queue":"q","data":7', "field error"),
        ('"action":1,"queue":"q","data":{"a":1}', "field error"),
        ('"action":1,"queue":"q","data":"\\ud83d"', "field error"),
        ('"action":1,"queue":"q","data":"x","retry":-1', "field error"),
        ('"action":1,"queue":"q","data":"x","retry":1.5', "field error"),
        ('"action":1,"queue":"q","data":"x","retry":"soon"', "field error"),
        ('"action":1,"queue":"q","data":"x","delay":true', "field error"),
        ('"action":1,"queue":"q","data":"x","delay":[1]', "field error"),
        ('"action":1,"queue":"q","data":"x","delay":""', "field error"),
        ('"action":1,"queue":"q","data":"x","delay":1e400', "field error"),
        ('"action":1,"queue":"q","data":"x","delay":99999999999', "field error"),
        ('"action":1,"queue":"q","data":"x","ttl":999999999999', "field error"),
        ('"action":1,"queue":"q","data":"x","delay":200,"ttl":100', "time error"),
        ('"action":1,"queue":"q","data":"x","ttl":100', "time error"),
        ('"action":2', "field error"),
        ('"action":3', "field error"),
        ('"action":3,"queue":"q","msg_id":"x"', "field error"),
        ('"action":4', "field error"),
        ('"action":7,"pattern":5', "field error"),
        ('"action":5,"queue":"q"', "not support"),
        ('"action":6', "not support"),
        ('"action":0', "invalid action"),
        ('"action":9,"queue":"q"', "invalid action"),
        ('"action":"produce"', "invalid action"),
        ('"queue":"q"', "invalid action"),
    ]
    for members, reason in cases:
        with subtests.test(members=members, reason=reason):
            answer = json.loads(await client.exchange(b"{%b}" % f'{members},"seq":12345678901234567890'.encode()))
            assert (answer["code"], answer["reason"], answer["seq"]) == (-1, reason, 12345678901234567890)
            assert answer["detail"] and "data" not in answer
            assert (await served.native(command="stats"))["counts"]["ready"] == 0
            assert (await client.ask(action=2, queue="q"))["code"] == 0, "it goes on"


async def test_all_members_come_back_as_they_came(client: Tcp | Udp) -> None:
    echoed = (
        b'"seq":1e400,"x":{"a":[1.0, 12345678901234567890123]},"half":"\\ud83d","\xe4\xb8\xad":"/\xe4\xb8\xad\\u0000"'
    )
    request = b'{"action":3,%b,"queue":"q"}' % echoed.replace(b"1e400", b"1e300")
    answer = await client.exchange(request)
    assert json.loads(answer) == json.loads(request) | {"code": 0}
    request = b'{"action":3,%b,"queue":"\\u4e2d\\/"}' % echoed.replace(b'"half":"\\ud83d",', b"")
    assert await client.exchange(request) == request.replace(b"\\u4e2d\\/", "中/".encode())[:-1] + b',"code":0}'


async def test_what_an_answer_says_is_never_an_echo(client: Tcp | Udp) -> None:
    request = b'{"action":2,"queue":"q","code":-1,"reason":"no","detail":"x","msg_id":5,"data":"old","wait":0}'
    assert await client.exchange(request) == b'{"action":2,"queue":"q","code":0}'


async def test_of_two_members_with_one_name_the_last_one_counts(client: Tcp | Udp) -> None:
    request = b'{"action":2,"action":3,"queue":"q","seq":1,"seq":2}'
    assert await client.exchange(request) == b'{"action":3,"queue":"q","seq":2,"code":0}'


@pytest.mark.parametrize("form", ["%d", "%d.0", '"%d"', "%de0"])
async def test_r11_an_integer_may_be_an_integral_number_or_a_string_of_digits(
    client: Tcp | Udp, served: Served, form: str
) -> None:
    due = now() + 3_000
    members = [("delay", due), ("ttl", due + 90), ("retry", 30), ("action", 1)]
    numbers = ",".join(f'"{name}":{form % number}' for name, number in members)
    answer = json.loads(await client.exchange(b'{"queue":"q","data":"x",%b}' % numbers.encode()))
    assert answer["code"] == 0
    job = await served.native(command="get", id="#1")
    assert (job["due"], job["ttr"], job["tries"], job["retention"]) == (due, 30, 3, 0)


async def test_a_null_is_as_good_as_none(client: Tcp | Udp) -> None:
    assert (await client.ask(action=1, queue="q", data="x", delay=None, ttl=None, retry=None))["code"] == 0
    assert (await client.ask(action=2, queue="q", wait=None))["data"] == "x"


async def test_answers_are_not_escaped_beyond_what_json_needs(client: Tcp | Udp) -> None:
    await client.ask(action=1, queue="中/", data='é/中😀"\0')
    answer = await client.exchange('{"action":2,"queue":"中/"}'.encode())
    assert answer == '{"action":2,"queue":"中/","msg_id":1,"data":"é/中😀\\"\\u0000","code":0}'.encode()


async def test_the_token_is_asked_of_every_action_and_never_echoed(redis_server: RedisServer, redis: Redis) -> None:
    async with serving(redis_server, {"token": "s3cret"}) as served, served.tcp() as tcp, served.udp() as udp:
        for client in (tcp, udp):
            for action in (1, 2, 3, 4, 5, 7, 8, 9):
                for token in ({}, {"token": "other"}, {"token": 7}, {"token": None}):
                    answer = await client.ask(action=action, queue="q", seq=1, **token)
                    assert answer == {"action": action, "queue": "q", "seq": 1, "code": -1} | {
                        "reason": "forbidden",
                        "detail": answer["detail"],
                    }
            answer = await client.ask(action=2, token="s3cret", queue="q")  # noqa: S106
            assert answer == {"action": 2, "queue": "q", "code": 0}


async def test_a_token_that_nobody_asked_for_is_not_echoed_either(client: Tcp | Udp) -> None:
    assert b"s3cret" not in await client.exchange(b'{"action":2,"queue":"q","token":"s3cret"}')


async def test_a_full_topic_is_a_system_error(redis_server: RedisServer, redis: Redis) -> None:
    async with serving(redis_server, topics={"q": TopicSettings(max_pending=1)}) as served, served.tcp() as client:
        await client.ask(action=1, queue="q", data="x")
        answer: dict[str, Any] = await client.ask(action=1, queue="q", data="x", seq=1)
        assert (answer["code"], answer["reason"], answer["seq"]) == (-1, "system error", 1)


async def test_a_prefix_is_a_namespace_of_its_own(redis_server: RedisServer, redis: Redis) -> None:
    async with serving(redis_server, {"prefix": "qs/"}) as served, served.tcp() as client:
        await served.native(command="add", topic="q", body="not theirs")
        assert (await client.ask(action=2, queue="q")) == {"action": 2, "queue": "q", "code": 0}
        await client.ask(action=1, queue="q", data="x")
        assert [each["name"] for each in (await client.ask(action=7))["queue_list"]] == ["q"]
        assert (await served.native(command="pop", topic="qs/q"))["value"] == "x"


async def test_others_are_not_let_in(redis_server: RedisServer, redis: Redis) -> None:
    async with serving(redis_server, {"allow": ("192.0.2.0/24",)}) as served, served.udp() as udp:
        async with served.tcp() as tcp:
            with pytest.raises((ConnectionError, AssertionError)):
                assert await tcp.exchange(b'{"action":8}')
        udp.transport.sendto(b'{"action":8}')
        await served.native(command="stats")
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.2):
                await udp.read()
