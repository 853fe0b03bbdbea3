"""The life of queue_server's jobs: when they come, how often, and how they end."""

from __future__ import annotations

import asyncio
import math
from collections.abc import AsyncIterator

import pytest

from buckets import Redis
from tests.jobqueue.protocols.queue_server.clients import Served, Tcp, Udp, now, serving
from tests.kit.redis_server import RedisServer
from tests.kit.waiting import until


@pytest.fixture
async def served(redis_server: RedisServer, redis: Redis) -> AsyncIterator[Served]:
    async with serving(redis_server, virtual_topics={"both": ("one", "two")}) as served:
        yield served


@pytest.mark.parametrize("delay", [{}, {"delay": 0}, {"delay": -5}, {"delay": 1_000_000_000}])
async def test_r12_without_a_delay_or_with_a_past_one_it_is_ready_now(tcp: Tcp, delay: dict[str, int]) -> None:
    await tcp.ask(action=1, queue="q", data="x", **delay)
    assert (await tcp.ask(action=2, queue="q"))["data"] == "x"


async def test_r12_what_expired_unseen_is_still_delivered_once(served: Served, tcp: Tcp) -> None:
    await tcp.ask(action=1, queue="q", data="x", delay=100, ttl=200, retry=1)
    assert (await tcp.ask(action=2, queue="q"))["data"] == "x"
    assert (await served.native(command="get", id="#1"))["state"] == "dead"
    assert (await tcp.ask(action=2, queue="q", wait=1.2))["code"] == 0


async def test_r12_what_retry_and_ttl_become(subtests: pytest.Subtests, served: Served, tcp: Tcp) -> None:
    cases: list[tuple[int | None, int, int, int]] = [
        (10, 0, 0, 1),
        (10, 3, 3, 4),
        (10, 5, 5, 2),
        (10, 50, 50, 1),
        (0, 5, 5, 1),
        (None, 60, 60, 60),
        (200_000, 100_000, 86_400, 2),
        (65_535, 1, 1, 65_535),
        (65_536, 1, 1, 0),
    ]
    for number, (ttl, retry, ttr, tries) in enumerate(cases, 1):
        with subtests.test(ttl=ttl, retry=retry, ttr=ttr, tries=tries):
            due = now() + 1000
            times = {} if ttl is None else {"ttl": due + ttl}
            await tcp.ask(action=1, queue="q", data="x", delay=due, retry=retry, **times)
            job = await served.native(command="get", id=f"#{number}")
            assert (job["due"], job["ttr"], job["tries"], job["retention"]) == (due, ttr, tries, 0)


async def test_r12_without_retry_a_job_is_gone_when_it_is_consumed(served: Served, tcp: Tcp) -> None:
    await tcp.ask(action=1, queue="q", data="x")
    assert (await tcp.ask(action=2, queue="q"))["msg_id"] == 1
    assert (await served.native(command="get", id="#1"))["code"] == "NOT_FOUND"


async def test_r13_the_last_delivery_before_the_ttl_is_a_dead_letter_until_it_is_confirmed(
    served: Served, tcp: Tcp
) -> None:
    await tcp.ask(action=1, queue="q", data="x", delay=now(), ttl=now() + 20, retry=30)
    assert (await tcp.ask(action=2, queue="q"))["data"] == "x"
    dead = await served.native(command="get", id="#1")
    assert (dead["state"], dead["cause"], dead["reason"]) == ("dead", "buried", "ttl")
    assert (await tcp.ask(action=3, queue="q", msg_id=1))["code"] == 0
    assert (await served.native(command="get", id="#1"))["code"] == "NOT_FOUND"
    counts = (await served.native(command="stats", topic="q"))["counts"]
    assert (counts["dead"], counts["ready"], counts["reserved"]) == (0, 0, 0)


async def test_r13_a_delivery_that_may_be_followed_by_another_is_reserved(served: Served, tcp: Tcp) -> None:
    await tcp.ask(action=1, queue="q", data="x", delay=now(), ttl=now() + 60, retry=30)
    await tcp.ask(action=2, queue="q")
    assert (await served.native(command="get", id="#1"))["state"] == "reserved"


