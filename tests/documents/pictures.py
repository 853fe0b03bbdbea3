"""`make pictures`: a picture of each page of the console, in docs/pictures, from the orders of the demo.

The orders fall due within a day instead of eight seconds, so that there is something to see while the pictures are
taken. Around them there are retries of payments in the hands of workers, refunds that died, a paused topic, and figures
of the hour before.
`python -m tests.documents.pictures FOLDER` writes them elsewhere.
"""

from __future__ import annotations

import asyncio
import io
import math
import random
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any, NamedTuple

from PIL import Image
from playwright.async_api import Browser

from buckets import Figures, Pool
from buckets.clock import HeldClock
from buckets.redis.client import Redis
from buckets.topics.figures import ALL
from jobqueue.console.site import PAGES, SIGN_IN
from tests.acceptance.demo import FIRST_S, SPREAD_S, TOPIC, orders
from tests.jobqueue.console.consoles import Console, chromium, console, watched
from tests.kit.guarded import Guarded, guarded
from tests.kit.service import ROOT, Client
from tests.kit.waiting import until

FOLDER = ROOT / "docs" / "pictures"
DOWNLOADS = ("body", "dead.jsonl")
"""What is no page to look at."""
DARK = "overview-dark"
SIZE = {"width": 1280, "height": 800}

_DAY_S = 86_400
_COLOURS = 128  # fewer show in the letters
_PAYMENTS, _REFUNDS, _MAILS = "payment-retry", "order-refund", "basket-mail"
_DEAD = f"{_REFUNDS}:1007"
_SLOW_MINUTES = (31, 32)
_REASONS = ("the bank has refused it", "HTTP 503 from the bank", "no such account")
_SETTINGS = """
journal = "sqlite:///{folder}/journal.db"
journal_run = true
"""


class Picture(NamedTuple):
    """The name of a file without its ending, the path of a page, and whose eyes it is for."""

    name: str
    path: str
    scheme: str = "light"


def pictures(operation: str) -> list[Picture]:
    """All that are taken. `operation`: the id of one."""
    asks = {
        "topic": f"?name={TOPIC}",
        "jobs": f"?topic={TOPIC}&state=delayed",
        "job": f"?id={_DEAD}",
        "dead": f"?topic={_REFUNDS}",
        "operation": f"?id={operation}",
        "find": f"?q={_REFUNDS}:10",
    }
    pages = [Picture(name or "overview", f"/{name}{asks.get(name, '')}") for name in PAGES if name not in DOWNLOADS]
    return [*pages, Picture(DARK, "/", "dark"), Picture(SIGN_IN, f"/{SIGN_IN}")]


async def fill(client: Client) -> str:
    """Add the orders and what is around them; returns the id of an operation that is planned."""
    await _add(client, TOPIC, {job: (delay - FIRST_S) / SPREAD_S * _DAY_S + 600 for job, delay in orders()})
    await _add(client, _PAYMENTS, {f"{_PAYMENTS}:{number}": 0 for number in range(2000, 2024)})
    await _add(client, _MAILS, {f"{_MAILS}:{number}": 0 for number in range(3000, 3009)})
    await _add(client, _REFUNDS, {f"{_REFUNDS}:{number}": 0 for number in range(1000, 1014)})
    for number in range(1000, 1014):
        job = f"{_REFUNDS}:{number}"
        await _done(client, "pop", id=job, worker=f"refunds-{number % 2 + 1}")
        await _done(client, "bury", id=job, reason=_REASONS[number % 7 % 3])
    for number in range(6):
        await _done(client, "pop", topic=_PAYMENTS, worker=f"payments-{number % 3 + 1}", ttr=3600)
    await _done(client, "kick", id=f"{_REFUNDS}:1013")
    await _done(client, "delete", id=f"{_REFUNDS}:1012")
    await _done(client, "pause", topic=_PAYMENTS)
    await _done(client, "resume", topic=_PAYMENTS)
    await _done(client, "pause", topic=_MAILS, seconds=3600)
    await _done(client, "schedule", name="nightly-report", topic="report", cron="30 2 * * *", body={})
    await _done(client, "schedule", name="stock", topic="stock-sync", every=900, body={"shop": 1})
    await _done(client, "schedule", name="invoices", topic="report", cron="0 6 1 * *", zone="Europe/Paris", body={})
    filtered = {"topic": _REFUNDS, "state": "dead", "reason": "bank"}
    return str((await _done(client, "operation", do="plan", kind="kick", filter=filtered))["operation"])


