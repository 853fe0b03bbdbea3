"""Lists of jobs begin at a time that is asked for, and go on from there."""

from __future__ import annotations

import html
import json
import re
import time
from collections.abc import AsyncIterator
from typing import NamedTuple

import pytest
import pytest_asyncio

from jobqueue.console.formatting import rfc3339
from tests.jobqueue.console.consoles import Console, console
from tests.kit.service import Client, ServiceProcess

pytestmark = pytest.mark.asyncio(loop_scope="module")


class Desk(NamedTuple):
    """A console, and the service behind it."""

    console: Console
    client: Client


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def desk(filled: ServiceProcess) -> AsyncIterator[Desk]:
    async with console(filled.url) as made, Client(filled.url) as client:
        yield Desk(made, client)


async def listed(desk: Desk, path: str) -> tuple[list[str], str]:
    """The ids of the jobs on a page, in its order, and the address of the next one."""
    response, text = await desk.console.get(path)
    assert response.status == 200, text
    (following,) = re.findall(r'rel="next" href="(.*?)"', text) or [""]
    return re.findall(r'<th scope="row"><a class="name" href="[^"]*">(.*?)</a>', text), html.unescape(following)


async def test_delayed_jobs_are_listed_from_a_time_on_page_by_page(desk: Desk) -> None:
    begin = time.time() // 1 + 3600.5
    adds = [{"command": "add", "topic": "jump", "id": f"j:{n:03}", "body": 1, "at": begin + n} for n in range(150)]
    assert all(answer["success"] for answer in (await desk.client.post(json.dumps(adds).encode()))[1])
    first, following = await listed(desk, f"/jobs?topic=jump&state=delayed&from={rfc3339(begin + 20)}")
    assert first == [f"j:{number:03}" for number in range(20, 120)]
    assert f"from={rfc3339(begin + 20)}".replace(":", "%3A") in following
    _, text = await desk.console.get(f"/jobs?topic=jump&state=delayed&from={rfc3339(begin + 20)}")
    assert f'name="due_from" value="{rfc3339(begin + 20)}"' in text  # a plan changes no more than is listed
    second, last = await listed(desk, following)
    assert second == [f"j:{number:03}" for number in range(120, 150)] and last == ""
    _, text = await desk.console.get(f"/jobs?topic=jump&state=delayed&from={begin + 500}")
    assert "No job of this topic is delayed with this time or a later one." in text


async def test_reserved_jobs_and_dead_letters_begin_at_a_time_and_ready_ones_have_none(desk: Desk) -> None:
    for name in ("a", "b"):
        await desk.client.ask("add", topic="jump-dead", id=f"dead:{name}", body=1)
        await desk.client.ask("pop", id=f"dead:{name}")
        await desk.client.ask("bury", id=f"dead:{name}")
    died = (await desk.client.ask("get", id="dead:b"))["dead_since"]
    for page in ("/jobs?topic=jump-dead&state=dead", "/dead?topic=jump-dead"):
        assert (await listed(desk, page))[0] == ["dead:a", "dead:b"]
        assert (await listed(desk, f"{page}&from={died}"))[0][-1:] == ["dead:b"]
        assert (await listed(desk, f"{page}&from={died + 60}"))[0] == []
    _, exported = await desk.console.get(f"/dead.jsonl?topic=jump-dead&from={died + 60}")
    assert exported == ""
    _, text = await desk.console.get(f"/dead?topic=jump-dead&from={died}")
    assert f"/dead.jsonl?topic=jump-dead&amp;from={rfc3339(died)}".replace(":", "%3A") in text
    assert f'name="died_from" value="{rfc3339(died)}"' in text
    _, text = await desk.console.get(f"/operations?kind=kick&topic=jump-dead&died_from={rfc3339(died)}")
    assert f'name="died_from" value="{rfc3339(died)}"' in text
    assert "Lease ends from" in (await desk.console.get("/jobs?topic=jump-dead&state=reserved"))[1]
    assert 'name="from"' not in (await desk.console.get("/jobs?topic=jump-dead&state=ready"))[1]
    for path in ("/jobs?topic=jump-dead&state=dead&from=soon", "/jobs?topic=jump-dead&state=ready&from=5"):
        response, text = await desk.console.get(path)
        assert response.status == 400 and "from" in text


async def test_topics_are_sorted_by_name_or_by_the_most_of_something(desk: Desk) -> None:
    names = re.compile(r">(order-\w+)</a>")
    _, text = await desk.console.get("/topics?pattern=order")
    assert names.findall(text) == ["order-close", "order-refund"]
    _, text = await desk.console.get("/topics?pattern=order&order=dead")
    assert names.findall(text) == ["order-refund", "order-close"] and "by dead, the most first" in text
    response, _ = await desk.console.get("/topics?order=colour")
    assert response.status == 400
