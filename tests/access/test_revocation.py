"""A token is revoked, or loses rights, while very many of its pops wait, over three instances of two workers each.

TEST_PARKED is the number of its pops.
"""

from __future__ import annotations

import asyncio
import itertools
import os
import signal
import tempfile
import time
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest
import pytest_asyncio

from buckets.redis.client import Redis
from jobqueue.access.issuing import Issued, new_record
from jobqueue.access.tokens import Record, Token, as_table
from tests.acceptance.worker_processes import lines
from tests.kit.guarded import Guarded, guarded
from tests.kit.service import Client
from tests.kit.waiting import until

pytestmark = pytest.mark.asyncio(loop_scope="module")

PARKED = int(os.environ.get("TEST_PARKED", "200"))
OTHERS = 30
WORKERS = 2
ADDED = 120
WITHIN_S = 30.0  # half of what the pops would wait; see the printed figures


@pytest_asyncio.fixture(scope="module", loop_scope="module", name="guarded")
async def three_instances() -> AsyncIterator[Guarded]:
    """Three instances of two workers each, with a file of tokens, shared by the tests."""
    with tempfile.TemporaryDirectory(prefix="jq-") as name:
        (Path(name) / "tokens.toml").touch()
        settings = f'tokens_file = "{name}/tokens.toml"\n'
        async with guarded(Path(name), settings=settings, instances=3, workers=WORKERS) as services:
            yield services


class Pops:
    """Waiting pops of one token, as many at each instance, and how each of them ended."""

    def __init__(self, guarded: Guarded, issued: Issued, *topics: str) -> None:
        self._topics = topics
        self._clients = [Client(service.url, issued.token.text) for service in guarded.services]
        self._tasks: list[asyncio.Task[None]] = []
        self.errors: Counter[str] = Counter()
        self.jobs: list[Any] = []
        self.last_end = 0.0
        """When the last one ended, by time.monotonic."""

    async def __aenter__(self) -> Pops:
        for client in self._clients:
            await client.__aenter__()
        return self

    async def __aexit__(self, *exception: object) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        for client in self._clients:
            await client.__aexit__()

    def begin(self, number: int) -> None:
        clients = itertools.islice(itertools.cycle(self._clients), number)
        self._tasks += [asyncio.create_task(self._pop(client)) for client in clients]

    async def _pop(self, client: Client) -> None:
        answer = await client.ask("pop", topics=self._topics, wait=60)
        self.last_end = time.monotonic()
        if answer["success"]:
            self.jobs.append(answer)
        else:
            self.errors[answer["code"]] += 1

    async def over(self) -> None:
        async with asyncio.timeout(WITHIN_S):
            await asyncio.gather(*self._tasks)


async def wait_for_parked(guarded: Guarded, number: int) -> None:
    """Wait until so many pops wait at the instances together."""

    async def are_parked() -> bool:
        return sum([await each.figure("jobqueue_parked_pops") for each in guarded.services]) == number

    await until(are_parked, within_s=60, every_s=0.05)


@asynccontextmanager
async def others_work(guarded: Guarded) -> AsyncIterator[None]:
    """Other clients add, pop and finish jobs meanwhile; all of that succeeds."""
    issued = await guarded.token("produce", "consume", "look")
    is_over = False

    async def work(url: str) -> None:
        async with Client(url, issued.token.text) as client:
            while not is_over:
                assert (await client.ask("add", topic="work", body=1))["success"]
                job = await client.ask("pop", topic="work", wait=5)
                assert job["success"], job
                assert (await client.ask("finish", id=job["id"]))["success"]
                await asyncio.sleep(0.02)

    tasks = [asyncio.create_task(work(service.url)) for service in guarded.services]
    yield
    is_over = True
    await asyncio.gather(*tasks)


