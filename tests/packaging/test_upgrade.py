"""docs/upgrade.md: an older version and the present one on one Redis, under load, upgraded and downgraded in turn."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from jobqueue.schema.params import Add
from tests.acceptance.load import Load
from tests.kit.ports import free_ports
from tests.kit.redis_server import RedisServer
from tests.kit.service import JOBQUEUE, Client, ServiceProcess
from tests.kit.waiting import until
from tests.packaging.description import Description, lost
from tests.packaging.older import Older, installed

# It installs packages from the registry, on a machine that runs other tests at the same time.
pytestmark = pytest.mark.timeout(900)

# Every field of `add`, so that a job has all that a record can hold.
FULLEST: dict[str, Any] = {
    "body": {"order": [1001, "ü"]},
    "delay": 3600,
    "ttr": 60,
    "priority": 3,
    "tries": 7,
    "backoff": [0.05, 30],
    "ttl": 7200,
    "retention": 600,
    "if_exists": "keep",
    "headers": {"trace": "1"},
    "tags": ["a", "b"],
}
# Given by the tests, another name, not kept, or (`key`) excepted in docs/upgrade.md.
_OTHERWISE = {"topic", "id", "at", "spread", "TTR", "durability", "key"}
# What the present version took away on purpose. The changelog has each; a release empties the list.
GONE = {f"{state!r} as state of the answer to delete" for state in ("dead", "delayed", "finished", "ready", "reserved")}
Program = Sequence[str]


@pytest.fixture(scope="module")
def older(tmp_path_factory: pytest.TempPathFactory) -> Older:
    return installed(tmp_path_factory.mktemp("older"))


async def fsck(program: Program, redis: str) -> Any:
    own = {name: value for name, value in os.environ.items() if not name.startswith("JOBQUEUE_")}
    process = await asyncio.create_subprocess_exec(
        *program, "fsck", "--json", "--redis", redis, stdout=asyncio.subprocess.PIPE, env=own
    )
    output, _ = await process.communicate()
    assert process.returncode == 0, output.decode()
    return json.loads(output)


async def both_find_no_fault(older: Older, redis: str) -> None:
    """Each version's fsck, as it may know of faults that the other does not know."""
    for program in (JOBQUEUE, [older.program]):
        report = await fsck(program, redis)
        assert report["jobs"] > 0
        assert (report["findings"], report["set_aside"]) == ({}, 0)


class Place:
    """A port on which one version runs after the other, as on a host that is upgraded."""

    def __init__(self, port: int, redis: str, log: Path) -> None:
        self.log = log
        self.port = port
        self._redis = redis
        self.service: ServiceProcess | None = None

    async def run(self, program: Program) -> None:
        await self.stop()
        flags = ("--redis", self._redis, "--log-format", "json")
        self.service = ServiceProcess(*flags, port=self.port, log=self.log, program=program)
        await self.service.start()

    async def stop(self) -> None:
        if self.service:
            assert await self.service.stop() == 0, self.log.read_text()

    async def holds_locks(self) -> bool:
        assert self.service
        return await self.service.figure("jobqueue_locks_held") > 0

    def check_log(self) -> None:
        """Nothing failed, and no record was unreadable."""
        lines = [json.loads(line) for line in self.log.read_text().splitlines() if line.startswith("{")]
        assert lines
        assert not [line for line in lines if line.get("level") in ("error", "critical")]
        assert not [line for line in lines if line["event"] in ("job.set_aside", "namespace.lost")]


@asynccontextmanager
async def two_places(redis: str, folder: Path) -> AsyncIterator[list[Place]]:
    places = [Place(port, redis, folder / f"{port}.log") for port in free_ports(2)]
    try:
        yield places
    finally:
        for place in places:
            if place.service:
                await place.service.stop()


async def ok(client: Client, command: str, **fields: Any) -> Any:
    answer = await client.ask(command, **fields)
    assert answer["success"], (command, fields, answer)
    return answer


async def add_fullest(client: Client, job_id: str, topic: str) -> None:
    """Add a job with every field that this version knows."""
    fields = dict(FULLEST)
    while (answer := await client.ask("add", id=job_id, topic=topic, **fields)).get("code") == "UNKNOWN_FIELD":
        del fields[answer["field"]]
    assert answer["success"], answer


async def both_read_alike(one: Client, other: Client, job_id: str) -> Any:
    """What both versions say of a job; a newer one may say more."""
    first, second = await ok(one, "get", id=job_id), await ok(other, "get", id=job_id)
    shared = first.keys() & second.keys()
    assert {"state", "topic"} <= shared
    assert {name: first[name] for name in shared} == {name: second[name] for name in shared}
    return first


async def pop(client: Client, topic: str, job_id: str) -> int:
    answer = await ok(client, "pop", topic=topic, wait=10, worker="w")
    assert (answer["id"], answer["value"]) == (job_id, FULLEST["body"])
    return int(answer["lease"])


