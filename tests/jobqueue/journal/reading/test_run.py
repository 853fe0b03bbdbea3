"""`jobqueue journal run`, `walk` and `check` as processes."""

from __future__ import annotations

import asyncio
import signal
from pathlib import Path

import aiohttp
import pytest
import redis
from click.testing import CliRunner

from buckets.job import NewJob
from buckets.pool.pool import Pool
from jobqueue.cli.main import main
from jobqueue.journal.reading import totals
from tests.jobqueue.journal.conftest import Database
from tests.jobqueue.journal.reading.conftest import of_server
from tests.jobqueue.journal.reading.drained import Journal, opened, switched_on
from tests.jobqueue.journal.reading.process import JournalProcess, journal
from tests.jobqueue.journal.reading.test_shard import told
from tests.kit.databases import Server
from tests.kit.ports import free_port
from tests.kit.redis_server import RedisServer


@pytest.fixture
def log(tmp_path: Path) -> Path:
    return tmp_path / "log"


async def test_it_drains_until_it_is_stopped_and_then_ends_in_order(
    lite: Journal, live_pool: Pool, redis_server: RedisServer, log: Path
) -> None:
    await told(live_pool, "a", "b")
    async with JournalProcess(redis_server.url, lite.url, log) as process:
        await lite.until_drained()
        await told(live_pool, "c")
        await lite.until_drained()
        assert await process.stop() == 0
    assert [row["id"] for row in await lite.events()] == ["a", "b", "c"]
    [started] = process.logged("journal.started")
    assert (started["source"], started["shard"]) == ("jq", 0)
    assert await live_pool.redis.read("EXISTS", f"{live_pool.keys[0].tag}lock:journal") == 0


async def test_ctrl_c_ends_it_too(lite: Journal, redis_server: RedisServer, log: Path) -> None:
    async with JournalProcess(redis_server.url, lite.url, log) as process:
        await lite.until_drained()
        assert await process.stop(signal.SIGINT) == 0


async def test_a_batch_that_the_database_does_not_take_in_time_is_left_for_the_next(
    live_pool: Pool, postgresql: Server, redis_server: RedisServer, log: Path
) -> None:
    journal_database, server = of_server(postgresql), postgresql
    await switched_on(live_pool)
    async with opened(live_pool, journal_database.url, redis_server.url) as journal:
        async with JournalProcess(redis_server.url, journal_database.url, log) as process:
            await journal.until_drained()
            server.kill()
            await told(live_pool, "a")
            await process.has_logged("database.lost")
            assert await process.stop() == 1
        server.start()
        async with JournalProcess(redis_server.url, journal_database.url, log) as process:
            await journal.until_drained(60)
        assert [row["id"] for row in await journal.events()] == ["a"]


async def test_a_database_that_is_away_is_waited_for(
    live_pool: Pool, served: Database, redis_server: RedisServer, log: Path
) -> None:
    server = served.server
    assert server
    await switched_on(live_pool)
    server.kill()
    async with JournalProcess(redis_server.url, served.url, log) as process:
        await process.has_logged("database.lost")
        await told(live_pool, "a")
        server.start()
        async with opened(live_pool, served.url, redis_server.url) as journal:
            await journal.until_drained()
            server.kill()
            await told(live_pool, "b")
            server.start()
            await journal.until_drained(60)
            assert [row["id"] for row in await journal.events()] == ["a", "b"]
        assert process.logged("database.found")


async def test_its_metrics_can_be_scraped(lite: Journal, live_pool: Pool, redis_server: RedisServer, log: Path) -> None:
    port = free_port()
    await told(live_pool, "a")
    async with JournalProcess(redis_server.url, lite.url, log, "--metrics-port", str(port)):
        await lite.until_drained()
        async with aiohttp.ClientSession() as session, asyncio.timeout(20):
            wanted = 'jobqueue_journal_events_total{verb="add"} 1.0'
            while wanted not in (text := await scraped(session, port)):  # noqa: ASYNC110 - of another process
                await asyncio.sleep(0.05)
    lines = text.splitlines()
    assert 'jobqueue_journal_lag_entries{shard="0"} 0.0' in lines
    assert "jobqueue_journal_lost_entries_total 0.0" in lines


async def scraped(session: aiohttp.ClientSession, port: int) -> str:
    async with session.get(f"http://127.0.0.1:{port}/metrics") as response:
        return await response.text()


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (["--to", "oracle://db/x"], "sqlite:///PATH"),
        (["--to", "sqlite:///x.db", "--batch", "0"], "--batch"),
        (["--to", "sqlite:///x.db", "--batch", "50001"], "--batch"),
        (["--to", "sqlite:///x.db", "--keep-events", "soon"], "--keep-events"),
        (["--to", "sqlite:///x.db", "--keep-events", "0"], "--keep-events"),
        (["--to", "sqlite:///x.db", "--linger", "-"], "--linger"),
        (["--to", "sqlite:///x.db", "--source", "a b"], "--source"),
        (["--to", "sqlite:////no/such/folder/x.db"], "folder"),
        ([], "--to"),
    ],
)
@pytest.mark.usefixtures("live_pool")
def test_what_cannot_be_begun_is_exit_2_and_says_why(
    redis_server: RedisServer, monkeypatch: pytest.MonkeyPatch, flags: list[str], words: str
) -> None:
    monkeypatch.delenv("JOBQUEUE_JOURNAL", raising=False)
    result = CliRunner().invoke(main, ["journal", "run", "--redis", redis_server.url, *flags])
    assert result.exit_code == 2
    assert words in result.output


