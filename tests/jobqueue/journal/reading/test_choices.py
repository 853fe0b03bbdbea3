"""What a journal keeps of events and bodies is kept by whatever writes it next, and told to who asks for the rest."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs

from buckets.job import Verb
from buckets.pool.pool import Pool
from jobqueue.journal import audit, choices
from jobqueue.journal.audit import Asked
from jobqueue.journal.choices import Change, Choice
from jobqueue.journal.database import open_engine
from jobqueue.journal.explainer import explain_from
from jobqueue.journal.reading.verdict import UNKNOWN
from jobqueue.journal.restoring import runs
from jobqueue.journal.restoring.candidates import Past
from jobqueue.journal.restoring.reading import Choice as Restored
from jobqueue.journal.restoring.reading import NotBegun, Reading
from jobqueue.journal.tables import choice
from jobqueue.journal.url import Refused
from tests.buckets.jobs import add, delete
from tests.jobqueue.journal.reading.drained import SOURCE, Journal, opened, switched_on
from tests.jobqueue.journal.reading.process import JournalProcess, clean_environment, journal
from tests.jobqueue.journal.reading.test_shard import moves, told, whole_life
from tests.kit import forked
from tests.kit.redis_server import RedisServer
from tests.kit.service import ServiceProcess

NARROW: dict[str, Any] = {"events": "ends", "bodies": False}


async def bodies(journal: Journal) -> dict[str, str | None]:
    return {job_id: row["body"] for job_id, row in (await journal.jobs()).items()}


async def drained(pool: Pool, url: str, redis: RedisServer, **options: Any) -> None:
    """Drain as a reader does that was told these options."""
    async with opened(pool, url, redis.url, **options) as journal:
        await journal.drain()


async def test_a_reader_that_is_told_nothing_keeps_what_was_chosen(
    live_pool: Pool, journal_url: str, redis_server: RedisServer
) -> None:
    await switched_on(live_pool)
    await drained(live_pool, journal_url, redis_server, **NARROW)
    async with opened(live_pool, journal_url, redis_server.url) as journal:
        await whole_life(live_pool, "a")
        await journal.drain()
        assert moves(await journal.events()) == [("a", Verb.ADD), ("a", Verb.FINISH)]
        assert await bodies(journal) == {"a": None}
        assert [(row["events"], row["bodies"]) for row in await journal.rows(choice)] == [("ends", 0)]


async def test_what_is_chosen_again_holds_from_then_on_and_is_told_once(
    live_pool: Pool, journal_url: str, redis_server: RedisServer
) -> None:
    await switched_on(live_pool)
    await drained(live_pool, journal_url, redis_server, **NARROW)
    await told(live_pool, "a")
    await drained(live_pool, journal_url, redis_server)
    async with opened(live_pool, journal_url, redis_server.url, events="all", bodies=True) as journal:
        with capture_logs() as logs:
            await journal.drain()
            await whole_life(live_pool, "b")
            await journal.drain()
        told_of = [(line["events"], line["bodies"]) for line in logs if line["event"] == "journal.chosen"]
        assert told_of == [("all", True)]
        assert moves(await journal.events()) == [
            *(("a", Verb.ADD), ("b", Verb.ADD), ("b", Verb.POP), ("b", Verb.FINISH)),
        ]
        assert await bodies(journal) == {"a": "1", "b": "1"}  # a walk has read what was not kept before


async def test_a_walk_by_the_command_keeps_no_bodies_where_none_are_kept(
    live_pool: Pool, sqlite_url: str, redis_server: RedisServer, tmp_path: Path
) -> None:
    await switched_on(live_pool)
    where, flags = (redis_server.url, sqlite_url), ("--bodies", "none", "--events", "none")
    async with opened(live_pool, sqlite_url, redis_server.url) as lite:
        async with JournalProcess(*where, tmp_path / "log", *flags) as process:
            await lite.until_drained()
            assert len(process.logged("journal.chosen")) == 1
            assert await process.stop() == 0
        await told(live_pool, "a")
        assert (await journal("walk", "--redis", where[0], "--to", where[1]))[0] == 0
        assert await bodies(lite) == {"a": None} and await lite.events() == []


async def test_a_service_that_writes_its_journal_keeps_no_bodies_where_none_are_kept(
    live_pool: Pool, sqlite_url: str, redis_server: RedisServer, tmp_path: Path
) -> None:
    await switched_on(live_pool)
    await drained(live_pool, sqlite_url, redis_server, **NARROW)
    (tmp_path / "settings.toml").write_text(f'journal = "{sqlite_url}"\njournal_run = true\n')
    async with opened(live_pool, sqlite_url, redis_server.url) as journal:
        flags = ("--config", str(tmp_path / "settings.toml"), "--redis", redis_server.url)
        async with ServiceProcess(*flags, log=tmp_path / "log"):
            await whole_life(live_pool, "a")
            await journal.until_drained()
        assert moves(await journal.events()) == [("a", Verb.ADD), ("a", Verb.FINISH)]
        assert await bodies(journal) == {"a": None}


async def test_restore_keeps_no_bodies_where_none_are_kept_when_it_drains_by_itself(
    live_pool: Pool, sqlite_url: str, redis_server: RedisServer
) -> None:
    await switched_on(live_pool)
    await drained(live_pool, sqlite_url, redis_server, **NARROW)
    await told(live_pool, "a")
    arguments = ("restore", "a", "--redis", redis_server.url, "--from", sqlite_url)
    await forked.ran(arguments, clean_environment())
    async with opened(live_pool, sqlite_url, redis_server.url) as journal:
        assert await bodies(journal) == {"a": None}


async def as_of_now(pool: Pool, url: str) -> None:
    """Begin to restore the jobs of this moment. Raises NotBegun."""
    engine = await open_engine(url)
    try:
        await runs.check(Reading(engine, SOURCE), Restored(as_of=await pool.now_us()))
    finally:
        await engine.dispose()


async def test_an_earlier_time_is_not_restored_from_events_that_are_not_kept(
    live_pool: Pool, journal_url: str, redis_server: RedisServer
) -> None:
    await switched_on(live_pool)
    await drained(live_pool, journal_url, redis_server)
    await add(live_pool, "a", delay_ms=3_600_000)
    await drained(live_pool, journal_url, redis_server)
    await as_of_now(live_pool, journal_url)
    before = await live_pool.now_us()
    await drained(live_pool, journal_url, redis_server, events="ends")
    with pytest.raises(
        NotBegun, match=r"only the events that begin or end.* from 20.* on \(`journal run --events ends`\)"
    ):
        await as_of_now(live_pool, journal_url)
    await drained(live_pool, journal_url, redis_server, events="all")
    await as_of_now(live_pool, journal_url)  # a walk has told all states since
    engine = await open_engine(journal_url)
    with pytest.raises(NotBegun, match=r"--events ends`\), and jobs are known again since 20"):
        await runs.check(Reading(engine, SOURCE), Restored(as_of=before))
    await engine.dispose()


async def test_what_ended_while_no_events_were_kept_does_not_come_back_as_it_was_later(
    live_pool: Pool, sqlite_url: str, redis_server: RedisServer
) -> None:
    await switched_on(live_pool)
    await add(live_pool, "a", delay_ms=3_600_000, retention_ms=0)
    await drained(live_pool, sqlite_url, redis_server)
    await drained(live_pool, sqlite_url, redis_server, events="none")
    await delete(live_pool, "a")
    await drained(live_pool, sqlite_url, redis_server)
    await drained(live_pool, sqlite_url, redis_server, events="all")
    await as_of_now(live_pool, sqlite_url)
    engine, now = await open_engine(sqlite_url), await live_pool.now_us()
    reading = Reading(engine, SOURCE)
    assert await Past(reading, Restored(as_of=now), now).then(await reading.jobs(["a"])) == {}
    await engine.dispose()


async def ask(url: str, name: str, since: int, until: int, by: Any = "topic") -> list[list[Any]]:
    return (await audit.ask(url, None, name, Asked(since, until, by=by))).rows


async def test_questions_about_events_that_are_not_kept_are_refused_and_others_answered(
    live_pool: Pool, journal_url: str, redis_server: RedisServer
) -> None:
    await switched_on(live_pool)
    await whole_life(live_pool, "a")
    begin, before = 0, await live_pool.now_us()
    await drained(live_pool, journal_url, redis_server)
    await drained(live_pool, journal_url, redis_server, events="ends")
    await whole_life(live_pool, "b")
    await drained(live_pool, journal_url, redis_server)
    now = await live_pool.now_us()
    for name in ("waited", "kicked", "expired-leases"):
        with pytest.raises(Refused, match="`journal run --events ends`"):
            await ask(journal_url, name, begin, now)
    with pytest.raises(Refused, match="ends"):
        await ask(journal_url, "slow", begin, now, by="worker")
    assert (await ask(journal_url, "waited", begin, before))[0][:2] == ["lives", 1]
    assert (await ask(journal_url, "slow", begin, now))[0][:2] == ["lives", 2]
    assert (await ask(journal_url, "volume", begin, now))[0][0] == "lives"
    assert await ask(journal_url, "dead", begin, now) == await ask(journal_url, "gaps", begin, now) == []
    await drained(live_pool, journal_url, redis_server, events="none")
    for name in ("slow", "dead", "deleted"):
        with pytest.raises(Refused, match="keeps no events"):
            await ask(journal_url, name, begin, await live_pool.now_us())


async def test_audit_and_restore_tell_what_is_not_kept_and_end_with_2(
    live_pool: Pool, sqlite_url: str, redis_server: RedisServer
) -> None:
    await switched_on(live_pool)
    await drained(live_pool, sqlite_url, redis_server)
    await told(live_pool, "a")
    await drained(live_pool, sqlite_url, redis_server, events="ends")
    where = ("--redis", redis_server.url, "--from", sqlite_url)
    for command in (("audit", "waited", *where[2:]), ("restore", "--all", "--as-of", "0s", *where)):
        ran = await forked.ran(command, clean_environment())
        assert ran.code == 2
        assert "(`journal run --events ends`)" in ran.err


async def test_explain_tells_which_events_are_not_kept_and_adds_nothing_up(
    live_pool: Pool, journal_url: str, redis_server: RedisServer
) -> None:
    await switched_on(live_pool)
    await whole_life(live_pool, "before")
    await drained(live_pool, journal_url, redis_server)
    await drained(live_pool, journal_url, redis_server, events="ends")
    await whole_life(live_pool, "a")
    await drained(live_pool, journal_url, redis_server)
    answer = await explain_from(journal_url, None, "a")
    assert [line["what"] for line in answer["timeline"]] == ["added", "finished"]
    assert any("only the events that begin or end a life" in note for note in answer["facts"]["notes"])
    assert answer["sums"] is None
    earlier = await explain_from(journal_url, None, "before")
    assert earlier["sums"]["deliveries"] == 1 and not any("keeps" in note for note in earlier["facts"]["notes"])
    assert json.dumps(answer)


async def test_times_of_which_not_all_is_kept() -> None:
    known = [
        Change(0, 100, Choice("ends")),
        Change(0, 200, Choice("ends", bodies=False)),
        Change(0, 300, Choice("all", bodies=False)),
        Change(1, 250, Choice("none")),
    ]
    assert [each[:3] for each in choices.unkept(known)] == [(0, 100, 300), (1, 250, None)]
    assert [each.shard for each in choices.unkept(known, since=300)] == [1]
    assert [each.shard for each in choices.unkept(known, until=250)] == [0]
    assert choices.unkept(known, until=100) == []
    own = choices.of_shard(known, 0)
    assert [choices.held_at(own, at).events for at in (100, 101, 300, 301)] == ["all", "ends", "ends", "all"]


async def test_a_redis_that_forgot_its_deliveries_is_compared_with_what_was_kept_of_that_time(
    live_pool: Pool, sqlite_url: str, redis_server: RedisServer
) -> None:
    await switched_on(live_pool)
    await drained(live_pool, sqlite_url, redis_server, events="none")
    await told(live_pool, "a")
    key = live_pool.keys[0].events
    before = await live_pool.redis.read("DUMP", key)
    await drained(live_pool, sqlite_url, redis_server)
    await drained(live_pool, sqlite_url, redis_server, events="all")
    await live_pool.redis.read("RESTORE", key, 0, before, "REPLACE")
    await told(live_pool, "b")
    async with opened(live_pool, sqlite_url, redis_server.url) as journal:
        await journal.drain()
        assert [row["id"] for row in await journal.events()] == ["b"]
        assert {row["kind"] for row in await journal.gaps()} == {UNKNOWN}
