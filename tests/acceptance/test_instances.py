"""Two service processes on one Redis: bells, clients that hang up, and what a stop leaves to the other."""

from __future__ import annotations

import asyncio
import random
import signal
import socket
import tempfile
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import aiohttp
import pytest
import pytest_asyncio

from tests.acceptance.conftest import wipe
from tests.kit.redis_server import RedisServer
from tests.kit.service import Client, ServiceProcess
from tests.kit.waiting import PATIENCE_S, until

pytestmark = pytest.mark.asyncio(loop_scope="module")

Pair = tuple[ServiceProcess, ServiceProcess]


@asynccontextmanager
async def two() -> AsyncIterator[tuple[Pair, str]]:
    """Two services on a Redis of their own, and its URL."""
    with tempfile.TemporaryDirectory(prefix="jq-") as folder, RedisServer(Path(folder)) as redis:
        flags = ("--redis", redis.url)
        async with ServiceProcess(*flags) as first, ServiceProcess(*flags) as second:
            yield (first, second), redis.url


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def _shared() -> AsyncIterator[tuple[Pair, str]]:
    async with two() as shared:
        yield shared


@pytest_asyncio.fixture(loop_scope="module")
async def pair(_shared: tuple[Pair, str]) -> Pair:
    """The two services that the tests share, with nothing in their namespace."""
    services, redis_url = _shared
    await wipe(redis_url)
    return services


async def test_a_parked_pop_is_woken_on_whichever_process_it_waits(pair: Pair) -> None:
    for adding in pair:
        for waiting in pair:
            async with Client(adding.url) as producer, Client(waiting.url) as worker:
                parked = asyncio.create_task(worker.ask("pop", topic="t", wait=30))
                added = await producer.ask("add", topic="t", delay=0.3, body=1)
                begun = time.monotonic()
                got = await parked
                assert got["id"] == added["id"]
                assert got["lease"] / 1e6 >= got["due"]
                assert time.monotonic() - begun < 10, "it was the end of the wait that found the job, not the bell"
                await worker.ask("finish", id=got["id"])


async def test_one_job_goes_to_one_of_many_that_wait(pair: Pair) -> None:
    async with Client(pair[0].url) as one, Client(pair[1].url) as other:
        parked = [asyncio.create_task(each.ask("pop", topic="t", wait=3)) for each in (one, other) * 20]
        for each in pair:
            await until(partial(each.parked, 20))
        await one.ask("add", topic="t", id="only", body=1)
        answers = await asyncio.gather(*parked)
        assert [answer["id"] for answer in answers if answer["id"]] == ["only"]


async def test_a_stop_answers_the_parked_pops_empty() -> None:
    async with two() as ((first, _), _), Client(first.url) as client:
        parked = [asyncio.create_task(client.ask("pop", topic="t", wait=30)) for _ in range(50)]
        parked += [asyncio.create_task(client.ask("pop", topic="t", wait=30, count=5)) for _ in range(50)]
        await until(lambda: first.parked(100))
        assert await first.stop() == 0
        answers = await asyncio.gather(*parked)
    assert all(answer["success"] for answer in answers)
    assert [answer["id"] for answer in answers[:50]] == [None] * 50
    assert [answer["jobs"] for answer in answers[50:]] == [[]] * 50


async def test_a_client_that_hangs_up_burns_no_job(pair: Pair) -> None:
    """Its wait is cancelled; a job reserved for it goes to the next at once, its attempts as before."""
    first, second = pair
    attempts = []
    async with Client(second.url) as client:
        for turn in range(40):
            with parked_by_hand(first.port) as wire:
                await client.ask("add", topic="t", id=f"job-{turn}", delay=0.02, ttr=2, body=1)
                # Hang up around the moment at which the job falls due.
                await asyncio.sleep(0.01 + 0.0005 * turn)
                answered = has_answer(wire)
            if not answered:
                got = await client.ask("pop", topic="t", wait=20)
                assert got["id"] == f"job-{turn}"
                attempts.append(got["attempt"])
            await client.ask("delete", id=f"job-{turn}")
    assert len(attempts) > 10, "all were answered before they hung up"
    # A client that hangs up at the very moment when the answer is written is not noticed; there the TTR helps.
    assert sum(attempt > 1 for attempt in attempts) <= 2, attempts


def parked_by_hand(port: int) -> socket.socket:
    """A pop that waits on a socket of its own. A plain one: a stream of asyncio knows of an answer only when the loop
    has turned, and would count as hung up before an answer that was there."""
    wire = socket.create_connection(("127.0.0.1", port))
    body = b'{"command":"pop","topic":"t","wait":30}'
    wire.sendall(b"POST /command HTTP/1.1\r\nHost: t\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
    return wire


def has_answer(wire: socket.socket) -> bool:
    try:
        return bool(wire.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT))
    except BlockingIOError:
        return False


