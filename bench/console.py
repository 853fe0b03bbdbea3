"""`make bench-console`: lists, forecasts and operations over 10,000,000 jobs, and what they cost pops.

Most jobs are delayed, in 1,000 topics that share their times; the topic `rare` has ten among them, `dead` a tenth of
all as dead letters. `python -m bench.console 100000` sets another number of jobs.
"""

from __future__ import annotations

import asyncio
import itertools
import os
import random
import re
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from concurrent.futures import ProcessPoolExecutor
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import aiohttp

from bench.burst import SLOW_US
from bench.figures import percentile, show
from bench.walk import names_of, pops_during
from buckets import NewJob, Pool, Redis, Topics
from tests.kit.ports import free_port
from tests.kit.redis_server import RedisServer
from tests.kit.service import JOBQUEUE, Client, ServiceProcess
from tests.kit.waiting import until

TOPICS, RARE, DEAD = 1000, "rare", "dead"
BODY = b'{"order": 1234567890}'
DAY_MS = 86_400_000
BATCH = 1000
VIEWERS = 5
CLICK_S = 0.5  # between a page and the next click
LOOKS = 60  # of each kind
QUIET_S = 20.0
COMPUTED = 0.15  # of a processor: what a console with so many viewers takes, and their browsers
RATE = 9_000  # jobs a second that the kick is asked for: a million within 120 s


