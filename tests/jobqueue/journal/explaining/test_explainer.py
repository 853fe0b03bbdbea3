"""jobqueue.journal.explainer, history: what is told of a job by Redis, its stream and each database together."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from sqlalchemy import Connection, insert

from buckets.errors import NotFound
from buckets.pool.pool import Pool
from buckets.topics.topics import Bounds, Topics
from buckets.waiting.notifier import Notifier
from buckets.waiting.pollers import Pollers
from jobqueue.cli.journal.explained import lines
from jobqueue.journal import explainer as module
from jobqueue.journal.explainer import Explainer, explain_from
from jobqueue.journal.tables import gap
from jobqueue.journal.url import Refused
from tests.buckets.events.scheduled import there
from tests.buckets.jobs import add, delete, finish, get, pop_one
from tests.jobqueue.journal.conftest import Database
from tests.jobqueue.journal.reading.drained import SOURCE, Journal
from tests.jobqueue.journal.scheduled import define, meet
from tests.kit.waiting import tick_all

DEAD = Bounds(3_600_000, 5)


@pytest.fixture(autouse=True)
def _patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where many tests share two cores, a journal may need longer than a person would wait."""
    monkeypatch.setattr(module, "READ_S", 60.0)


@asynccontextmanager
async def explaining(pool: Pool, url: str = "") -> AsyncIterator[Explainer]:
    explainer = Explainer(pool, Pollers(pool, Notifier(pool), "token"), lambda topic: DEAD, url, SOURCE)
    try:
        yield explainer
    finally:
        await explainer.close()


async def explained(pool: Pool, url: str, job_id: str = "a", **asked: Any) -> dict[str, Any]:
    """What an instance that has just started says."""
    async with explaining(pool, url) as explainer:
        return await explainer.explain(job_id, **asked)


def whats(answer: dict[str, Any]) -> list[str]:
    return [line["what"] for line in answer["timeline"]]


async def after(pool: Pool, seconds: float) -> None:
    """Let time pass, and the timers do their work."""
    await asyncio.sleep(seconds)
    await tick_all(pool)


async def test_a_life_is_told_step_by_step(journal: Journal, live_pool: Pool) -> None:
    await add(live_pool, "a", delay_ms=20, ttr_ms=100, backoff_ms=(150,), tries=5)
    await after(live_pool, 0.03)
    await asyncio.sleep(0.15)
    await pop_one(live_pool, worker="w1")
    await after(live_pool, 0.11)
    await after(live_pool, 0.16)
    await pop_one(live_pool, worker="w2")
    await finish(live_pool, "a")
    await journal.drain()
    told = await explained(live_pool, journal.url)
    lines = told["timeline"]
    assert whats(told) == ["added", "fell due", "delivered", "lease over", "fell due", "delivered", "finished"]
    assert [line["at"] for line in lines] == sorted(line["at"] for line in lines)
    assert lines[0]["how"].startswith("due ")
    due = told["facts"]["job"]["due"]
    assert lines[1]["late"] == pytest.approx(lines[1]["at"] - due, abs=0.002) and lines[1]["late"] > 0
    assert lines[2]["waited"] >= 0.14
    assert lines[2]["how"].startswith("waited ") and lines[2]["how"].endswith(
        "ms: no job of the topic was delivered: nobody popped it, no pause"
    )
    assert (lines[2]["worker"], lines[2]["attempt"]) == ("w1", 1)
    assert lines[2]["who"] == "worker w1, attempt 1 of 5"
    assert lines[3]["worked"] == pytest.approx(0.1, abs=0.002)
    assert "; again by its back-off at " in lines[3]["how"]
    assert lines[4]["backed_off"] == pytest.approx(0.15, abs=0.002)
    assert lines[5]["waited"] == pytest.approx(lines[5]["at"] - lines[4]["at"], abs=0.002)
    assert lines[6]["how"].startswith("worked ")
    sums = told["sums"]
    assert sums["deliveries"] == 2
    assert sums["waited"] == pytest.approx(lines[2]["waited"] + lines[5]["waited"])
    assert sums["worked"] == pytest.approx(lines[3]["worked"] + lines[6]["worked"])
    assert sums["timers_late"] == pytest.approx(sum(line.get("late", 0) for line in lines))
    assert sums["backed_off"] == lines[4]["backed_off"]
    assert sums["late"] == pytest.approx(lines[2]["at"] - due, abs=0.001)
    assert told["sentence"].startswith("finished at ")
    assert told["facts"]["notes"] == []
    assert told["since"] <= lines[0]["at"] + 0.001
    assert told["facts"]["until"] >= lines[-1]["at"]


