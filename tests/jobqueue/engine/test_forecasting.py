"""jobqueue.engine.figures, and the command forecast: delayed jobs, and what schedules are going to add."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec import Raw

from buckets import Pool
from buckets.clock import HeldClock
from jobqueue.engine import figures
from jobqueue.engine.engine import Engine
from jobqueue.engine.new_jobs import Policies
from jobqueue.schema import params
from jobqueue.settings import Settings
from tests.jobqueue.test_commands import answers, engine_on

HOUR_S = 3600


@pytest.fixture
def engine(pool: Pool) -> Engine:
    return engine_on(pool)


def schedule(name: str = "s", topic: str = "t", **more: Any) -> params.Schedule:
    return params.Schedule(name=name, topic=topic, body=Raw(b"1"), **({"every": 60.0} | more))


async def forecast(engine: Engine, **asked: Any) -> dict[str, Any]:
    (answer,) = await answers(engine, params.Forecast(**asked))
    assert answer["success"], answer
    return answer


def scheduled(answer: dict[str, Any]) -> int:
    return sum(each["scheduled"] for each in answer["bins"])


async def test_jobs_and_occurrences_are_told_apart(engine: Engine) -> None:
    await answers(engine, schedule(every=1500.0), params.Add(topic="t", body=Raw(b"1"), delay=1500))
    answer = await forecast(engine, topic="t", hours=1)
    assert [(each["width"], each["jobs"], each["scheduled"]) for each in answer["bins"]] == [(60, 1, 1), (60, 0, 1)]
    assert (answer["total"], answer["later"], answer["scheduled_until"]) == (1, 0, None)


async def test_occurrences_of_the_next_day_are_told_to_the_minute_and_later_ones_to_the_hour(engine: Engine) -> None:
    await answers(engine, schedule(every=600.0))
    answer = await forecast(engine, topic="t", hours=26)
    widths = [each["width"] for each in answer["bins"]]
    assert widths == sorted(widths)
    assert [sum(each["scheduled"] for each in answer["bins"] if each["width"] == width) for width in (60, 3600)] == [
        24 * 6 - 1,
        2 * 6,
    ]


async def test_a_schedule_counts_for_its_topic_and_once_in_each_topic_of_a_virtual_one(pool: Pool) -> None:
    engine = engine_on(pool)
    engine.policies = Policies(Settings(virtual_topics={"both": ("a", "b")}))
    await answers(engine, schedule(topic="both", every=1100.0), schedule("other", "c", every=1100.0))
    assert scheduled(await forecast(engine, topic="a", hours=1)) == 3
    assert scheduled(await forecast(engine, topic="c", hours=1)) == 3
    assert scheduled(await forecast(engine, topic="both", hours=1)) == 0
    assert scheduled(await forecast(engine, hours=1)) == 9


async def test_a_paused_schedule_adds_nothing(engine: Engine) -> None:
    await answers(engine, schedule(paused=True))
    assert scheduled(await forecast(engine, hours=1)) == 0


async def test_it_says_until_when_occurrences_are_counted_where_there_are_very_many(
    engine: Engine, pool: Pool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(figures, "_MOST_TIMES", 20)
    await answers(engine, schedule("one", every=60.0), schedule("two", every=120.0))
    answer = await forecast(engine, hours=1)
    assert scheduled(answer) == 20
    begun = min(each["begin"] for each in answer["bins"])
    assert begun < answer["scheduled_until"] < begun + 20 * 60


async def test_the_topics_with_most_jobs_are_named(engine: Engine) -> None:
    for topic, number in (("a", 1), ("b", 3), ("c", 2)):
        await answers(engine, *(params.Add(topic=topic, body=Raw(b"1"), delay=60) for _ in range(number)))
    await answers(engine, params.Add(topic="far", body=Raw(b"1"), delay=7200))
    found = await forecast(engine, hours=1)
    assert found["largest"] == [{"topic": "b", "jobs": 3}, {"topic": "c", "jobs": 2}, {"topic": "a", "jobs": 1}]
    assert (await forecast(engine, topic="c"))["largest"] == [{"topic": "c", "jobs": 2}]


async def test_within_other_topics_neither_jobs_nor_schedules_are_seen(engine: Engine) -> None:
    await answers(engine, schedule(), schedule("hidden", "u"), params.Add(topic="u", body=Raw(b"1"), delay=60))
    found = await engine.forecasting.forecast(params.Forecast(hours=1), "t")
    assert (found.occurrences.total(), found.jobs.bins.total(), found.jobs.topics) == (59, 0, 0)


async def test_an_answer_that_takes_long_is_given_again_for_longer(
    engine: Engine, clock: HeldClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(figures, "_SHARE", 1_000_000_000)  # so that whatever it takes is long
    assert (await forecast(engine, topic="t"))["total"] == 0
    await answers(engine, params.Add(topic="t", body=Raw(b"1"), delay=60))
    clock.advance(10_000)
    assert (await forecast(engine, topic="t"))["total"] == 0


async def test_an_answer_is_given_again_for_five_seconds_of_redis(
    engine: Engine, clock: HeldClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(figures, "_SHARE", 0)
    assert (await forecast(engine, topic="t"))["total"] == 0
    await answers(engine, params.Add(topic="t", body=Raw(b"1"), delay=60))
    clock.advance(4_999)
    assert (await forecast(engine, topic="t"))["total"] == 0
    assert (await forecast(engine, topic="t", hours=2))["total"] == 1
    clock.advance(1)
    assert (await forecast(engine, topic="t"))["total"] == 1
