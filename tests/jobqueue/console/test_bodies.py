"""Bodies that are folded until somebody asks for them."""

from __future__ import annotations

from html import unescape
from pathlib import Path

import pytest

from tests.jobqueue.console.consoles import console
from tests.jobqueue.console.contents import DELAYED
from tests.kit.guarded import guarded
from tests.kit.service import ServiceProcess

pytestmark = pytest.mark.asyncio(loop_scope="module")

DIGITS = "1234567890123456789012"
"""Of the body."""


async def test_a_folded_body_is_shown_and_fetched_when_somebody_asks_for_it(filled: ServiceProcess) -> None:
    async with console(filled.url, hides_bodies=True) as front:
        _, text = await front.get(f"/job?id={DELAYED}")
        assert DIGITS not in text and "Edit the body" not in text and "As curl" not in text
        asked = [question for _, question in front.site._questions._entries if b'"get"' in question]
        assert asked and all(b'"body":false' in question for question in asked)
        (address,) = [part.split('"')[0] for part in text.split('href="') if "Show the body" in part.split("</a>")[0]]
        _, text = await front.get(unescape(address))
        assert DIGITS in text and "Edit the body" in text and "Show the body" not in text
        response, text = await front.get(f"/job?id={DELAYED}&body=other")
        assert response.status == 400 and "body must be one of hidden, shown" in text


async def test_a_body_is_shown_at_once_unless_the_settings_say_otherwise(filled: ServiceProcess) -> None:
    async with console(filled.url) as front:
        _, text = await front.get(f"/job?id={DELAYED}")
        assert DIGITS in text and "Show the body" not in text


async def test_who_opens_a_body_is_logged_where_the_service_is_asked_to(tmp_path: Path) -> None:
    async with (
        guarded(tmp_path, settings="log_body_views = true\n") as house,
        console(house.url, hides_bodies=True) as front,
    ):
        ann = await house.token("look", "bodies", "actor", "produce", name="ann")
        admin = await house.token("admin")
        add = {"command": "add", "topic": "orders", "id": "a", "delay": 60, "body": 1}
        assert (await house.ask(ann, add))[1]["success"]
        session = await front.sign_in(ann.token.text)

        async def views() -> list[tuple[str, str, str, int]]:
            _, answer = await house.ask(admin, {"command": "actions"})
            found = answer["actions"][::-1]
            return [(each["actor"], each["action"], each.get("id") or each["topic"], each["done"]) for each in found]

        await front.get("/job?id=a", **session)
        await front.get("/jobs?topic=orders", **session)
        await front.get("/job?id=a&body=shown", **session, **{"HX-Request": "true"})
        await house.ask(ann, {"command": "get", "id": "a"})  # by a program
        assert await views() == []
        await front.get("/job?id=a&body=shown", **session)
        assert await views() == [("ann/ann", "get", "a", 0)]
        await front.get("/dead.jsonl?topic=orders", **session)
        assert (await views())[1:] == [("ann/ann", "peek", "orders", 0)]
