"""jobqueue.commands.inner: what dialects ask for, and the answers that they get."""

from __future__ import annotations

import asyncio
import math
from typing import Any

import pytest
from msgspec import Raw

from buckets import REPLICATED, Job, NewJob, Pool, Redis, Tag
from buckets.errors import AlreadyExists, Unavailable
from jobqueue.access.grants import GRANT, OPEN
from jobqueue.commands.carrying_out import Commands
from jobqueue.engine.engine import Engine
from jobqueue.engine.new_jobs import Policies
from jobqueue.metrics.process import Metrics
from jobqueue.schema import inner, params
from jobqueue.settings import Settings
from tests.buckets.jobs import add
from tests.jobqueue.test_commands import engine_on
from tests.kit.waiting import until

NUMBERED = {"ttr": 60, "numbered": True}


@pytest.fixture
def engine(live_pool: Pool) -> Engine:
    return engine_on(live_pool)


async def ask(engine: Engine, command: Any, reserved: list[Job] | None = None, **how: Any) -> dict[str, Any]:
    GRANT.set(OPEN)
    return (await Commands(engine, Metrics(), 5.0).answer([command], [] if reserved is None else reserved, **how))[0]


async def done(engine: Engine, command: Any, **how: Any) -> dict[str, Any]:
    answer = await ask(engine, command, **how)
    assert answer["success"], answer
    return answer


async def code(engine: Engine, command: Any, **how: Any) -> str:
    answer = await ask(engine, command, **how)
    assert not answer["success"]
    return str(answer["code"])


def new(topic: str = "t", **fields: Any) -> inner.Add:
    return inner.Add(topic=topic, body=Raw(b'"x"'), **{**NUMBERED, **fields})


async def test_numbered_jobs_get_ascending_numbers_and_are_found_by_them(engine: Engine) -> None:
    answers = [await done(engine, new()) for _ in range(3)]
    assert [each["number"] for each in answers] == [1, 2, 3]
    assert [each["id"] for each in answers] == ["#1", "#2", "#3"]
    assert (await done(engine, inner.Get(id="#2"), by_number=True))["job"].id == "#2"
    assert (await done(engine, inner.Get(id="#2")))["job"].id == "#2"
    assert await code(engine, inner.Get(id="#4"), by_number=True) == "NOT_FOUND"


async def test_a_number_that_a_job_has_already_is_skipped(engine: Engine, live_pool: Pool) -> None:
    await add(live_pool, "#1", body=b'"first"')
    await add(live_pool, "#2", body=b'"second"')
    assert (await done(engine, new()))["number"] == 3
    assert (await done(engine, inner.Get(id="#1"), by_number=True))["job"].body == b'"first"'


async def test_a_counter_that_begins_again_among_many_jobs_soon_finds_a_number(engine: Engine, live_pool: Pool) -> None:
    await live_pool.add([NewJob(f"#{n}", "t", b"1") for n in range(1, 20_001)])
    answers = [await done(engine, new()) for _ in range(2)]
    assert 20_000 < answers[0]["number"] < 100_000 and answers[1]["number"] == answers[0]["number"] + 1


