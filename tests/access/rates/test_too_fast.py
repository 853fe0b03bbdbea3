"""A token over its rate: what adds work waits, what ends work is done."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest
import pytest_asyncio

from jobqueue.access import tokens
from jobqueue.access.issuing import Issued
from tests.access.doors.native_requests import REQUESTS
from tests.kit.guarded import Guarded, bearer, guarded
from tests.kit.waiting import until

pytestmark = pytest.mark.asyncio(loop_scope="module")

FREE = ("finish", "touch", "release", "bury", "leave")
RATE = {"rate": 1, "burst": 10}
_SPENT = 30  # commands at once, far more than a burst and what comes in meanwhile
_LONG_S = 5  # a burst that is overdrawn lasts ten


@pytest_asyncio.fixture(scope="module", loop_scope="module", name="guarded")
async def one_service() -> AsyncIterator[Guarded]:
    """A service that asks for tokens, shared by the tests."""
    with tempfile.TemporaryDirectory(prefix="jq-") as name:
        async with guarded(Path(name)) as service:
            yield service


def add(name: str, topic: str) -> dict[str, Any]:
    return {"command": "add", "topic": topic, "id": name, "body": 1, "if_exists": "replace"}


async def in_hand(guarded: Guarded, topic: str, *names: str) -> None:
    """Have jobs reserved, by a token without a rate."""
    free = await guarded.token("produce", "consume")
    await guarded.ask(free, [add(name, topic) for name in names])
    _, answers = await guarded.ask(free, [{"command": "pop", "id": name} for name in names])
    assert [answer["state"] for answer in answers] == ["reserved"] * len(names)


async def spent(guarded: Guarded, token: Issued) -> None:
    """Use a token until it is too fast for seconds: what ends work is not refused, but counts."""
    finish = {"command": "finish", "id": "nothing"}

    async def is_too_fast() -> bool:
        _, answers = await guarded.ask(token, [*[finish] * _SPENT, *[{"command": "stats"}] * _SPENT])
        assert {answer["code"] for answer in answers[:_SPENT]} == {"NOT_FOUND"}
        return bool(answers[-1].get("code") == "TOO_FAST" and answers[-1]["retry_after"] > _LONG_S)

    await until(is_too_fast)


async def test_what_ends_work_is_done_though_its_token_is_too_fast(guarded: Guarded) -> None:
    assert {*FREE} == tokens.SPARED
    token = await guarded.token("produce", "consume", "look", **RATE)
    names = ("finish", "touch", "release", "bury")
    await in_hand(guarded, "free", *names)
    for name in (*names, "leave"):
        await spent(guarded, token)
        request = {"command": name, "worker": "w"} if name == "leave" else {"command": name, "id": name}
        status, answer = await guarded.ask(token, request)
        assert (status, answer["success"]) == (200, True), (name, answer)
    _, refused = await guarded.ask(token, add("more", "free"))
    assert refused["code"] == "TOO_FAST"
    look = await guarded.token("look")
    states = [(await guarded.ask(look, {"command": "get", "id": name}))[1].get("state") for name in names]
    assert states == ["finished", "reserved", "delayed", "dead"]  # a released job waits for its back-off


async def test_each_other_command_is_too_fast_with_the_time_to_wait_and_nothing_is_done(guarded: Guarded) -> None:
    token = await guarded.token("admin", **RATE)
    look = await guarded.token("look")
    await in_hand(guarded, "t", "kept")
    before = (await guarded.ask(look, {"command": "get", "id": "kept"}))[1]
    async with aiohttp.ClientSession(headers=bearer(token)) as session:
        for name, request in REQUESTS.items():
            if name in FREE:
                continue
            await spent(guarded, token)
            async with session.post(f"{guarded.url}/command", json=request) as response:
                answer = await response.json()
                assert (response.status, answer["code"]) == (429, "TOO_FAST"), (name, answer)
                assert 0 < answer["retry_after"] <= float(response.headers["Retry-After"]) < 20
                assert answer["id"] == request.get("id")
    assert (await guarded.ask(look, {"command": "get", "id": "kept"}))[1] == before


async def test_behind_the_first_that_is_too_fast_all_are_but_those_that_end_work(guarded: Guarded) -> None:
    token = await guarded.token("produce", "consume", "look", **RATE)
    await in_hand(guarded, "row", "one", "two", "three")
    adds = [add(f"row{number}", "row") for number in range(_SPENT)]
    array = [{"command": "finish", "id": "one"}, *adds]
    array += [{"command": "bury", "id": "two"}, {"command": "nope"}, {"command": "pop", "topic": "row"}]
    array += [{"command": "kick", "id": "x"}, {"command": "touch", "id": "three"}]
    status, answers = await guarded.ask(token, array)
    assert status == 200
    codes = [answer.get("code", "done") for answer in answers]
    first = codes.index("TOO_FAST")
    assert 0 < first <= _SPENT and codes[:first] == ["done"] * first
    rest = ["done", "UNKNOWN_COMMAND", "TOO_FAST", "FORBIDDEN", "done"]
    assert codes[first:] == ["TOO_FAST"] * (len(adds) + 1 - first) + rest
    refused = [answer for answer in answers if answer.get("code") == "TOO_FAST"]
    assert all(answer["retry_after"] > 0 for answer in refused)
    assert [answer["id"] for answer in refused][:-1] == [each["id"] for each in adds][first - 1 :]
    look = await guarded.token("look")
    _, listed = await guarded.ask(look, {"command": "peek", "topic": "row", "state": "ready"})
    assert [job["id"] for job in listed["jobs"]] == [each["id"] for each in adds][: first - 1]


async def test_what_was_too_fast_is_taken_after_the_time_that_was_named(guarded: Guarded) -> None:
    token = await guarded.token("produce", "look", rate=5, burst=10)
    _, answers = await guarded.ask(token, [{"command": "stats"}] * _SPENT)
    await asyncio.sleep(answers[-1]["retry_after"])
    status, answer = await guarded.ask(token, add("late", "late"))
    assert status == 200, answer


async def test_bodies_are_too_fast_by_their_bytes_alone(guarded: Guarded) -> None:
    token = await guarded.token("produce", "consume", "look", bytes=1)
    large = add("large", "large") | {"body": "x" * 200_000}
    _, answers = await guarded.ask(token, [large, large, {"command": "stats"}, {"command": "finish", "id": "x"}])
    assert [answer.get("code") for answer in answers] == [None, "TOO_FAST", "TOO_FAST", "NOT_FOUND"]
    status, _ = await guarded.ask(token, {"command": "stats"})
    assert status == 200
