"""A job of one protocol in another: added by each, popped and finished by each, body byte for byte; its name there; and
what holds between them (X1 to X4 of the specification)."""

from __future__ import annotations

import base64
import itertools
import tempfile
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from buckets.redis.client import Redis
from tests.acceptance.conftest import wipe
from tests.kit.redis_server import RedisServer
from tests.kit.waiting import until
from tests.wires.drivers import Driver
from tests.wires.drivers.beanstalkd import Beanstalkd
from tests.wires.drivers.camellia import Camellia
from tests.wires.drivers.lmstfy import Lmstfy
from tests.wires.drivers.mykit import Mykit
from tests.wires.drivers.native import Native
from tests.wires.drivers.queue_server import QueueServer
from tests.wires.scenario import taken
from tests.wires.serving import DRIVERS, POPPERS, Wires, serving

TEXTS = [
    b"words",
    b" blanks around \r\n",
    b"12",
    b"null",
    b'"in quotes"',
    b'"',
    b"/\\",
    b'{"b":1,"a":[1,2.50,1e3,"\\u00e9"]}',
    b'{ "spaces" : 1 }',
    b'{"twice":1,"twice":2}',
    b"[]",
    b"[1,",
    b'{"not": json}',
    b'{"number":12345678901234567890123}',
    "订单 é 🚚 \u202e".encode(),
    '{"é":"\u2028"}'.encode(),
    b"a\x00b\x1f\x7f",
    b"dGV4dA==",
    b"x" * 50_000,
    b"{" * 2000,
    b"[" * 2000 + b"]" * 2000,
]
"""What every protocol can add."""
EMPTY = b""
HUGE = b'{"a":1e999}'
"""JSON that no double holds, which the native protocol refuses."""
BYTES = [b"\xff\xfe\x00\x01", b"\xed\xa0\x80", b'{"a":"\xff"}', bytes(range(256))]
"""What only protocols of bytes can add; the others show it as base64."""
OF_BYTES = (Beanstalkd, Lmstfy)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def shared_wires() -> AsyncIterator[tuple[Wires, RedisServer]]:
    """The service that the tests of this file share, on a Redis of its own: others empty the tests' Redis."""
    with tempfile.TemporaryDirectory(prefix="jq-") as folder, RedisServer(Path(folder)) as server:
        async with serving(server.url) as wires:
            yield wires, server


@pytest.fixture
async def wires(shared_wires: tuple[Wires, RedisServer]) -> AsyncIterator[Wires]:
    """Its namespace is empty; at the end the books are checked."""
    wires, server = shared_wires
    await wipe(server.url)
    yield wires
    await wires.check_books()


def bodies(adder: type[Driver]) -> list[bytes]:
    """What a protocol can add."""
    empty = [] if adder is Camellia else [EMPTY]
    huge = [] if adder is Native else [HUGE]
    return TEXTS + empty + huge + (BYTES if adder in OF_BYTES else [])


def shown(body: bytes, popper: type[Driver]) -> bytes:
    """The body as a protocol gives it."""
    return base64.b64encode(body) if body in BYTES and popper not in OF_BYTES else body


@pytest.mark.parametrize("adder", DRIVERS, ids=lambda kind: kind.NAME)
async def test_what_goes_in_by_one_comes_out_of_every_other_byte_for_byte(adder: type[Driver], wires: Wires) -> None:
    for popper in POPPERS:
        topic = f"m/{adder.NAME}-{popper.NAME}".replace(" ", "_")
        async with wires.driver(adder) as into, wires.driver(popper) as out:
            for body in bodies(adder):
                await into.add(topic, body)
                job = await taken(out, topic)
                assert job.body == shown(body, popper), (body[:99], job.body[:99], popper.NAME)
                assert await out.finish(job)
        assert await ended(wires, topic) == {"finished": len(bodies(adder)), "deleted": 0}


async def ended(wires: Wires, topic: str) -> dict[str, int]:
    """How many jobs ended in each way; none is left."""
    async with wires.native() as native:
        figures = await native.ask("stats", topic=topic)
    assert not any(figures["counts"].values()), (topic, figures)
    return {name: figures["totals"].get(name, 0) for name in ("finished", "deleted")}