async def test_a_worker_leaves_at_one_instance_and_its_pop_at_the_other_ends_empty(pair: Pair) -> None:
    for leaving, waiting in (pair, pair[::-1]):
        async with Client(leaving.url) as here, Client(waiting.url) as there:
            # So that the topic exists.
            await here.ask("add", topic="t", id="known", delay=60, body=1, if_exists="renew")
            empty = asyncio.create_task(there.ask("pop", topic="t", wait=60, worker="web 1:412:9f3a"))
            none = asyncio.create_task(there.ask("pop", topics=["u", "t"], count=5, wait=60, worker="web 1:412:9f3a"))
            stays = asyncio.create_task(there.ask("pop", topic="t", wait=60, worker="web"))
            await until(partial(waiting.parked, 3))
            told = await here.ask("leave", worker="web 1:412:9f3a")
            assert told == {"success": True, "worker": "web 1:412:9f3a"}
            async with asyncio.timeout(PATIENCE_S):
                assert await empty == {"success": True, "id": None, "value": None}
                assert await none == {"success": True, "jobs": []}
            assert await waiting.parked(1)
            await here.ask("add", topic="t", ttr=0, body=1)
            assert (await stays)["value"] == 1


async def test_a_worker_that_leaves_again_and_again_has_seen_every_job_that_was_popped(pair: Pair) -> None:
    """It pops at both instances, with jobs and leaves at random moments: none is reserved for nobody."""
    chance = random.Random(7)
    seen: list[str] = []
    empty = 0
    done = asyncio.Event()

    async def work(client: Client, **fields: Any) -> None:
        nonlocal empty
        while not done.is_set():
            answer = await client.ask("pop", topic="t", wait=60, worker="w", **fields)
            jobs = [job["id"] for job in answer.get("jobs", [answer]) if job["id"]]
            seen.extend(jobs)
            empty += not jobs

    async with Client(pair[0].url) as one, Client(pair[1].url) as other, asyncio.TaskGroup() as group:
        workers = [group.create_task(work(client, **more)) for client in (one, other) for more in ({}, {"count": 3})]

        async def all_have_left() -> bool:
            await one.ask("leave", worker="w")
            return all(worker.done() for worker in workers)

        for number in range(500):
            await asyncio.sleep(chance.uniform(0, 0.004))
            client = chance.choice([one, other])
            group.create_task(client.ask("add", topic="t", id=str(number), ttr=3600, body=1))
            await asyncio.sleep(chance.uniform(0, 0.001))
            if chance.random() < 0.7:
                group.create_task(client.ask("leave", worker="w"))
        await until(lambda: len(seen) >= 500)
        stats = await one.ask("stats", topic="t")
        reserved = (await one.ask("peek", topic="t", state="reserved", count=1000))["jobs"]
        done.set()
        await until(all_have_left)
    assert sorted(seen, key=int) == [str(number) for number in range(500)]
    assert {(job["id"], job["worker"]) for job in reserved} == {(each, "w") for each in seen}
    assert (stats["totals"]["delivered"], stats["counts"]["reserved"]) == (500, 500)
    assert empty > 100, "hardly a pop left without a job"


async def test_a_client_that_hangs_up_while_it_waits_leaves_no_waiter_behind(pair: Pair) -> None:
    first, _ = pair
    async with aiohttp.ClientSession() as session, Client(first.url) as client:
        body = b'{"command":"pop","topic":"t","wait":30}'
        gone = [asyncio.create_task(session.post(first.url + "/command", data=body)) for _ in range(20)]
        await until(lambda: first.parked(20))
        for each in gone:
            each.cancel()
        await asyncio.gather(*gone, return_exceptions=True)
        parked: Any = asyncio.create_task(client.ask("pop", topic="t", wait=30))
        await until(lambda: first.parked(1))
        await client.ask("add", topic="t", id="a", body=1)
        got = await parked
        assert (got["id"], got["attempt"]) == ("a", 1)


async def test_one_frozen_redis_costs_a_request_one_deadline_and_a_starting_service_can_be_stopped(
    own_server: RedisServer,
) -> None:
    flags = ("--redis", own_server.url)
    async with ServiceProcess(*flags) as service, Client(service.url) as client:
        own_server.freeze()
        begun = time.monotonic()
        commands = [{"command": "get", "id": "a"}, {"command": "pop", "topic": "t"}, {"command": "delete", "id": "a"}]
        answers = await client.batch(commands * 4)
        assert {answer["code"] for answer in answers} == {"UNAVAILABLE"}
        assert time.monotonic() - begun < 30, "each of the 12 commands waited for its own deadline (5 s)"
        starting = ServiceProcess(*flags)
        start = asyncio.create_task(starting.start())
        await until(lambda: catches_sigterm(starting))
        assert await starting.stop() == 0
        start.cancel()
        await asyncio.gather(start, return_exceptions=True)
        own_server.thaw()


def catches_sigterm(service: ServiceProcess) -> bool:
    """Whether the process has its signal handlers yet, as the kernel sees it."""
    if service.process is None:
        return False
    status = Path(f"/proc/{service.process.pid}/status").read_text()
    caught = next(line for line in status.splitlines() if line.startswith("SigCgt"))
    return bool(int(caught.split()[1], 16) >> (signal.SIGTERM - 1) & 1)


async def test_ready_turns_red_while_redis_is_away_and_green_again(own_server: RedisServer) -> None:
    async with ServiceProcess("--redis", own_server.url) as service, aiohttp.ClientSession() as session:

        async def status() -> int:
            async with session.get(service.url + "/readyz") as response:
                return response.status

        async def is_red() -> bool:
            return await status() == 503

        async def is_green() -> bool:
            return await status() == 200

        assert await is_green()
        own_server.kill()
        await until(is_red)
        async with session.get(service.url + "/healthz") as response:
            assert response.status == 200
        own_server.start()
        await until(is_green)
