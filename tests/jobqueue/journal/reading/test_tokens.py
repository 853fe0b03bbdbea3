"""Tokens are read as Redis has them, whatever is kept of events; their digests are in their table only."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Connection, inspect, text, update

from buckets.access import Entry, Tokens
from buckets.pool.pool import Pool
from jobqueue.access.issuing import Issuing
from jobqueue.access.tokens import KEPT_S, as_json
from jobqueue.journal.keeping import Keeper, Periods
from jobqueue.journal.tables import event, position, token
from tests.buckets.jobs import add
from tests.jobqueue.access.records import record
from tests.jobqueue.access.tables import create
from tests.jobqueue.journal.export.exporting import rows
from tests.jobqueue.journal.reading.drained import Journal, opened, switched_on
from tests.jobqueue.journal.reading.process import clean_environment
from tests.kit import forked
from tests.kit.redis_server import RedisServer

_US = 1_000_000


async def kept(journal: Journal) -> dict[str, bytes]:
    """The records of tokens in a journal, by id."""
    return {row["id"]: row["record"].encode() for row in await journal.rows(token)}


async def in_redis(pool: Pool) -> dict[str, bytes]:
    return (await Tokens(pool).read()).records


async def ended(journal: Journal) -> dict[str, int | None]:
    return {row["id"]: row["ended"] for row in await journal.rows(token)}


async def forget(pool: Pool, *ids: str) -> None:
    """Redis loses tokens."""
    await pool.redis.read("HDEL", pool.keys[0].tag + "tokens", *ids)


@pytest.mark.parametrize("events", ["all", "none"])
async def test_tokens_from_before_the_journal_and_their_changes_are_kept(
    live_pool: Pool, journal_url: str, redis_server: RedisServer, events: Any
) -> None:
    await switched_on(live_pool)
    issuing = Issuing(Tokens(live_pool))
    first, second = await create(issuing, "first"), await create(issuing, "second", expires="never")
    async with opened(live_pool, journal_url, redis_server.url, events=events) as journal, journal.draining():
        await journal.until_drained()
        assert await kept(journal) == await in_redis(live_pool) and len(await kept(journal)) == 2
        third = await create(issuing, "third", topics=["a", "b.*"], rate=5)
        await issuing.rotate(first.record.id, keep_s=60.0)
        await issuing.revoke(second.record.id)
        await journal.until_drained()
        assert await kept(journal) == await in_redis(live_pool)
        ends = await ended(journal)
        assert third.record.expires and ends[third.record.id] == int(third.record.expires * _US)
        assert ends[second.record.id]
        assert await journal.rows(event) == []


async def test_of_two_records_the_one_that_was_changed_last_is_kept(lite: Journal, live_pool: Pool) -> None:
    tokens = Tokens(live_pool)
    older, newer = (record(id="aaaaaaaa", digest="0" * 64, changed=each, name=f"t{each}") for each in (1, 2))
    await tokens.write([Entry(newer.id, 2, as_json(newer))])
    await lite.drain()
    await forget(live_pool, newer.id)
    await tokens.write([Entry(older.id, 1, as_json(older))])  # as after a failover
    await lite.drain()
    assert await kept(lite) == {"aaaaaaaa": as_json(newer)}


@pytest.mark.parametrize("is_long", [True, False])
async def test_after_a_long_pause_a_token_that_is_not_there_may_have_been_revoked(
    journal: Journal, live_pool: Pool, is_long: bool
) -> None:
    issuing = Issuing(Tokens(live_pool))
    gone, there = await create(issuing, "gone", expires="never"), await create(issuing, "there", expires="never")
    await journal.drain()
    await forget(live_pool, gone.record.id)
    pause_us = (KEPT_S + (60 if is_long else -60)) * _US
    earlier = update(position).values(time=position.c.time - pause_us)
    await journal.sql.run(lambda connection: connection.execute(earlier) and None)
    await journal.drain()
    ends = await ended(journal)
    assert (ends[gone.record.id] is not None, ends[there.record.id]) == (is_long, None)
    await Tokens(live_pool).write([Entry(gone.record.id, gone.record.changed, as_json(gone.record))])
    await journal.drain()
    assert (await ended(journal))[gone.record.id] is None


async def test_another_programs_key_does_not_hold_up_the_reader(lite: Journal, live_pool: Pool) -> None:
    await live_pool.redis.read("SET", live_pool.keys[0].tag + "tokens", "theirs")
    await add(live_pool, "a")
    await lite.drain()
    assert list(await lite.jobs()) == ["a"] and await kept(lite) == {}


async def test_ended_tokens_are_kept_as_long_as_ended_jobs(journal: Journal, live_pool: Pool) -> None:
    issuing = Issuing(Tokens(live_pool))
    revoked, lives = await create(issuing, "revoked"), await create(issuing, "lives", expires="never")
    await issuing.revoke(revoked.record.id)
    await journal.drain()
    assert journal.sql._engine
    now_ms = await live_pool.now_ms()
    for hours, left in ((1, {revoked.record.id, lives.record.id}), (-1, {lives.record.id})):
        await Keeper(journal.sql._engine, Periods(jobs=hours * 3_600_000)).step(now_ms)
        assert set(await kept(journal)) == left


async def test_digests_are_in_no_other_table_no_view_and_no_answer(
    live_pool: Pool, journal_url: str, redis_server: RedisServer, tmp_path: Path
) -> None:
    await switched_on(live_pool)
    issuing = Issuing(Tokens(live_pool))
    issued = await create(issuing, "worker")
    rotated = await issuing.rotate(issued.record.id, keep_s=60.0)
    secrets = {issued.token.text, rotated.token.text, issued.token.digest, rotated.token.digest}
    await add(live_pool, "a")
    environment = {**clean_environment(), "JOBQUEUE_JOURNAL": journal_url, "JOBQUEUE_REDIS": redis_server.url}
    async with opened(live_pool, journal_url, redis_server.url) as journal, journal.draining():
        await journal.until_drained()
        tables = await journal.sql.run(_content)
        assert _shown(secrets, tables.pop("jq_token")) == {issued.token.digest, rotated.token.digest}
        assert {"jq_timeline", "jq_event", "jq_job"} < tables.keys()
        assert _shown(secrets, *tables.values()) == set()
        for arguments in (
            ("explain", "a", "--from", journal_url),
            *(("audit", question) for question in ("late", "volume", "gaps", "deleted")),
            ("journal", "check"),
            ("journal", "export", "--out", f"{tmp_path}/out", "--what", "events,deliveries,jobs"),
            ("restore", "--tokens", "--dry-run"),
            ("restore", "--tokens", "--json"),
            ("restore", "--all"),
        ):
            code, out, err = await forked.ran(arguments, environment)
            assert code in (0, 1), err
            assert _shown(secrets, out, err) == set()
    written = [str(rows(tmp_path / "out", kind)) for kind in ("events", "jobs")]
    assert all("'a'" in each for each in written) and _shown(secrets, *written) == set()


def test_spark_reads_no_table_of_tokens() -> None:
    read = {name for file in Path("clients/spark").rglob("*.py") for name in re.findall(r"jq_[a-z]+", file.read_text())}
    assert "jq_timeline" in read and "jq_token" not in read


def _shown(secrets: set[str], *texts: str) -> set[str]:
    return {secret for secret in secrets for text in texts if secret in text}


def _content(connection: Connection) -> dict[str, str]:
    """All rows of all tables and views, as text."""
    found = inspect(connection)
    names = [*found.get_table_names(), *found.get_view_names()]
    return {name: str([*map(tuple, connection.execute(text(f"SELECT * FROM {name}")))]) for name in names}
