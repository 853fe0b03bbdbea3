"""The page Forecast: whose jobs fall due when, beside what was delivered at most."""

from __future__ import annotations

import re

import pytest

from tests.jobqueue.console.consoles import Room, watched
from tests.kit.waiting import until

pytestmark = pytest.mark.asyncio(loop_scope="module")


async def test_the_busiest_time_names_its_topics_and_is_compared_with_what_was_delivered(room: Room) -> None:
    for topic, number in (("herd-a", 400), ("herd-b", 300)):
        await room.service.batch([{"command": "add", "topic": topic, "body": 1, "delay": 7000} for _ in range(number)])
    async with watched(room.browser, room.console.url) as watching:

        async def is_compared() -> bool:  # not at once, as no page waits long for figures of the past
            await watching.show("/forecast")
            busiest = await watching.page.get_by_label("Busiest times").locator("tbody tr").first.inner_text()
            return bool(re.search(r"\d+, more than was delivered at most\s.*herd-a 400, herd-b 300", busiest, re.S))

        await until(is_compared, every_s=0.5)
        legend = await watching.page.locator("figcaption").first.inner_text()
        assert "herd-a" in legend and "other jobs" in legend
        assert await watching.page.locator("line.alarm").count() == 1
        assert await watching.axe() == []
        assert watching.faults == []


async def test_the_forecast_of_one_topic_has_no_others(room: Room) -> None:
    _, text = await room.console.get("/forecast?topic=herd-b")
    assert "herd-a" not in text and "other jobs" not in text