async def test_r13_it_comes_every_retry_seconds_until_the_ttl(served: Served, tcp: Tcp) -> None:
    """As theirs: due, a second later, and no more, as a third one would be at the ttl."""
    due = now() + 1
    await tcp.ask(action=1, queue="q", data="x", delay=due, ttl=due + 2, retry=1)
    for _ in range(2):
        assert (await tcp.ask(action=2, queue="q", wait=5))["msg_id"] == 1
    assert (await served.native(command="get", id="#1"))["state"] == "dead"
    assert "data" not in await tcp.ask(action=2, queue="q", wait=1.5)


async def test_r14_a_late_confirm_settles_a_job_whoever_has_it(served: Served, tcp: Tcp, udp: Udp) -> None:
    await tcp.ask(action=1, queue="q", data="x", retry=1)
    first = await tcp.ask(action=2, queue="q")
    second = await tcp.ask(action=2, queue="q", wait=5)
    assert first["msg_id"] == second["msg_id"] == 1
    await udp.ask(action=3, queue="q", msg_id=1)
    assert (await served.native(command="get", id="#1"))["code"] == "NOT_FOUND"


async def test_r14_numbers_are_unique_over_all_queues(tcp: Tcp) -> None:
    numbers = [(await tcp.ask(action=1, queue=queue, data="x"))["msg_id"] for queue in "aabb"]
    assert len(set(numbers)) == 4


async def test_r14_a_confirm_that_names_another_queue_does_nothing(served: Served, tcp: Tcp) -> None:
    await tcp.ask(action=1, queue="q", data="x", retry=60)
    await tcp.ask(action=2, queue="q")
    assert (await tcp.ask(action=3, queue="other", msg_id=1))["code"] == 0
    assert (await served.native(command="get", id="#1"))["state"] == "reserved"


@pytest.mark.parametrize("delay", [0, 5_000])
async def test_a_confirm_before_the_delivery_cancels(served: Served, tcp: Tcp, delay: int) -> None:
    await tcp.ask(action=1, queue="q", data="x", delay=now() + delay, retry=60)
    await tcp.ask(action=3, queue="q", msg_id=1)
    assert (await served.native(command="get", id="#1"))["code"] == "NOT_FOUND"
    assert "data" not in await tcp.ask(action=2, queue="q")


@pytest.mark.parametrize("number", [0, -1, 2**31, 10**17, 999])
async def test_a_confirm_of_an_unknown_job_succeeds(tcp: Tcp, number: int) -> None:
    assert (await tcp.ask(action=3, queue="q", msg_id=number))["code"] == 0


async def test_r15_a_virtual_queue_gives_one_number_in_each_of_its_queues(served: Served, tcp: Tcp) -> None:
    produced = await tcp.ask(action=1, queue="both", data="x", retry=60)
    assert produced == {"action": 1, "queue": "both", "msg_id": 1, "code": 0}
    for queue in ("one", "two"):
        assert (await tcp.ask(action=2, queue=queue))["msg_id"] == 1
    await tcp.ask(action=3, queue="one", msg_id=1)
    assert (await served.native(command="get", id="#1@one"))["code"] == "NOT_FOUND"
    assert (await served.native(command="get", id="#1@two"))["state"] == "reserved"
    await tcp.ask(action=3, queue="two", msg_id=1)
    assert (await served.native(command="get", id="#1@two"))["code"] == "NOT_FOUND"


async def test_r16_what_is_too_large_for_udp_is_buried_and_the_next_one_given(served: Served, udp: Udp) -> None:
    for name, body in (("a", "x" * 60_000), ("b", "é" * 29_800), ("c", "small")):
        await served.native(command="add", topic="q", id=name, body=body)
    answer = await udp.ask(action=2, queue="q", seq=1)
    assert answer["data"] == "é" * 29_800, "it just fits"
    assert (await udp.ask(action=2, queue="q"))["data"] == "small"
    dead = await served.native(command="get", id="a")
    assert (dead["state"], dead["reason"]) == ("dead", "too large for UDP")


