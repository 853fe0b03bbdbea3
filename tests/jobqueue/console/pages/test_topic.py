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