async def test_a_native_worker_gets_an_object_where_the_text_was_one_and_else_a_string(wires: Wires) -> None:
    for adder in DRIVERS:
        async with wires.driver(adder) as into, wires.native() as native:
            for body, value in ((b'{"a":[1]}', {"a": [1]}), (b"12", "12"), (b'"x"', '"x"'), (b"[1,", "[1,")):
                added = await into.add("n/q", body)
                job = await native.ask("pop", topic="n/q")
                assert job["value"] == value, adder.NAME
                assert (await native.ask("finish", id=job["id"], lease=job["lease"]))["success"]
                assert not await into.is_there("n/q", added.name), adder.NAME


async def test_a_job_is_found_natively_under_the_name_that_its_dialect_made_of_it(wires: Wires) -> None:
    """N3: topics and ids inside."""
    async with wires.native() as native:

        async def state(job_id: str) -> Any:
            return (await native.ask("get", id=job_id)).get("state")

        async with wires.driver(Camellia) as camellia:
            await camellia.add("orders", b"x", name="7", delay_s=60)
            assert await state("orders:7") == "delayed"
            await camellia.add("订单 a:b", b"x", name="id+1/2 %", delay_s=60)
            assert await state("%E8%AE%A2%E5%8D%95%20a%3Ab:id+1/2%20%25") == "delayed"
        async with wires.driver(Mykit) as mykit:
            await mykit.add("orders", b"x", name="订 1", delay_s=60)
            assert await state("%E8%AE%A2%201") == "delayed"
        for kind in (Beanstalkd, QueueServer):
            async with wires.driver(kind) as numbering:
                added = await numbering.add("orders", b"x", delay_s=60)
                assert await state(f"#{added.name}") == "delayed"
        async with wires.driver(Lmstfy) as lmstfy:
            added = await lmstfy.add("n/q", b"x", delay_s=60)
            assert await state(added.name) == "delayed"


async def test_a_foreign_job_has_a_name_in_each_dialect_by_which_it_is_finished(wires: Wires) -> None:
    async with wires.native() as native:
        for number, popper in enumerate(POPPERS):
            job_id = f"a:b/{number}#c@d+e=f%20"
            assert (await native.ask("add", topic="n/q", id=job_id, body="x", retention=60))["success"]
            async with wires.driver(popper) as out:
                job = await taken(out, "n/q")
                if popper is Camellia:
                    assert job.name == f"%{job_id}"
                elif popper is Lmstfy:
                    assert job.name == f"a~3Ab~2F{number}~23c~40d~2Be~3Df~2520"
                elif popper is not Native:
                    assert isinstance(job.name, int)
                assert await out.is_there("n/q", job.name)
                assert await out.finish(job)
            assert (await native.ask("get", id=job_id))["state"] == "finished", popper.NAME


async def test_a_name_of_any_text_is_the_same_topic_in_each_dialect_that_can_say_it(wires: Wires) -> None:
    topic = "订单 %41 {x}"
    adders: list[type[Driver]] = [Camellia, Mykit, QueueServer]
    for adder, popper in itertools.product(adders, adders[::2]):
        async with wires.driver(adder) as into, wires.driver(popper) as out:
            await into.add(topic, b"x")
            job = await taken(out, topic)
            assert job.body == b"x" and await out.finish(job)
    async with wires.driver(QueueServer) as into, wires.native() as native:
        await into.add(topic, b"x")
        assert (await native.ask("pop", topic="%E8%AE%A2%E5%8D%95%20%2541%20%7Bx%7D"))["value"] == "x"


async def test_a_job_that_one_popped_can_be_finished_by_another_but_in_beanstalkd_by_its_holder_only(
    wires: Wires,
) -> None:
    """X1."""
    async with wires.native() as native, wires.driver(Beanstalkd) as one, wires.driver(Beanstalkd) as other:
        added = await one.add("n/q", b"x")
        job = await taken(other, "n/q")
        assert not await one.cancel("n/q", added.name)
        assert (await native.ask("finish", id=f"#{added.name}"))["success"]
        assert not await other.finish(job)

        added = await one.add("n/q", b"x")
        popped = await native.ask("pop", topic="n/q")
        assert popped["id"] == f"#{added.name}"
        assert not await one.cancel("n/q", added.name)
        assert (await native.ask("finish", id=popped["id"], lease=popped["lease"]))["success"]

    async with wires.driver(Lmstfy) as lmstfy, wires.driver(Camellia) as camellia, wires.driver(QueueServer) as third:
        added = await lmstfy.add("n/q", b"x")
        job = await taken(camellia, "n/q")
        assert job.name == f"%{added.name}"
        assert await lmstfy.cancel("n/q", added.name)
        assert not await camellia.is_there("n/q", job.name)

        added = await third.add("n/q", b"x")
        job = await taken(lmstfy, "n/q")
        assert await third.cancel("n/q", added.name)
        assert not await lmstfy.is_there("n/q", job.name)


