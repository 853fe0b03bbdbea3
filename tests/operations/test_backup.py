"""docs/backup.md: its commands on real servers under load, and what it says of the result."""

from __future__ import annotations

import asyncio
import shutil
import tempfile
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from buckets import Redis
from tests.acceptance.load import Load
from tests.acceptance.test_fsck import fsck_json
from tests.acceptance.test_move import move
from tests.kit.redis_server import RedisServer
from tests.kit.service import Client, ServiceProcess
from tests.kit.waiting import until
from tests.operations.documents import commands, shell

_COPY = commands("backup.md", "The bundled Redis")
_RESTORE = commands("backup.md", "Without delivering").splitlines()[0]
_HOUR_S = 3600
# Once, just after the manifest was copied, Redis rewrites its files.
_REWRITE_ONCE = """
cp() {
  command cp "$@" || return
  case "$1" in *.manifest) ;; *) return 0;; esac
  [ -e rewritten ] && return
  touch rewritten
  PROGRAM -s jobqueue-data/redis.sock BGREWRITEAOF
  while [ -e jobqueue-data/appendonlydir/*.1.base.aof ]; do sleep 0.1; done
}
"""


@pytest.fixture
def folder() -> Iterator[Path]:
    """A folder with a short path: sockets are in it."""
    with tempfile.TemporaryDirectory(prefix="jq-") as made:
        yield Path(made)


@asynccontextmanager
async def serving(*flags: str | Path) -> AsyncIterator[Client]:
    async with ServiceProcess(*map(str, flags)) as service, Client(service.url) as client:
        yield client


def redis_cli() -> str:
    """The command-line client of Redis; the packages of the servers bring it along."""
    program = shutil.which("redis-cli") or shutil.which("valkey-cli")
    if program is None:
        pytest.skip("redis-cli is missing")
    return program


async def is_written(data: Path, word: str) -> None:
    """Wait until Redis has written a word to its files."""
    files = data / "appendonlydir"
    await until(lambda: any(word.encode() in file.read_bytes() for file in files.glob("*.aof")))


async def backed_up(folder: Path, last_id: str, before: str = "") -> Path:
    """The folder of a restored copy of `jobqueue-data`, made by the commands of the document."""
    await is_written(folder / "jobqueue-data", last_id)
    await shell(before + _COPY, folder)
    await shell(_RESTORE, folder)
    return folder / "restored"


async def fsck_is_clean(*flags: str | Path) -> Any:
    code, report = await fsck_json(*map(str, flags))
    assert (code, report["findings"]) == (0, {}), report
    return report


async def add_quiet_jobs(client: Client, number: int) -> set[str]:
    """Jobs that nothing happens to during a test; their ids, which end in four digits."""
    ids = [f"quiet-{each:04}" for each in range(number)]
    answers = await client.batch(
        [{"command": "add", "topic": "quiet", "id": each, "delay": _HOUR_S, "body": each} for each in ids]
    )
    assert all(answer["success"] for answer in answers)
    return set(ids)


async def state(client: Client, job_id: str) -> str | None:
    answer: dict[str, Any] = await client.ask("get", id=job_id)
    return answer.get("state")


async def test_a_copy_made_under_load_while_redis_rewrites_its_files_is_a_whole_queue(folder: Path) -> None:
    data = folder / "jobqueue-data"
    async with ServiceProcess("--data", str(data)) as service, Client(service.url) as client:
        ids = await add_quiet_jobs(client, 500)
        load = Load([service.url])
        async with load.running():
            await until(lambda: len(load.finished) > 50)
            restored = await backed_up(folder, "quiet-0499", _REWRITE_ONCE.replace("PROGRAM", redis_cli()))
        load.check()
    async with serving("--data", restored) as copy:
        report = await fsck_is_clean("--data", restored)
        assert report["jobs"] > 550
        answers = await copy.batch([{"command": "get", "id": each} for each in sorted(ids)])
        assert {(answer["id"], answer["state"], answer["value"]) for answer in answers} == {
            (each, "delayed", each) for each in ids
        }


async def test_the_original_and_its_copy_both_deliver_every_job(folder: Path) -> None:
    async with serving("--data", folder / "jobqueue-data") as client:
        await client.ask("add", topic="t", id="once", body=1)
        async with serving("--data", await backed_up(folder, "once")) as copy:
            assert (await client.ask("pop", topic="t"))["id"] == "once"
            assert (await copy.ask("pop", topic="t"))["id"] == "once"