@asynccontextmanager
async def bell_cut_off(guarded: Guarded) -> AsyncIterator[None]:
    """Nobody hears what Redis publishes, while the block runs."""
    redis = Redis(f"unix://{guarded.folder}/redis.sock")

    async def subscriptions() -> int:
        told: bytes = await redis.read("CLIENT", "LIST", "TYPE", "PUBSUB")
        return len(told.splitlines())

    async def is_cut_off() -> bool:
        return await subscriptions() == 0

    async def is_back() -> bool:
        return await subscriptions() == 2 * len(guarded.services)

    try:
        await redis.read("ACL", "SETUSER", "default", "-ssubscribe", "-subscribe")
        await redis.read("CLIENT", "KILL", "TYPE", "PUBSUB")
        await until(is_cut_off)
        yield
        assert await is_cut_off()
    finally:
        await redis.read("ACL", "SETUSER", "default", "+@all")
        await until(is_back)
        await redis.close()


@asynccontextmanager
async def as_usual(guarded: Guarded) -> AsyncIterator[None]:
    """Everybody hears everything."""
    yield


async def add(guarded: Guarded, issued: Issued, topic: str, number: int) -> list[str]:
    """Add jobs one after the other, at each instance in turn; returns their ids."""
    ids: list[str] = []
    for service in itertools.islice(itertools.cycle(guarded.services), number):
        _, answer = await guarded.ask(issued, {"command": "add", "topic": topic, "body": 1}, service.url)
        ids.append(answer["id"])
    return ids


async def attempts(guarded: Guarded, issued: Issued, ids: list[str]) -> dict[str, tuple[str, int]]:
    """State of each job, and how often it was delivered."""
    _, answers = await guarded.ask(issued, [{"command": "get", "id": each} for each in ids])
    return {each["id"]: (each["state"], each["attempt"]) for each in answers}


BELLS = pytest.mark.parametrize("bell", [as_usual, bell_cut_off])


@BELLS
async def test_a_revocation_ends_all_waiting_pops_of_the_token_and_takes_no_job(guarded: Guarded, bell: Any) -> None:
    topic = f"all-{bell.__name__}"
    revoked, other = await guarded.token("consume"), await guarded.token("consume")
    operator = await guarded.token("produce", "look")
    async with Pops(guarded, revoked, topic) as ending, Pops(guarded, other, topic) as lasting:
        ending.begin(PARKED)
        await wait_for_parked(guarded, PARKED)
        lasting.begin(OTHERS)
        await wait_for_parked(guarded, PARKED + OTHERS)
        async with others_work(guarded), bell(guarded):
            await guarded.issuing.revoke(revoked.record.id)
            done_at = time.monotonic()
            await ending.over()
            print(f"{PARKED} pops, {bell.__name__}: ended {(ending.last_end - done_at) * 1000:.0f} ms after the answer")
            assert ending.errors == {"UNAUTHORIZED": PARKED}
            assert not ending.jobs
        await wait_for_parked(guarded, OTHERS)
        ids = await add(guarded, operator, topic, OTHERS + 5)
        await lasting.over()
        assert not lasting.errors
        taken = {job["id"] for job in lasting.jobs}
        assert len(taken) == OTHERS
        expected = {each: ("reserved", 1) if each in taken else ("ready", 0) for each in ids}
        assert await attempts(guarded, operator, ids) == expected


