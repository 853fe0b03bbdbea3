"""The clients of the registries, unchanged, on our port and on the real beanstalkd: what holds there holds here."""

from __future__ import annotations

import asyncio
import contextlib
import shutil
import subprocess
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import greenstalk
import pytest
from pystalk import BeanstalkClient, BeanstalkError

from buckets.redis.client import Redis
from tests.clients.test_packages import run
from tests.kit.beanstalkd import theirs
from tests.kit.redis_server import RedisServer
from tests.wires.serving import Wires, serving

_PROGRAMS = Path(__file__).parent / "programs"
_NPM = {"fivebeans": "1", "jackd": "2"}


@contextlib.asynccontextmanager
async def ours(redis_url: str) -> AsyncIterator[int]:
    async with serving(redis_url) as wires:
        yield wires.port("beanstalkd")


@pytest.fixture(params=["ours", "beanstalkd"])
async def port(request: pytest.FixtureRequest, redis_server: RedisServer, redis: Redis) -> AsyncIterator[int]:
    async with theirs() if request.param == "beanstalkd" else ours(redis_server.url) as port:
        yield port


async def test_greenstalk(port: int) -> None:
    await asyncio.to_thread(_greenstalk, port)


def _greenstalk(port: int) -> None:
    where = ("127.0.0.1", port)
    with greenstalk.Client(where, use="mail") as maker, greenstalk.Client(where, watch=["mail", "sms"]) as worker:
        assert (maker.using(), {*worker.watching()}) == ("mail", {"mail", "sms"})
        late = maker.put("later", priority=7, delay=3600, ttr=30)
        first, urgent = maker.put("é 1"), maker.put("2", priority=0)
        job = worker.reserve(timeout=5)
        assert (job.id, job.body) == (urgent, "2")
        worker.delete(job)
        job = worker.reserve()
        assert (job.id, job.body) == (first, "é 1")
        worker.touch(job)
        figures = worker.stats_job(job)
        assert (figures["state"], figures["tube"], figures["pri"]) == ("reserved", "mail", 65536)
        with pytest.raises(greenstalk.NotFoundError):
            maker.delete(job.id)
        worker.release(job, priority=3)
        job = worker.reserve(timeout=5)
        assert job.id == first and worker.stats_job(job)["pri"] == 3
        worker.bury(job)
        assert maker.peek_buried().id == first
        assert maker.kick(10) == 1
        assert maker.peek_ready().id == first
        assert maker.peek_delayed().id == late and maker.peek(late).body == "later"
        assert maker.stats_job(late)["delay"] == 3600
        assert worker.reserve_job(first).id == first
        worker.delete(first)
        maker.kick_job(late)
        worker.delete(worker.reserve(timeout=5))
        with pytest.raises(greenstalk.TimedOutError):
            worker.reserve(timeout=0)
        with pytest.raises(greenstalk.JobTooBigError):
            maker.put("x" * 65_536)
        maker.put("x" * 65_535)
        maker.pause_tube("mail", 60)
        with pytest.raises(greenstalk.TimedOutError):
            worker.reserve(timeout=0)
        maker.pause_tube("mail", 0)
        worker.delete(worker.reserve(timeout=5))
        tube = maker.stats_tube("mail")
        assert (tube["total-jobs"], tube["current-jobs-ready"], tube["current-watching"]) == (4, 0, 1)
        assert {"default", "mail", "sms"} <= set(maker.tubes())
        assert worker.ignore("sms") == 1
        with pytest.raises(greenstalk.NotIgnoredError):
            worker.ignore("mail")
        assert maker.stats()["current-connections"] >= 2


async def test_a_connection_that_closes_gives_its_job_back(port: int) -> None:
    def lose_and_find() -> None:
        where = ("127.0.0.1", port)
        with greenstalk.Client(where) as one, greenstalk.Client(where) as other:
            made = one.put("x")
            assert one.reserve(timeout=5).id == made
            one.close()
            job = other.reserve(timeout=5)
            assert job.id == made
            other.delete(job)

    await asyncio.to_thread(lose_and_find)


