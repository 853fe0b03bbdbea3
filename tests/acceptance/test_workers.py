"""`serve --workers N`: several processes on one port are one service, whatever happens to one of them."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import tempfile
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import pytest_asyncio

from tests.acceptance.conftest import wipe
from tests.acceptance.load import Load
from tests.acceptance.test_metrics import told
from tests.acceptance.worker_processes import all_ended, count, counted, lines, on_connections, pids, serving, started
from tests.kit.redis_server import RedisServer
from tests.kit.service import JOBQUEUE, Client, ServiceProcess
from tests.kit.waiting import until

pytestmark = pytest.mark.asyncio(loop_scope="module")

ADD = {"command": "add", "topic": "t", "body": 1}


@pytest.fixture
def log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The log of a service, whose temporary files are this test's alone."""
    (tmp_path / "tmp").mkdir()
    monkeypatch.setenv("TMPDIR", str(tmp_path / "tmp"))
    return tmp_path / "service.log"


@pytest_asyncio.fixture(loop_scope="module")
async def service(redis_server: RedisServer, redis: Any, log: Path) -> AsyncIterator[ServiceProcess]:
    """A service of two workers on the tests' own Redis, which is empty."""
    service = await serving(ServiceProcess("--redis", redis_server.url, workers=2, log=log), log)
    yield service
    assert await service.stop() == 0


class Shared(NamedTuple):
    """A service of two workers that tests share, and what it writes."""

    service: ServiceProcess
    log: Path
    tmp: Path


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def _shared() -> AsyncIterator[tuple[Shared, str]]:
    with tempfile.TemporaryDirectory(prefix="jq-") as name, RedisServer(Path(name)) as redis:
        log, tmp = Path(name) / "service.log", Path(name) / "tmp"
        tmp.mkdir()
        service = ServiceProcess("--redis", redis.url, workers=2, log=log)
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("TMPDIR", str(tmp))
            await serving(service, log)
        yield Shared(service, log, tmp), redis.url
        assert await service.stop() == 0


@pytest_asyncio.fixture(loop_scope="module")
async def shared(_shared: tuple[Shared, str]) -> Shared:
    """With nothing in its namespace."""
    shared, redis_url = _shared
    await wipe(redis_url)
    return shared


def no_trace(log: Path) -> bool:
    return "Traceback" not in log.read_text()


async def test_the_workers_share_requests_and_report_the_sum_of_all(shared: Shared) -> None:
    service, before = shared.service, await count(shared.service, "add")
    answers = await on_connections(service.url, 100, ADD)
    assert all(answer["success"] for _, answer in answers)
    assert len({worker for worker, _ in answers}) == 2
    async with asyncio.TaskGroup() as group:
        for _ in range(45):
            group.create_task(on_connections(service.url, 20, ADD))
    for _ in range(3):  # whichever worker answers
        await counted(service, "add", before + 1_000)
    await until(lambda: all_locks_held(service))


async def all_locks_held(service: ServiceProcess) -> bool:
    all_values = await told(service.url)
    return (all_values["jobqueue_locks_held",], all_values["jobqueue_instances",]) == (8, 2)


async def test_a_worker_that_is_killed_comes_back_and_what_it_counted_stays(shared: Shared) -> None:
    # The first kills of this service: each pause before a restart is twice as long as the one before.
    service, log, tmp = shared
    before = await count(service, "add")
    await on_connections(service.url, 100, ADD)
    await counted(service, "add", before + 100)
    files = sorted(each.name for each in tmp.rglob("*.db"))
    for turn in (1, 2):
        os.kill(pids(log)[1], signal.SIGKILL)
        await until(lambda number=turn: len(lines(log, "worker.ended")) == number)  # type: ignore[misc]
        assert not list(tmp.rglob("gauge_live*-1.db"))  # what it held is held no more
        await started(log, 2 + turn)
    assert [(line["worker"], line["reason"], line["again_in_s"]) for line in lines(log, "worker.ended")] == [
        (1, "killed by SIGKILL", pause) for pause in (0.1, 0.2)
    ]
    await on_connections(service.url, 100, ADD)
    await counted(service, "add", before + 200)

    await until(lambda: all_locks_held(service))
    assert sorted(each.name for each in tmp.rglob("*.db")) == files


async def test_workers_killed_under_load_lose_no_acknowledged_job(shared: Shared) -> None:
    service, log, _ = shared
    before = len(lines(log, "worker.started"))
    load = Load([service.url], longest_delay_s=0.5)
    async with load.running(producers=6, workers=6):
        for turn in range(3):
            await asyncio.sleep(0.3)
            os.kill(pids(log)[1 + turn % 2], signal.SIGKILL)
            await started(log, before + 1 + turn)
    load.check()
    assert no_trace(log)


