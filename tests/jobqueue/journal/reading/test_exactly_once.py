"""Exactly once, in order: whoever is killed, SQL has each move that was made once, and as a path of states."""

from __future__ import annotations

import asyncio
import contextlib
import random
import tempfile
from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from buckets.job import LIVE, MOVES, State, Verb
from buckets.pool.pool import Pool
from buckets.record import unpack
from buckets.redis.client import Redis
from jobqueue.journal.tables import minute, schedule
from tests.buckets.events import scheduled
from tests.jobqueue.journal.conftest import Database
from tests.jobqueue.journal.reading.conftest import of_server
from tests.jobqueue.journal.reading.drained import Journal, opened, switched_on
from tests.jobqueue.journal.reading.process import JournalProcess, journal
from tests.kit.databases import Server
from tests.kit.redis_server import RedisServer
from tests.kit.service import Client, ServiceProcess
from tests.kit.waiting import until

TOPICS = ("t", "u")
WORKERS, PRODUCERS, OPERATORS = 6, 3, 2
_LEASE_S = 0.3
_TURNS = 400  # of the load, between two kills


class Load:
    """Producers, workers and operators of a service, who do all that may be done to jobs, at random."""

    def __init__(self, client: Client, seed: int) -> None:
        self._client = client
        self._random = random.Random(seed)
        self._ids: list[str] = []
        self._turns = 0
        self._stopping = False

    async def run(self) -> None:
        people = [self._produce] * PRODUCERS + [self._work] * WORKERS + [self._operate] * OPERATORS + [self._plan]
        async with asyncio.TaskGroup() as group:
            for person in people:
                group.create_task(self._repeat(person))

    def stop(self) -> None:
        self._stopping = True

    async def more(self, turns: int) -> None:
        """Wait until so many more turns have succeeded."""
        wanted = self._turns + turns
        await until(lambda: self._turns >= wanted)

    async def _repeat(self, turn: Callable[[], Awaitable[None]]) -> None:
        while not self._stopping:
            with contextlib.suppress(aiohttp.ClientError, OSError, KeyError, TimeoutError):
                await turn()
                self._turns += 1
            await asyncio.sleep(self._random.random() / 200)

    async def _produce(self) -> None:
        chance = self._random
        is_again = bool(self._ids) and chance.random() < 0.2
        job_id = chance.choice(self._ids) if is_again else f"job-{len(self._ids)}"
        if not is_again:
            self._ids.append(job_id)
        await self._client.ask(
            "add",
            id=job_id,
            topic=chance.choice(TOPICS),
            body="x" * chance.choice((1, 100, 6_000)),
            delay=chance.choice((0, 0, 0.02, 0.3)),
            ttr=_LEASE_S,
            tries=3,
            backoff=[0.01],
            retention=chance.choice((0, 60)),
            if_exists=chance.choice(("keep", "replace", "renew", "later", "sooner")),
        )

    async def _work(self) -> None:
        chance = self._random
        job = await self._client.ask("pop", topics=list(TOPICS), wait=0.2)
        lease = {"id": job["id"], "lease": job["lease"]}
        what = chance.random()
        if what < 0.1:
            return  # its lease will end
        if what < 0.2:
            await self._client.ask("touch", **lease)
        if what < 0.3:
            await self._client.ask("release", **lease, delay=chance.choice((0, 0.05)), reason="not now")
        elif what < 0.4:
            await self._client.ask("bury", **lease, reason="no")
        else:
            await self._client.ask("finish", **lease)

    async def _operate(self) -> None:
        chance, ask = self._random, self._client.ask
        job_id = chance.choice(self._ids) if self._ids else "none"
        what = chance.choice(("delete", "kick", "run", "update", "rewrite", "pause", "resume"))
        if what in ("pause", "resume"):
            await ask(what, topic="u")
        elif what == "update":
            await ask("update", id=job_id, priority=chance.randrange(10))
        elif what == "rewrite":
            await ask("update", id=job_id, body="new")
        else:
            await ask(what, id=job_id)

    async def _plan(self) -> None:
        chance, ask = self._random, self._client.ask
        name = chance.choice("xyz")
        await asyncio.sleep(chance.random() / 2)
        if chance.random() < 0.2:
            await ask("unschedule", name=name)
        else:
            overlap = chance.choice(("allow", "skip"))
            await ask("schedule", name=name, topic=chance.choice(TOPICS), body=1, every=1, start=1e9, overlap=overlap)


class Stage:
    """A Redis that loses nothing when it is killed, a service, a journal, and the load."""

    def __init__(self, folder: Path, database: Database) -> None:
        self.redis = RedisServer(folder, "--appendonly", "yes", "--appendfsync", "always")
        self.database = database
        self.service = ServiceProcess("--redis", self.redis.url, log=folder / "service.log")
        self.process = JournalProcess(self.redis.url, database.url, folder / "journal.log", "--batch", "200")

    async def kill_journal(self) -> None:
        await self.process.kill()
        await self.process.start()

    async def kill_database(self) -> None:
        if self.database.server:
            self.database.server.kill()
            await asyncio.to_thread(self.database.server.start)

    async def kill_redis(self) -> None:
        self.redis.kill()
        await asyncio.to_thread(self.redis.start)