async def test_the_last_second_of_a_held_job_is_announced(port: int) -> None:
    def hold() -> None:
        with greenstalk.Client(("127.0.0.1", port)) as client:
            client.put("x", ttr=1)
            client.reserve(timeout=5)
            with pytest.raises(greenstalk.DeadlineSoonError):
                client.reserve(timeout=5)

    await asyncio.to_thread(hold)


async def test_pystalk(port: int) -> None:
    await asyncio.to_thread(_pystalk, port)


def _pystalk(port: int) -> None:
    maker, worker = (BeanstalkClient("127.0.0.1", port, socket_timeout=20) for _ in range(2))
    with maker.using("a") as tube:
        ids = [int(tube.put_job(f"job {number}")[1]) for number in range(3)]
    maker.put_job_into("b", b"\xff\x00", delay=3600)
    worker.watchlist = ["a"]
    got = [worker.reserve_job(0) for _ in ids]
    assert [(int(job.job_id), job.job_data) for job in got] == [(each, b"job %d" % n) for n, each in enumerate(ids)]
    worker.delete_job(got[0].job_id)
    worker.bury_job(got[1].job_id)
    worker.release_job(got[2].job_id, delay=3600)
    figures = maker.stats_tube("a")
    assert (figures["current-jobs-buried"], figures["current-jobs-delayed"]) == (1, 1)
    maker.use("a")
    maker.kick_jobs(10)
    maker.kick_jobs(10)  # no buried one is left: delayed ones
    assert {int(worker.reserve_job(0).job_id) for _ in range(2)} == set(ids[1:])
    assert maker.stats()["current-jobs-reserved"] == 2
    worker.close()
    with pytest.raises(BeanstalkError):
        maker.stats_job(ids[0])
    assert {"a", "b"} <= set(maker.list_tubes())
    maker.close()


@pytest.fixture(scope="module")
def packages(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A folder with what npm has."""
    if not shutil.which("npm"):
        pytest.skip("npm is missing")
    folder = tmp_path_factory.mktemp("npm")
    (folder / "package.json").write_text("{}")
    wanted = [f"{name}@{version}" for name, version in _NPM.items()]
    run(folder, "npm", "install", "--silent", "--no-audit", "--no-fund", *wanted)
    yield folder


@pytest.mark.parametrize("name", _NPM)
async def test_a_client_from_npm(name: str, port: int, packages: Path) -> None:
    shutil.copy(_PROGRAMS / f"{name}.cjs", packages)
    process = await asyncio.create_subprocess_exec(
        *("node", f"{name}.cjs", str(port)), cwd=packages, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    )
    async with asyncio.timeout(60):
        said, _ = await process.communicate()
    assert process.returncode == 0 and said.endswith(b"done\n"), said.decode()


async def test_a_library_reconnects_to_a_service_that_was_killed_and_goes_on(
    redis_server: RedisServer, redis: Redis, tmp_path: Path
) -> None:
    wires = Wires(("--redis", redis_server.url), tmp_path)
    await wires.service.start()
    try:
        client = BeanstalkClient("127.0.0.1", wires.port("beanstalkd"), socket_timeout=20)
        await asyncio.to_thread(client.use, "kept")
        await asyncio.to_thread(client.watch, "kept")
        for data in ("1", "2"):
            await asyncio.to_thread(client.put_job, data)
        held = await asyncio.to_thread(client.reserve_job)
        await wires.service.kill()
        await wires.service.start()
        with pytest.raises((BeanstalkError, ConnectionError)):
            await asyncio.to_thread(client.delete_job, held.job_id)
        client.close()  # its next call connects, uses and watches again
        job = await asyncio.to_thread(client.reserve_job)
        assert job.job_data == b"2"
        await asyncio.to_thread(client.delete_job, job.job_id)
        await asyncio.to_thread(client.put_job, "3")
        assert (await asyncio.to_thread(client.reserve_job)).job_data == b"3"
        client.close()
    finally:
        await wires.service.stop()
