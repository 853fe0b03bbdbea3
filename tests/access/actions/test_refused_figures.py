"""What the metrics say of commands that a token may not give, or gives too fast."""

from __future__ import annotations

import asyncio
from collections import Counter
from pathlib import Path

import aiohttp
from prometheus_client.parser import text_string_to_metric_families

from tests.kit.guarded import Guarded, guarded
from tests.kit.waiting import until

_BURST = 10


async def counted(service: Guarded) -> Counter[tuple[str, str]]:
    """The commands that were answered, by name and code."""
    async with aiohttp.ClientSession() as session, session.get(f"{service.url}/metrics") as answer:
        families = text_string_to_metric_families(await answer.text())
    samples = [sample for family in families for sample in family.samples if sample.name == "jobqueue_commands_total"]
    return Counter({(each.labels["command"], each.labels["code"]): int(each.value) for each in samples})


async def test_refused_commands_count_under_their_own_names(tmp_path: Path) -> None:
    async with guarded(tmp_path) as service:
        maker = await service.token("produce", topics=["mail"])
        fast = await service.token("produce", "consume", rate=1, burst=_BURST)
        waiter = await service.token("consume", waits=1)
        before = await counted(service)
        add = {"command": "add", "topic": "mail", "body": 1}
        await service.ask(maker, {**add, "topic": "orders"})
        await service.ask(maker, [{"command": "purge", "topic": "mail"}, add, {"command": "pop", "topic": "mail"}])
        await service.ask(fast, [add] * (_BURST + 3) + [{"command": "finish", "id": "unknown"}])
        pop = {"command": "pop", "topic": "empty", "wait": 50}
        waiting = asyncio.create_task(service.ask(waiter, pop))
        await until(lambda: service.service.parked(1))
        await service.ask(waiter, pop)
        waiting.cancel()
        await service.ask(maker, [{"command": "ad"}, {**add, "bodi": 1}])
        news = await counted(service) - before
        assert {key: number for key, number in news.items() if key[0] != "whoami"} == {
            ("add", "FORBIDDEN"): 1,
            ("purge", "FORBIDDEN"): 1,
            ("pop", "FORBIDDEN"): 1,
            ("add", "TOO_FAST"): news["add", "TOO_FAST"],
            ("add", "OK"): 1 + _BURST + 3 - news["add", "TOO_FAST"],
            ("finish", "NOT_FOUND"): 1,
            ("pop", "TOO_FAST"): 1,
            ("unreadable", "UNKNOWN_COMMAND"): 1,
            ("unreadable", "UNKNOWN_FIELD"): 1,
        }
        assert news["add", "TOO_FAST"] > 0