def names_in(folder: Path) -> list[str]:
    return [path.name for path in folder.iterdir()]


@pytest.mark.parametrize("command", ["check", "walk"])
async def test_what_only_looks_at_a_journal_founds_none_and_waits_for_none(
    live_pool: Pool, redis_server: RedisServer, postgresql: Server, tmp_path: Path, command: str
) -> None:
    await switched_on(live_pool)
    given = [command, "--redis", redis_server.url, "--to"]
    code, _ = await journal(*given, f"sqlite:///{tmp_path}/mistyped.db")
    assert (code, names_in(tmp_path)) == (2, [])
    empty = postgresql.new_database()
    assert "journal run" in (await journal(*given, empty))[1]
    code, text = await journal(*given, f"postgresql://jobqueue@/x?host={tmp_path}")
    assert code == 2 and "cannot be reached" in text


def test_a_namespace_that_is_not_there_is_not_founded(redis_server: RedisServer, sqlite_url: str) -> None:
    given = ["journal", "run", "--redis", redis_server.url, "--to", sqlite_url, "--namespace", "none"]
    result = CliRunner().invoke(main, given)
    assert result.exit_code == 2
    assert "none" in result.output
    with redis.Redis.from_url(redis_server.url) as client:
        assert not client.exists("{none:0}:meta")


def test_a_password_on_the_command_line_gets_a_warning_and_is_not_shown(redis_server: RedisServer) -> None:
    url = "postgresql://u:secret@127.0.0.1:1/db"
    given = ["journal", "run", "--redis", redis_server.url, "--to", url, "--namespace", "none"]
    result = CliRunner().invoke(main, given)
    assert result.exit_code == 2
    assert "--to-file" in result.output and "secret" not in result.output


async def test_a_walk_is_done_by_the_running_reader_or_by_the_command(
    lite: Journal, live_pool: Pool, redis_server: RedisServer, log: Path
) -> None:
    await told(live_pool, "a")
    where = ("--redis", redis_server.url, "--to", lite.url)
    assert (await journal("walk", *where))[0] == 0  # alone: it drains as well
    assert sorted(await lite.jobs()) == ["a"]
    async with JournalProcess(redis_server.url, lite.url, log) as process:
        await lite.until_drained()
        assert (await journal("walk", *where))[0] == 0
        assert process.logged("journal.walked")


async def test_a_walk_while_events_are_off_is_refused(
    live_pool: Pool, redis_server: RedisServer, sqlite_url: str
) -> None:
    code, text = await journal("walk", "--redis", redis_server.url, "--to", sqlite_url)
    assert code == 2
    assert "journal on" in text


async def test_check_agrees_with_the_totals_of_redis_until_an_event_is_missing(
    lite: Journal, live_pool: Pool, redis_server: RedisServer, log: Path
) -> None:
    await told(live_pool, "before")
    where = ("--redis", redis_server.url, "--to", lite.url)
    async with JournalProcess(redis_server.url, lite.url, log):
        await lite.until_drained()
        await until_added_up(lite)
        await told(live_pool, *(f"a{n}" for n in range(20)))
        popped = (await live_pool.pop(["t"], 5)).jobs
        await live_pool.finish([(job.id, job.lease) for job in popped])
        await live_pool.delete(["a15", "a16"])
        await live_pool.add([NewJob("a17", "t", b"2", if_exists="replace")])
        code, text = await journal("check", *where)
        assert code == 0, text
        await live_pool.redis.read("HINCRBY", live_pool.keys[0].counts("t"), "finished", 1)
        code, text = await journal("check", *where)
        assert code == 1
        assert "1 of 1 topics differ" in text


async def until_added_up(journal: Journal) -> None:
    """Wait until events and totals are added up."""
    async with asyncio.timeout(20):
        while await totals.began_us(journal.sql, "jq") is None:  # noqa: ASYNC110 - of another process
            await asyncio.sleep(0.05)


async def test_check_tells_the_gaps(lite: Journal, live_pool: Pool, redis_server: RedisServer, log: Path) -> None:
    await told(live_pool, "a", "b", "c")
    await live_pool.redis.read("XTRIM", live_pool.keys[0].events, "MAXLEN", "=", 1)
    async with JournalProcess(redis_server.url, lite.url, log):
        await lite.until_drained()
        await until_added_up(lite)
        code, text = await journal("check", "--redis", redis_server.url, "--to", lite.url)
    assert code == 0
    assert "2 entries were cut off before they were read" in text
