"""deploy/redis/users.acl: the service needs no more than this user may do, on every kind of Redis, and the user cannot
harm the data of others."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import hiredis
import pytest

from buckets.clock import HeldClock
from buckets.errors import Unfit
from buckets.job import NewJob
from buckets.pool.pool import Pool
from buckets.redis.client import Redis
from jobqueue.schema import params
from tests.acceptance.test_move import move
from tests.buckets.fsck.damage import Damage
from tests.buckets.fsck.test_check import fsck
from tests.buckets.fsck.test_random_damage import build
from tests.kit.ports import free_port
from tests.kit.redis_cluster import ClusterSet
from tests.kit.redis_node import Access, RedisNode, Tls
from tests.kit.redis_sentinels import SentinelSet
from tests.kit.redis_server import binaries, binary, knows_tls
from tests.kit.service import Client, ServiceProcess
from tests.kit.shell import Shell
from tests.operations.every_command import commands_of_jobs, commands_of_tokens
from tests.operations.users_acl import FILE, NEWER, text
from tests.wires.drivers import Driver
from tests.wires.drivers.beanstalkd import Beanstalkd
from tests.wires.drivers.camellia import Camellia
from tests.wires.drivers.lmstfy import Lmstfy
from tests.wires.drivers.mykit import Mykit
from tests.wires.drivers.queue_server import QueueServer
from tests.wires.scenario import play
from tests.wires.serving import serving

ADMIN = Access("", "the-admins-word")
QUEUE = Access("jobqueue", "the-queues-word")
SETTINGS = 'replicas = 1\n[virtual_topics]\nboth = ["u", "v"]\n'


def user_line(*more: str) -> str:
    """The user of the file with its password, as a line of a server's configuration."""
    line = FILE.read_text().splitlines()[1]
    return " ".join([line.replace("resetpass", f">{QUEUE.password}"), *more])


def tls(folder: Path) -> Tls | None:
    """Certificates, if the server that the sets use was built with TLS."""
    return Tls(folder / "tls") if knows_tls(binary()) else None


def _newer(server: str) -> list[str]:
    return [] if "redis-server" in server else [f"+{each}" for each in sorted(NEWER)]


@asynccontextmanager
async def one(folder: Path, name: str, *more: str, server: str | None = None) -> AsyncIterator[RedisNode]:
    """A server with the user, which keeps an append-only file and syncs it always. `more` rules are the user's too."""
    lines = [user_line(*more), "appendonly yes", "appendfsync always", "no-appendfsync-on-rewrite no"]
    node = RedisNode(folder / name, free_port(), lines, ADMIN, server=server)
    await node.start()
    try:
        yield node
    finally:
        node.kill()


def url_of(node: RedisNode) -> str:
    return f"redis://{QUEUE.in_url}{node.address}"


async def refused(nodes: Sequence[RedisNode]) -> list[Any]:
    """What the servers noted as refused to somebody."""
    return [entry for node in nodes if node.alive for entry in await node.ask("ACL", "LOG")]


def test_the_file_names_the_commands_that_are_in_the_code() -> None:
    written, made = set(FILE.read_text().split()), set(text().split())
    told = f"missing: {sorted(made - written)}, too many: {sorted(written - made)}; `make acl` corrects the file"
    assert FILE.read_text() == text(), told


@pytest.mark.parametrize("server", binaries())
async def test_every_server_loads_the_file(tmp_path: Path, server: str) -> None:
    (tmp_path / "users.acl").write_text(FILE.read_text().replace("user default off", "user default on nopass"))
    node = RedisNode(tmp_path / "node", free_port(), [f"aclfile {tmp_path}/users.acl"], server=server)
    await node.start()
    try:
        users = await node.ask("ACL", "LIST")
        assert len(users) == 2
        with pytest.raises(hiredis.ReplyError, match="WRONGPASS"):  # nobody, until a password is put in
            await node.ask("AUTH", "jobqueue", "resetpass")
    finally:
        node.kill()


