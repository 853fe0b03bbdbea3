"""What the pages of the console show in tests: topics and jobs in every state, schedules, workers, tokens, actions."""

from __future__ import annotations

import json
import time
from typing import Any

from buckets import Figures, Pool
from buckets.clock import HeldClock
from buckets.redis.client import Redis
from buckets.topics.figures import ALL
from tests.kit.service import Client

TOPIC = "order-close"
DELAYED, READY, RESERVED, DEAD = "order:delayed", "order:ready", "order:reserved", "order:dead"
BLOCKED = "7@account:1"
BODY = '{"order":1234567890123456789012,"price":1.10,"items":[{"sku":"a","n":1e2},{"sku":"b","n":2}],"note":"ça va?"}'


async def fill(client: Client) -> None:
    """Put one of everything into a service."""
    await add(client, READY)
    await add(client, RESERVED)
    await add(client, DEAD)
    for job in (RESERVED, DEAD):
        assert (await client.ask("pop", id=job, ttr=3600, worker="worker-1"))["id"] == job
    assert (await client.ask("bury", id=DEAD, reason="no such order"))["success"]
    for number in range(3):
        await add(client, f"order:dead:{number}", topic="order-refund")
        await client.ask("pop", id=f"order:dead:{number}", worker="worker-2")
        await client.ask("bury", id=f"order:dead:{number}", reason=f"refused by the bank, {number % 2}")
    await add(
        client, DELAYED, delay=1800, headers={"trace": "abc"}, tags=["vip", "eu"], backoff=[15, 30, 180], ttl=90_000
    )
    for number in range(12):
        await add(client, f"order:later:{number}", delay=600 * (number + 1))
    await add(client, "mail:1", topic="mail", delay=200_000)
    for job in ("7@account:0", BLOCKED):
        await add(client, job, topic="account", key="7")
    assert (await client.ask("pause", topic="mail", seconds=3600))["success"]
    assert (await client.ask("schedule", name="nightly", topic="report", cron="30 2 * * *", body={}))["success"]
    assert (await client.ask("schedule", name="often", topic="report", every=21_600, body={}))["success"]


async def fill_past(redis_url: str, namespace: str) -> None:
    """Put figures of the last hour into a namespace: a job a minute late by its bucket, and many on time."""
    redis, clock = Redis(redis_url), HeldClock()
    pool = await Pool.open(redis, namespace, clock=clock)
    figures, now_us = Figures(pool, hours=48, most_topics=100), time.time_ns() // 1000
    for ago in range(60):
        clock.now_us = now_us - ago * 60_000_000
        numbers = {
            "adds": 10 + ago % 7,
            "deliveries": 8,
            "finishes": 8,
            "r1": 50,
            f"r{2 + ago % 13}": 1,
            "d2": 5,
            "d14": 1,
        }
        await figures.add({ALL: numbers, TOPIC: numbers})
    await pool.close()
    await redis.close()


async def add(client: Client, job_id: str, topic: str = TOPIC, **options: Any) -> None:
    """A job with the body of all of them, as it stands there."""
    fields = json.dumps({"command": "add", "topic": topic, "id": job_id, **options})
    _, answer = await client.post(f'{fields[:-1]}, "body": {BODY}}}'.encode())
    assert answer["success"], answer


PAGES = (
    "/",
    "/topics",
    "/topics?pattern=order",
    "/topics?order=dead",
    "/topics?pattern=nothing",
    f"/topic?name={TOPIC}",
    "/topic?name=mail",
    "/topic?name=account",
    "/topic?name=unknown",
    *(f"/jobs?topic={TOPIC}&state={state}" for state in ("delayed", "ready", "reserved", "dead")),
    f"/jobs?topic={TOPIC}&state=delayed&from=2026-01-01",
    "/jobs?topic=unknown",
    *(f"/job?id={job}" for job in (DELAYED, READY, BLOCKED, RESERVED, DEAD)),
    "/dead",
    "/dead?topic=order-refund",
    "/dead?topic=order-refund&reason=bank&cause=buried",
    "/dead?topic=mail",
    "/forecast",
    f"/forecast?topic={TOPIC}&period=hours",
    "/forecast?period=month",
    "/lateness",
    "/lateness?hours=48",
    f"/lateness?topic={TOPIC}",
    "/lateness?topic=unknown",
    "/schedules",
    "/workers",
    "/workers?topic=mail",
    "/instances",
    "/settings",
    "/settings?q=ttr",
    "/settings?q=nothing",
    "/tokens",
    "/operations",
    "/operations?topic=order-refund&state=dead&kind=kick",
    "/actions",
    "/actions?by=nobody",
    "/find",
    "/find?q=nothing",
    "/help",
)
"""Every page, with and without something to show."""
TEMPLATES = tuple(path for path in PAGES if "unknown" not in path and "nothing" not in path and "mail" not in path)
"""Every page with something to show."""
