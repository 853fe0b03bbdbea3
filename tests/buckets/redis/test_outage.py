"""buckets.redis.outage: an outage has one line when it begins and one when it is over, and its error is never empty."""

from __future__ import annotations

import logging

import pytest

from buckets.errors import Unavailable
from buckets.pool.pool import Pool
from buckets.redis.outage import Outage, reason
from buckets.waiting.notifier import Notifier
from tests.buckets.instances import Instance
from tests.kit.waiting import until


def test_it_is_logged_once_and_its_end_once(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    outage = Outage(logging.getLogger("x"), "bell.lost", "bell.found")
    outage.end(shard=1)
    assert caplog.messages == []
    for _ in range(2):
        for _ in range(3):
            outage.begin(TimeoutError(), shard=1)
        outage.end(shard=1)
        outage.end(shard=1)
    assert caplog.messages == ["bell.lost", "bell.found"] * 2
    assert caplog.records[0].__dict__["error"] == "no answer in time"


@pytest.mark.parametrize("error", [TimeoutError(), ConnectionResetError(), Unavailable(), ValueError("why")])
def test_an_error_always_has_words(error: Exception) -> None:
    assert reason(error).strip()


async def test_a_subscription_that_was_cut_is_logged_as_found_again(
    live_pool: Pool, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    notifier = Notifier(live_pool)
    async with Instance(live_pool, notifier).running():
        await notifier.connected.wait()
        await live_pool.redis.read("CLIENT", "KILL", "TYPE", "pubsub")
        await until(lambda: "bell.found" in caplog.messages)
    assert caplog.messages.index("bell.lost") < caplog.messages.index("bell.found")
