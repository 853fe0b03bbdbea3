"""The page of a topic."""

from __future__ import annotations

import re

from tests.jobqueue.console.consoles import console
from tests.kit.redis_server import RedisServer
from tests.kit.service import Client, ServiceProcess


async def test_workers_of_which_none_is_at_work_are_shown_with_when_one_was_last_seen(
    redis_server: RedisServer, redis: object
) -> None:
    """One that ended without hanging up is counted for a while."""
    async with ServiceProcess("--redis", redis_server.url) as service, Client(service.url) as client:
        for topic in ("idle", "busy"):
            await client.ask("add", topic=topic, body=1)
            answer = await client.ask("pop", topic=topic, worker="web1")
            if topic == "idle":
                await client.ask("finish", id=answer["id"], lease=answer["lease"])
        shown = {}
        async with console(service.url) as front:
            for topic in ("idle", "busy"):
                _, text = await front.get(f"/topic?name={topic}")
                (shown[topic],) = re.findall(r"<dt>workers</dt><dd>(.*?)</dd>", text)
        assert shown["idle"].startswith("1, last seen <time ")
        assert shown["busy"] == "1"


async def test_blocked_jobs_are_shown_with_what_they_wait_for(redis_server: RedisServer, redis: object) -> None:
    async with ServiceProcess("--redis", redis_server.url) as service, Client(service.url) as client:
        for each in "abc":
            await client.ask("add", topic="keyed", id=f"7@{each}", key="7", body=1)
        async with console(service.url) as front:
            places = {"/": ["dd", "td"], "/topic?name=keyed": ["dd"], "/topics": ["td"]}
            for path, cells in places.items():
                _, text = await front.get(path)
                shown = re.findall(r'>3(?:</a>)? <span class="far">2 blocked</span></(\w+)>', text)
                assert shown == cells, path
            _, text = await front.get("/job?id=7@b")
        assert "1 job of its key 7 is before it; 7@a has the key." in text
        assert re.search(r"<dt>key</dt><dd[^>]*>7</dd>", text)
        assert re.search(r'<dt>has its key</dt><dd><a [^>]*href="/job\?id=7%40a">', text)
        assert "&#34;key&#34;: &#34;7&#34;" in text
