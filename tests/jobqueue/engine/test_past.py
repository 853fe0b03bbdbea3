"""jobqueue.engine.figures, and the command figures: what happened when, in bins; what would mislead is refused."""

from __future__ import annotations

import bisect
import random
from datetime import UTC, datetime
from typing import Any

import pytest

from buckets import Figures, Notifier, Pollers, Pool
from buckets.clock import HeldClock
from buckets.topics.figures import ALL
from jobqueue.engine.engine import Engine
from jobqueue.engine.figures import Past, quantile
from jobqueue.errors import BadField, Forbidden
from jobqueue.metrics.process import LATENESS_S
from jobqueue.schema import params
from tests.buckets.instances import sign
from tests.jobqueue.test_commands import answers, engine_on

HOUR_S = 3600


@pytest.fixture
def figures(pool: Pool) -> Figures:
    return Figures(pool, 48, 2)


@pytest.fixture
def pollers(pool: Pool) -> Pollers:
    return Pollers(pool, Notifier(pool), "ab")


@pytest.fixture
def engine(pool: Pool, figures: Figures, pollers: Pollers) -> Engine:
    engine = engine_on(pool)
    engine.past = Past(figures, pollers, lambda topic: topic != "unnamed")
    return engine


async def ask(engine: Engine, **asked: Any) -> dict[str, Any]:
    (answer,) = await answers(engine, params.Past(**asked))
    return answer


async def told(engine: Engine, **asked: Any) -> dict[str, Any]:
    answer = await ask(engine, **asked)
    assert answer["success"], answer
    return answer


def now_s(clock: HeldClock) -> float:
    return clock.now_us / 1_000_000