@pytest.mark.parametrize("server", binaries())
async def test_no_job_is_lost_when_redis_restarts_with_the_users_of_the_file(tmp_path: Path, server: str) -> None:
    """A server reads its append-only file as the user `default`, though that is off."""
    lines = [FILE.read_text().splitlines()[0], user_line(), "appendonly yes", "appendfsync always"]
    node = RedisNode(tmp_path / "node", free_port(), lines, Access("admin", "word"), server=server)
    await node.start()
    try:
        redis = Redis(url_of(node))
        pool = await Pool.open(redis)
        ids = [f"{number}" for number in range(20)]
        await pool.add([NewJob(each, "t", b"1", delay_ms=60_000) for each in ids])
        node.kill()
        await node.start()
        assert [each for each in ids if await pool.get(each) is None] == []
        await pool.close()
        await redis.close()
    finally:
        node.kill()


async def all_of_it(url: str, *dialects: type[Driver]) -> None:
    """A service with two workers: every command, some dialects, and an operator's commands beside it."""
    async with serving(url, workers=2, more=SETTINGS) as wires:
        switched = await Shell(wires.service.url).run("journal", "on", "--touches", "--redis", url)
        assert switched.code == 0, switched
        said = await commands_of_jobs(wires)
        await play(wires, *dialects)
        checked = await Shell(wires.service.url).run("check", "--redis", url, "--port", str(wires.port("native")))
        assert checked.code == 0, checked
        assert "ok   events: on; entries" in checked.out
        switched = await Shell(wires.service.url).run("journal", "off", "--redis", url)
        assert switched.code == 0, switched
        assert not [words for words in ("does not show", "does not say", "may not run") if words in checked.out]
    said |= await commands_of_tokens(url)
    assert said == params.BY_NAME.keys()


@pytest.mark.parametrize("server", binaries())
async def test_a_service_is_refused_nothing_on_one_redis(tmp_path: Path, server: str) -> None:
    rules = _newer(server)
    async with (
        one(tmp_path, "old", *rules, server=server) as old,
        one(tmp_path, "new", *rules, server=server) as new,
    ):
        await all_of_it(url_of(old), Beanstalkd, Camellia, Lmstfy, Mykit)
        await all_of_it(url_of(new), QueueServer)  # alone: its times are whole seconds
        async with ServiceProcess("--redis", url_of(old)) as service, Client(service.url) as client:
            for delay in (0, 3600):
                await client.ask("add", topic="t", body=1, delay=delay)
        code, _, complaint = await move(url_of(old), url_of(new))
        assert (code, complaint) == (0, "")
        await damages_are_mended(new)
        assert await refused([old, new]) == []


async def damages_are_mended(node: RedisNode, rounds: int = 40) -> None:
    """Damage the data as an administrator, and repair it as the user."""
    admin, own = Redis(node.url), Redis(url_of(node))
    found: set[str] = set()
    for seed in range(rounds):
        clock = HeldClock()
        pool = await build(admin, clock)
        damage = await Damage(admin, pool, random.Random(seed)).do()
        try:
            report = await fsck(Pool(own, pool.namespace, 1, pool.buckets, clock), repair=True)
        except Unfit:
            continue  # a namespace that claims another version
        assert report.faults == 0, damage
        found |= report.findings.keys()
    assert len(found) > 8, found
    shell = Shell("")
    assert (await shell.run("fsck", "--repair", "--redis", url_of(node))).code == 0
    for redis in (admin, own):
        await redis.close()


async def test_a_service_is_refused_nothing_by_sentinels_servers_over_tls_not_after_a_failover_either(
    tmp_path: Path,
) -> None:
    options = (user_line(), "appendonly yes")
    async with SentinelSet(*options, access=ADMIN, tls=tls(tmp_path)) as sentinels:
        url = sentinels.url_for(QUEUE)
        await all_of_it(url, Beanstalkd, Lmstfy)
        async with ServiceProcess("--redis", url, workers=2) as service, Client(service.url) as client:
            assert (await client.ask("add", topic="t", id="a", body=1, durability="replicated"))["success"]
            waiting = asyncio.create_task(client.insist("pop", topic="later", wait=30))
            old = await sentinels.master()
            old.kill()
            await sentinels.failed_over(old)
            assert (await client.insist("pop", topic="t", wait=20))["id"] == "a"
            assert (await client.insist("add", topic="later", id="b", body=1))["success"]
            assert (await waiting)["id"] == "b"
        assert await refused([*sentinels.servers, *sentinels.sentinels]) == []