async def test_a_restore_brings_back_what_was_finished_and_deleted_since_and_lacks_what_was_added(
    folder: Path,
) -> None:
    async with serving("--data", folder / "jobqueue-data") as client:
        for job_id in ("open", "finished", "held"):
            await client.ask("add", topic="t", id=job_id, body=1, priority=0 if job_id == "open" else 4)
        await client.ask("add", topic="t", id="cancelled", delay=_HOUR_S, body=1)
        restored = await backed_up(folder, "cancelled")
        popped = await client.ask("pop", topic="t", count=2)
        lease = {job["id"]: job["lease"] for job in popped["jobs"]}
        assert (await client.ask("finish", id="finished", lease=lease["finished"]))["success"]
        assert (await client.ask("delete", id="cancelled"))["success"]
        await client.ask("add", topic="t", id="new", body=1)
    async with serving("--data", restored) as copy:
        assert await state(copy, "cancelled") == "delayed"
        assert await state(copy, "new") is None
        assert (await copy.ask("finish", id="held", lease=lease["held"]))["code"] == "NOT_RESERVED"
        redelivered = await copy.ask("pop", topic="t", count=9)
        assert {job["id"] for job in redelivered["jobs"]} == {"open", "finished", "held"}
        assert (await copy.ask("finish", id="held", lease=lease["held"]))["code"] == "STALE_LEASE"


async def test_a_restored_service_delivers_nothing_while_its_topics_are_paused_and_keeps_the_pause(
    folder: Path,
) -> None:
    async with serving("--data", folder / "jobqueue-data") as client:
        await client.ask("add", topic="t", id="1", delay=0.1, body="the-body")
        restored = await backed_up(folder, "the-body")
    async with serving("--data", restored) as copy:
        await copy.ask("pause", topic="t")

        async def ready() -> bool:
            return await state(copy, "1") == "ready"

        await until(ready)  # its timers run
    async with serving("--data", restored) as copy:
        await copy.ask("add", topic="t", id="2", body=1)
        assert (await copy.ask("pop", topic="t"))["id"] is None
        await copy.ask("resume", topic="t")
        answer = await copy.ask("pop", topic="t", count=2)
        assert [(job["id"], job["attempt"]) for job in answer["jobs"]] == [("1", 1), ("2", 1)]


async def test_moving_a_backup_into_a_running_queue_keeps_what_is_known_there(
    folder: Path, own_server: RedisServer
) -> None:
    async with serving("--data", folder / "jobqueue-data") as client:
        for job_id in ("lost", "finished"):
            await client.ask("add", topic="t", id=job_id, delay=_HOUR_S, body=1)
        restored = await backed_up(folder, "finished")
    async with serving("--redis", own_server.url) as running, serving("--data", restored):
        await running.ask("add", topic="t", id="finished", body=1)
        await running.ask("pop", topic="t")
        await running.ask("finish", id="finished")
        code, _, complaint = await move(f"unix://{restored}/redis.sock", own_server.url)
        assert (code, complaint) == (0, "")
        assert await state(running, "lost") == "delayed"
        assert await state(running, "finished") == "finished"
        await fsck_is_clean("--redis", own_server.url)


async def test_an_rdb_file_taken_under_load_is_a_whole_queue_in_a_redis_that_starts_without_append_only_files(
    folder: Path, own_server: RedisServer
) -> None:
    program = redis_cli()
    async with ServiceProcess("--redis", own_server.url) as service, Client(service.url) as client:
        ids = await add_quiet_jobs(client, 100)
        load = Load([service.url])
        async with load.running():
            await until(lambda: len(load.finished) > 50)
            await shell(f"{program} -s {own_server.socket} --rdb backup.rdb", folder)
        load.check()
    restored = folder / "r"
    restored.mkdir()
    (folder / "backup.rdb").rename(restored / "dump.rdb")
    with RedisServer(restored) as server:  # without append-only files
        await fsck_is_clean("--redis", server.url)
        redis = Redis(server.url)
        await redis.read("CONFIG", "SET", "appendonly", "yes")

        async def rewritten() -> bool:
            info: bytes = await redis.read("INFO", "persistence")
            return b"aof_rewrite_in_progress:0" in info and b"aof_rewrite_scheduled:0" in info

        await until(rewritten)
        await redis.close()
    (restored / "dump.rdb").unlink()
    server = RedisServer(restored)
    server.start("--appendonly", "yes")
    async with serving("--redis", server.url) as copy:
        await fsck_is_clean("--redis", server.url)
        assert {await state(copy, each) for each in ids} == {"delayed"}
    server.kill()


async def test_a_redis_that_starts_with_append_only_files_ignores_an_rdb_file(
    folder: Path, own_server: RedisServer
) -> None:
    async with serving("--redis", own_server.url) as client:
        await client.ask("add", topic="t", id="1", body=1)
    redis = Redis(own_server.url)
    await redis.read("SAVE")
    await redis.close()
    shutil.copy(own_server.socket.parent / "dump.rdb", folder)
    server = RedisServer(folder)
    server.start("--appendonly", "yes")
    redis = Redis(server.url)
    assert await redis.read("DBSIZE") == 0
    await redis.close()
    await asyncio.to_thread(server.kill)
