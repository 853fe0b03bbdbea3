"""Every page in a real browser: in both schemes, on a narrow screen, without JavaScript, with the keyboard alone."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tests.jobqueue.console import contents
from tests.jobqueue.console.consoles import SCHEMES, Room, watched
from tests.jobqueue.console.contents import PAGES, TOPIC
from tests.kit.waiting import until

pytestmark = pytest.mark.asyncio(loop_scope="module")
_NARROW, _WIDE = {"width": 320, "height": 640}, {"width": 1280, "height": 900}


@pytest.mark.parametrize(("scheme", "size"), [("light", _WIDE), ("dark", _NARROW)])
async def test_each_page_is_without_faults_and_accessible(room: Room, scheme: str, size: dict[str, int]) -> None:
    found: dict[str, list[str]] = {}
    how: dict[str, Any] = {"color_scheme": scheme, "viewport": size}
    async with watched(room.browser, room.console.url, **how) as watching:
        for path in contents.TEMPLATES:
            await watching.show(path)
            await watching.page.evaluate("document.querySelectorAll('details').forEach(each => each.open = true)")
            violations = await watching.axe()
            if violations:
                found[path] = violations
            wide = await watching.page.evaluate("document.documentElement.scrollWidth > innerWidth")
            assert not wide, f"{path} is wider than the screen"
        assert watching.faults == []
    assert found == {}


@pytest.mark.parametrize("scheme", SCHEMES)
async def test_each_page_works_without_javascript(room: Room, scheme: str) -> None:
    how: dict[str, Any] = {"color_scheme": scheme, "java_script_enabled": False}
    async with watched(room.browser, room.console.url, **how) as watching:
        for path in PAGES:
            await watching.show(path)
            assert await watching.page.locator("h1").count() == 1
            assert await watching.page.locator("form form, form #live").count() == 0
        assert watching.faults == []


async def test_first_view_is_small_and_of_six_requests(room: Room) -> None:
    sizes: list[int] = []
    async with watched(room.browser, room.console.url) as watching:
        watching.page.on("response", lambda response: sizes.append(int(response.headers.get("content-length", 0))))
        await watching.show("/")
        assert len(watching.requests) <= 6
    assert sum(sizes) <= 130_000


async def test_actions_work_without_javascript(room: Room) -> None:
    await contents.add(room.service, "plain:1", delay=600)
    async with watched(room.browser, room.console.url, java_script_enabled=False) as watching:
        page = watching.page
        await watching.show("/job?id=plain:1")
        await page.get_by_role("button", name="Run now").click()
        assert "made due" in await page.locator(".note").inner_text()
        assert (await room.service.ask("get", id="plain:1"))["state"] == "ready"
        await page.locator("summary", has_text="Delete the job").click()
        await page.get_by_role("button", name="Delete it").click()
        assert "deleted" in await page.locator(".note").inner_text()
        assert watching.faults == []


async def test_dead_letters_are_kicked_with_the_keyboard_alone(room: Room) -> None:
    for number in range(2):
        await contents.add(room.service, f"keys:{number}", topic="keys")
        await room.service.ask("pop", topic="keys")
        await room.service.ask("bury", id=f"keys:{number}", reason="broken")
    async with watched(room.browser, room.console.url) as watching:
        page = watching.page
        await watching.show("/")
        keyboard = page.keyboard
        await keyboard.press("g")
        await keyboard.press("d")
        await page.wait_for_url("**/dead")
        while await page.evaluate("document.activeElement.textContent") != "keys":
            await keyboard.press("j")
        await keyboard.press("Enter")
        await page.wait_for_url("**/dead?topic=keys")
        while await page.evaluate("document.activeElement.className") != "all":
            await keyboard.press("Tab")
        await keyboard.press("Enter")
        while await page.evaluate("document.activeElement.textContent") != "Kick the ticked ones":
            await keyboard.press("Tab")
        await keyboard.press("Enter")
        await page.wait_for_url("**/dead?topic=keys&note=*")
        assert "2 kicked" in await page.locator(".note").inner_text()
        assert watching.faults == []
    assert (await room.service.ask("stats", topic="keys"))["counts"]["ready"] == 2


async def test_a_page_refreshes_itself(room: Room) -> None:
    async with watched(room.browser, room.console.url) as watching:
        await watching.show(f"/jobs?topic={TOPIC}&state=delayed")
        await contents.add(room.service, "new:1", delay=5)
        await watching.page.get_by_role("link", name="new:1").wait_for(timeout=10_000)
        assert await watching.page.evaluate("document.querySelectorAll('#live').length") == 1
        assert watching.faults == []


async def test_the_refresh_rests_while_something_is_ticked_or_it_is_paused(room: Room) -> None:
    async with watched(room.browser, room.console.url) as watching:
        page = watching.page

        def refreshes() -> int:
            return sum("/jobs" in url for url in watching.requests)

        await watching.show(f"/jobs?topic={TOPIC}&state=delayed")
        await until(lambda: refreshes() >= 2)
        await page.locator("tbody input").first.check()
        ticked = refreshes()
        await asyncio.sleep(2.5)
        assert refreshes() <= ticked + 1  # one may have been under way
        assert await page.locator("tbody input").first.is_checked()
        await page.locator("tbody input").first.uncheck()
        await page.locator("h1").click()
        await until(lambda: refreshes() >= ticked + 2)
        await page.keyboard.press("p")
        paused = refreshes()
        await asyncio.sleep(2.5)
        assert refreshes() <= paused + 1
        assert await page.locator("#pause").get_attribute("aria-pressed") == "true"
        assert watching.faults == []


async def test_opened_details_stay_open_when_the_page_refreshes_itself(room: Room) -> None:
    async with watched(room.browser, room.console.url) as watching:
        page = watching.page
        await watching.show("/forecast")
        await page.locator("summary", has_text="The same as a table").click()
        await page.locator("h1").click()
        begun = len(watching.requests)
        await until(lambda: len(watching.requests) >= begun + 2)
        assert await page.locator("details").first.evaluate("details => details.open")


async def test_the_choice_of_colours_and_of_shortcuts_is_remembered(room: Room) -> None:
    async with watched(room.browser, room.console.url, color_scheme="light") as watching:
        page = watching.page
        await watching.show("/help")
        await page.get_by_label("dark").check()
        await page.get_by_label("Shortcuts are on").uncheck()
        await watching.show("/topics")
        assert await page.evaluate("document.documentElement.dataset.scheme") == "dark"
        dark = await page.evaluate("getComputedStyle(document.body).backgroundColor")
        assert sum(int(part) for part in dark.removeprefix("rgb(").removesuffix(")").split(",")) < 150
        await page.keyboard.press("g")
        await page.keyboard.press("w")
        assert page.url.endswith("/topics")


async def test_keys_do_nothing_while_somebody_types(room: Room) -> None:
    async with watched(room.browser, room.console.url) as watching:
        await watching.show("/topics")
        await watching.page.keyboard.press("/")
        await watching.page.keyboard.type("gt?p")
        assert await watching.page.locator("#find").input_value() == "gt?p"
        assert watching.page.url.endswith("/topics")


async def test_the_console_is_not_shown_in_a_frame(room: Room) -> None:
    async with watched(room.browser, room.console.url) as watching:
        await watching.page.set_content(f'<iframe src="{room.console.url}/"></iframe>')
        await until(lambda: any("frame-ancestors" in fault.text for fault in watching.faults))


async def test_times_are_shown_in_the_zone_of_the_viewer(room: Room) -> None:
    how: dict[str, Any] = {"timezone_id": "Asia/Tokyo", "locale": "en-GB"}
    async with watched(room.browser, room.console.url, **how) as watching:
        await watching.show(f"/job?id={contents.DELAYED}")
        texts = await watching.page.locator("time").all_inner_texts()
    assert texts and all(text.endswith(("JST", "GMT+9")) for text in texts)
