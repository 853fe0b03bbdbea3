"""`serve` with `journal_run`: one more process writes the journal, and no worker waits for it."""

from __future__ import annotations

import os
import signal
import sqlite3
from pathlib import Path
from typing import Any

import pytest

from tests.acceptance.test_metrics import told
from tests.acceptance.worker_processes import lines, pids
from tests.kit.redis_server import RedisServer
from tests.kit.service import Client, ServiceProcess
from tests.kit.shell import Shell
from tests.kit.waiting import until


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with settings for a service with a journal."""
    (tmp_path / "settings.toml").write_text(f'journal = "sqlite:///{tmp_path}/journal.db"\njournal_run = true\n')
    return tmp_path


def service_in(folder: Path, redis: str, workers: int = 1) -> ServiceProcess:
    flags = ("--config", str(folder / "settings.toml"), "--redis", redis)
    return ServiceProcess(*flags, workers=workers, log=folder / "log")


def journal_rows(folder: Path, query: str) -> list[Any]:
    """None while there is no journal."""
    file = folder / "journal.db"
    if not file.exists():
        return []
    connection = sqlite3.connect(file)
    try:
        return connection.execute(query).fetchall()
    except sqlite3.OperationalError:  # it is on its way
        return []
    finally:
        connection.close()


def events(folder: Path) -> list[tuple[str, int]]:
    return journal_rows(folder, "SELECT id, verb FROM jq_event WHERE branch = 0 ORDER BY ms, seq, n")


async def has_begun(folder: Path) -> None:
    await until(lambda: bool(journal_rows(folder, "SELECT * FROM jq_position")), every_s=0.02)


async def whole_life(client: Client, job_id: str) -> None:
    await client.insist("add", topic="t", id=job_id, body=1)
    popped = await client.insist("pop", topic="t")
    assert popped["id"] == job_id
    await client.insist("finish", id=job_id, lease=popped["lease"])


@pytest.mark.parametrize("workers", [1, 2])
async def test_a_service_writes_its_own_journal_and_tells_how_far_it_is(
    folder: Path, redis_server: RedisServer, redis: Any, workers: int
) -> None:
    service = service_in(folder, redis_server.url, workers)
    await service.start()
    await has_begun(folder)  # and so events are on
    async with Client(service.url) as client:
        await whole_life(client, "a")
    await until(lambda: len(events(folder)) == 3)
    assert [job_id for job_id, _ in events(folder)] == ["a"] * 3

    async def is_counted() -> bool:
        return (await told(service.url)).get(("jobqueue_journal_events_total", "finish")) == 1

    await until(is_counted)
    assert await service.stop() == 0
    assert "Traceback" not in (folder / "log").read_text()


async def test_a_journal_process_that_is_killed_is_replaced_and_nothing_is_lost_or_twice(
    folder: Path, redis_server: RedisServer, redis: Any
) -> None:
    service = service_in(folder, redis_server.url)
    await service.start()
    await has_begun(folder)
    async with Client(service.url) as client:
        for n in range(30):
            await whole_life(client, f"a{n}")
            if n % 10 == 5:
                await kill_journal(folder / "log")
        await until(lambda: len(events(folder)) >= 90, within_s=30, every_s=0.05)
    assert len(set(events(folder))) == 90 == len(events(folder))
    assert len([line for line in lines(folder / "log", "worker.ended") if line["worker"] == "journal"]) >= 1
    assert await service.stop() == 0


async def test_events_that_were_switched_off_stay_off_when_the_service_or_its_journal_starts_again(
    folder: Path, redis_server: RedisServer, redis: Any
) -> None:
    service = service_in(folder, redis_server.url)
    await service.start()
    await has_begun(folder)
    assert (await Shell("").run("journal", "off", "--redis", redis_server.url)).code == 0
    await said_off(folder, 1)
    await kill_journal(folder / "log")
    await said_off(folder, 2)
    assert await service.stop() == 0
    service = service_in(folder, redis_server.url)
    await service.start()
    await said_off(folder, 3)
    async with Client(service.url) as client:
        await whole_life(client, "untold")
    assert await service.stop() == 0
    assert await redis.read("XLEN", "{jq:0}:e") == 0 and events(folder) == []


async def said_off(folder: Path, times: int) -> None:
    """Wait until so many journal processes have said that events are off."""
    await until(lambda: len(lines(folder / "log", "journal.off")) == times, within_s=20, every_s=0.02)


async def kill_journal(log: Path) -> None:
    """Kill its process, and wait for the next."""
    processes: dict[Any, int] = pids(log)
    os.kill(processes["journal"], signal.SIGKILL)
    await until(lambda: pids(log) != processes, within_s=20, every_s=0.02)


async def test_a_journal_that_cannot_be_is_refused_at_the_start(folder: Path, redis_server: RedisServer) -> None:
    (folder / "settings.toml").write_text('journal = "oracle://db/x"\njournal_run = true\n')
    text = await service_in(folder, redis_server.url).refusal()
    assert "the setting journal" in text
    assert "sqlite:///PATH" in text