async def test_what_is_not_drained_yet_is_read_from_the_stream(journal: Journal, live_pool: Pool) -> None:
    await add(live_pool, "a", delay_ms=60_000)
    await journal.drain()
    await live_pool.run("a")
    await pop_one(live_pool)
    told = await explained(live_pool, journal.url)
    assert whats(told) == ["added", "made due", "delivered"]
    await journal.drain()
    again = await explained(live_pool, journal.url)
    assert again["timeline"] == told["timeline"]


async def test_the_jobs_that_went_before_are_counted(journal: Journal, live_pool: Pool) -> None:
    await add(live_pool, "later", priority=4)
    for number in range(3):
        await add(live_pool, f"b{number}", priority=5)
        await add(live_pool, f"o{number}", topic="other")
    await asyncio.sleep(0.11)
    for _ in range(3):
        await pop_one(live_pool)
        await pop_one(live_pool, "other")
    assert (await pop_one(live_pool)).id == "later"
    await journal.drain()
    told = await explained(live_pool, journal.url, "later")
    assert told["timeline"][-1]["how"].endswith("ms: 3 jobs of the topic went before it, no pause")


async def test_a_pause_is_the_reason_for_waiting(journal: Journal, live_pool: Pool) -> None:
    topics = Topics(live_pool)
    await topics.pause("t")
    await topics.pause("other")
    await add(live_pool, "a")
    await asyncio.sleep(0.12)
    await topics.resume("t")
    await asyncio.sleep(0.02)
    await pop_one(live_pool)
    await journal.drain()
    how = (await explained(live_pool, journal.url))["timeline"][-1]["how"]
    assert ": no job of the topic was delivered, the topic was paused for " in how
    assert " ms of that time, until " in how


async def test_a_job_that_is_still_ready_is_explained_up_to_now(journal: Journal, live_pool: Pool) -> None:
    await add(live_pool, "b", priority=9)
    await add(live_pool, "a")
    await asyncio.sleep(0.12)
    popped_at = time.time()
    await pop_one(live_pool)
    await journal.drain()
    told = await explained(live_pool, journal.url)
    facts = told["facts"]
    assert told["sentence"].startswith("Nobody has polled t since ")
    assert facts["reasons"][1:3] == ["no job of its priority is before it", "no pop of the topic waits"]
    assert facts["reasons"][3].startswith("a job of the topic was last delivered in the minute of ")
    assert facts["reasons"][4].startswith("since it is ready: 1 job of the topic went before it until ")
    assert (facts["before"], facts["above"], facts["waiting"], facts["paused"]) == (0, 0, 0, False)
    assert popped_at - 60 <= facts["last_delivery"] <= facts["now"]  # a minute, by its beginning


async def test_a_job_that_redis_forgot_is_told_by_the_journal_alone(lite: Journal, live_pool: Pool) -> None:
    await add(live_pool, "a", retention_ms=0)
    await pop_one(live_pool)
    await finish(live_pool, "a")
    await lite.drain()
    told = await explained(live_pool, lite.url)
    assert told["sentence"].startswith("finished at ")
    assert told["sentence"].endswith(", and Redis no longer remembers it")
    assert (told["facts"]["state"], told["facts"]["topic"], told["facts"]["job"]) == ("finished", "t", None)
    assert whats(told) == ["added", "delivered", "finished"]


async def test_a_job_that_an_add_moved_was_updated_or_rewritten(lite: Journal, live_pool: Pool) -> None:
    await add(live_pool, "a", body=b"1", delay_ms=60_000)
    await add(live_pool, "a", body=b"", delay_ms=90_000, if_exists="later")
    await add(live_pool, "a", body=b"2", delay_ms=120_000, if_exists="later")
    await lite.drain()
    told = await explained(live_pool, lite.url)
    assert whats(told) == ["added", "updated", "rewritten"]
    assert told["timeline"][2]["how"].startswith("a new body, due ")
    assert ": its time was changed" in told["sentence"] and len(told["facts"]["lives"]) == 1


