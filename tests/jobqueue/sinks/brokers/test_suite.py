"""What every kind of sink keeps to, against its real broker."""

from __future__ import annotations

import asyncio
import functools
import json
import signal
from collections import Counter
from typing import Any

import pytest

from tests.jobqueue.sinks.brokers.stage import Stage
from tests.kit.brokers import BROKERS, RESTARTED
from tests.kit.waiting import until

_ID_CHARACTERS = "abcXYZ019_-:.@/+=~"


def many(number: int, **more: Any) -> list[dict[str, Any]]:
    return [
        {"topic": "jobs", "id": f"{_ID_CHARACTERS[n % 8 : n % 8 + 6]}{n}", "body": {"n": n}, **more}
        for n in range(number)
    ]


async def test_what_is_received_is_what_was_added_byte_for_byte(stage: Stage) -> None:
    stage.write(headers={"constant": "always"})
    bodies = ["1.10", '"é\\u00e9"', "1E5", '{"a":1,"a":2}', "null", json.dumps("x" * (200 << 10))]
    jobs = many(300, headers={"trace": "t 1"})
    raw = [{"topic": "jobs", "id": f"raw:{n}"} for n in range(len(bodies))]
    await stage.add(jobs)
    await stage.add_raw(raw, bodies)
    await stage.deliver.start()
    await stage.until_none_is_left()
    received = await stage.received()
    assert len(received) == len({each.key for each in received}) == len(jobs) + len(raw)
    by_id = {each.key.rpartition(":")[0]: each for each in received}
    assert by_id.keys() == {job["id"] for job in (*jobs, *raw)}
    assert [by_id[f"raw:{n}"].body.decode() for n in range(len(bodies))] == bodies
    for job in jobs:
        headers = by_id[job["id"]].headers
        assert (headers["constant"], headers["trace"], headers["jobqueue-id"]) == ("always", "t 1", job["id"])
        assert (headers["jobqueue-topic"], headers["jobqueue-attempt"]) == ("jobs", "1")
    assert await stage.deliver.stop() == 0, stage.deliver.text


async def test_a_large_body_is_taken_or_is_a_dead_letter_and_the_rest_goes_on(stage: Stage) -> None:
    stage.write()
    body = "x" * (250 << 10)
    fits = stage.broker.most_body > len(body)
    await stage.add([{"topic": "jobs", "id": "large", "body": body}, *many(3)])
    await stage.deliver.start()
    await stage.until_none_is_left()
    assert len(await stage.received()) == 3 + fits
    assert [*await stage.dead()] == [] if fits else ["large"]


async def test_nothing_is_missing_after_kills_and_repetitions_have_the_same_key(stage: Stage) -> None:
    in_flight, kills = 50, 3
    stage.write(in_flight=in_flight)
    jobs = many(1_500, ttr=1)
    adding = asyncio.create_task(stage.add(jobs))
    for _ in range(kills):
        await stage.deliver.start()
        seen = len(await stage.received())
        await until(functools.partial(_more_or_all, stage, seen, adding), within_s=30)
        await stage.deliver.stop(signal.SIGKILL)
    await adding
    await stage.deliver.start()
    await stage.until_none_is_left()
    repeated = Counter(each.key for each in await stage.received())
    assert {key.rpartition(":")[0] for key in repeated} == {job["id"] for job in jobs}
    extra = sum(repeated.values()) - len(repeated)
    assert extra <= (0 if stage.broker.drops_repetitions else kills * in_flight)


async def _more_or_all(stage: Stage, seen: int, adding: asyncio.Task[None]) -> bool:
    return await _more(stage, seen) or (adding.done() and not await stage.left())


async def _more(stage: Stage, seen: int) -> bool:
    return len(await stage.received()) > seen


@pytest.mark.parametrize(
    ("broker", "way"),
    [*((kind, "killed") for kind in RESTARTED), *((kind, "frozen") for kind in BROKERS)],
    indirect=["broker"],
)
async def test_an_outage_of_the_broker_costs_no_try_and_loses_nothing(stage: Stage, way: str) -> None:
    stage.write(in_flight=20, timeout_s=2)
    await stage.deliver.start()
    await stage.add(many(200))
    await stage.until_none_is_left()
    if way == "killed":
        stage.broker.kill()
    else:
        stage.broker.freeze()
    late = [{"topic": "jobs", "id": f"late:{n}", "body": n, "ttr": 60, "tries": 1} for n in range(200)]
    await stage.add(late)
    await until(lambda: _is_down(stage), within_s=30)
    if way == "killed":
        await stage.broker.start()
    else:
        stage.broker.thaw()
    await stage.until_none_is_left()
    assert await stage.dead() == {}
    received = await stage.received()
    attempts = {each.headers["jobqueue-attempt"] for each in received}
    assert {each.key.rpartition(":")[0] for each in received} >= {job["id"] for job in late}
    assert attempts == {"1"}
    assert await stage.deliver.stop() == 0, stage.deliver.text


async def _is_down(stage: Stage) -> bool:
    return bool(stage.deliver.logged("sink.down"))


@pytest.mark.parametrize("broker", RESTARTED, indirect=True)
async def test_a_broker_that_is_not_there_yet_is_waited_for(stage: Stage) -> None:
    stage.broker.kill()
    stage.write()
    await stage.add(many(10))
    await stage.deliver.start()
    await until(lambda: _is_down(stage), within_s=30)
    assert (await stage.client.stats("jobs"))["counts"]["ready"] == 10
    await stage.broker.start()
    await stage.until_none_is_left()
    assert len(await stage.received()) == 10


async def test_a_stop_settles_what_is_in_flight_and_takes_no_more(stage: Stage) -> None:
    stage.write(in_flight=20)
    await stage.add(many(2_000))
    await stage.deliver.start()
    await until(lambda: _more(stage, 0), within_s=30)
    assert await stage.deliver.stop() == 0, stage.deliver.text
    counts = (await stage.client.stats("jobs"))["counts"]
    assert counts["reserved"] == 0
    assert len(await stage.received()) == 2_000 - counts["ready"]
