"""docs/redis-lost.md: its commands, step by step, while a service runs and a worker goes on."""

from __future__ import annotations

import contextlib
import json
import re
import sqlite3
import tempfile
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import pytest
from sqlalchemy import select

from buckets.pool.pool import Pool
from buckets.redis.client import Redis
from jobqueue.journal import tables
from jobqueue.journal.database import open_engine
from jobqueue.journal.reading.verdict import FORGOTTEN
from tests.jobqueue.journal.restoring.lost import World
from tests.jobqueue.journal.restoring.under_load import process
from tests.kit.redis_server import RedisServer
from tests.kit.service import Client, ServiceProcess
from tests.kit.waiting import until
from tests.operations.documents import commands, shell

_DOCUMENT = "redis-lost.md"
_HOUR_S = 3600


class Site:
    """A service, its Redis, its journal and the process that drains into it."""

    def __init__(self, folder: Path, redis: RedisServer, client: Client) -> None:
        self.folder, self.redis, self.client = folder, redis, client
        self.exports = f"export JOBQUEUE_REDIS={redis.url} JOBQUEUE_JOURNAL=sqlite:///{folder}/journal.db\n"

    async def does(self, heading: str, number: int = 0) -> str:
        """What the commands of a step print."""
        return await shell(self.exports + commands(_DOCUMENT, heading, number), self.folder)

    async def add(self, topic: str, job_id: str, **fields: object) -> None:
        answer = await self.client.insist("add", topic=topic, id=job_id, body={"id": job_id}, **fields)
        assert answer["success"], answer

    @asynccontextmanager
    async def world(self) -> AsyncIterator[World]:
        """Redis and the journal themselves."""
        redis, engine = Redis(self.redis.url), await open_engine(f"sqlite:///{self.folder}/journal.db")
        pool = await Pool.open(redis)
        try:
            yield World(pool, engine)
        finally:
            await pool.close()
            await redis.close()
            await engine.dispose()

    async def drained(self) -> None:
        """Wait until the journal has all that was told."""
        async with self.world() as world:
            await world.drained()


@pytest.fixture
def folder() -> Iterator[Path]:
    """A folder with a short path: sockets are in it."""
    with tempfile.TemporaryDirectory(prefix="jq-") as made:
        yield Path(made)


@asynccontextmanager
async def site(folder: Path, redis: RedisServer, *, switches_on: bool = True) -> AsyncIterator[Site]:
    journal = f"sqlite:///{folder}/journal.db"
    async with AsyncExitStack() as stack:
        service = await stack.enter_async_context(ServiceProcess("--redis", redis.url))
        made = Site(folder, redis, await stack.enter_async_context(Client(service.url)))
        if switches_on:
            await shell(f"{made.exports}jobqueue journal on", folder)
        await stack.enter_async_context(process("journal", "run", redis=redis.url, journal=journal))
        await until(lambda: begins(folder / "journal.db"), 60.0, 0.05)
        yield made


def begins(journal: Path) -> bool:
    """Whether the process that drains has come to its first position."""
    with contextlib.suppress(sqlite3.OperationalError), contextlib.closing(sqlite3.connect(journal)) as connection:
        return bool(connection.execute("SELECT count(*) FROM jq_position").fetchone()[0])
    return False


async def fill(site: Site) -> int:
    """Jobs that wait, one that is with its worker, one that is dead, one that was finished; the lease of the second."""
    for number in range(300):
        await site.add("later", f"later-{number}", delay=_HOUR_S)
    await site.add("now", "finished", retention=0)
    await site.client.ask("finish", id=(await site.client.ask("pop", topic="now"))["id"])
    await site.add("now", "dead")
    await site.client.ask("bury", id=(await site.client.ask("pop", topic="now"))["id"])
    await site.add("now", "held", ttr=_HOUR_S)
    lease: int = (await site.client.ask("pop", topic="now"))["lease"]
    await site.add("now", "ready")
    await site.drained()
    return lease


async def check(site: Site, lease: int) -> None:
    assert (await site.client.ask("get", id="later-299"))["value"] == {"id": "later-299"}
    assert (await site.client.ask("get", id="finished"))["code"] == "NOT_FOUND"
    assert (await site.client.ask("finish", id="held", lease=lease))["success"]
    assert (await site.client.ask("pop", topic="now", wait=30))["id"] == "ready"


async def is_found(site: Site) -> bool:
    """Whether the service has founded its namespace again."""
    return bool((await site.client.ask("stats")).get("success"))