async def test_each_life_of_an_id_can_be_asked_for(lite: Journal, live_pool: Pool) -> None:
    await add(live_pool, "a")
    await delete(live_pool, "a")
    await lite.drain()
    await add(live_pool, "a", if_exists="renew")
    newest = await explained(live_pool, lite.url)
    first, second = newest["facts"]["lives"]
    assert newest["facts"]["life"] == second == (await get(live_pool, "a")).created / 1000
    assert whats(newest) == ["added"]
    older = await explained(live_pool, lite.url, life=first)
    assert whats(older) == ["added", "deleted"]
    assert older["sentence"].startswith("deleted at ")
    assert older["facts"]["job"] is None and older["facts"]["state"] == "deleted"
    everything = await explained(live_pool, lite.url, life="all")
    assert whats(everything) == ["added", "deleted", "added"]
    assert [line["life"] for line in everything["timeline"]] == [first, first, second]
    assert everything["sums"]["late"] is None
    assert await explained(live_pool, lite.url, life=1.0) == older
    assert (await explained(live_pool, lite.url, life=2))["facts"]["life"] == second
    with pytest.raises(NotFound, match="this job has no life 3: 2 lives of it are known"):
        await explained(live_pool, lite.url, life=3)
    for unknown in (first - 5, 0, 1.5):
        with pytest.raises(NotFound, match="no life of this job that was created then is known"):
            await explained(live_pool, lite.url, life=unknown)


async def test_nobody_knows_an_id_since_the_journal_began(lite: Journal, live_pool: Pool) -> None:
    await add(live_pool, "b")
    await lite.drain()
    with pytest.raises(NotFound, match=r"neither in Redis nor in the journal, which goes back to 20\d\d-.* UTC"):
        await explained(live_pool, lite.url)


async def test_topics_out_of_reach_are_not_told(lite: Journal, live_pool: Pool) -> None:
    await add(live_pool, "a", topic="secret", retention_ms=0)
    await delete(live_pool, "a")
    await lite.drain()
    await add(live_pool, "a", topic="t")
    seen = await explained(live_pool, lite.url, within="t")
    assert len(seen["facts"]["lives"]) == 1 and whats(seen) == ["added"]
    assert len((await explained(live_pool, lite.url, within="secret t"))["facts"]["lives"]) == 2
    past = await explained(live_pool, lite.url, within="secret")
    assert past["facts"]["topic"] == "secret" and past["facts"]["job"] is None
    with pytest.raises(NotFound) as refused:
        await explained(live_pool, lite.url, within="other")
    with pytest.raises(NotFound) as unknown:
        await explained(live_pool, lite.url, "nobody", within="other")
    assert refused.value.message == unknown.value.message


async def test_a_gap_is_a_line_of_its_own_and_the_reason_that_nothing_is_known(lite: Journal, live_pool: Pool) -> None:
    await add(live_pool, "a")
    await lite.drain()
    for number in range(3):
        await add(live_pool, f"b{number}")
    await live_pool.redis.read("XTRIM", live_pool.keys[0].events, "MAXLEN", 0)
    await asyncio.sleep(0.12)
    await live_pool.pop(["t"], 4)
    await lite.drain()
    told = await explained(live_pool, lite.url)
    assert "gap" in whats(told)
    lost = next(line for line in told["timeline"] if line["what"] == "gap")
    assert lost["how"].startswith("3 entries of its shard between ")
    delivered = next(line for line in told["timeline"] if line["what"] == "delivered")
    assert delivered["how"].endswith(": why is not known, events of that time are missing")


async def test_what_redis_has_forgotten_is_told_as_such(lite: Journal, live_pool: Pool) -> None:
    await add(live_pool, "a", delay_ms=60_000)
    await lite.drain()
    key = live_pool.keys[0].job("a")
    record = await live_pool.redis.read("GET", key)
    await live_pool.run("a")
    await pop_one(live_pool)
    await lite.drain()
    place = await live_pool.redis.read("XINFO", "STREAM", live_pool.keys[0].events)
    assert place
    # As after a failover: the stream has not what SQL has, and the record is what it was.
    told = await explained(live_pool, lite.url)
    assert [line.get("forgotten") for line in told["timeline"]] == [None] * 3
    await _forget(lite, since_event=1)
    await live_pool.redis.read("SET", key, record)
    told = await explained(live_pool, lite.url)
    assert whats(told) == ["added", "made due", "delivered", "went back"]
    assert [line.get("forgotten") for line in told["timeline"]] == [None, True, True, None]
    assert "\n".join(lines(told)).count("lost from Redis") == 2  # these are in no sum
    assert told["sums"]["deliveries"] == 0
    assert told["sentence"].startswith("delayed until ")


def how_delivered(answer: dict[str, Any]) -> str:
    (line,) = [line for line in answer["timeline"] if line["what"] == "delivered"]
    return str(line["how"])