def job(number: int, jobs: int) -> NewJob:
    """One of them; each tenth is dead once it was popped and its timer has looked at it."""
    job_id = f"order:{number:010d}"
    if number % (jobs // 10) == 1:
        return NewJob(job_id, RARE, BODY, delay_ms=number * 7919 % DAY_MS)
    if number % 10 == 0:
        return NewJob(job_id, DEAD, BODY, ttr_ms=1, tries=1)
    return NewJob(job_id, f"topic-{number % TOPICS}", BODY, delay_ms=3_600_000 + number * 7919 % (DAY_MS - 3_600_000))


def fill(url: str, first: int, last: int, jobs: int) -> None:
    """Add the jobs with these numbers, in a process of its own."""

    async def add() -> None:
        redis = Redis(url)
        pool = await Pool.open(redis)
        for begin in range(first, last, BATCH):
            await pool.add([job(number, jobs) for number in range(begin, min(begin + BATCH, last))])
        while (await pool.pop([DEAD], count=BATCH)).jobs:
            pass
        await pool.close()
        await redis.close()

    asyncio.run(add())


async def filled(url: str, jobs: int) -> None:
    """Add them all, half of them at a time by each of two processes."""
    loop, half = asyncio.get_running_loop(), jobs // 2
    with ProcessPoolExecutor(2) as processes:
        parts = [(0, half), (half, jobs)]
        await asyncio.gather(*(loop.run_in_executor(processes, fill, url, *part, jobs) for part in parts))


async def dead(redis: Redis) -> int:
    """How many dead letters there are."""
    pool = await Pool.open(redis)
    return (await Topics(pool).counts(DEAD))["dead"]


async def timed(ask: Callable[[], Awaitable[Any]]) -> tuple[float, Any]:
    """An answer, and the milliseconds until it came."""
    begun = time.perf_counter()
    answer = await ask()
    return (time.perf_counter() - begun) * 1000, answer


async def lists(client: Client) -> None:
    """First and further pages of topics in each state, forecasts, and jobs by their ids."""
    first, further, forecasts, exact = [], [], [], []
    chosen = random.Random(1)
    for _ in range(LOOKS):
        topic = chosen.choice([RARE, DEAD, *(f"topic-{number}" for number in range(1, 10))])
        state = chosen.choice(["delayed", "ready", "reserved", "dead"])
        asked = {"topic": topic, "state": state, "count": 100, "body": False}
        took, page = await timed(lambda: client.ask("peek", **asked))  # noqa: B023 - called at once
        first.append(took)
        for _ in range(3):
            if not page["cursor"]:
                break
            took, page = await timed(lambda: client.ask("peek", **asked, cursor=page["cursor"]))  # noqa: B023
            further.append(took)
        took, _ = await timed(lambda: client.ask("forecast", topic=topic, hours=chosen.choice([1, 24, 744])))  # noqa: B023
        forecasts.append(took)
        took, _ = await timed(lambda: client.ask("get", id=f"order:{chosen.randrange(1000):010d}"))
        exact.append(took)
    show("first page of a topic and state", first, "300")
    show("further page", further, "150")
    show("forecast of a topic", forecasts, "100")
    show("job by its id", exact, "20")
    whole = [(await timed(lambda: client.ask("forecast", hours=hours)))[0] for hours in (24, 744)]  # noqa: B023
    show("forecast of all topics", whole, "2000")
    rare = await client.ask("peek", topic=RARE, state="delayed", count=100, body=False)
    print(f"the first page of the rare topic has {len(rare['jobs'])} of its jobs")


@asynccontextmanager
async def console(service_url: str) -> AsyncIterator[str]:
    """The address of a console."""
    port = free_port()
    process = await asyncio.create_subprocess_exec(
        *JOBQUEUE, "console", "--url", service_url, "--port", str(port), stdout=asyncio.subprocess.DEVNULL
    )
    try:
        url = f"http://127.0.0.1:{port}"
        async with aiohttp.ClientSession() as session:
            await until(lambda: _answers(session, url))
        yield url
    finally:
        process.terminate()
        await process.wait()


async def _answers(session: aiohttp.ClientSession, url: str) -> bool:
    try:
        async with session.get(f"{url}/help") as response:
            return response.status == 200
    except aiohttp.ClientError:
        return False


async def view(url: str, number: int, end: asyncio.Event) -> list[float]:
    """Click through lists, as fast as a person can: a page every half second, each begun somewhere else. The
    milliseconds that pages took."""
    took, topic = [], f"topic-{number}"
    pages = itertools.cycle(["/", "/topics", f"/topic?name={topic}", f"/jobs?topic={topic}", f"/dead?topic={DEAD}"])
    for _ in range(number):
        next(pages)
    following: str | None = None
    await asyncio.sleep(CLICK_S * number / VIEWERS)
    async with aiohttp.ClientSession() as session:
        while not end.is_set():
            path = following or next(pages)
            begun = time.perf_counter()
            async with session.get(url + path) as response:
                text = await response.text()
            took.append((time.perf_counter() - begun) * 1000)
            link = None if following else re.search(r'rel="next" href="([^"]*)"', text)
            following = link[1].replace("&amp;", "&") if link else None
            await asyncio.sleep(CLICK_S)
    return took


def view_all(url: str) -> list[float]:
    """What pages took while several people looked for a while; in a process of its own, which lets others go first: the
    browsers of people are on other machines."""

    async def viewed() -> list[float]:
        end = asyncio.Event()
        viewers = [asyncio.create_task(view(url, number, end)) for number in range(VIEWERS)]
        await asyncio.sleep(QUIET_S)
        end.set()
        return [each for some in await asyncio.gather(*viewers) for each in some]

    os.nice(19)
    return asyncio.run(viewed())


def compute() -> None:
    """Use as much of a processor as a console with several viewers, and ask nothing: shows what of their cost is
    that of any program on the machine."""
    os.nice(10)  # like a console
    end = time.monotonic() + QUIET_S
    while time.monotonic() < end:
        begun = time.monotonic()
        while time.monotonic() - begun < COMPUTED * CLICK_S / VIEWERS:
            sum(range(1000))
        time.sleep((1 - COMPUTED) * CLICK_S / VIEWERS)


async def viewers(client: Client, redis: str) -> None:
    """Pops without and with people who look, in turns: at the instance that the pops ask, and at one of their own."""
    async with console(client.url) as url:
        await looked_at(client, url, "the same instance")
        async with aiohttp.ClientSession() as session:
            first = []
            for _ in range(5):
                begun = time.perf_counter()
                async with session.get(url) as response:
                    await response.text()
                first.append((time.perf_counter() - begun) * 1000)
                await asyncio.sleep(1.2)
    show("overview, nobody else looks", first, "200")
    async with ServiceProcess("--redis", redis) as own, console(own.url) as url:
        await looked_at(client, url, "an instance of their own")


async def looked_at(client: Client, url: str, where: str) -> None:
    """What people who look at a console cost pops."""
    quiet, busy, computed, pages = [], [], [], []
    for _ in range(2):
        quiet += await pops_during(client, asyncio.sleep(QUIET_S))
        with ProcessPoolExecutor(1) as process:
            looking = asyncio.get_running_loop().run_in_executor(process, view_all, url)
            busy += await pops_during(client, looking)
        pages += looking.result()
        with ProcessPoolExecutor(1) as process:
            computed += await pops_during(client, asyncio.get_running_loop().run_in_executor(process, compute))
    print(f"{VIEWERS} viewers of {where}:")
    show("pages", pages)
    show("pops without them", quiet)
    show("pops with them", busy)
    show("pops beside a process that only computes", computed)
    times, control = (percentile(each, 99) / percentile(quiet, 99) for each in (busy, computed))
    print(f"p99 of pops times {times:.2f}   (target: 1.2); beside the process that only computes {control:.2f}")


async def ended(client: Client, operation: str) -> dict[str, Any]:
    """An operation once it is done."""
    while True:
        state = dict(await client.ask("operation", do="get", operation=operation))
        assert state["success"] and state["state"] != "failed", state
        if state["state"] == "done":
            return state
        await asyncio.sleep(0.2)


async def kicked(client: Client, plan: dict[str, Any]) -> float:
    """Seconds until an operation is done."""
    begun = time.perf_counter()
    name = plan["plan"]
    assert (await client.ask("operation", do="start", plan=name, expect=plan["count"], rate=RATE))["success"]
    state = await ended(client, name)
    print(f"{state['done']} kicked, {state['skipped']} skipped")
    return time.perf_counter() - begun


async def operations(client: Client) -> None:
    """A kick of all dead letters, and what it costs pops."""
    quiet = await pops_during(client, asyncio.sleep(QUIET_S))
    took, plan = await timed(
        lambda: client.ask("operation", do="plan", kind="kick", filter={"topic": DEAD, "state": "dead"})
    )
    print(f"planned in {took:.0f} ms: {plan['count']} dead letters")
    kicking = asyncio.create_task(kicked(client, plan))
    busy = await pops_during(client, kicking)
    show("pops without an operation", quiet)
    show("pops during an operation", busy)
    ratio = percentile(busy, 99) / percentile(quiet, 99)
    print(f"kicked in {kicking.result():.1f} s   (target: 120); p99 of pops times {ratio:.2f}   (target: 2)")
    took, found = await timed(lambda: search(client))
    print(f"a search by prefix alone took {took / 1000:.1f} s: {found['count']} jobs, {found['looked']} keys")


async def search(client: Client) -> dict[str, Any]:
    """A search among all keys, once it is done."""
    name = (await client.ask("find", prefix="order:0000000"))["operation"]
    return await ended(client, name)


async def main(jobs: int) -> None:
    with tempfile.TemporaryDirectory(prefix="jq-") as folder, RedisServer(Path(folder)) as server:
        redis = Redis(server.url)
        begun = time.perf_counter()
        await filled(server.url, jobs)
        async with ServiceProcess("--redis", server.url) as service, Client(service.url) as client:
            there = 0
            while there < jobs // 10:
                there = await dead(redis)
                await asyncio.sleep(0.5)
            print(f"{jobs} jobs within {time.perf_counter() - begun:.0f} s", flush=True)
            await redis.read("CONFIG", "SET", "slowlog-log-slower-than", SLOW_US, "slowlog-max-len", 1000)
            for part in (lists, partial(viewers, redis=server.url), operations):
                await redis.read("SLOWLOG", "RESET")
                await part(client)
                slow = await redis.read("SLOWLOG", "GET", "1000")
                names = dict(names_of(slow))
                print(f"scripts over {SLOW_US // 1000} ms: {len(slow)}   (target: 0)  {names}", flush=True)
        await redis.close()


if __name__ == "__main__":
    asyncio.run(main(*[int(each) for each in sys.argv[1:]] or [10_000_000]))
