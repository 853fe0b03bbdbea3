"""jobqueue.metrics.process, series and scrape: what is counted comes out, exactly, and the documents name all of it."""

from __future__ import annotations

import random
import re

import prometheus_client
import pytest
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.parser import text_string_to_metric_families

from buckets import Notifier, Pollers, Pool, Redis, Topics, Waiting
from jobqueue.metrics.process import LATENESS_S, Metrics
from jobqueue.metrics.scrape import Scrape, Totals
from jobqueue.metrics.series import Count, Spread
from tests.buckets.jobs import add, pop
from tests.kit.redis_server import RedisServer
from tests.kit.service import ROOT

Values = dict[tuple[str, ...], float]


def scrape_of(pool: Pool, metrics: Metrics) -> Scrape:
    notifier = Notifier(pool)
    return Scrape(metrics, Topics(pool), Waiting(pool, notifier), Pollers(pool, notifier, "ab"), Totals())


def values(text: str) -> Values:
    """All samples: (name, label values in the order of the label names) -> value."""
    return {
        (sample.name, *(value for _, value in sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def own(metrics: Metrics) -> Values:
    metrics.pour(0)
    return values(generate_latest(metrics.registry).decode())


def test_a_series_comes_out_as_if_each_value_had_been_observed_by_itself() -> None:
    ours, theirs = CollectorRegistry(), CollectorRegistry()
    spread = Spread(ours, "late_seconds", "Late.", LATENESS_S, ["topic"])
    histogram = prometheus_client.Histogram("late_seconds", "Late.", ["topic"], buckets=LATENESS_S, registry=theirs)
    chance = random.Random(1)
    for turn in range(2_000):
        value = chance.choice([*LATENESS_S, 0, 61, chance.expovariate(5)])
        n, topic = chance.randrange(1, 4), chance.choice("tu")
        spread.add(value, topic, n=n)
        for _ in range(n):
            histogram.labels(topic).observe(value)
        if turn % 100 == 0:
            spread.pour()
    spread.pour()
    told, expected = values(generate_latest(ours).decode()), values(generate_latest(theirs).decode())
    assert told.keys() == expected.keys()
    assert told == pytest.approx(expected)


def test_a_count_adds_up_over_many_pours() -> None:
    registry = CollectorRegistry()
    count = Count(registry, "things_total", "Things.", ["kind"])
    for _ in range(3):
        count.add("a", n=1_000_000)
        count.add("b")
        count.pour()
        count.pour()
    told = values(generate_latest(registry).decode())
    assert told == {("things_total", "a"): 3_000_000, ("things_total", "b"): 3}


def test_topics_beyond_the_number_that_is_allowed_are_one() -> None:
    metrics = Metrics(2)
    for number in range(1_000):
        metrics.promoted(f"t{number}", 1_500, 10)
        metrics.delivered(f"t{number}", [1_500])
    told = own(metrics)
    counts = {key[1:]: value for key, value in told.items() if key[0] == "jobqueue_due_to_ready_seconds_count"}
    assert counts == {("t0",): 10, ("t1",): 10, ("other",): 9_980}
    assert told["jobqueue_due_to_delivered_seconds_count", "other"] == 998


def test_lateness_is_told_in_seconds_and_a_value_on_a_bound_is_within_it() -> None:
    metrics = Metrics()
    for late_us in (500, 501, 1_000, 60_000_000, 60_000_001):
        metrics.promoted("t", late_us, 1)
    metrics.delivered("t", [500, 501, 1_000])
    metrics.delivered("t", [60_000_000, 60_000_001])
    told = own(metrics)
    for name in ("jobqueue_due_to_ready_seconds", "jobqueue_due_to_delivered_seconds"):
        assert [told[f"{name}_bucket", le, "t"] for le in ("0.0005", "0.001", "0.002", "60.0", "+Inf")] == [
            1,
            3,
            3,
            4,
            5,
        ]
        assert told[f"{name}_sum", "t"] == pytest.approx(120.002002)


def test_locks_are_counted_as_they_come_and_go() -> None:
    metrics = Metrics()
    assert own(metrics)["jobqueue_lock_changes_total", "lost"] == 0
    for taken in (True, True, False, True):
        metrics.locked(taken)
    told = own(metrics)
    assert told["jobqueue_lock_changes_total", "taken"] == 3
    assert told["jobqueue_lock_changes_total", "lost"] == 1
    assert told["jobqueue_locks_held",] == 2


def test_the_instances_and_the_timers_that_they_share_are_as_the_list_of_members_said_last() -> None:
    metrics = Metrics()
    assert own(metrics)["jobqueue_timers",] == 0
    metrics.signed(1, 8)
    metrics.signed(3, 8)
    told = own(metrics)
    assert (told["jobqueue_instances",], told["jobqueue_timers",]) == (3, 8)


def test_commands_answered_together_each_count_with_the_time_of_all() -> None:
    metrics = Metrics()
    metrics.answered(
        "add", [{"success": True}, {"success": False, "code": "NO_ROOM"}, {"success": True}], 0.3, protocol="native"
    )
    metrics.answered("pop", [{"success": True}], 20.0, protocol="native", waiting=True)
    metrics.answered("unreadable", [{"success": False, "code": "BAD_JSON"}], protocol="lmstfy")
    told = own(metrics)
    assert {key[1:]: value for key, value in told.items() if key[0] == "jobqueue_commands_total"} == {
        ("OK", "add", "native"): 2, ("NO_ROOM", "add", "native"): 1, ("OK", "pop", "native"): 1,
        ("BAD_JSON", "unreadable", "lmstfy"): 1,
    }  # fmt: skip
    assert {key[1:]: value for key, value in told.items() if key[0] == "jobqueue_command_duration_seconds_sum"} == {
        ("add", "native"): pytest.approx(0.9), ("pop_waiting", "native"): 20.0,
    }  # fmt: skip


async def scraped(scrape: Scrape) -> str:
    return (await scrape.text()).decode()


async def test_a_scrape_tells_the_figures_of_the_topics_and_the_rest_under_other(live_pool: Pool) -> None:
    await add(live_pool, "a")
    scrape = scrape_of(live_pool, Metrics(1))
    assert values(await scraped(scrape))["jobqueue_jobs", "ready", "t"] == 1
    for number in range(150):
        await add(live_pool, f"u{number}", f"u{number}", delay_ms=number % 2 * 60_000)
    told = values(await scraped(scrape))
    jobs = {key[1:]: value for key, value in told.items() if key[0] == "jobqueue_jobs" and value}
    assert jobs == {("ready", "t"): 1, ("ready", "other"): 75, ("delayed", "other"): 75}
    assert told["jobqueue_job_events_total", "created", "other"] == 150
    assert 0 < told["jobqueue_oldest_ready_age_seconds", "t"] < 60
    assert told["jobqueue_oldest_ready_age_seconds", "other"] < 60
    assert told["jobqueue_redis_up",] == 1


async def test_the_age_of_the_oldest_ready_job_is_zero_when_there_is_none_and_unsaid_when_it_is_not_known(
    live_pool: Pool, redis: Redis
) -> None:
    scrape = scrape_of(live_pool, Metrics())
    await add(live_pool, "a", delay_ms=60_000)
    await add(live_pool, "b", "u")
    await redis.read("LPUSH", live_pool.keys[0].ready(4, "u"), *[f"0:{n}" for n in range(30)])
    told = values(await scraped(scrape))
    assert told["jobqueue_oldest_ready_age_seconds", "t"] == 0
    assert ("jobqueue_oldest_ready_age_seconds", "u") not in told


async def test_an_undone_delivery_does_not_lower_a_counter(live_pool: Pool) -> None:
    scrape = scrape_of(live_pool, Metrics())
    await add(live_pool, "a")
    jobs = await pop(live_pool)
    await scraped(scrape)
    await live_pool.unpop(jobs)
    assert values(await scraped(scrape))["jobqueue_job_events_total", "delivered", "t"] == 1


async def test_a_scrape_without_redis_tells_what_the_process_knows(own_server: RedisServer) -> None:
    metrics = Metrics()
    redis = Redis(own_server.url, 1.0, metrics)
    pool = await Pool.open(redis)
    await add(pool, "a")
    own_server.freeze()
    told = values(await scraped(scrape_of(pool, metrics)))
    own_server.thaw()
    assert told["jobqueue_redis_up",] == 0
    assert told["jobqueue_redis_calls_total", "add"] == 1
    assert told["jobqueue_redis_errors_total", "UNAVAILABLE"] == 1
    assert not any(name == "jobqueue_jobs" for name, *_ in told)
    await redis.close()


async def test_the_operations_guide_names_every_metric_with_its_type_and_labels_and_no_other(live_pool: Pool) -> None:
    metrics = Metrics()
    text = await scraped(scrape_of(live_pool, metrics))
    section = (ROOT / "docs/operations.md").read_text().partition("## Metrics")[2].partition("\n## ")[0]
    documented = dict(re.findall(r"^\| `([a-z_]+)(?:\{.*\})?` \| (\w+) \|", section, re.M))
    assert documented == dict(re.findall(r"^# TYPE (\S+) (\w+)$", text, re.M))
    documented_labels = dict(re.findall(r"^\| `([a-z_]+)\{(.*)\}` \|", section, re.M))
    series = [each for each in vars(metrics).values() if isinstance(each, Count | Spread)]
    collectors = [each._counter if isinstance(each, Count) else each._histogram for each in series]
    labels = {
        each._name + ("_total" if each._type == "counter" else ""): ",".join(each._labelnames)
        for each in collectors
        if each._labelnames
    }
    assert {name: documented_labels[name] for name in labels} == labels


async def test_every_metric_has_a_name_of_ours_or_of_every_process(live_pool: Pool) -> None:
    text = await scraped(scrape_of(live_pool, Metrics()))
    names = re.findall(r"^# TYPE (\S+) ", text, re.M)
    assert len(names) == len(set(names)) > 20
    assert all(name.startswith(("jobqueue_", "process_", "python_")) for name in names)