async def test_the_last_hour_is_told_by_the_minute_without_those_in_which_nothing_happened(
    engine: Engine, figures: Figures, clock: HeldClock
) -> None:
    begun = now_s(clock)
    for number in (1, 2, 3):
        await figures.add({ALL: {"adds": number, "x:ttl": 1}, "t": {"adds": number}})
        clock.advance(30 * 60_000)
    clock.advance(-60_000)
    answer = await told(engine)
    assert [(each["begin"], each["adds"]) for each in answer["bins"]] == [
        (begun // 60 * 60 + minutes * 60, number) for minutes, number in ((30, 2), (60, 3))
    ]
    assert (answer["until"] - answer["since"], answer["step"], answer["topic"]) == (HOUR_S, 60, None)
    assert answer["until"] - 60 <= now_s(clock) < answer["until"]
    total = answer["total"]
    assert (total["begin"], total["adds"], total["deaths"]) == (answer["since"], 5, {"ttl": 2})
    assert (total["due_to_ready"], total["due_to_delivered"], total["refusals"]) == (None, None, {})
    of_topic = await told(engine, topic="t")
    assert (of_topic["total"]["adds"], "refusals" in of_topic["total"]) == (5, False)


async def test_bins_are_as_wide_as_the_step_and_begin_at_multiples_of_it(
    engine: Engine, figures: Figures, clock: HeldClock
) -> None:
    for _ in range(90):
        await figures.add({ALL: {"finishes": 1, "r0": 1}})
        clock.advance(60_000)
    now = now_s(clock)
    answer = await told(engine, since=now - 90 * 60, step=1800)
    assert sum(each["finishes"] for each in answer["bins"]) == 90
    assert all(each["begin"] % 1800 == 0 for each in answer["bins"])
    assert [each["finishes"] for each in answer["bins"][1:-1]] == [30] * (len(answer["bins"]) - 2)
    assert sum(each["due_to_ready"]["counts"][0] for each in answer["bins"]) == 90


async def test_only_whole_minutes_from_since_to_until_count(engine: Engine, figures: Figures, clock: HeldClock) -> None:
    clock.now_us = 1_800_000_000_000_000
    for minute in range(10):
        await figures.add({ALL: {"adds": 10**minute}})
        clock.advance(60_000)
    since = datetime.fromtimestamp(1_800_000_000 + 3 * 60 + 59, UTC)
    answer = await told(engine, since=since, until=1_800_000_000.0 + 6 * 60, step=HOUR_S)
    assert answer["total"]["adds"] == 111_000
    assert (answer["since"], answer["until"]) == (1_800_000_180, 1_800_000_360)
    assert (await told(engine, since=1_800_000_000.0, until=1_900_000_000.0))["total"]["adds"] == 1_111_111_111


async def test_lateness_is_told_by_bucket_with_the_median_and_what_99_of_100_did_not_exceed(
    engine: Engine, figures: Figures
) -> None:
    await figures.add({ALL: {"r0": 50, "r1": 49, "r14": 1, "d3": 4}})
    answer = await told(engine)
    (only,) = answer["bins"]
    assert list(answer["bounds"]) == list(LATENESS_S)
    assert only["due_to_ready"]["counts"] == [50, 49, *[0] * 12, 1]
    assert only["due_to_ready"]["p50"] == 0.0005
    assert only["due_to_ready"]["p99"] == 0.001
    assert only["due_to_delivered"] == {"counts": [0, 0, 0, 4, *[0] * 11], "p50": 0.0035, "p99": pytest.approx(0.00497)}


def test_a_quantile_lies_in_the_bucket_of_the_true_one() -> None:
    chance = random.Random(1)
    for _ in range(200):
        values = sorted(chance.expovariate(chance.choice([1, 20, 500])) for _ in range(chance.randrange(1, 300)))
        counts = [0] * (len(LATENESS_S) + 1)
        for value in values:
            counts[bisect.bisect_left(LATENESS_S, value)] += 1
        for share in (0.5, 0.99):
            true = values[max(-(-len(values) * round(share * 100) // 100) - 1, 0)]
            place = bisect.bisect_left(LATENESS_S, true)
            lower = LATENESS_S[place - 1] if place else 0
            assert lower <= quantile(counts, share) <= LATENESS_S[min(place, len(LATENESS_S) - 1)]
    assert quantile([*[0] * len(LATENESS_S), 3], 0.5) == LATENESS_S[-1]


async def test_pops_that_wait_are_told_of_a_topic_and_of_all(pool: Pool, engine: Engine, pollers: Pollers) -> None:
    await sign(pool, "ab")
    pollers.begin("w", None, ["t"])
    pollers.begin("w", None, ["t", "u"])
    pollers.begin("x", None, ["u"])
    assert [(await told(engine, topic=topic))["parked"] for topic in ("t", "u", None)] == [2, 2, 3]


async def test_what_is_not_kept_any_more_is_refused_but_not_a_clock_that_is_a_little_behind(
    engine: Engine, clock: HeldClock
) -> None:
    now = now_s(clock)
    for topic, hours in ((None, 48), ("t", 2)):
        refused = await ask(engine, topic=topic, since=now - hours * HOUR_S - 120, step=300)
        assert (refused["code"], refused["field"]) == ("BAD_FIELD", "since")
        assert f"are kept for {hours} h" in refused["error"]
        assert (await ask(engine, topic=topic, since=now - hours * HOUR_S - 10, step=300))["success"]


@pytest.mark.parametrize(("since", "until"), [(-60, -60), (-60, -120), (10, None), (10, 20)])
async def test_a_time_without_a_span_is_refused(
    engine: Engine, clock: HeldClock, since: float, until: float | None
) -> None:
    now = now_s(clock)
    answer = await ask(engine, since=now + since, until=None if until is None else now + until)
    assert (answer["code"], answer["field"]) == ("BAD_FIELD", "since")
    assert answer["error"] == "since must be before until, and in the past"


async def test_more_bins_than_are_allowed_are_refused(pool: Pool, pollers: Pollers, clock: HeldClock) -> None:
    engine = engine_on(pool)
    engine.past = Past(Figures(pool, 168, 100), pollers, lambda topic: True)
    now = now_s(clock)
    assert (await ask(engine, since=now - 48 * HOUR_S))["success"]
    answer = await ask(engine, since=now - 168 * HOUR_S)
    assert (answer["code"], answer["field"]) == ("BAD_FIELD", "step")
    assert (await ask(engine, since=now - 168 * HOUR_S, step=300))["success"]


async def test_a_topic_that_has_no_figures_of_its_own_is_refused(engine: Engine, figures: Figures) -> None:
    assert (await told(engine, topic="c"))["bins"] == []  # there is room for it
    await figures.add({"a": {"adds": 1}, "b": {"adds": 1}})
    for topic in ("c", "unnamed"):
        answer = await ask(engine, topic=topic)
        assert (answer["code"], answer["field"]) == ("BAD_FIELD", "topic")
        assert "only the first 2 topics have" in answer["error"]


async def test_who_reaches_some_topics_has_to_name_one(engine: Engine) -> None:
    with pytest.raises(Forbidden, match="reaches only some; name one"):
        await engine.read_past(params.Past(), "t u-*")
    assert (await engine.read_past(params.Past(topic="t"), "t u-*")).bins == []


async def test_a_service_that_keeps_none_says_so(pool: Pool) -> None:
    with pytest.raises(BadField, match="history_hours is 0"):
        await engine_on(pool).read_past(params.Past())
