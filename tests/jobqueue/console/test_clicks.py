"""Every action once as a person does it, in both schemes: forms are filled in and buttons clicked in a real browser."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple
from urllib.parse import urlsplit

import pytest
from playwright.async_api import Browser

from jobqueue.console.actions import ACTIONS
from tests.jobqueue.console.consoles import SCHEMES, Watched, console, watched
from tests.jobqueue.console.test_operations import OF_OPERATIONS
from tests.kit.guarded import guarded
from tests.kit.service import Client, ServiceProcess

pytestmark = pytest.mark.asyncio(loop_scope="module")


class Click(NamedTuple):
    """What somebody does on a page: fields by their labels, what is ticked by its name, a fold, a button; and what the
    page behind it says."""

    page: str
    button: str
    note: str
    fields: tuple[tuple[str, str], ...] = ()
    ticked: str = ""
    fold: str = ""


_TOPIC, _JOB = "/topic?name=clicks", "/job?id=c:"
NEW = "c:added"
"""A job that is added first; its id is another one for each scheme, as ended jobs are remembered."""
CLICKS = (
    Click(_TOPIC, "Pause", "clicks paused", (("For", "10m"),)),
    Click(_TOPIC, "Resume", "clicks resumed"),
    Click(_TOPIC, "Kick", "1 job kicked", (("The oldest", "1"),)),
    Click(_TOPIC, "Add", f"{NEW}: created", (("Id", NEW), ("Due in", "1h"), ("Body", '{"a": 1.10}'))),
    Click(f"/job?id={NEW}", "Reschedule", "rescheduled", (("Due in, or at", "2h"),)),
    Click(f"/job?id={NEW}", "Set", "priority 7", (("0 to 9", "7"),)),
    Click(f"/job?id={NEW}", "Replace", "the body was replaced", (("JSON", '{"a": 2}'),)),
    Click(f"/job?id={NEW}", "Run now", f"{NEW} made due"),
    Click(f"{_JOB}held", "Release", "released", (("Release after", "1h"), ("Reason", "not now"))),
    Click(f"{_JOB}worked", "Bury", "buried", (("Reason", "broken"),)),
    Click(f"{_JOB}worked", "Kick", "c:worked kicked"),
    Click(f"{_JOB}worked", "Delete it; there is no undo", "c:worked deleted", fold="Delete the job…"),
    Click("/jobs?topic=clicks&state=delayed", "Run the ticked ones now", "c:held made due", ticked="c:held"),
    Click("/topics?pattern=clicks", "Pause the ticked ones", "clicks paused", ticked="clicks"),
    Click("/topics?pattern=clicks", "Resume the ticked ones", "clicks resumed", ticked="clicks"),
    Click("/dead?topic=clicks", "Kick the ticked ones", "c:dead:1 kicked", ticked="c:dead:1"),
    Click(
        "/dead?topic=clicks",
        "Delete them; there is no undo",
        "c:dead:2 deleted",
        ticked="c:dead:2",
        fold="Delete the ticked ones…",
    ),
    Click(
        "/schedules?pattern=clicks",
        "Remove them; the jobs that they have made stay",
        "clicks-often removed",
        ticked="clicks-often",
        fold="Remove the ticked ones…",
    ),
    Click(_TOPIC, "Purge", "deleted", (("Type the name of the topic", "clicks"),)),
)


async def _prepare(client: Client) -> None:
    """Jobs in the states that the clicks find them in."""
    for job in ("c:dead:0", "c:dead:1", "c:dead:2", "c:held", "c:worked"):
        assert (await client.ask("add", topic="clicks", id=job, body={}, if_exists="renew"))["success"]
        assert (await client.ask("pop", id=job, ttr=600))["id"] == job
        if job.startswith("c:dead"):
            assert (await client.ask("bury", id=job))["success"]
    assert (await client.ask("schedule", name="clicks-often", topic="clicks", every=3600, body={}))["success"]


async def _click(watching: Watched, click: Click) -> str:
    """What the page says after a click."""
    page = watching.page
    await watching.show(click.page)
    for label, text in click.fields:
        await page.locator("main").get_by_label(label, exact=True).first.fill(text)
    if click.button == "Bury":  # the reason stands before both buttons of its form
        await page.locator("main").get_by_label("Reason", exact=True).fill("broken")
    if click.ticked:
        await page.get_by_label(f"tick {click.ticked}", exact=True).check()
    if click.fold:
        await page.locator("summary", has_text=click.fold).click()
    await page.get_by_role("button", name=click.button, exact=True).click()
    await page.wait_for_url("**note=*")
    return await page.locator(".note[role=status]").inner_text()


def _renamed(click: Click, job: str) -> Click:
    """The same with another id of the new job."""
    fields = tuple((label, text.replace(NEW, job)) for label, text in click.fields)
    return click._replace(page=click.page.replace(NEW, job), fields=fields)


@pytest.mark.parametrize("scheme", SCHEMES)
async def test_each_action_is_a_click_away(filled: ServiceProcess, browser: Browser, scheme: str) -> None:
    async with Client(filled.url) as client, console(filled.url) as front:
        await client.ask("purge", topic="clicks")
        await _prepare(client)
        async with watched(browser, front.url, color_scheme=scheme) as watching:
            for click in CLICKS:
                said = await _click(watching, _renamed(click, f"{NEW}-{scheme}"))
                assert click.note.replace(NEW, f"{NEW}-{scheme}") in said, click
            assert watching.faults == []
        clicked = {urlsplit(url).path[1:] for url in watching.requests if "/do/" in url}
    assert clicked == {*ACTIONS} - {"do/rotate", "do/revoke"} - OF_OPERATIONS


async def test_somebody_signs_in_changes_tokens_and_signs_out(tmp_path: Path, browser: Browser) -> None:
    async with guarded(tmp_path) as house, console(house.url) as front, watched(browser, front.url) as watching:
        await house.token("look", name="guest")  # the older one, as nobody gives a token that ends after their own
        boss = await house.token("admin", name="boss")
        page = watching.page
        await watching.show("/tokens")
        assert page.url.endswith("/sign-in?back=/tokens")
        await page.get_by_label("Token").fill(boss.token.text)
        await page.get_by_role("button", name="Sign in").click()
        await page.wait_for_url("**/tokens")
        await page.get_by_label("revoke or rotate guest").click()
        await page.locator("form:visible", has_text="Rotate").get_by_role("button", name="Rotate").click()
        await page.get_by_role("heading", name="New token").wait_for(timeout=5000)
        assert "jqt_" in await page.get_by_role("region", name="New token").inner_text()
        await watching.show("/tokens")
        await page.get_by_label("revoke or rotate guest").click()
        await page.locator("form:visible", has_text="Rotate").get_by_role("button", name="Revoke now").click()
        assert "revoked" in await page.locator(".note").inner_text()
        assert boss.token.text not in await page.content()
        await page.get_by_role("button", name="Sign out").click()
        await page.wait_for_url("**/sign-in")
        assert watching.faults == []
