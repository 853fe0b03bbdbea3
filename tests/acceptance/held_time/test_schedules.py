"""Schedules over HTTP: on a test service, whose clock the test advances, and on one that keeps the time."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import pytest
import pytest_asyncio

from tests.kit.redis_server import RedisServer
from tests.kit.service import Client, ServiceProcess

pytestmark = pytest.mark.asyncio(loop_scope="module")

MINUTE_S = 60
DAY_S = 86_400
SETTINGS = """
[topics.few]
max_pending = 2
[virtual_topics]
paid = ["invoice", "mail"]
"""


@pytest.fixture(scope="module")
def settings(tmp_path_factory: pytest.TempPathFactory) -> Path:
    file: Path = tmp_path_factory.mktemp("settings") / "jobqueue.toml"
    file.write_text(SETTINGS)
    return file


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def _service(settings: Path) -> AsyncIterator[ServiceProcess]:
    async with ServiceProcess("--test", "--config", str(settings), workers=None) as service:
        yield service


@pytest_asyncio.fixture(loop_scope="module")
async def client(_service: ServiceProcess) -> AsyncIterator[Client]:
    """A client of an empty test service."""
    async with Client(_service.url) as client:
        await client.ask("reset")
        yield client


async def schedule(client: Client, name: str = "n", **fields: Any) -> Any:
    answer = await client.ask("schedule", **{"name": name, "topic": "t", "body": {"a": 1}} | fields)
    assert answer["success"], answer
    return answer


async def advance(client: Client, seconds: float) -> float:
    answer = await client.ask("clock", advance=seconds)
    assert answer["success"], answer
    return float(answer["now"])


async def popped(client: Client, topic: str = "t", **fields: Any) -> list[dict[str, Any]]:
    return list((await client.ask("pop", topic=topic, count=1000, **fields))["jobs"])


async def row(client: Client, name: str = "n") -> Any:
    (found,) = (await client.ask("schedules", pattern=name))["schedules"]
    return found


def ms(seconds: float) -> int:
    return round(seconds * 1000)


async def test_a_job_is_added_each_minute_with_its_time_in_its_id(client: Client) -> None:
    first = (await schedule(client, every=60, tries=3, headers={"h": "v"}, tags=["x"]))["next"]
    await advance(client, 59)
    assert await popped(client) == []
    await advance(client, 3 * MINUTE_S + 1)
    jobs = await popped(client)
    assert [job["id"] for job in jobs] == [f"n@{ms(first) + number * 60_000}" for number in range(4)]
    assert [job["due"] for job in jobs] == pytest.approx([first + number * 60 for number in range(4)])
    assert all((job["value"], job["tries"], job["headers"]) == ({"a": 1}, 3, {"h": "v"}) for job in jobs)
    assert (await client.ask("get", id=jobs[0]["id"]))["tags"] == ["x"]


async def test_an_occurrence_is_a_job_like_any_other(client: Client) -> None:
    first = (await schedule(client, every=60))["next"]
    await advance(client, 2 * MINUTE_S)
    one, other = await popped(client)
    assert (await client.ask("finish", id=one["id"], lease=one["lease"]))["state"] == "finished"
    assert (await client.ask("bury", id=other["id"], lease=other["lease"]))["state"] == "dead"
    await advance(client, MINUTE_S)
    assert [job["id"] for job in await popped(client)] == [f"n@{ms(first) + 120_000}"]


async def test_the_same_definition_again_changes_nothing_and_another_counts_from_now(client: Client) -> None:
    assert (await schedule(client, every=600))["result"] == "created"
    first = (await row(client))["next"]
    await advance(client, 300)
    assert (await schedule(client, every=600))["result"] == "existing"
    assert (await row(client))["next"] == first
    now = await advance(client, 0)
    replaced = await schedule(client, every=600, tries=3)
    assert (replaced["result"], replaced["next"]) == ("replaced", pytest.approx(now + 600, abs=0.01))


async def test_a_listing_shows_all_that_was_given_and_the_next_five_times(client: Client) -> None:
    given: dict[str, Any] = {
        "every": 600.0,
        "jitter": 5.0,
        "catch_up": "all",
        "overlap": "skip",
        "ttr": 9.0,
        "priority": 1,
        "tries": 2,
    }
    given |= {"backoff": [1.0], "ttl": 90.0, "retention": 5.0, "headers": {"h": "v"}, "tags": ["x"]}
    first = (await schedule(client, **given))["next"]
    shown = await row(client)
    assert shown.items() >= given.items()
    assert shown["next"] == pytest.approx([first + number * 600 for number in range(5)])
    assert (shown["last"], shown["paused"], shown["value"], shown["topic"]) == (None, False, {"a": 1}, "t")
    await advance(client, 600)
    assert ((await row(client))["last"], (await row(client))["next"][0]) == pytest.approx((first, first + 600))
    without = await client.ask("schedules", body=False)
    assert "value" not in without["schedules"][0]


async def test_every_weekday_at_nine_in_berlin_is_that_in_summer_and_in_winter(client: Client) -> None:
    await schedule(client, cron="0 9 * * MON-FRI", zone="Europe/Berlin")
    await advance(client, 370 * DAY_S)
    jobs = await popped(client)
    times = [datetime.fromtimestamp(job["due"], UTC).astimezone(ZoneInfo("Europe/Berlin")) for job in jobs]
    assert all((time.hour, time.minute, time.second, time.weekday() < 5) == (9, 0, 0, True) for time in times)
    gaps = {(later.date() - sooner.date()).days for sooner, later in pairwise(times)}
    assert gaps == {1, 3}
    assert {time.utcoffset() for time in times} == {time.utcoffset() for time in times[::90]}
    assert len(jobs) in range(262, 267)


async def test_an_occurrence_is_skipped_while_the_one_before_is_not_done(client: Client) -> None:
    first = (await schedule(client, every=60, overlap="skip", ttr=3600, retention=0))["next"]
    await advance(client, 5 * MINUTE_S)
    (job,) = await popped(client)
    assert job["id"] == f"n@{ms(first)}"
    await advance(client, 5 * MINUTE_S)
    assert await popped(client) == []
    await client.ask("finish", id=job["id"], lease=job["lease"])
    await advance(client, MINUTE_S)
    assert [each["id"] for each in await popped(client)] == [f"n@{ms(first) + 10 * 60_000}"]


async def test_an_occurrence_that_is_dead_holds_up_none(client: Client) -> None:
    await schedule(client, every=60, overlap="skip")
    await advance(client, MINUTE_S)
    (job,) = await popped(client)
    await client.ask("bury", id=job["id"], lease=job["lease"])
    await advance(client, MINUTE_S)
    assert len(await popped(client)) == 1


async def test_jitter_makes_occurrences_due_later_but_no_earlier(client: Client) -> None:
    await schedule(client, every=60, jitter=30)
    await advance(client, 20 * MINUTE_S + 30)
    jobs = await popped(client)
    late = [job["due"] - int(job["id"].partition("@")[2]) / 1000 for job in jobs]
    assert len(jobs) == 20 and all(0 <= each <= 30.001 for each in late)
    assert max(late) - min(late) > 5


async def test_a_virtual_topic_gets_a_job_in_each_of_its_topics(client: Client) -> None:
    first = (await schedule(client, topic="paid", every=60))["next"]
    await advance(client, MINUTE_S)
    for topic in ("invoice", "mail"):
        assert [job["id"] for job in await popped(client, topic)] == [f"n@{ms(first)}@{topic}"]
    assert (await client.ask("unschedule", name="n"))["live"] == 2


async def test_a_full_topic_is_waited_for(client: Client) -> None:
    first = (await schedule(client, topic="few", every=60, catch_up="all"))["next"]
    await advance(client, 4 * MINUTE_S)
    assert len(await popped(client, "few")) == 2
    await advance(client, 5)
    ids = [f"n@{ms(first) + number * 60_000}" for number in (2, 3)]
    assert [job["id"] for job in await popped(client, "few")] == ids


async def test_a_paused_schedule_adds_nothing_until_it_is_defined_to_go_on(client: Client) -> None:
    assert (await schedule(client, every=60, paused=True))["next"] is None
    await advance(client, DAY_S)
    assert await popped(client) == []
    assert ((await row(client))["paused"], (await row(client))["next"]) == (True, [])
    await schedule(client, every=60)
    await advance(client, MINUTE_S)
    assert len(await popped(client)) == 1


async def test_what_is_removed_adds_nothing_more_and_leaves_its_jobs(client: Client) -> None:
    await schedule(client, every=60)
    await advance(client, 2 * MINUTE_S)
    assert await client.ask("unschedule", name="n") == {"success": True, "name": "n", "live": 2}
    await advance(client, 10 * MINUTE_S)
    assert len(await popped(client)) == 2
    again = await client.ask("unschedule", name="n")
    assert (again["code"], again["error"]) == ("NOT_FOUND", "there is no schedule of this name")


async def test_a_job_of_somebody_else_with_the_id_of_an_occurrence_costs_only_that_one(client: Client) -> None:
    first = (await schedule(client, every=60))["next"]
    await client.ask("add", topic="others", id=f"n@{ms(first)}", body=1, delay=5 * DAY_S)
    await advance(client, 2 * MINUTE_S)
    assert [job["id"] for job in await popped(client)] == [f"n@{ms(first) + 60_000}"]


async def test_a_reset_forgets_schedules(client: Client) -> None:
    await schedule(client, every=60)
    await client.ask("reset")
    assert (await client.ask("schedules"))["schedules"] == []
    await advance(client, DAY_S)
    assert await popped(client) == []


async def test_schedules_may_be_defined_and_listed_in_an_array(client: Client) -> None:
    asked = [{"command": "schedule", "name": f"n{at}", "topic": "t", "body": at, "every": 60} for at in range(3)]
    answers = await client.batch([*asked, {"command": "schedules"}, {"command": "unschedule", "name": "n1"}])
    assert [answer.get("result") for answer in answers[:3]] == ["created"] * 3
    assert {each["name"]: each["value"] for each in answers[3]["schedules"]} == {"n0": 0, "n1": 1, "n2": 2}
    assert answers[4]["live"] == 0


async def test_a_service_makes_occurrences_by_itself_for_whoever_waits(redis_server: RedisServer, redis: Any) -> None:
    async with ServiceProcess("--redis", redis_server.url) as service, Client(service.url) as client:
        first = (await schedule(client, every=1))["next"]
        jobs = [await client.ask("pop", topic="t", wait=20) for _ in range(3)]
        assert [job["id"] for job in jobs] == [f"n@{ms(first) + number * 1000}" for number in range(3)]