async def live(maker: Client, user: Client, name: str) -> None:
    """A job's moves, each made by the other version than the one before; both read the job alike after each."""
    job, topic = f"{name}-full", f"example-{name}"
    await add_fullest(maker, job, topic)
    assert (await both_read_alike(maker, user, job))["state"] == "delayed"
    await ok(user, "update", id=job, priority=5)
    await ok(maker, "update", id=job, body=FULLEST["body"], delay=1800)
    await both_read_alike(maker, user, job)
    await ok(user, "run", id=job)
    lease = await pop(maker, topic, job)
    await both_read_alike(maker, user, job)
    await ok(user, "touch", id=job, lease=lease)
    await ok(
        maker, "release", id=job, lease=lease, reason="first step"
    )  # its first step: a timer of either makes it ready
    lease = await pop(user, topic, job)
    await ok(maker, "release", id=job, lease=lease, delay=0)
    await both_read_alike(maker, user, job)
    lease = await pop(maker, topic, job)
    await ok(user, "bury", id=job, lease=lease, reason="broken")
    assert (await both_read_alike(maker, user, job))["state"] == "dead"
    await ok(maker, "kick", id=job)
    lease = await pop(user, topic, job)
    await ok(maker, "finish", id=job, lease=lease)
    assert (await both_read_alike(maker, user, job))["state"] == "finished"
    assert (await ok(user, "add", id=job, topic=topic, body=1))["result"] == "existing"


async def die(maker: Client, user: Client, name: str) -> None:
    """A lease that ends, a cancelled job, and a life that ends by its tries."""
    job, topic = f"{name}-dies", f"example-{name}-dies"
    await ok(maker, "add", id=job, topic=topic, body=FULLEST["body"], ttr=0.2, tries=2)
    await pop(user, topic, job)
    lease = await pop(maker, topic, job)  # after the end of the first lease
    await both_read_alike(maker, user, job)
    await ok(maker, "touch", id=job, lease=lease, ttr=30)
    await ok(user, "release", id=job, lease=lease)
    assert (await both_read_alike(maker, user, job))["state"] == "dead"
    await ok(maker, "delete", id=job)
    assert (await both_read_alike(maker, user, job))["state"] == "deleted"
    await ok(user, "add", id=job, topic=topic, body=1, delay=60, if_exists="replace")
    assert (await both_read_alike(maker, user, job))["state"] == "delayed"
    await ok(maker, "pause", topic=topic, seconds=600)
    await ok(user, "run", id=job)
    assert (await ok(user, "pop", topic=topic))["id"] is None
    await ok(user, "resume", topic=topic)
    assert (await ok(maker, "pop", topic=topic))["id"] == job


def test_the_fullest_job_has_every_field_of_add() -> None:
    """A new field of a record is thereby tried on the older version."""
    assert set(FULLEST) | _OTHERWISE == set(Add.__struct_fields__)


async def described(place: Place, program: Program) -> Description:
    await place.run(program)
    assert place.service
    async with aiohttp.ClientSession() as session, session.get(place.service.url + "/openapi.json") as answer:
        return Description(await answer.json())


async def test_what_clients_of_the_older_version_use_is_there(
    older: Older, redis_server: RedisServer, redis: object, tmp_path: Path
) -> None:
    async with two_places(redis_server.url, tmp_path) as (first, second):
        old, new = await described(first, [older.program]), await described(second, JOBQUEUE)
    assert len(old.commands) > 10
    assert {*lost(old, new)} == GONE
    assert "token" in [*lost(new, old)], "commands have been added since, and going back would be told"


async def test_each_version_does_with_a_job_what_the_other_began(
    older: Older, redis_server: RedisServer, redis: object, tmp_path: Path
) -> None:
    async with two_places(redis_server.url, tmp_path) as (first, second):
        await first.run([older.program])
        await second.run(JOBQUEUE)
        assert first.service and second.service
        async with Client(first.service.url) as old, Client(second.service.url) as new:
            for maker, user, name in ((old, new, "upgrade"), (new, old, "downgrade")):
                await live(maker, user, name)
                await die(maker, user, name)
            await both_find_no_fault(older, redis_server.url)
        first.check_log()
        second.check_log()


async def test_upgrades_and_downgrades_in_turn_under_load_lose_nothing(
    older: Older, redis_server: RedisServer, redis: object, tmp_path: Path
) -> None:
    old, new = [older.program], JOBQUEUE
    async with two_places(redis_server.url, tmp_path) as (first, second):
        await first.run(old)
        await second.run(old)
        assert first.service and second.service
        load = Load([first.service.url, second.service.url])
        async with load.running():
            # One place after the other, as in the document, and back: in between, both versions work beside each other.
            for place, program in ((first, new), (second, new), (first, old), (second, old)):
                await place.run(program)
                await until(first.holds_locks, within_s=30)
                await until(second.holds_locks, within_s=30)
                done = len(load.finished)
                await until(lambda done=done: len(load.finished) > done + 50, within_s=60)  # type: ignore[misc]
        load.check()
        await both_find_no_fault(older, redis_server.url)
        first.check_log()
        second.check_log()
