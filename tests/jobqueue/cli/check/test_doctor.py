"""`jobqueue doctor`, and that its bundle holds what helps and nothing that is secret."""

from __future__ import annotations

import stat
import tarfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import NamedTuple

from buckets.access import Tokens
from buckets.pool.pool import Pool
from buckets.redis.client import Redis
from jobqueue import __version__
from jobqueue.access.issuing import Issued, Issuing
from tests.kit.forked import Ran
from tests.kit.ports import free_port, free_ports
from tests.kit.redis_node import HOST, Access, RedisNode, until_servers
from tests.kit.redis_server import RedisServer
from tests.kit.service import Client, ServiceProcess
from tests.kit.shell import Shell

PASSWORD, DIALECT = "Xm1password", "Xm2dialecttoken"
BODY, ID, REASON = "Xm3body", "Xm4id", "Xm5reason"


class Ward(NamedTuple):
    """A service that asks for tokens, over a Redis with a password and a replica, with a dead letter."""

    service: ServiceProcess
    config: Path
    replica_port: int
    all: Issued
    narrow: Issued

    async def doctor(self, token: Issued | None, *arguments: str) -> Ran:
        shown = {} if token is None else {"JOBQUEUE_TOKEN": token.token.text}
        return await Shell(self.service.url, **shown).run("doctor", *arguments)

    @property
    def local(self) -> tuple[str, ...]:
        """The settings of the service."""
        return ("--config", str(self.config), "--port", str(self.service.port))


@asynccontextmanager
async def ward(folder: Path) -> AsyncIterator[Ward]:
    access = Access("jobqueue", PASSWORD)
    master, replica, dialect = free_ports(3)
    config = folder / "jobqueue.toml"
    url = f"redis://{access.in_url}{HOST}:{master}"
    config.write_text(
        f'access = "tokens"\nredis = "{url}"\n[protocols.camellia]\nport = {dialect}\ntoken = "{DIALECT}"\n'
    )
    first = RedisNode(folder / "master", master, ["save ''"], access)
    second = RedisNode(folder / "replica", replica, ["save ''", f"replicaof {HOST} {master}"], access)
    await first.start()
    await second.start()
    redis = Redis(url)
    try:
        await until_servers(lambda: _has_replica(first))
        issuing = Issuing(Tokens(await Pool.open(redis)))
        made = [
            await issuing.create({"name": name, "rights": rights}, "test")
            for name, rights in (("all", ["admin"]), ("narrow", ["add"]))
        ]
        async with ServiceProcess("--config", str(config)) as service:
            async with Client(service.url, made[0].token.text) as client:
                await client.ask("add", topic="t", id=ID, body=BODY, headers={"h": BODY})
                lease = (await client.ask("pop", topic="t", wait=5))["lease"]
                assert (await client.ask("bury", id=ID, lease=lease, reason=REASON))["success"]
            yield Ward(service, config, replica, *made)
    finally:
        await redis.close()
        second.kill()
        first.kill()


async def _has_replica(node: RedisNode) -> bool:
    return "state=online" in await node.ask("INFO", "replication")


def files_of(bundle: Path) -> dict[str, str]:
    """The texts in a bundle by name."""
    with tarfile.open(bundle) as archive:
        found = {each.name.removeprefix("jobqueue-doctor/"): archive.extractfile(each) for each in archive}
        return {name: file.read().decode() for name, file in found.items() if file}


async def test_the_bundle_helps_and_shows_no_secret_and_no_job(tmp_path: Path) -> None:
    bundle, less = tmp_path / "bundle.tar.gz", tmp_path / "less.tar.gz"
    (tmp_path / "elsewhere").write_text("kept")
    bundle.symlink_to(tmp_path / "elsewhere")  # that someone else has laid there
    async with ward(tmp_path) as sick:
        ran = await sick.doctor(sick.all, *sick.local, "--bundle", str(bundle))
        assert ran.code == 0, ran
        assert f"{ID} (buried, {REASON})" in ran.out  # who runs it may see jobs
        assert f"figures: version {__version__}; instances: 1; calls of Redis: " in ran.out
        narrow = await sick.doctor(sick.narrow, "--bundle", str(less))
        nobody = await sick.doctor(None)
    files = files_of(bundle)
    assert set(files) == {"versions.txt", "check.txt", "settings.txt", "redis.txt", "metrics.txt"}
    assert f"jobqueue {__version__}\nPython 3." in files["versions.txt"] and "aiohttp 3." in files["versions.txt"]
    assert "dead letter; the newest died" in files["check.txt"]
    assert f"redis = 'redis://{HOST}:" in files["settings.txt"] and "access = 'tokens'" in files["settings.txt"]
    assert "maxmemory_policy:noeviction" in files["redis.txt"] and "connected_slaves:1" in files["redis.txt"]
    assert "jobqueue_build_info{" in files["metrics.txt"] and "jobqueue_locks_held" in files["metrics.txt"]
    assert 'topic="t"' not in files["metrics.txt"] and 'token="all"' not in files["metrics.txt"]
    everything = "\n".join(files.values())
    for secret in (PASSWORD, DIALECT, BODY, ID, REASON, f"port={sick.replica_port}"):
        assert secret not in everything
    for issued in (sick.all, sick.narrow):
        assert issued.token.text not in everything and issued.token.text[12:30] not in everything
        assert issued.record.id not in everything
    assert stat.S_IMODE(bundle.lstat().st_mode) == 0o600 and not bundle.is_symlink()
    assert (tmp_path / "elsewhere").read_text() == "kept"
    # Who may not look is shown less, and of a service at a URL the settings are not known.
    assert "ok   token: narrow; rights: add; topics: all\n" in narrow.out
    assert "ok   figures: not seen: /metrics is for tokens with the right metrics\n" in narrow.out
    assert set(files_of(less)) == {"versions.txt", "check.txt"}
    assert "warn token: whoami: " in nobody.out and "set JOBQUEUE_TOKEN" in nobody.out


async def test_it_says_what_it_can_of_a_service_that_is_not_ready(tmp_path: Path) -> None:
    bundle, config = tmp_path / "bundle.tar.gz", tmp_path / "jobqueue.toml"
    with RedisServer(tmp_path) as redis:
        config.write_text(f'redis = "{redis.url}"\nredis_timeout_s = 0.5\n')
        given = ("--config", str(config))
        async with ServiceProcess(*given) as service:
            redis.kill()
            ran = await Shell("").run("doctor", *given, "--port", str(service.port), "--bundle", str(bundle))
    assert ran.code == 1
    assert f"figures: version {__version__}" in ran.out
    files = files_of(bundle)
    assert "jobqueue_redis_up 0.0" in files["metrics.txt"]
    assert files["redis.txt"].strip() != ""


async def test_there_is_a_bundle_without_a_service_too(tmp_path: Path) -> None:
    bundle = tmp_path / "bundle.tar.gz"
    given = ("--port", str(free_port()), "--data", str(tmp_path / "data"), "--bundle", str(bundle))
    ran = await Shell("").run("doctor", *given)
    assert ran.code == 0
    assert files_of(bundle)["redis.txt"] == "the embedded Redis is not running\n"
    assert "token:" not in ran.out
    ran = await Shell("").run("doctor", "--port", "70000", "--bundle", str(bundle))
    assert ran.code == 1
    assert "bad  settings: port in the flags" in files_of(bundle)["check.txt"]
    ran = await Shell("").run("doctor", "--port", "70000", "--bundle", str(tmp_path / "absent" / "b.tar.gz"))
    assert ran.code == 1
    assert "b.tar.gz cannot be written: No such file or directory" in ran.err
