"""Operations as a person plans, starts and steers them, in a real browser."""

from __future__ import annotations

import re
from urllib.parse import urlsplit

import pytest

from tests.jobqueue.console.consoles import SCHEMES, Room, Watched, watched
from tests.kit.waiting import until

pytestmark = pytest.mark.asyncio(loop_scope="module")
OF_OPERATIONS = {
    *("do/plan", "do/find", "do/start", "do/pause-operation", "do/resume-operation", "do/cancel-operation"),
}
"""The actions that are clicked here."""


async def click(watching: Watched, button: str) -> None:
    await watching.page.get_by_role("button", name=button, exact=True).click()


async def shown(watching: Watched, text: str) -> None:
    """Wait until the page shows it, by its own refresh."""
    await watching.page.locator("main", has_text=re.compile(text, re.S)).wait_for()


@pytest.mark.parametrize("scheme", SCHEMES)
async def test_all_dead_letters_that_match_are_kicked_by_plan(room: Room, scheme: str) -> None:
    topic = f"plan-{scheme}"
    await room.add(topic, 3)
    for number in range(3):
        await room.service.ask("pop", topic=topic)
        await room.service.ask("bury", id=f"{topic}:{number}", reason=f"Bank {number % 2}")
    async with watched(room.browser, room.console.url, color_scheme=scheme) as watching:
        await watching.show(f"/dead?topic={topic}&reason=bank+0")
        await click(watching, "Plan to kick them")
        await shown(watching, f"Kick of jobs of {topic}.*planned.*matched\\s*2")
        assert await watching.axe() == []
        await click(watching, "Kick 2 jobs")
        await shown(watching, "done\\s*2")
        assert await watching.axe() == []
        await watching.show("/operations")
        await shown(watching, topic)
        assert await watching.axe() == []
        assert watching.faults == []
    assert (await room.counts(topic)) == {"delayed": 0, "ready": 2, "reserved": 0, "dead": 1}


async def test_above_a_thousand_jobs_the_number_is_typed(room: Room) -> None:
    await room.add("typed", 1001, delay=3600)
    async with watched(room.browser, room.console.url, java_script_enabled=False) as watching:
        page = watching.page
        await watching.show("/jobs?topic=typed&state=delayed")
        await click(watching, "Plan to delete them")
        await shown(watching, "matched\\s*1,001")
        await page.get_by_label("How many jobs do you expect?").fill("1000")
        await click(watching, "Delete 1,001 jobs")
        await shown(watching, "the plan has 1001 jobs, not 1000")
        await page.go_back()
        await page.get_by_label("How many jobs do you expect?").fill("1,001")
        await click(watching, "Delete 1,001 jobs")
        await shown(watching, "started")
        assert all("409" in fault.text for fault in watching.faults)

    async def is_empty() -> bool:
        return (await room.counts("typed"))["delayed"] == 0

    await until(is_empty)


async def test_an_operation_is_paused_resumed_and_cancelled(room: Room) -> None:
    await room.add("steered", 300, delay=3600)
    async with watched(room.browser, room.console.url) as watching:
        page = watching.page
        await watching.show("/jobs?topic=steered&state=delayed")
        await page.get_by_role("link", name="Reschedule them…").click()
        await page.get_by_label("Reschedule: later by").fill("1h")
        await click(watching, "Plan")
        await shown(watching, "1h later|1 h later")
        await page.get_by_label("Jobs a second, at most").fill("5")
        await click(watching, "Reschedule 300 jobs")
        await shown(watching, "running")
        await click(watching, "Pause it")
        await shown(watching, "paused")
        await watching.show("/")
        await shown(watching, "Operations.*reschedule.*paused, \\d+ of 300 done")
        assert await watching.axe() == []
        await page.go_back()
        await click(watching, "Resume it")
        await shown(watching, "running")
        await click(watching, "Cancel it")
        await shown(watching, "cancelled.*ended")
        assert watching.faults == []


async def test_jobs_are_searched_by_the_beginning_of_their_ids(room: Room) -> None:
    await room.add("sought", 3, delay=3600)
    async with watched(room.browser, room.console.url) as watching:
        await watching.show("/find?q=sought:")
        await click(watching, "Search all jobs for ids that begin so")
        await shown(watching, "Found.*sought:0.*sought:1.*sought:2")
        assert await watching.axe() == []
        clicked = {urlsplit(url).path[1:] for url in watching.requests if "/do/" in url}
        assert clicked == {"do/find"} and clicked <= OF_OPERATIONS
        assert watching.faults == []


async def test_topics_are_listed_page_by_page_to_the_end(room: Room) -> None:
    names = [f"many-{number:03d}" for number in range(500)]
    await room.service.batch([{"command": "add", "topic": name, "body": 1} for name in names])
    path, seen = "/topics?pattern=many-", set[str]()
    while path:
        response, text = await room.console.get(path)
        assert response.status == 200
        seen |= {*re.findall(r">(many-\d+)</a>", text)}
        following = re.search(r'rel="next" href="([^"]*)"', text)
        path = following[1].replace("&amp;", "&") if following else ""
    assert seen == {*names}
    await room.service.batch([{"command": "purge", "topic": name} for name in names])


async def test_a_plan_that_is_gone_is_said_to_be(room: Room) -> None:
    response, text = await room.console.get("/operation?id=0123456789ab")
    assert response.status == 404 and "A plan is kept for 15 minutes" in text