@pytest.mark.parametrize("number", range(3))
async def test_jobs_that_come_during_a_revocation_are_delivered_once_or_stay_ready(
    guarded: Guarded, number: int
) -> None:
    topic = f"race-{number}"
    revoked, other = await guarded.token("consume"), await guarded.token("consume")
    operator = await guarded.token("produce", "look")
    async with Pops(guarded, revoked, topic) as ending, Pops(guarded, other, topic) as lasting:
        ending.begin(PARKED)
        lasting.begin(OTHERS)
        await wait_for_parked(guarded, PARKED + OTHERS)
        adding = [asyncio.create_task(add(guarded, operator, topic, ADDED // 6)) for _ in range(6)]
        await until(lambda: bool(ending.jobs))
        await guarded.issuing.revoke(revoked.record.id)
        await ending.over()
        ids = [each for some in await asyncio.gather(*adding) for each in some]
        print(f"{len(ending.jobs)} of {ADDED} jobs came before the revocation")
        assert ending.errors == {"UNAUTHORIZED": PARKED - len(ending.jobs)}
        left = min(ADDED - len(ending.jobs), OTHERS)
        await until(lambda: len(lasting.jobs) == left)
        assert not lasting.errors
        delivered = [job["id"] for job in ending.jobs + lasting.jobs]
        assert len({*delivered}) == len(delivered)
        expected = {each: ("reserved", 1) if each in delivered else ("ready", 0) for each in ids}

        async def are_as_expected() -> bool:  # a job that was on its way to an ended pop goes back in a moment
            return await attempts(guarded, operator, ids) == expected

        await until(are_as_expected)


class Filed:
    """A token in the file that all instances read."""

    _numbers: Iterator[int] = itertools.count()

    def __init__(self, guarded: Guarded, **fields: Any) -> None:
        token = Token.make()
        fields = {"name": f"filed-{next(self._numbers)}", "expires": "never", **fields}
        self._guarded = guarded
        self._read_before = self._reads()
        self.issued = Issued(new_record(fields, token, "the test", int(time.time() * 1e6)), token)

    def write(self, **changes: Any) -> None:
        """Write the token with other fields, and have the file read again."""
        record: Record = msgspec.structs.replace(self.issued.record, **changes)
        (self._guarded.folder / "tokens.toml").write_text(as_table(record))
        for service in self._guarded.services:
            service.signal(signal.SIGHUP)

    async def known(self) -> None:
        """Wait until each worker of each instance has read the file once more."""
        readers = WORKERS * len(self._guarded.services)
        await until(lambda: len(self._reads() - self._read_before) == readers)

    def _reads(self) -> Counter[tuple[str, int]]:
        """How often each worker of each instance has read the file."""
        return Counter(
            (log.name, line["process"])
            for log in self._guarded.folder.glob("service-*.log")
            for line in lines(log, "tokens.reloaded")
        )


@pytest.mark.parametrize(
    "lost", [{"topics": ("kept-of-topics",)}, {"rights": ("look",)}], ids=["of-topics", "of-rights"]
)
async def test_pops_that_a_token_may_not_make_any_more_end_as_forbidden(
    guarded: Guarded, lost: dict[str, Any], request: pytest.FixtureRequest
) -> None:
    kept_topic, lost_topic = (f"{kind}-{request.node.callspec.id}" for kind in ("kept", "lost"))
    operator = await guarded.token("produce", "look")
    filed = Filed(guarded, rights=["consume", "look"], topics=[kept_topic, lost_topic])
    filed.write()
    await filed.known()
    async with (
        Pops(guarded, filed.issued, lost_topic) as one,
        Pops(guarded, filed.issued, kept_topic, lost_topic) as both,
        Pops(guarded, filed.issued, kept_topic) as kept,
    ):
        for pops in (one, both, kept):
            pops.begin(30)
        await wait_for_parked(guarded, 90)
        filed.write(**lost)
        await one.over()
        await both.over()
        assert one.errors == both.errors == {"FORBIDDEN": 30}
        may_still_pop = "topics" in lost
        await wait_for_parked(guarded, 30 if may_still_pop else 0)
        ids = await add(guarded, operator, lost_topic, 3)
        assert {*(await attempts(guarded, operator, ids)).values()} == {("ready", 0)}
        await add(guarded, operator, kept_topic, 30)
        await kept.over()
        assert len(kept.jobs) == (30 if may_still_pop else 0)
        assert kept.errors == ({} if may_still_pop else {"FORBIDDEN": 30})
