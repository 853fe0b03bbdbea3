"""Schedules are drained as jobs are: each event once, in order; a walk reads what nobody heard."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from buckets.events.stream import Stream
from buckets.events.switch import switch_off
from buckets.job import Verb
from buckets.pool.pool import Pool
from buckets.schedules.record import Schedule, pack_schedule
from jobqueue.journal.reading import walk
from jobqueue.journal.tables import event, schedule
from tests.buckets.events.scheduled import there, undefine
from tests.jobqueue.journal.reading.drained import Journal, opened, switched_on
from tests.jobqueue.journal.reading.test_shard import told
from tests.jobqueue.journal.reading.test_walk import cut_all, walked
from tests.jobqueue.journal.scheduled import define, meet
from tests.kit.redis_server import RedisServer


async def rows(journal: Journal) -> dict[str, dict[str, Any]]:
    return {row["name"]: row for row in await journal.rows(schedule)}


async def records(journal: Journal) -> dict[str, bytes]:
    """The records of the schedules that live by the journal, by name, as its rows give them."""
    found = {}
    for name, row in (await rows(journal)).items():
        if row["gone"] is None:
            revision, start, then, last = (row[each] for each in ("revision", "start", "next", "last"))
            known = Schedule(name, 0, revision, start, then, last, row["definition"].encode())
            found[name] = pack_schedule(known)
    return found


async def in_redis(pool: Pool) -> dict[str, bytes]:
    return {name: pack_schedule(each._replace(bucket=0)) for name, each in (await there(pool)).items()}


async def test_the_records_of_schedules_are_rebuilt_from_their_events_alone(journal: Journal, live_pool: Pool) -> None:
    await journal.drain()
    await define(live_pool, "s", body='{"n":"é\\u0000 \\ud83d\\ude00"}'.encode(), in_ms=-5_000, every=1.0)
    await define(live_pool, "cron", cron="*/5 * * * *", zone="Europe/Berlin", in_ms=-1)
    await define(live_pool, "other", in_ms=-1)
    for name in ("s", "cron", "other"):
        await meet(live_pool, name)
    await define(live_pool, "other", topic="u", paused=True, overlap="skip")
    await define(live_pool, "gone")
    await undefine(live_pool, "gone")
    await journal.drain()
    assert await records(journal) == await in_redis(live_pool)
    assert {name: row["topic"] for name, row in (await rows(journal)).items()} == {
        **{"s": "t", "cron": "t", "other": "u", "gone": "t"},
    }
    assert await walked(journal) == {} and await journal.refused() == []
    made = [row for row in await journal.events() if not row["id"].startswith("~")]
    assert len(made) == 3 and {row["verb"] for row in made} == {Verb.ADD}
    for row in made:  # beside its schedule
        assert [
            each["id"] for each in await journal.events() if (each["ms"], each["seq"]) == (row["ms"], row["seq"])
        ] == [
            row["id"],
            f"~{row['id'].partition('@')[0]}",
        ]


async def test_at_first_the_schedules_that_are_there_are_read(
    live_pool: Pool, journal_url: str, redis_server: RedisServer
) -> None:
    for number in range(120):
        await define(live_pool, f"s{number}", body=b'"' + b"x" * 20_000 + b'"')
    await switched_on(live_pool)
    async with opened(live_pool, journal_url, redis_server.url) as journal:
        await journal.drain()
        assert await records(journal) == await in_redis(live_pool)
        assert set((await walked(journal)).values()) == {Verb.WALK}


async def test_a_walk_behind_a_gap_reads_what_was_defined_and_marks_what_vanished(
    journal: Journal, live_pool: Pool
) -> None:
    for name in ("stays", "changes", "goes"):
        await define(live_pool, name)
    await told(live_pool, "a")
    await journal.drain()
    await switch_off(live_pool, 0)
    await define(live_pool, "new")
    await define(live_pool, "changes", topic="u")
    await undefine(live_pool, "goes")
    await switched_on(live_pool)
    await told(live_pool, "b")
    await journal.drain()
    assert await records(journal) == await in_redis(live_pool)
    found = await rows(journal)
    assert found["goes"]["gone"] and found["goes"]["definition"] and found["changes"]["topic"] == "u"
    assert (await walked(journal))["~goes"] == Verb.VANISHED


async def test_a_schedule_that_is_removed_while_it_is_looked_for_has_not_vanished(
    lite: Journal, live_pool: Pool, monkeypatch: pytest.MonkeyPatch
) -> None:
    await define(live_pool, "s")
    await lite.drain()
    read = Stream.records

    async def removed(self: Stream, ids: list[str]) -> Any:
        if ids and await there(live_pool):
            await undefine(live_pool, "s")
        return await read(self, ids)

    async def nothing(self: walk.Walk) -> Any:
        return
        yield

    monkeypatch.setattr(Stream, "records", removed)
    monkeypatch.setattr(walk.Walk, "_scanned", nothing)
    await told(live_pool, "b")
    await cut_all(live_pool)
    await lite.drain()
    assert (await rows(lite))["s"]["gone"]
    assert Verb.VANISHED not in {row["verb"] for row in await lite.rows(event)}


async def test_a_walk_beside_times_that_come_never_takes_an_older_record_for_newer(
    lite: Journal, live_pool: Pool
) -> None:
    names = [f"s{number}" for number in range(20)]
    for name in names:
        await define(live_pool, name, in_ms=-60_000, every=1.0)
    async with lite.draining():
        for _ in range(5):
            for name in names:
                await define(live_pool, name, body=b"%d" % _, in_ms=-60_000, every=1.0)
                await meet(live_pool, name)
            await lite.sql.ask_for_walk("jq", 0, await live_pool.now_us())
            await asyncio.sleep(0.02)
        await lite.until_drained()
    assert await records(lite) == await in_redis(live_pool)


async def test_another_programs_key_in_the_place_of_the_schedules_stops_no_walk(
    journal: Journal, live_pool: Pool
) -> None:
    await live_pool.redis.read("SET", live_pool.keys[0].schedules, "x")
    await told(live_pool, "a")
    await cut_all(live_pool)
    await journal.drain()
    assert set(await journal.jobs()) == {"a"} and await rows(journal) == {}


async def test_an_unreadable_record_of_a_schedule_is_told_and_stops_nobody(journal: Journal, live_pool: Pool) -> None:
    await define(live_pool, "s")
    await live_pool.redis.read("HSET", live_pool.keys[0].schedules, "bad", b"\x07x")
    await cut_all(live_pool)
    await journal.drain()
    assert set(await rows(journal)) == {"s"}
    assert [row["raw"] for row in await journal.refused()] == [b"~bad\0\x07x"]