async def empty(pool: Pool) -> None:
    """Redis loses all; the service founds its namespace again."""
    await pool.redis.read("FLUSHALL")
    await pool.ensure_meta(0)


async def test_what_happened_before_redis_was_emptied_is_marked_and_counts(journal: Journal, live_pool: Pool) -> None:
    await add(live_pool, "a")
    await pop_one(live_pool)
    await journal.drain()
    await empty(live_pool)
    await add(live_pool, "a", topic="again")
    await journal.drain()
    first, _ = (await explained(live_pool, journal.url))["facts"]["lives"]
    told = await explained(live_pool, journal.url, life=first)
    assert whats(told) == ["added", "delivered", "emptied"]
    assert [line.get("forgotten") for line in told["timeline"]] == [True, True, None]
    assert [line for line in lines(told) if "lost" in line] == [
        line for line in lines(told) if "Redis was emptied or replaced, and lost what was recorded" in line
    ]
    assert told["sums"]["deliveries"] == 1
    assert "forgotten" not in (await explained(live_pool, journal.url))["timeline"][0]


async def test_a_pause_ends_when_redis_is_emptied(journal: Journal, live_pool: Pool) -> None:
    await Topics(live_pool).pause("t")
    await add(live_pool, "before")
    await journal.drain()
    await empty(live_pool)
    await asyncio.sleep(0.01)
    await add(live_pool, "a")
    await asyncio.sleep(0.12)
    await pop_one(live_pool)
    await journal.drain()
    assert how_delivered(await explained(live_pool, journal.url)).endswith("nobody popped it, no pause")


async def test_a_pause_that_a_failover_took_back_explains_nothing(journal: Journal, live_pool: Pool) -> None:
    await add(live_pool, "first")
    await Topics(live_pool).pause("t")
    await journal.drain()
    await live_pool.redis.read("DEL", live_pool.keys[0].paused("t"))
    await _forget(journal, since_event=1)
    await asyncio.sleep(0.01)
    await add(live_pool, "a", priority=9)
    await asyncio.sleep(0.12)
    assert (await pop_one(live_pool)).id == "a"
    await journal.drain()
    assert how_delivered(await explained(live_pool, journal.url)).endswith("nobody popped it, no pause")


async def _forget(journal: Journal, since_event: int) -> None:
    """Write that Redis went back behind an event."""
    events = await journal.events()
    kept, last = events[since_event - 1], events[-1]
    row = {
        **{"source": SOURCE, "shard": 0, "epoch": 1, "kind": 2, "entries": 0, "found": last["at"]},
        **{"from_ms": kept["ms"], "from_seq": kept["seq"], "to_ms": last["ms"], "to_seq": last["seq"]},
    }

    def write(connection: Connection) -> None:
        connection.execute(insert(gap).values(row))
        connection.commit()

    await journal.sql.run(write)


async def test_without_a_journal_the_record_is_explained_alone(live_pool: Pool) -> None:
    await add(live_pool, "a")
    told = await explained(live_pool, "")
    assert (told["timeline"], told["sums"], told["since"]) == (None, None, None)
    assert told["facts"]["notes"] == [module.NO_JOURNAL]
    assert told["sentence"].startswith("Nobody has polled t since ")
    with pytest.raises(NotFound, match="no journal was read"):
        await explained(live_pool, "", "nobody")