async def test_a_stop_answers_the_pops_that_wait_at_all_workers_and_leaves_nothing(
    service: ServiceProcess, log: Path, tmp_path: Path
) -> None:
    pops = [
        asyncio.create_task(on_connections(service.url, 1, {"command": "pop", "topic": "t", "wait": 60}))
        for _ in range(20)
    ]

    async def parked() -> bool:
        return await service.parked(20)

    await until(parked)
    processes = pids(log)
    for pid in processes.values():  # workers ignore what a terminal sends to everybody
        os.kill(pid, signal.SIGINT)
        os.kill(pid, signal.SIGHUP)
    service.signal(signal.SIGTERM)
    answers = [answer for one in await asyncio.gather(*pops) for answer in one]
    assert [answer for _, answer in answers] == [{"success": True, "id": None, "value": None}] * 20
    assert len({worker for worker, _ in answers}) == 2
    assert service.process and await service.process.wait() == 0
    await all_ended(processes)
    assert list((tmp_path / "tmp").iterdir()) == []
    assert no_trace(log)
    told_once = ("service.started", "service.stopping", "service.stopped")
    assert [line["event"] for line in lines(log) if line["event"].startswith("service.")] == list(told_once)
    assert lines(log, "service.started")[0]["workers"] == 2


async def test_workers_end_with_a_supervisor_that_is_killed_and_the_next_takes_over(log: Path, tmp_path: Path) -> None:
    flags = ("--data", str(tmp_path / "data"))
    service = await serving(ServiceProcess(*flags, workers=3, log=log), log)
    async with Client(service.url) as client:
        await client.ask("add", topic="t", id="kept", body=1)
    processes = pids(log)
    await service.kill()
    async with ServiceProcess(*flags, workers=2, port=service.port, log=log) as after, Client(after.url) as client:
        assert (await client.ask("pop", topic="t"))["id"] == "kept"
        await all_ended(processes)
        assert len(list((tmp_path / "tmp").iterdir())) == 1  # the folder of the second
    assert lines(log, "redis.taken_over")


async def test_a_stopped_worker_ends_with_a_supervisor_that_is_killed(
    redis_server: RedisServer, redis: Any, log: Path, tmp_path: Path
) -> None:
    service = await serving(ServiceProcess("--redis", redis_server.url, workers=2, log=log), log)
    processes = pids(log)
    os.kill(processes[1], signal.SIGSTOP)  # from now on it notices nothing
    await service.kill()
    await all_ended(processes)
    (left,) = (tmp_path / "tmp").iterdir()
    after = await serving(ServiceProcess("--redis", redis_server.url, workers=2, port=service.port, log=log), log)
    (own,) = (tmp_path / "tmp").iterdir()
    assert own != left
    assert await after.stop() == 0
    assert list((tmp_path / "tmp").iterdir()) == []


@pytest.mark.parametrize("options", [(), (socket.SO_REUSEPORT,)], ids=["alone", "SO_REUSEPORT"])
async def test_a_port_of_another_program_is_refused(
    options: tuple[int, ...], redis_server: RedisServer, log: Path
) -> None:
    with socket.socket() as other:
        for option in options:
            other.setsockopt(socket.SOL_SOCKET, option, 1)
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = other.getsockname()[1]
        said = await ServiceProcess("--redis", redis_server.url, workers=2, port=port, log=log).refusal()
    assert said.splitlines()[-1].startswith(f"Error: port {port} is in use; by whom: ")
    assert "Traceback" not in said and "worker.started" not in said


async def test_a_port_of_another_service_is_refused_whatever_the_workers(
    shared: Shared, redis_server: RedisServer, tmp_path: Path
) -> None:
    service = shared.service
    for workers in (1, 2):
        second = tmp_path / f"second-{workers}.log"
        flags = ("--redis", redis_server.url, "--namespace", "other")
        said = await ServiceProcess(*flags, workers=workers, port=service.port, log=second).refusal()
        assert said.splitlines()[-1].startswith(f"Error: port {service.port} is in use; by whom: ")


async def test_of_two_services_that_start_at_the_same_time_one_refuses(
    redis_server: RedisServer, redis: Any, log: Path, tmp_path: Path
) -> None:
    one = ServiceProcess("--redis", redis_server.url, workers=2, log=log)
    other = ServiceProcess("--redis", redis_server.url, workers=2, port=one.port, log=tmp_path / "other.log")
    both = [asyncio.create_task(each.start()) for each in (one, other)]
    await asyncio.wait(both)

    def ends() -> list[int | None]:
        return [each.process.returncode for each in (one, other) if each.process]

    try:
        await until(lambda: ends() != [None, None])  # the port answers for both
        assert sorted(ends(), key=str) == [1, None]
    finally:
        for each in (one, other):
            await each.stop()
        await asyncio.gather(*both, return_exceptions=True)