async def test_r16_what_is_too_large_and_cannot_be_buried_is_reported(served: Served, udp: Udp) -> None:
    await served.native(command="add", topic="q", body="x" * 60_000, ttr=0)
    answer = await udp.ask(action=2, queue="q", seq=1)
    assert (answer["code"], answer["reason"], answer["seq"]) == (-1, "too large", 1)
    assert (await udp.ask(action=2, queue="q"))["code"] == 0


async def test_r16_by_tcp_a_body_may_be_as_large_as_the_service_allows(served: Served, tcp: Tcp) -> None:
    data = "x" * 262_000
    assert (await tcp.ask(action=1, queue="q", data=data))["code"] == 0
    assert (await tcp.ask(action=2, queue="q"))["data"] == data
    refused = await tcp.ask(action=1, queue="q", data="x" * 262_143)
    assert (refused["code"], refused["reason"]) == (-1, "field error")


async def test_a_consume_may_wait(served: Served, tcp: Tcp) -> None:
    waiting = asyncio.create_task(tcp.ask(action=2, queue="q", wait=30, seq=9))
    await until(lambda: served.is_parked(1))
    await served.native(command="add", topic="q", body="now")
    assert await waiting == {"action": 2, "queue": "q", "seq": 9, "msg_id": 1, "data": "now", "code": 0}
    assert await tcp.ask(action=2, queue="q", wait=0.05) == {"action": 2, "queue": "q", "code": 0}


@pytest.mark.parametrize("wait", [-1, 61, "5", True, "x"])
async def test_a_wait_is_0_to_60_seconds(tcp: Tcp, wait: object) -> None:
    assert (await tcp.ask(action=2, queue="q", wait=wait))["reason"] == "field error"


async def test_by_udp_nothing_waits(served: Served, udp: Udp) -> None:
    assert await udp.ask(action=2, queue="q", wait=60) == {"action": 2, "queue": "q", "code": 0}


async def test_a_client_that_closes_its_sending_side_while_it_waits_gets_no_job(served: Served) -> None:
    async with served.tcp() as client:
        client.writer.write(b'{"action":2,"queue":"q","wait":60}')
        await until(lambda: served.is_parked(1))
        client.writer.write_eof()
        assert await client.read() == b""
    await until(lambda: served.is_parked(0))
    await served.native(command="add", topic="q", id="x", body=1)
    job = await served.native(command="get", id="x")
    assert (job["state"], job["deliveries"]) == ("ready", 0)


async def test_a_job_of_another_protocol_has_a_number_for_its_lease(served: Served, tcp: Tcp) -> None:
    await served.native(command="add", topic="q", id="order:7", body={"a": 1}, retention=60)
    popped = await tcp.ask(action=2, queue="q")
    assert popped["data"] == '{"a": 1}' and 0 < popped["msg_id"] < 2**31
    assert (await served.native(command="get", id="order:7"))["state"] == "reserved"
    assert (await tcp.ask(action=3, queue="other", msg_id=popped["msg_id"]))["code"] == 0
    assert (await served.native(command="get", id="order:7"))["state"] == "reserved"
    assert (await tcp.ask(action=3, queue="q", msg_id=popped["msg_id"]))["code"] == 0
    assert (await served.native(command="get", id="order:7"))["state"] == "finished"


async def test_the_wait_status_is_the_sum_of_the_whole_seconds_that_the_first_16_have_waited(
    served: Served, tcp: Tcp
) -> None:
    begun = asyncio.get_running_loop().time()
    for _ in range(20):
        await tcp.ask(action=1, queue="q", data="x")

    async def waited() -> bool:
        return bool((await tcp.ask(action=4, queue="q"))["wait_status"] >= 16)

    await until(waited)
    status = (await tcp.ask(action=4, queue="q"))["wait_status"]
    passed = asyncio.get_running_loop().time() - begun
    assert 16 <= status <= 16 * math.ceil(passed + 1)
    listed = (await tcp.ask(action=7))["queue_list"][0]
    assert listed["wait_status"] >= status