@pytest.mark.parametrize("journal_database", ["postgresql", "mariadb"], indirect=True)
async def test_a_journal_that_is_away_is_a_note_and_no_error(
    journal: Journal, journal_database: Database, live_pool: Pool, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert journal_database.server is not None
    await add(live_pool, "a")
    await journal.drain()
    async with explaining(live_pool, journal.url) as explainer:
        monkeypatch.setattr(module, "READ_S", 0.3)
        journal_database.server.freeze()
        try:
            begun = asyncio.get_running_loop().time()
            told = await explainer.explain("a")
            assert asyncio.get_running_loop().time() - begun < 1
        finally:
            journal_database.server.thaw()
        assert told["facts"]["notes"] == [module.AWAY] and told["timeline"] is None
        monkeypatch.setattr(module, "READ_S", 5)
        assert whats(await explainer.explain("a")) == ["added"]
        journal_database.server.kill()
        assert (await explainer.explain("a"))["facts"]["notes"] == [module.AWAY]
        journal_database.server.start()
        assert whats(await explainer.explain("a")) == ["added"]


async def test_a_file_that_is_not_there_is_a_note(live_pool: Pool, sqlite_url: str) -> None:
    await add(live_pool, "a")
    assert (await explained(live_pool, sqlite_url))["facts"]["notes"] == [module.AWAY]


async def test_a_stream_that_is_far_ahead_is_a_note(
    lite: Journal, live_pool: Pool, monkeypatch: pytest.MonkeyPatch
) -> None:
    await add(live_pool, "a")
    await lite.drain()
    monkeypatch.setattr("buckets.events.stream.MOST_ENTRIES", 2)
    monkeypatch.setattr("buckets.events.stream._FIRST", 1)
    monkeypatch.setattr("buckets.events.stream._MOST", 1)
    for number in range(3):
        await add(live_pool, f"b{number}")
    assert (await explained(live_pool, lite.url))["facts"]["notes"] == [module._BEHIND]


async def test_events_that_are_off_are_a_note(lite: Journal, live_pool: Pool) -> None:
    await add(live_pool, "a")
    await lite.drain()
    await live_pool.redis.read("HDEL", live_pool.keys[0].meta, "events")
    assert (await explained(live_pool, lite.url))["facts"]["notes"] == [module._OFF]


async def test_a_dead_letter_is_told_until_when_it_is_kept(lite: Journal, live_pool: Pool) -> None:
    for job_id in ("a", "b"):
        await add(live_pool, job_id)
        await live_pool.bury((await pop_one(live_pool, worker="w")).id, None, "no connection")
    await lite.drain()
    told = await explained(live_pool, lite.url)
    assert "its worker buried it (no connection); it will be deleted at " in told["sentence"]
    assert told["sentence"].endswith(" or once 4 jobs more of the topic have died")
    facts = told["facts"]
    assert (facts["newer"], facts["max_dead"]) == (1, 5)
    assert facts["deleted_at"] == pytest.approx(facts["job"]["dead_since"] + 3600)
    assert whats(told)[-1] == "buried" and told["timeline"][-1]["how"].endswith(": no connection")


async def test_a_journal_is_read_without_redis(journal: Journal, live_pool: Pool) -> None:
    await add(live_pool, "a")
    await asyncio.sleep(0.11)
    await pop_one(live_pool)
    await journal.drain()
    told = await explain_from(journal.url, None, "a")
    assert whats(told) == ["added", "delivered"]
    assert told["timeline"][-1]["how"].endswith("nobody popped it, no pause")
    assert told["facts"]["notes"] == [module.ALONE]
    assert told["sentence"].startswith("reserved since ")
    assert (await explain_from(journal.url, SOURCE, "a"))["timeline"] == told["timeline"]
    with pytest.raises(NotFound, match="no such job: not in the journal, which goes back to"):
        await explain_from(journal.url, None, "b")
    with pytest.raises(Refused, match="the journal has no source x; it has jq"):
        await explain_from(journal.url, "x", "a")


async def test_an_id_is_compared_by_its_bytes(journal: Journal, live_pool: Pool) -> None:
    await add(live_pool, "a")
    await add(live_pool, "A", topic="T")
    await journal.drain()
    assert (await explained(live_pool, journal.url, "A"))["facts"]["topic"] == "T"
    assert len((await explained(live_pool, journal.url))["timeline"]) == 1


async def test_a_job_that_a_schedule_made_says_so_drained_or_not(journal: Journal, live_pool: Pool) -> None:
    await define(live_pool, "s", in_ms=-1)
    await meet(live_pool, "s")
    [schedule] = (await there(live_pool)).values()
    made = f"s@{schedule.last}"
    await add(live_pool, "s@1")  # by somebody else
    from_stream = await explained(live_pool, journal.url, made)
    await journal.drain()
    from_journal = await explained(live_pool, journal.url, made)
    assert from_stream["timeline"] == from_journal["timeline"]
    assert from_journal["timeline"][0]["how"] == "made by the schedule s, ready at once"
    await journal.sql.ask_for_walk(SOURCE, 0, 1)  # which reads the schedule at the entry of the other job
    await journal.drain()
    assert (await explained(live_pool, journal.url, "s@1"))["timeline"][0]["how"] == "ready at once"
    await delete(live_pool, made)
    await add(live_pool, made, if_exists="renew")
    await journal.drain()
    lives = (await explained(live_pool, journal.url, made, life="all"))["timeline"]
    assert [line["how"] for line in lives if line["what"] != "seen"] == [
        "made by the schedule s, ready at once",
        "it was ready",
        "ready at once",
    ]
    first = (await explained(live_pool, journal.url, made, life=1.0))["timeline"]
    assert [line["what"] for line in first] == ["added", "seen", "deleted"]
