"""jobqueue.access.grants: what a rate refuses, and when that is answered."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest
from msgspec import Raw

from jobqueue.access import grants
from jobqueue.access.grants import Grant
from jobqueue.access.tokens import Record
from jobqueue.errors import Forbidden, TooFast
from jobqueue.schema import params

ADD, FINISH = params.Add(topic="t", body=Raw(b"1")), params.Finish(id="a")
PEEK = params.Peek(topic="t")


class Left:
    """A quota with so many permits left."""

    counts_bytes = False

    def __init__(self, number: int) -> None:
        self._number = number

    def spend(self, count: int, size: int = 0) -> bool:
        return False

    def refund(self, count: int, size: int = 0) -> None:
        """Nothing is spent."""

    def owe(self, count: int) -> None:
        """They are free."""

    async def take(self, sizes: Sequence[int]) -> tuple[int, float]:
        return min(self._number, len(sizes)), 2.0


def grant(left: int) -> Grant:
    record = Record(id="abcdefgh", name="n", digest="", rights=("produce", "consume"), created=0, changed=1)
    return Grant(record, "o", Left(left))


@pytest.fixture(autouse=True)
def very_late(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(grants, "_REFUSAL_S", 3600)


async def test_a_request_of_which_nothing_is_carried_out_is_refused_late() -> None:
    for commands in ([ADD], [ADD, ADD], [ADD, PEEK]):
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.02):
                await grant(0).checked(commands)


async def test_what_is_carried_out_does_not_wait_for_what_is_refused() -> None:
    passed, refused = await grant(1).checked([ADD, ADD])
    assert passed is ADD and isinstance(refused, TooFast) and refused.retry_after == 2
    refused, passed = await grant(0).checked([ADD, FINISH])
    assert passed is FINISH and isinstance(refused, TooFast)


async def test_what_no_rate_refuses_is_not_late() -> None:
    assert await grant(0).checked([FINISH]) == [FINISH]
    (refused,) = await grant(0).checked([PEEK])
    assert isinstance(refused, Forbidden)
    assert await grant(0).checked([]) == []