async def survive(folder: Path, database: Database, kills: dict[str, int], seed: int = 1) -> None:
    """Kill under load, then compare."""
    stage = Stage(folder, database)
    stage.redis.start()
    redis = Redis(stage.redis.url)
    try:
        await stage.service.start()
        pool = await Pool.open(redis)
        await switched_on(pool)
        async with opened(pool, database.url, stage.redis.url) as kept, Client(stage.service.url) as client:
            await stage.process.start()
            await kept.until_drained()
            load = Load(client, seed)
            loading = asyncio.create_task(load.run())
            victims = [victim for victim, number in kills.items() for _ in range(number)]
            random.Random(seed).shuffle(victims)
            for victim in victims:
                await load.more(_TURNS)
                await getattr(stage, f"kill_{victim}")()
            await load.more(_TURNS)
            load.stop()
            await loading
            await stage.service.stop()  # and with it the timers
            await kept.until_drained(60)
            await must_be_paths(kept)
            await must_be_as_in_redis(kept, pool)
            code, text = await journal("check", "--redis", stage.redis.url, "--to", database.url)
            assert code == 0, text
            assert await stage.process.stop() == 0
    finally:
        await stage.process.kill()
        await stage.service.kill()
        await redis.close()
        stage.redis.kill()


async def must_be_paths(kept: Journal) -> None:
    """Each event goes on from where the one before it ended: none is missing, none is there twice."""
    by_id: dict[str, list[dict[str, Any]]] = defaultdict(list)
    events = await kept.events()
    print(len(events), "events", {Verb(row["verb"]).word for row in events})
    places = [(row["ms"], row["seq"], row["n"]) for row in events]
    assert places == sorted(set(places))
    for row in events:
        if row["id"] and not row["id"].startswith("~"):
            by_id[row["id"]].append(row)
    assert len({row["verb"] for row in events}) >= 12, "the load does too little"
    for job_id, rows in by_id.items():
        state: int = 0
        for row in rows:
            before = state if state in LIVE else 0
            assert row["state_before"] == before, (job_id, Verb(row["verb"]), row, rows)
            assert (State(before) if before else None, State(row["state_after"])) in MOVES, (job_id, row)
            state = row["state_after"]
    assert [row["kind"] for row in await kept.gaps()] == [3]
    of_schedules = [row for row in events if row["id"].startswith("~")]
    assert sum(row["events"] for row in await kept.rows(minute)) == len(events) - len(of_schedules)
    must_take_turns(of_schedules, [row for row in events if "@" in row["id"] and row["verb"] == Verb.ADD])


def must_take_turns(events: list[dict[str, Any]], added: list[dict[str, Any]]) -> None:
    """No time of a schedule that is not there, and each occurrence is told beside its schedule, once."""
    print(len(events), "events of schedules", {Verb(row["verb"]).word for row in events})
    lives: dict[str, bool] = defaultdict(bool)
    for row in events:
        assert row["verb"] == Verb.SCHEDULE or lives[row["id"]], row
        lives[row["id"]] = row["verb"] != Verb.UNSCHEDULE
    places = {(row["ms"], row["seq"], row["id"].removeprefix("~")) for row in events if row["verb"] == Verb.OCCUR}
    assert added and {(row["ms"], row["seq"], row["id"].partition("@")[0]) for row in added} <= places
    assert len({row["id"] for row in added}) == len(added)


async def must_be_as_in_redis(kept: Journal, pool: Pool) -> None:
    """The newest event of each job has left it as it is."""
    jobs = await kept.jobs()
    known = 0
    for job_id, row in jobs.items():
        raw = await pool.redis.read("GET", pool.keys[0].job(job_id))
        if raw is None:
            assert row["state"] in (State.FINISHED, State.DELETED), (job_id, row)
            continue
        record = unpack(job_id, raw)
        there = (row["life"], row["state"], row["next"], row["attempts"], row["deliveries"], row["lease"])
        assert there == (
            *(record.created, record.state, record.next),
            *(record.attempts, record.deliveries, record.lease),
        ), job_id
        if record.state in LIVE and row["body_kept"] == 1:
            assert row["body"].encode() == record.body
        known += 1
    assert known > 50
    live = {row["name"]: row for row in await kept.rows(schedule) if row["gone"] is None}
    assert {name: (each.revision, each.next, each.last) for name, each in (await scheduled.there(pool)).items()} == {
        name: (row["revision"], row["next"], row["last"]) for name, row in live.items()
    }


async def test_each_move_is_in_sqlite_once_though_journal_and_redis_are_killed(
    socket_folder: Path, sqlite_url: str
) -> None:
    await survive(socket_folder, Database("sqlite", sqlite_url, None), {"journal": 2, "redis": 2})


async def test_each_move_is_on_a_server_once_though_it_and_the_journal_are_killed(
    socket_folder: Path, postgresql: Server
) -> None:
    await survive(socket_folder, of_server(postgresql), {"journal": 1, "database": 2}, seed=2)


@pytest.fixture
def socket_folder() -> Iterator[Path]:
    """A folder whose path is short enough for a socket."""
    with tempfile.TemporaryDirectory(prefix="jq-") as folder:
        yield Path(folder)


@pytest.mark.slow
async def test_each_move_is_in_the_journal_once_through_many_kills(
    socket_folder: Path, journal_database: Database
) -> None:
    await survive(socket_folder, journal_database, {"journal": 20, "database": 10, "redis": 10}, seed=3)