async def test_camellia_and_lmstfy_ask_for_a_lease_and_the_others_use_the_job_s_own(wires: Wires) -> None:
    """X2: of what a job carries nothing changes by who pops it."""
    async with wires.native(ttr_s=1000) as native:
        for popper, lease_s in ((Native, 1000), (Beanstalkd, 1000), (QueueServer, 1000), (Camellia, 50), (Lmstfy, 50)):
            added = await native.add("n/q", b"x")
            async with wires.driver(popper, ttr_s=50) as out:
                before = time.time()
                job = await taken(out, "n/q")
                got = await native.ask("get", id=added.name)
                assert got["state"] == "reserved" and got["attempt"] == 1 and got["priority"] == 4
                assert before + lease_s - 1 < got["reserved_until"] < job.at + lease_s + 1, popper.NAME
                assert await out.finish(job)


async def test_a_queue_server_job_that_is_popped_natively_comes_again_until_its_tries_are_used_up(
    wires: Wires,
) -> None:
    """X3."""
    now = int(time.time())
    async with wires.driver(QueueServer) as server, wires.native() as native:
        assert (await server.ask(1, queue="n/q", data="x", retry=1, ttl=now + 2))["code"] == 0
        attempts = []

        async def is_dead() -> bool:
            if (job := await native.ask("pop", topic="n/q"))["id"]:
                attempts.append(job["attempt"])
            return bool((await native.ask("stats", topic="n/q"))["counts"]["dead"] == 1)

        await until(is_dead)
        assert attempts in ([1], [1, 2])
        assert (await native.ask("pop", topic="n/q"))["id"] is None


async def test_an_at_most_once_job_is_gone_when_popped_but_where_the_pop_gives_it_a_lease(wires: Wires) -> None:
    """X3: a job with ttr 0."""
    async with wires.driver(QueueServer) as server, wires.native() as native:
        for popper in POPPERS:
            has_lease = popper in (Camellia, Lmstfy)
            assert (await server.ask(1, queue="n/q", data="x", retry=0))["code"] == 0
            async with wires.driver(popper) as out:
                job = await taken(out, "n/q")
                held = (await native.ask("stats", topic="n/q"))["counts"]["reserved"]
                assert held == has_lease, popper.NAME
                if has_lease or popper is Beanstalkd:
                    assert await out.finish(job)


async def test_a_name_reaches_nothing_of_another_prefix(redis_server: RedisServer, redis: Redis) -> None:
    """X4."""
    async with (
        serving(redis_server.url, prefixes={"queue_server": "a.", "beanstalkd": "b.", "camellia": "c."}) as wires,
        wires.driver(QueueServer) as one,
        wires.driver(Beanstalkd) as other,
        wires.driver(Camellia) as third,
        wires.native() as native,
    ):
        added = await one.add("q", b"x")
        assert not await other.cancel("q", added.name)
        assert not await other.is_there("q", added.name)
        for command in ("reserve-job", "kick-job", "peek", "touch", "stats-job"):
            assert await other.say(f"{command} {added.name}") == b"NOT_FOUND"
        second = await other.add("q", b"y")
        await one.cancel("q", second.name)  # it says so always
        assert await other.is_there("q", second.name)
        assert not await third.cancel("q", f"%#{second.name}")
        await third.ask("ackMsg", topic="q", msgId=f"%#{second.name}")
        assert await other.is_there("q", second.name)
        assert {each["topic"] for each in (await native.ask("topics"))["topics"]} == {"a.q", "b.q"}
        assert await one.pop("q") is not None and await one.pop("q") is None