async def test_any_free_port_is_one_for_all_workers_and_closed_standard_streams_do_no_harm(
    redis_server: RedisServer, redis: Any, log: Path
) -> None:
    flags = f"--port 0 --redis {redis_server.url} --workers 2 <&- >&- 2>>{log}"
    process = await asyncio.create_subprocess_shell(f"exec {' '.join(JOBQUEUE)} serve {flags}")
    await until(lambda: bool(lines(log, "service.started")))
    answers = await on_connections(lines(log, "service.started")[0]["url"], 40, ADD)
    assert len({worker for worker, _ in answers}) == 2
    process.terminate()
    assert await process.wait() == 0
    assert lines(log)[-1]["event"] == "service.stopped"


async def test_what_a_worker_cannot_start_with_ends_the_whole_with_a_sentence(
    redis_server: RedisServer, log: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("PROMETHEUS_MULTIPROC_DIR", str(tmp_path / "file" / "shared"))
    said = (await ServiceProcess("--redis", redis_server.url, workers=2, log=log).refusal()).splitlines()
    assert "PROMETHEUS_MULTIPROC_DIR cannot be used as the folder for metrics" in said[-1]
    assert not [line for line in said if "worker." in line or "Traceback" in line]
    said = (
        await ServiceProcess("--redis", redis_server.url, workers=65, log=tmp_path / "2.log").refusal()
    ).splitlines()
    assert said == ["Error: workers in the flags: Expected `int` <= 64"]


async def test_sighup_reaches_all_workers_and_those_to_come(
    redis_server: RedisServer, redis: Any, log: Path, tmp_path: Path
) -> None:
    config = tmp_path / "jobqueue.toml"
    config.write_text("default_tries = 3\n")
    flags = ("--redis", redis_server.url, "--config", str(config))
    service = await serving(ServiceProcess(*flags, workers=2, log=log), log)

    async def tries() -> set[int]:
        added = [answer["id"] for _, answer in await on_connections(service.url, 40, ADD)]
        async with Client(service.url) as client:
            return {job["tries"] for job in await client.batch([{"command": "get", "id": id} for id in added])}

    try:
        assert await tries() == {3}
        config.write_text("default_tries = 7\nbuckets = 4\n")
        service.signal(signal.SIGHUP)
        await until(lambda: bool(lines(log, "settings.reloaded")))
        assert await tries() == {7}
        os.kill(pids(log)[2], signal.SIGKILL)
        await started(log, 3)
        assert await tries() == {7}
        config.write_text("default_tries = many\n")
        service.signal(signal.SIGHUP)
        await until(lambda: bool(lines(log, "settings.refused")))
        assert await tries() == {7}
    finally:
        await service.stop()
    (reloaded,) = lines(log, "settings.reloaded")
    assert (reloaded["changed"], reloaded["need_a_restart"]) == (["buckets", "default_tries"], ["buckets"])
    assert len(lines(log, "settings.refused")) == 1


async def test_a_worker_that_hangs_is_killed_after_the_grace_time_or_at_a_second_signal(
    redis_server: RedisServer, redis: Any, log: Path, tmp_path: Path
) -> None:
    config = tmp_path / "jobqueue.toml"
    config.write_text("grace_s = 0.1\n")
    flags = ("--redis", redis_server.url, "--config", str(config))
    for signals, code in ((1, 0), (2, 1)):
        service = await serving(ServiceProcess(*flags, workers=2, log=log), log)
        processes = pids(log)
        os.kill(processes[1], signal.SIGSTOP)
        for number in range(signals):
            stopping = len(lines(log, "service.stopping"))
            service.signal(signal.SIGTERM)
            if number == 0:
                await until(lambda before=stopping: len(lines(log, "service.stopping")) > before)  # type: ignore[misc]
        assert service.process and await service.process.wait() == code
        await all_ended(processes)
        assert list((tmp_path / "tmp").iterdir()) == []
    assert [line["worker"] for line in lines(log, "worker.killed")] == [1]


async def test_a_worker_that_dies_while_redis_is_away_comes_back_with_it_and_each_line_says_whose_it_is(
    own_server: RedisServer, log: Path
) -> None:
    service = await serving(ServiceProcess("--redis", own_server.url, workers=2, log=log), log)
    try:
        own_server.kill()
        await until(lambda: {line.get("process") for line in lines(log, "redis.lost")} == {1, 2})
        assert "process" not in lines(log, "service.started")[0]
        os.kill(pids(log)[1], signal.SIGKILL)
        await until(lambda: bool(lines(log, "worker.ended")))
        own_server.start()
        await started(log, 3)
        os.kill(pids(log)[2], signal.SIGTERM)  # a worker that is stopped by itself is restarted too
        await started(log, 4)
    finally:
        assert await service.stop() == 0