async def test_jobs_come_back_to_a_redis_that_came_back_empty(folder: Path, own_server: RedisServer) -> None:
    async with site(folder, own_server) as here:
        lease = await fill(here)
        own_server.kill()
        own_server.start()
        await until(lambda: is_found(here), 30.0)
        lost = "bad  jobs: the journal knows 302 live jobs that Redis does not: docs/redis-lost.md"
        assert lost in await here.does("1. What has happened?")
        assert "302 looked at, 302 would come back (1 overdue)" in await here.does("3. What would come back?")
        assert "302 came back" in await here.does("4. Bring them back")
        assert "1 came back" in await here.does("4. Bring them back", 1)
        assert (await here.client.ask("get", id="dead"))["state"] == "dead"
        well = await here.does("5. See that all is well")
        assert " 0 would come back" in well and "the journal knows" not in well
        await check(here, lease)


async def test_tokens_come_back_that_no_instance_knows_any_more(folder: Path, own_server: RedisServer) -> None:
    exports = f"export JOBQUEUE_REDIS={own_server.url} JOBQUEUE_JOURNAL=sqlite:///{folder}/journal.db\n"
    (folder / "jobqueue.toml").write_text('access = "tokens"\n')
    flags = ("--redis", own_server.url, "--config", str(folder / "jobqueue.toml"))
    async with contextlib.AsyncExitStack() as stack:
        async with ServiceProcess(*flags) as service:
            journal = process("journal", "run", redis=own_server.url, journal=f"sqlite:///{folder}/journal.db")
            await stack.enter_async_context(journal)
            made = await shell(
                f"{exports}jobqueue journal on\njobqueue token create kept --may produce,look\n"
                "jobqueue token create gone --may produce",
                folder,
            )
            kept, gone = re.findall(r"^jqt_\w+$", made, re.M)
            await shell(f"{exports}jobqueue token revoke {gone[4:12]}", folder)
            async with Client(service.url, kept) as client:
                await client.insist("add", topic="t", id="a", body=1)
            await until(lambda: has_tokens(folder / "journal.db", {kept[4:12]: False, gone[4:12]: True}), 30.0, 0.05)
        own_server.kill()
        own_server.start()
        async with ServiceProcess(*flags) as service, Client(service.url, kept) as client:
            assert await status(client) == 401
            checked = await shell(f"{exports}JOBQUEUE_ACCESS=tokens jobqueue check || true", folder)
            assert "bad  access: no token exists" in checked and checked.count("jobqueue restore --tokens") == 1
            step = exports + commands(_DOCUMENT, "4. Bring them back", 2)
            listed = f"\n{kept[4:12]}  kept\n"
            told = await shell(step, folder)
            assert told.count(listed) == 2 and gone[4:12] not in told
            assert not any(each in told for each in (kept, gone))
            await until(lambda: is_allowed(client))
            async with Client(service.url, gone) as other:
                assert await status(other) == 401


async def status(client: Client) -> int:
    return (await client.post(b'{"command": "topics"}'))[0]


async def is_allowed(client: Client) -> bool:
    return await status(client) == 200


def has_tokens(journal: Path, wanted: dict[str, bool]) -> bool:
    """Whether the journal has just these tokens, by id whether each is revoked."""
    with contextlib.suppress(sqlite3.OperationalError), contextlib.closing(sqlite3.connect(journal)) as connection:
        rows = connection.execute("SELECT id, record FROM jq_token").fetchall()
        return {token_id: bool(json.loads(record).get("revoked")) for token_id, record in rows} == wanted
    return False


async def test_jobs_come_back_to_another_redis(folder: Path, own_server: RedisServer) -> None:
    async with site(folder, own_server) as old:
        lease = await fill(old)
    with tempfile.TemporaryDirectory(prefix="jq-") as made, RedisServer(Path(made)) as redis:
        async with site(folder, redis, switches_on=False) as new:
            await new.does("2. A Redis, and the service on it")
            assert "302 came back" in await new.does("4. Bring them back")
            await check(new, lease)


async def test_what_a_failover_forgot_is_healed(folder: Path, own_server: RedisServer) -> None:
    async with site(folder, own_server) as here:
        await here.add("now", "first")
        await here.add("now", "second")
        await here.drained()
        async with here.world() as world:
            await world.pool.redis.read("SAVE")
        popped = await here.client.ask("pop", topic="now")
        assert (await here.client.ask("finish", id=popped["id"], lease=popped["lease"]))["success"]
        await here.add("later", "added", delay=_HOUR_S)
        await here.drained()
        own_server.kill()
        own_server.start()
        await until(lambda: has_gone_back(here), 30.0, 0.05)
        assert "2 looked at, 1 would come back\n1 would end again" in await here.does("6. After a failover")
        assert "2 looked at, 1 came back\n1 ended again" in await here.does("6. After a failover", 1)
        assert (await here.client.ask("get", id="added"))["state"] == "delayed"
        assert (await here.client.ask("get", id=popped["id"]))["state"] == "finished"


async def has_gone_back(site: Site) -> bool:
    async with site.world() as world, world.engine.connect() as connection:
        found = await connection.execute(select(tables.gap.c.number).where(tables.gap.c.kind == FORGOTTEN))
        return bool(found.all())
