"""jobqueue.health.journal: whether a journal can be written, and how far its reader has come."""

from __future__ import annotations

import time
from functools import partial
from pathlib import Path

import pytest
from sqlalchemy import Connection, Executable, delete

from buckets.pool.pool import Pool
from buckets.redis.client import Redis
from jobqueue.health.journal import check_journal
from jobqueue.journal.database import open_store
from jobqueue.journal.tables import position
from jobqueue.settings import Settings
from tests.jobqueue.journal.reading.drained import SOURCE, opened, switched_on
from tests.kit.redis_server import RedisServer


async def found(url: str, *, run: bool = True) -> tuple[str, str]:
    """Level and sentence of the only finding."""
    chosen = Settings(journal=url, journal_run=run, namespace=SOURCE)
    (finding,) = [finding async for finding in check_journal(chosen)]
    assert finding.subject == "journal"
    return finding.level, finding.sentence


async def test_without_a_journal_nothing_is_found() -> None:
    assert [finding async for finding in check_journal(Settings())] == []


async def test_a_journal_is_described_from_before_its_first_reader_on(
    live_pool: Pool, redis_server: RedisServer, journal_url: str
) -> None:
    level, sentence = await found(journal_url)
    assert level == "ok" and sentence.endswith("; serve makes one")
    level, sentence = await found(journal_url, run=False)
    assert level == "warn" and sentence.endswith("; jobqueue journal run makes one")
    await (await open_store(journal_url)).close()
    level, sentence = await found(journal_url)
    assert level == "warn" and f"has nothing of {SOURCE} yet" in sentence
    await switched_on(live_pool)
    async with opened(live_pool, journal_url, redis_server.url) as journal:
        await journal.drain()
    level, sentence = await found(journal_url)
    assert level == "ok" and "has all events until" in sentence


async def test_a_reader_that_is_far_behind_is_warned_of(
    live_pool: Pool, redis_server: RedisServer, sqlite_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    await switched_on(live_pool)
    async with opened(live_pool, sqlite_url, redis_server.url) as journal:
        await journal.drain()
    now = time.time()
    monkeypatch.setattr(time, "time", lambda: now + 3600)
    level, sentence = await found(sqlite_url)
    assert level == "warn" and "journal.ended" in sentence
    level, sentence = await found(sqlite_url, run=False)
    assert level == "warn" and sentence.endswith("jobqueue journal run")


@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("nonsense", "not the URL of a journal"),
        ("sqlite:////nowhere/journal.db", "none can be made in /nowhere"),
        ("sqlite:///no-database", "file is not a database"),
        ("postgresql://user:secret@127.0.0.1:1/db", "onnect"),
        ("mariadb://user:secret@127.0.0.1:1/db", "onnect"),
    ],
)
async def test_what_keeps_a_journal_from_being_written_is_bad(
    url: str, words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "no-database").write_text("as another program writes it\n" * 100)
    monkeypatch.chdir(tmp_path)
    level, sentence = await found(url)
    assert level == "bad" and words in sentence and "secret" not in sentence


def _carry_out(connection: Connection, statement: Executable) -> None:
    connection.execute(statement)


async def judged(pool: Pool, url: str, subject: str = "jobs") -> list[tuple[str, str]]:
    """Level and sentence of the findings about a subject, as a service has them that reaches its Redis."""
    chosen = Settings(journal=url, namespace=SOURCE)
    found = [finding async for finding in check_journal(chosen, pool.redis)]
    return [(each.level, each.sentence) for each in found if each.subject == subject]


async def test_the_clock_of_redis_says_how_far_a_reader_is_behind(
    live_pool: Pool, redis_server: RedisServer, sqlite_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    await switched_on(live_pool)
    async with opened(live_pool, sqlite_url, redis_server.url) as journal:
        await journal.drain()
    now = time.time()
    monkeypatch.setattr(time, "time", lambda: now + 3600)
    ((level, sentence),) = await judged(live_pool, sqlite_url, "journal")
    assert level == "ok" and "1 h ago" not in sentence


async def test_a_shard_that_was_never_read_is_named(redis: Redis, redis_server: RedisServer, sqlite_url: str) -> None:
    pool = await Pool.open(redis, shards=3, buckets=1)
    await switched_on(pool)
    async with opened(pool, sqlite_url, redis_server.url) as journal:
        await journal.drain()
        for shard, which in ((1, "shard 1"), (2, "shards 1, 2")):
            gone = delete(position).where(position.c.shard == shard)
            await journal.sql.run(partial(_carry_out, statement=gone))
            ((level, sentence),) = await judged(pool, sqlite_url, "journal")
            assert level == "warn" and f"has nothing of {which} yet; its reader" in sentence
    await pool.close()