async def test_a_service_is_refused_nothing_on_a_cluster_over_tls_whose_slots_move(tmp_path: Path) -> None:
    async with ClusterSet(user_line(), access=ADMIN, tls=tls(tmp_path)) as cluster:
        url = cluster.url_for(QUEUE)
        await all_of_it(url, Beanstalkd, Lmstfy)
        async with ServiceProcess("--redis", url, workers=2) as service, Client(service.url) as client:
            waiting = asyncio.create_task(client.insist("pop", topic="t", count=20, wait=30))
            for shard in range(3):
                await cluster.move_back_and_forth(f"{{jq:{shard}}}:meta")
            await client.insist("add", topic="t", id="a", body=1)
            assert [job["id"] for job in (await waiting)["jobs"]] == ["a"]
            old = await cluster.some_master(0)
            old.kill()
            await cluster.failed_over(old)
            assert (await client.insist("add", topic="t", id="b", body=1))["success"]
        assert await refused(cluster.nodes) == []


OTHERS = [
    ("GET", "theirs"),
    ("SET", "{jqx:0}:meta", "1"),
    ("DEL", "jq"),
    ("DUMP", "theirs"),
    ("MGET", "{jq:0}:meta", "theirs"),
    ("EVAL", "return redis.call('GET', KEYS[1])", 1, "theirs"),
    ("EVAL", "return redis.call('GET', 'theirs')", 0),
    ("EVAL", "return redis.call('FLUSHALL')", 0),
    ("SPUBLISH", "theirs", "word"),
    ("SSUBSCRIBE", "theirs"),
    ("PUBLISH", "{jq:0}:bell", "word"),
    ("SUBSCRIBE", "theirs"),
    ("RENAME", "{jq:0}:meta", "theirs"),
    ("COPY", "{jq:0}:meta", "{jq:0}:theirs"),
    *(("KEYS", "*"), ("FLUSHALL",), ("FLUSHDB",), ("RANDOMKEY",), ("MONITOR",), ("SAVE",)),
    *(("CONFIG", "SET", "appendonly", "no"), ("CONFIG", "REWRITE"), ("SHUTDOWN",), ("REPLICAOF", "NO", "ONE")),
    *(("ACL", "LIST"), ("ACL", "SETUSER", "jobqueue", "+@all"), ("CLIENT", "LIST"), ("CLIENT", "KILL", "ID", 1)),
    *(("SCRIPT", "FLUSH"), ("FUNCTION", "LIST"), ("MODULE", "LIST"), ("SWAPDB", 0, 1), ("PSYNC", "?", -1)),
]


async def test_the_keys_channels_and_servers_of_others_are_out_of_reach(tmp_path: Path) -> None:
    async with one(tmp_path, "redis") as node:
        await node.ask("SET", "theirs", "kept")
        for command in OTHERS:
            with pytest.raises(hiredis.ReplyError, match=r"NOPERM|ACL failure|can't (access|run)"):
                await node.ask(*command, by=QUEUE)
        assert await node.ask("GET", "theirs") == "kept"
        assert await node.ask("CONFIG", "GET", "appendonly") == ["appendonly", "yes"]
        assert await refused([node])


async def test_a_service_that_may_not_read_the_configuration_says_what_it_cannot_see(tmp_path: Path) -> None:
    async with one(tmp_path, "redis", "-config|get") as node:
        log = tmp_path / "log"
        async with ServiceProcess("--redis", url_of(node), log=log) as service, Client(service.url) as client:
            added = await client.ask("add", topic="t", body=1, durability="fsynced")
            assert (added["success"], added["durability"]) == (True, "local")
            assert (await client.ask("pop", topic="t"))["id"] == added["id"]
        assert "Redis does not show how often it syncs its append-only file (appendfsync)" in log.read_text()