async def fill_past(redis: Redis) -> None:
    """Make up the figures of the last hour: jobs on time, but for two minutes in which a few were not."""
    clock, chance, now_us = HeldClock(), random.Random(1), time.time_ns() // 1000
    pool = await Pool.open(redis, clock=clock)
    figures = Figures(pool, hours=48, most_topics=100)
    for ago in range(60):
        clock.now_us = now_us - ago * 60_000_000
        jobs = round(400 + 250 * math.sin(ago / 9)) + chance.randrange(60)
        few = chance.randrange(jobs // 20)
        numbers = {"adds": jobs + chance.randrange(-50, 90), "deliveries": jobs, "finishes": jobs - few}
        numbers |= {"r0": jobs // 5, "r1": jobs // 2, "r2": jobs // 4, "r3": few, "r4": few // 6}
        numbers |= {"d1": jobs // 4, "d2": jobs // 2, "d3": jobs // 5, "d4": few, "d5": few // 5}
        if ago in _SLOW_MINUTES:
            numbers |= {"r5": 14, "r6": 9, "r7": 3, "d6": 21, "d7": 12, "d8": 4}
        await figures.add({ALL: numbers, TOPIC: numbers})
    await pool.close()


async def _add(client: Client, topic: str, delays: Mapping[str, float]) -> None:
    """Jobs of a topic by their ids."""
    commands = [
        {"command": "add", "topic": topic, "id": job, "delay": delay, "body": {"order": int(job.partition(":")[2])}}
        for job, delay in delays.items()
    ]
    assert all(answer["success"] for answer in await client.batch(commands))


async def _done(client: Client, command: str, **fields: Any) -> Any:
    answer = await client.ask(command, **fields)
    assert answer["success"], answer
    return answer


@asynccontextmanager
async def _waiting_workers(client: Client) -> AsyncIterator[None]:
    """Workers that wait for orders."""
    pops = [asyncio.create_task(client.ask("pop", topic=TOPIC, worker=f"orders-{n}", wait=60)) for n in (1, 2, 3)]
    try:
        yield
    finally:
        for pop in pops:
            pop.cancel()
        await asyncio.gather(*pops, return_exceptions=True)


class Shop(NamedTuple):
    """A console of a service that has the orders, the header of a session, and the pictures to take."""

    front: Console
    session: dict[str, str]
    pictures: list[Picture]


@asynccontextmanager
async def shop() -> AsyncIterator[Shop]:
    """A service that asks for tokens and keeps a journal, with the orders, and a console of it."""
    async with AsyncExitStack() as stack:
        place = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="jq-")))
        settings = _SETTINGS.format(folder=place)
        service = await stack.enter_async_context(guarded(place, settings=settings, redis=("--appendonly", "yes")))
        await until(lambda: "journal.walked" in service.log)  # it has what happens from now on
        token = await _token(service, "ann", "admin")
        await _token(service, "shop", "produce", topics=["order-*", "payment-*"])
        await _token(service, "payments", "consume", topics=[_PAYMENTS])
        client = await stack.enter_async_context(Client(service.url, token))
        await fill_past(service.redis)
        operation = await fill(client)
        await stack.enter_async_context(_waiting_workers(client))
        front = await stack.enter_async_context(console(service.url, title="Shop", colour="blue"))
        session = await front.sign_in(token)
        await until(lambda: _has_history(front, session), every_s=0.2)
        yield Shop(front, session, pictures(operation))


async def take(folder: Path) -> list[Path]:
    """Take all pictures; returns their files."""
    async with shop() as made, chromium() as browser:
        return [await _take(browser, made, each, folder) for each in made.pictures]


async def _token(service: Guarded, name: str, *rights: str, **fields: Any) -> str:
    """A new token, which the service knows."""
    issued = await service.issuing.create({"name": name, "rights": [*rights], **fields}, "root")
    await service.until_known(issued)
    return issued.token.text


async def _has_history(front: Console, session: Mapping[str, str]) -> bool:
    return "buried" in (await front.get(f"/job?id={_DEAD}", **session))[1].partition("Timeline")[2]


async def _take(browser: Browser, made: Shop, picture: Picture, folder: Path) -> Path:
    """Take one and keep it with few colours, so that it is small."""
    cookie = None if picture.name == SIGN_IN else made.session
    how: dict[str, Any] = {"color_scheme": picture.scheme, "viewport": SIZE, "timezone_id": "UTC", "locale": "en-GB"}
    async with watched(browser, made.front.url, cookie=cookie, **how) as watching:
        await watching.show(picture.path)
        taken = Image.open(io.BytesIO(await watching.page.screenshot()))
        assert watching.faults == [], watching.faults
    file = folder / f"{picture.name}.png"
    taken.convert("RGB").quantize(_COLOURS, dither=Image.Dither.NONE).save(file, optimize=True)
    return file


def main(folder: Path) -> None:
    """Take all pictures, and keep them in a folder."""
    folder.mkdir(parents=True, exist_ok=True)
    for file in asyncio.run(take(folder)):
        print(f"{file.stat().st_size / 1000:7.0f} kB  {file}")


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else FOLDER)