async def test_without_a_free_number_a_job_is_refused_at_last(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    async def add(jobs: list[NewJob], within: str = "") -> list[AlreadyExists]:
        return [AlreadyExists() for _ in jobs]

    monkeypatch.setattr(engine._pool, "add", add)
    assert await code(engine, new()) == "ALREADY_EXISTS"


async def test_an_add_is_answered_although_another_of_its_request_finds_no_number(
    engine: Engine, live_pool: Pool, monkeypatch: pytest.MonkeyPatch
) -> None:
    await add(live_pool, "#1")
    assign = engine.numbered.assign

    async def once(commands: list[inner.Add], tries: int) -> None:
        if tries:
            raise Unavailable
        await assign(commands, tries)

    monkeypatch.setattr(engine.numbered, "assign", once)
    GRANT.set(OPEN)
    answers = await Commands(engine, Metrics(), 5.0).answer([new(), new()], [])
    assert [answer.get("code") for answer in answers] == ["UNAVAILABLE", None]
    assert (await done(engine, inner.Get(id="#2"), by_number=True))["job"].state.word == "ready"


async def test_several_adds_of_a_request_are_numbered(engine: Engine, live_pool: Pool) -> None:
    await add(live_pool, "#2")
    commands = [new(), new(numbered=False, id="own"), new(), new(topic="u")]
    GRANT.set(OPEN)
    answers = await Commands(engine, Metrics(), 5.0).answer(commands, [])
    assert [each["id"] for each in answers] == ["#1", "own", "#4", "#3"]
    assert "number" not in answers[1]


def with_virtual(engine: Engine) -> Engine:
    engine.policies = Policies(Settings(virtual_topics={"all": ("mail", "log")}))
    return engine


async def test_an_add_to_a_virtual_topic_has_one_number_for_all_copies(engine: Engine) -> None:
    answer = await done(with_virtual(engine), new(topic="all"))
    assert answer["number"] == 1
    assert [copy["id"] for copy in answer["jobs"]] == ["#1@mail", "#1@log"]
    assert (await done(engine, inner.Get(id="#1"), within="log", by_number=True))["job"].id == "#1@log"
    assert await code(engine, inner.Get(id="#1"), by_number=True) == "NOT_FOUND"
    assert await code(engine, inner.Get(id="#1"), within="other", by_number=True) == "NOT_FOUND"


async def test_a_number_of_which_a_copy_exists_is_skipped(engine: Engine, live_pool: Pool) -> None:
    await add(live_pool, "#1@log", topic="log")
    answer = await done(with_virtual(engine), new(topic="all"))
    assert answer["number"] == 2
    assert await code(engine, inner.Get(id="#1@mail")) == "NOT_FOUND"


async def test_a_pop_gives_own_numbers_and_aliases_for_foreign_jobs(engine: Engine, live_pool: Pool) -> None:
    await done(engine, new())
    await add(live_pool, "order:1")
    await add(live_pool, "#7@t")
    answer = await done(engine, inner.Pop(topic="t", count=9, numbered="jobs"))
    assert [job.id for job in answer["jobs"]] == ["#1", "order:1", "#7@t"]
    assert answer["numbers"] == [1, 2, 3]
    assert (await done(engine, inner.Get(id="#2"), by_number=True))["job"].id == "order:1"
    assert (await done(engine, params.Finish(id="#3"), by_number=True))["state"] == "finished"
    assert (await done(engine, inner.Get(id="#7@t")))["job"].state.word == "finished"


async def test_copies_of_a_virtual_topic_have_their_number_where_that_is_asked_for(
    engine: Engine, live_pool: Pool
) -> None:
    await done(with_virtual(engine), new(topic="all"))
    await add(live_pool, "#9@log", topic="mail")
    answer = await done(engine, inner.Pop(topic="mail", count=9, numbered="copies"))
    assert answer["numbers"] == [1, 2]
    assert (await done(engine, params.Finish(id="#1"), within="mail", by_number=True))["state"] == "finished"
    assert (await done(engine, inner.Get(id="#1@mail")))["job"].state.word == "finished"


@pytest.mark.parametrize("job_id", ["#0", "#01", "#", "#x", "# 1", "#1x", "#9999999999", "#2147483648", "1"])
async def test_an_id_that_only_looks_like_a_number_is_foreign(engine: Engine, live_pool: Pool, job_id: str) -> None:
    await add(live_pool, job_id)
    assert (await done(engine, inner.Pop(topic="t", numbered="jobs")))["numbers"] == [1]
    assert (await done(engine, inner.Get(id="#1"), by_number=True))["job"].id == job_id


async def test_a_redelivered_job_has_another_number_and_the_old_one_still_names_it(
    engine: Engine, live_pool: Pool
) -> None:
    await add(live_pool, "a")
    first = (await done(engine, inner.Pop(topic="t", numbered="jobs")))["numbers"]
    await done(engine, params.Release(id=f"#{first[0]}", delay=0), by_number=True)
    assert (await done(engine, inner.Pop(topic="t", numbered="jobs")))["numbers"] == [2] != first
    assert (await done(engine, params.Finish(id=f"#{first[0]}"), by_number=True))["state"] == "finished"


async def test_the_jobs_of_a_pop_that_could_not_be_numbered_go_back(engine: Engine, live_pool: Pool) -> None:
    await add(live_pool, "a")

    async def fail(jobs: object) -> list[int]:
        raise RuntimeError("broken")

    engine.numbered.counter.aliases = fail  # type: ignore[method-assign]
    reserved: list[Job] = []
    assert (await ask(engine, inner.Pop(topic="t", numbered="jobs"), reserved))["code"] == "INTERNAL"
    assert reserved == []
    await live_pool.close()
    assert (await live_pool.get("a") or pytest.fail()).state.word == "ready"


async def test_a_settling_finish_deletes_what_was_never_delivered(engine: Engine) -> None:
    for _ in range(2):
        await done(engine, new(delay=60))
    assert await code(engine, params.Finish(id="#1"), by_number=True) == "NOT_RESERVED"
    assert (await done(engine, inner.Finish(id="#1", settles=True), by_number=True))["state"] == "deleted"
    assert (await done(engine, inner.Finish(id="#2", settles=True), within="t", by_number=True))["state"] == "deleted"
    assert (await done(engine, inner.Finish(id="#1", settles=True), by_number=True))["state"] == "deleted"
    assert await code(engine, inner.Finish(id="#3", settles=True), by_number=True) == "NOT_FOUND"


async def test_ends_have_the_durability_of_the_settings(live_pool: Pool, monkeypatch: pytest.MonkeyPatch) -> None:
    engine = engine_on(live_pool, REPLICATED)
    for job_id in "abc":
        await add(live_pool, job_id)
    assert (await live_pool.pop(["t"])).jobs
    asked: list[tuple[str, int]] = []
    monkeypatch.setattr(live_pool.redis.meter, "secured", lambda wanted, _, changes: asked.append((wanted, changes)))
    assert (await done(engine, params.Finish(id="a")))["state"] == "finished"
    assert (await done(engine, inner.Finish(id="b", settles=True), within="t"))["state"] == "deleted"
    assert (await done(engine, params.Delete(id="c"), within="t"))["was"] == "ready"
    assert asked == [(REPLICATED, 1)] * 3


async def test_a_job_that_is_not_within_is_not_found_and_stays_as_it_was(engine: Engine) -> None:
    await done(engine, new(topic="a.b"))
    job = (await done(engine, inner.Pop(topic="a.b")))["jobs"][0]
    for within in ("a", "x.*", "a.bc", "a.b.*"):
        for command in (
            params.Finish(id="#1"),
            inner.Finish(id="#1", settles=True),
            params.Delete(id="#1"),
            params.Touch(id="#1"),
            params.Release(id="#1"),
            params.Bury(id="#1"),
            params.Kick(id="#1"),
            params.Run(id="#1"),
            inner.Get(id="#1"),
            inner.Pop(id="#1"),
        ):
            answer = await ask(engine, command, within=within, by_number=True)
            assert (answer["success"], answer["code"], answer.get("state")) == (False, "NOT_FOUND", None), command
    assert (await done(engine, inner.Get(id="#1"), by_number=True))["job"].raw == job.raw
    assert (await done(engine, params.Finish(id="#1"), within="a.*", by_number=True))["state"] == "finished"


async def test_a_job_in_a_state_to_spare_is_not_deleted(engine: Engine) -> None:
    await done(engine, new())
    await done(engine, inner.Pop(topic="t"))
    refused = await ask(engine, inner.Delete(id="#1", spares=("reserved",)), by_number=True)
    assert (refused["code"], refused["state"]) == ("RESERVED", "reserved")
    await done(engine, params.Bury(id="#1"), by_number=True)
    refused = await ask(engine, inner.Delete(id="#1", spares=("dead",)), by_number=True)
    assert (refused["code"], refused["state"]) == ("WRONG_STATE", "dead")
    assert (await done(engine, inner.Delete(id="#1", spares=("reserved",)), by_number=True))["was"] == "dead"


async def test_moves_by_number(engine: Engine) -> None:
    await done(engine, new(delay=60))
    assert (await done(engine, params.Run(id="#1"), by_number=True))["state"] == "ready"
    assert await code(engine, params.Run(id="#1"), by_number=True) == "TOO_LATE"
    await done(engine, inner.Pop(topic="t"))
    assert (await done(engine, params.Touch(id="#1", ttr=100), by_number=True))["until"] > 0
    assert (await done(engine, params.Bury(id="#1", reason="broken"), by_number=True))["state"] == "dead"
    assert (await done(engine, params.Kick(id="#1"), by_number=True))["state"] == "ready"
    refused = await ask(engine, params.Kick(id="#1"), by_number=True)
    assert refused["code"] == "WRONG_STATE" and "only a dead job" in refused["error"]


async def test_a_peek_gives_jobs_and_their_numbers(engine: Engine, live_pool: Pool) -> None:
    await done(engine, new(delay=60))
    await add(live_pool, "a", delay_ms=30_000)
    answer = await done(engine, inner.Peek("t", "delayed", count=5, numbered="jobs"))
    assert [job.id for job in answer["jobs"]] == ["a", "#1"]
    assert answer["numbers"] == [2, 1]
    assert (await done(engine, inner.Get(id="#2"), by_number=True))["job"].id == "a"
    assert (await done(engine, inner.Peek("t", "ready")))["jobs"] == []
    assert (await done(engine, inner.Peek("unknown", "dead")))["jobs"] == []


async def test_a_peek_finds_the_job_of_a_topic_among_many_of_others(engine: Engine, live_pool: Pool) -> None:
    for n in range(20):
        await add(live_pool, f"o{n}", topic="other", delay_ms=1000 * n + 60_000)
    await add(live_pool, "a", delay_ms=3_600_000)
    assert [job.id for job in (await done(engine, inner.Peek("t", "delayed")))["jobs"]] == ["a"]


async def test_figures_and_topics_are_those_within_a_prefix(engine: Engine, live_pool: Pool) -> None:
    for topic in ("p.a", "p.b", "q.a"):
        await add(live_pool, f"{topic}-1", topic=topic)
        await add(live_pool, f"{topic}-2", topic=topic, delay_ms=60_000)
    for prefix, number in (("p.", 2), ("", 3), ("none", 0)):
        figures = (await done(engine, inner.Stats(prefix=prefix)))["figures"]
        assert (figures.counts["ready"], figures.counts["delayed"]) == (number, number)
        topics = (await done(engine, inner.Stats(prefix=prefix, each=True)))["topics"]
        assert [each.counts["ready"] for each in topics.values()] == [1] * number
        assert sum(sum(each.due.values()) for each in topics.values()) == sum(figures.due.values())
        names = (await done(engine, inner.Names(prefix=prefix)))["names"]
        assert sorted(names) == sorted(topics)
    one = await done(engine, inner.Stats("p.a"))
    assert (one["figures"].counts["ready"], one["known"], one["paused_until"]) == (1, True, None)
    await done(engine, params.Pause(topic="p.a"))
    assert (await done(engine, inner.Stats("p.a")))["paused_until"] == 0
    unknown = await done(engine, inner.Stats("p.z"))
    assert (unknown["known"], unknown["figures"].counts["ready"]) == (False, 0)


async def test_a_purge_ends_when_all_are_gone(engine: Engine, live_pool: Pool) -> None:
    for topic in ("p.a", "p.b", "q.a"):
        await add(live_pool, f"{topic}-1", topic=topic)
        await add(live_pool, f"{topic}-2", topic=topic, delay_ms=60_000)
    assert (await done(engine, inner.Purge("p.a", state="ready")))["count"] == 1
    assert (await done(engine, inner.Purge(prefix="p.")))["count"] == 3
    counts = (await done(engine, inner.Stats()))["figures"].counts
    assert (counts["ready"], counts["delayed"]) == (1, 1)


async def test_a_purge_of_many_topics_spares_what_is_added_meanwhile(
    engine: Engine, live_pool: Pool, monkeypatch: pytest.MonkeyPatch
) -> None:
    topics = {"p.a", "p.b", "p.c"}
    for topic in topics:
        await add(live_pool, f"{topic}-old", topic=topic, delay_ms=60_000)
    purge = engine._walk.purge

    async def purge_and_add(topic: str, *arguments: Any, **options: Any) -> Any:
        purged = await purge(topic, *arguments, **options)
        await asyncio.sleep(0.005)
        for other in topics - {topic}:
            await add(live_pool, f"{other}-new-{topic}", topic=other, delay_ms=60_000)
        return purged

    monkeypatch.setattr(engine._walk, "purge", purge_and_add)
    assert (await done(engine, inner.Purge(prefix="p.")))["count"] == 3
    assert (await done(engine, inner.Stats()))["figures"].counts["delayed"] == 6


async def test_the_counter_is_the_last_number_that_was_given_out(engine: Engine) -> None:
    assert (await done(engine, inner.Counter()))["number"] == 0
    await done(engine, new())
    assert (await done(engine, inner.Counter()))["number"] >= 1


async def test_jobs_that_fill_the_answers_of_a_request_leave_no_room_for_more(
    engine: Engine, live_pool: Pool, redis: Redis
) -> None:
    for n in range(5):
        await add(live_pool, f"j{n}", body=b'"' + b"x" * (3 << 20) + b'"')
    commands: list[inner.Inner] = [
        inner.Pop(topic="t", count=9),
        inner.Peek("t", "ready", count=9),
        inner.Pop(topic="t"),
    ]
    GRANT.set(OPEN)
    popped, peeked, refused = await Commands(engine, Metrics(), 5.0).answer(commands, [])
    assert len(popped["jobs"]) + len(peeked["jobs"]) == 3
    assert refused["code"] == "TOO_LARGE"


async def test_commands_of_dialects_count_as_their_native_twins(engine: Engine) -> None:
    metrics = Metrics()
    asked: list[inner.Inner] = [new(), inner.Pop(topic="t"), inner.Pop(id="#9"), inner.Counter(), inner.Names()]
    for each in asked:
        GRANT.set(OPEN)
        await Commands(engine, metrics, 5.0).answer([each], [])
    metrics.pour(0)
    counted = [("add", "OK"), ("pop", "OK"), ("pop", "NOT_FOUND"), ("counter", "OK"), ("names", "OK")]
    for command, code in counted:
        labels = {"protocol": "native", "command": command, "code": code}
        assert metrics.registry.get_sample_value("jobqueue_commands_total", labels) == 1


async def test_a_debug_log_of_jobs_names_their_ids(
    engine: Engine, live_pool: Pool, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("DEBUG")
    await add(live_pool, "a")
    GRANT.set(OPEN)
    commands = Commands(engine, Metrics(), 5.0)
    assert (await commands.answer([inner.Pop(topic="t")], []))[0]["success"]
    assert (await commands.answer([inner.Get("a")], []))[0]["success"]


async def test_a_job_is_taken_by_its_number(engine: Engine) -> None:
    await done(engine, new(delay=60))
    reserved: list[Job] = []
    job = (await ask(engine, inner.Pop(id="#1", worker="w", ttr=7), reserved, by_number=True))["jobs"][0]
    assert [each.id for each in reserved] == ["#1"]
    assert (job.id, job.state.word, job.ttr, job.text(Tag.WORKER)) == ("#1", "reserved", 7000, "w")
    refused = await ask(engine, inner.Pop(id="#1"), by_number=True)
    assert (refused["code"], refused["state"]) == ("RESERVED", "reserved")
    await done(engine, params.Finish(id="#1", lease=job.lease), by_number=True)
    refused = await ask(engine, inner.Pop(id="#1"), by_number=True)
    assert (refused["code"], refused["error"]) == (
        "WRONG_STATE",
        "only a delayed, ready or dead job can be taken; this one is finished",
    )


async def test_a_note_goes_with_the_job_and_its_copies_until_another_takes_its_place(engine: Engine) -> None:
    await done(engine, new(note=b"first\x00"))
    job = (await done(engine, inner.Pop(topic="t")))["jobs"][0]
    assert job.note == b"first\x00"
    await done(engine, inner.Release(id="#1", delay=0, note=b"second", priority=9), by_number=True)
    job = (await done(engine, inner.Get(id="#1"), by_number=True))["job"]
    assert (job.note, job.priority) == (b"second", 9)
    await done(engine, inner.Pop(topic="t"))
    await done(engine, inner.Bury(id="#1", note=b""), by_number=True)
    assert (await done(engine, inner.Get(id="#1"), by_number=True))["job"].note == b""
    await done(with_virtual(engine), new(topic="all", note=b"both"))
    assert [
        (await done(engine, inner.Get(id="#2"), within=each, by_number=True))["job"].note for each in ("mail", "log")
    ] == [b"both"] * 2


async def test_a_tombstone_keeps_the_body_where_the_add_asks_for_it(engine: Engine) -> None:
    await done(engine, new(keeps_body=True))
    await done(engine, new())
    await done(engine, inner.Pop(topic="t", count=2))
    for number, body in ((1, b'"x"'), (2, b"")):
        await done(engine, params.Finish(id=f"#{number}"), by_number=True)
        job = (await done(engine, inner.Get(id=f"#{number}"), by_number=True))["job"]
        assert (job.state.word, job.body) == ("finished", body)


async def test_workers_of_dialects_are_known_as_pollers(engine: Engine) -> None:
    await done(engine, new())
    await done(engine, new(topic="u", delay=60))
    await done(engine, inner.Pop(topic="t", worker="popper"))
    await done(engine, inner.Pop(id="#2", worker="taker"), by_number=True)
    assert {poller.worker for poller, _ in engine._pollers._leases.values()} == {"popper", "taker"}
    await done(engine, params.Finish(id="#1"), by_number=True)
    assert {poller.worker for poller, _ in engine._pollers._leases.values()} == {"taker"}


async def test_a_pop_by_number_waits_for_a_job(engine: Engine, live_pool: Pool) -> None:
    asking = asyncio.create_task(done(engine, inner.Pop(topic="t", wait=math.inf, numbered="jobs")))
    await until(lambda: engine._waiting.parked == 1)
    await add(live_pool, "a")
    engine._waiting.ring("t", 1)
    answer = await asking
    assert ([job.id for job in answer["jobs"]], answer["numbers"]) == (["a"], [1])


async def test_an_empty_pop_asks_nothing_but_the_pop(engine: Engine, live_pool: Pool) -> None:
    assert (await done(engine, inner.Pop(topic="unknown", numbered="jobs")))["jobs"] == []
    before = await pauses_read(live_pool.redis)
    assert (await done(engine, inner.Pop(topic="unknown", numbered="jobs")))["jobs"] == []
    assert await pauses_read(live_pool.redis) == before
    assert (await done(engine, params.Pop(topic="unknown")))["known"] is False
    assert await pauses_read(live_pool.redis) != before


async def pauses_read(redis: Redis) -> bytes:
    """How often the pauses of topics were read by now."""
    lines = (await redis.read("INFO", "commandstats")).splitlines()
    return next((line.split(b",")[0] for line in lines if line.startswith(b"cmdstat_mget:")), b"")


async def test_a_pop_by_priority_looks_at_all_topics(engine: Engine, live_pool: Pool) -> None:
    await add(live_pool, "low", topic="a", priority=1)
    await add(live_pool, "high", topic="b", priority=8)
    answer = await done(engine, inner.Pop(topics=["a", "b"], count=9, by_priority=True))
    assert [job.id for job in answer["jobs"]] == ["high", "low"]
