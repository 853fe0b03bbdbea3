"""Pages about the service itself: its processes, its settings, and what it finds wrong."""

from __future__ import annotations

import html
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from tests.jobqueue.console.consoles import Console, console
from tests.kit.guarded import guarded
from tests.kit.redis_server import RedisServer
from tests.kit.service import Client, ServiceProcess
from tests.kit.waiting import until

_SETTINGS = """
history_hours = 24
[topics."order-close"]
ttr_s = 7
max_dead = 5
per_key = {concurrency = 2}
[virtual_topics]
everywhere = ["order-close", "mail"]
"""


async def text_of(front: Console, path: str, **headers: str) -> str:
    """The words of a page, without its marks."""
    response, text = await front.get(path, **headers)
    assert response.status == 200, text
    return html.unescape(re.sub(r"\s+", " ", re.sub(r"<[^>]+>", " ", text)))


async def test_instances_and_settings_are_shown_as_the_service_has_them(
    redis_server: RedisServer, tmp_path: Path
) -> None:
    config = tmp_path / "jobqueue.toml"
    config.write_text(_SETTINGS)
    flags = ("--config", str(config), "--redis", redis_server.url, "--namespace", "settings")
    async with ServiceProcess(*flags, workers=2) as service, Client(service.url) as client:
        await until(lambda: _have_cards(client))
        async with console(service.url) as front:
            shown = await text_of(front, "/instances")
            found = await client.ask("instances")
            for each in found["instances"]:
                assert f"{each['instance']} {each['host']} {each['pid']} {each['version']}" in shown
            assert "instances 2 timers held 8 of 8 shards 1" in shown and "Different versions" not in shown
            assert "warn redis Redis keeps nothing on disk" in shown and "ok clock the clocks" in shown
            shown = await text_of(front, "/settings")
            assert "history_hours 24 file" in shown and "redis set flag" in shown and redis_server.url not in shown
            assert "order-close per_key {concurrency = 2}" in shown
            assert "order-close ttr_s 7" in shown and "everywhere order-close, mail" in shown
            shown = await text_of(front, "/topic?name=order-close")
            assert "max_dead 5 this topic" in shown and "ttr_s 7.0 this topic" in shown
            assert "tries 16 all topics (default)" in shown and "per_key {concurrency = 2} this topic" in shown
            assert "goes to order-close , mail ." in await text_of(front, "/topic?name=everywhere")
            shown = await text_of(front, "/settings?q=TTR_")
            assert "default_ttr_s 60" in shown and "order-close ttr_s 7" in shown
            assert "history_hours" not in shown and "max_dead" not in shown and "everywhere" not in shown
            assert "No setting has this" in await text_of(front, "/settings?q=%3Cb%3Ex")


async def _have_cards(client: Client) -> bool:
    found = (await client.ask("instances"))["instances"]
    are_named = all(each["instance"] for each in found)
    return are_named and [len(each["timers"]["0"]) if each["timers"] else 0 for each in found] == [4, 4]


def _instance(number: int, version: str | None) -> dict[str, Any]:
    about = {"instance": f"i{number}", "host": "h", "pid": number, "worker": None, "version": version, "started": None}
    return {**about, "signed": 1.0, "timers": {"0": [number], "1": [0, 1]} if version else None, "parked": 0}


@pytest.mark.parametrize(("versions", "are_mixed"), [(("1.0", "1.1"), True), (("1.0", None), False)])
async def test_mixed_versions_are_marked(versions: tuple[str | None, ...], are_mixed: bool) -> None:
    """One that has just started has not told its version yet."""
    instances = [_instance(number, version) for number, version in enumerate(versions)]
    answers: dict[str, dict[str, Any]] = {
        "whoami": {"open": True},
        "instances": {"instances": instances, "shards": 2, "buckets": 4},
        "health": {"at": 1.0, "findings": []},
    }
    async with stand_in(answers) as url, console(url) as front:
        shown = await text_of(front, "/instances")
    assert ("Different versions run: 1.0, 1.1." in shown) == are_mixed
    assert "3 0: 0; 1: 0, 1" in shown


@asynccontextmanager
async def stand_in(answers: dict[str, dict[str, Any]]) -> AsyncIterator[str]:
    """The address of something that answers commands with what it is told to."""

    async def answer(request: web.Request) -> web.Response:
        return web.json_response({"success": True, **answers[(await request.json())["command"]]})

    application = web.Application()
    application.router.add_post("/command", answer)
    async with TestServer(application) as server:
        yield str(server.make_url("")).rstrip("/")


async def test_settings_need_admin_and_the_page_says_so(tmp_path: Path) -> None:
    async with guarded(tmp_path) as house, console(house.url) as front:
        session = await front.sign_in((await house.token("look")).token.text)
        response, text = await front.get("/settings", **session)
        assert response.status == 403 and "Your token lacks the right admin" in text and "Settings with" not in text
        assert "instances 1" in await text_of(front, "/instances", **session)
        session = await front.sign_in((await house.token("admin")).token.text)
        assert "access tokens file" in await text_of(front, "/settings", **session)
