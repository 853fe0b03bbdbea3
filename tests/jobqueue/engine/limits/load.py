"""`make bench-limits`: many workers at three services pop topics with limits, while some of them, and a service, are
killed. What the scripts told of their moves is judged: no second may have more deliveries than the rate of a topic
allows, and no more jobs may be reserved at a time than its concurrency. Fails if one had. `FOR=seconds`.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import sys
import tempfile
from collections import Counter, defaultdict
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import aiohttp

from buckets import State
from buckets.events.codec import Event, read_all
from buckets.pool.limits import Limit
from buckets.redis.client import Redis
from buckets.shards import Shards
from tests.buckets.events.switched import switch_on
from tests.kit.redis_server import RedisServer
from tests.kit.service import Client, ServiceProcess

SERVICES = 3
WORKERS = 12  # at each service
SECOND_US = 1_000_000
RATES = {"slow": Limit(2), "steady": Limit(50), "fast": Limit(300)}
LIMITS = RATES | {"narrow": Limit(concurrency=3), "both": Limit(40, 4)}
LEASE_S = 1.0  # of jobs whose worker dies
# By which a delivery may come later than its permit, which on several shards is taken before.
PERMIT_LATE_S = {1: 0.0, 3: 0.25}


def settings_of(limits: dict[str, Limit], shards: int) -> str:
    """A settings file with limits."""
    lines = [f"shards = {shards}"]
    for topic, limit in limits.items():
        lines += [f'[topics."{topic}"]', f"ttr_s = {LEASE_S}", "tries = 0"]
        lines += [f"rate = {limit.rate}"] if limit.rate else []
        lines += [f"concurrency = {limit.concurrency}"] if limit.concurrency else []
    return "\n".join(lines)


@dataclass
class Judgement:
    """What happened, by topic: the deliveries (us), the most of them in a second, the most jobs reserved at a time."""

    deliveries: defaultdict[str, list[int]] = field(default_factory=lambda: defaultdict(list))
    most: Counter[str] = field(default_factory=Counter)
    reserved: Counter[str] = field(default_factory=Counter)

    def faults(self, limits: dict[str, Limit], permit_late_s: float = 0.0) -> list[str]:
        """The limits that did not hold, in words, if deliveries may come so much later than their permits."""
        found = []
        for topic, limit in limits.items():
            if limit.rate and self.most[topic] > limit.rate * (1 + permit_late_s) + max(1, limit.rate / 100):
                found.append(f"{topic}: {self.most[topic]} deliveries in a second, with a rate of {limit.rate:g}")
            if limit.concurrency and self.reserved[topic] > limit.concurrency:
                found.append(f"{topic}: {self.reserved[topic]} reserved, with a concurrency of {limit.concurrency}")
        return found

    def lines(self, limits: dict[str, Limit]) -> list[str]:
        """A row for each topic."""
        rows = [f"{'topic':8} {'rate':>6} {'reached':>8} {'most in 1 s':>11} {'concurrency':>11} {'most':>5}"]
        for topic, limit in limits.items():
            times = self.deliveries[topic]
            lasted_s = (max(times) - min(times)) / 1e6 if len(times) > 1 else 0
            reached = (len(times) - 1) / lasted_s if lasted_s else 0
            rows.append(
                f"{topic:8} {limit.rate:6g} {reached:8.1f} {self.most[topic]:11} {limit.concurrency:11}"
                f" {self.reserved[topic]:5}"
            )
        return rows


async def judge(redis: Redis, shards: int) -> Judgement:
    """Read what the scripts told."""
    told = Judgement()
    now: Counter[str] = Counter()
    for keys in Shards(redis, "jq", shards, 1).keys:
        for _, fields in await redis.read("XRANGE", keys.events, "-", "+"):
            for event in read_all(fields)[1]:
                assert isinstance(event, Event)
                if event.after == State.RESERVED != event.before:
                    told.deliveries[event.topic].append(event.at)
                    now[event.topic] += 1
                elif event.before == State.RESERVED != event.after:
                    now[event.topic] -= 1
                told.reserved[event.topic] = max(told.reserved[event.topic], now[event.topic])
    for topic, times in told.deliveries.items():
        told.most[topic] = most_in_a_second(times)
    return told


def most_in_a_second(times_us: Sequence[int]) -> int:
    """The most deliveries in any second, which begins with one of them."""
    times, most, last = sorted(times_us), 0, 0
    for first, begin in enumerate(times):
        while last < len(times) and times[last] < begin + SECOND_US:
            last += 1
        most = max(most, last - first)
    return most


@contextlib.asynccontextmanager
async def services(server: RedisServer, folder: Path, limits: dict[str, Limit], shards: int) -> AsyncIterator[Any]:
    """Services that share a Redis and tell of their moves."""
    file = folder / "limits.toml"
    file.write_text(settings_of(limits, shards))
    flags = ("--redis", server.url, "--config", str(file))
    async with contextlib.AsyncExitStack() as stack:
        started = [await stack.enter_async_context(ServiceProcess(*flags)) for _ in range(SERVICES)]
        redis = Redis(server.url)
        stack.push_async_callback(redis.close)
        for keys in Shards(redis, "jq", shards, 1).keys:
            await switch_on(redis, keys)
        yield started, redis


async def fill(client: Client, topics: Sequence[str], jobs: int, chance: random.Random) -> None:
    """Jobs of which some are ready and the others fall due while workers wait."""
    for first in range(0, jobs, 100):
        for topic in topics:
            await client.batch(
                [
                    {
                        "command": "add",
                        "topic": topic,
                        "id": f"{topic}:{n}",
                        "body": n,
                        "delay": chance.choice([0, 0, 1.5]),
                    }
                    for n in range(first, first + 100)
                ]
            )


class Worker:
    """Pops, and ends what it got in one of the ways that there are; some die with it."""

    def __init__(self, url: str, name: str, topics: Sequence[str], seed: int) -> None:
        self._url = url
        self._name = name
        self._topics = list(topics)
        self._chance = random.Random(seed)

    async def run(self) -> None:
        """Until cancelled; its service may be gone for a while, or for good."""
        async with Client(self._url) as client:
            while True:
                with contextlib.suppress(aiohttp.ClientError, ConnectionError, TimeoutError):
                    await self._turn(client)
                    continue
                await asyncio.sleep(0.2)

    async def _turn(self, client: Client) -> None:
        chance, topics = self._chance, self._topics
        chance.shuffle(topics)
        pop: dict[str, Any] = {
            "command": "pop",
            "topics": topics,
            "worker": self._name,
            "count": chance.choice([1, 1, 5]),
        }
        pop |= {"wait": 2} if chance.random() < 0.9 else {}
        if chance.random() < 0.05:
            pop = {"command": "pop", "id": f"{topics[0]}:{chance.randrange(300)}"}
        answer = await client.ask(pop.pop("command"), **pop)
        jobs = answer.get("jobs") or ([answer] if answer.get("id") and answer["success"] else [])
        if not jobs:
            await asyncio.sleep(0.01)
        await asyncio.sleep(chance.random() * 0.03)
        ends = [each for job in jobs if (each := self._end(job))]
        if ends:
            await client.batch(ends)

    def _end(self, job: dict[str, Any]) -> dict[str, Any] | None:
        how = self._chance.choices(["finish", "release", "touch", "bury", "delete", ""], [80, 5, 3, 3, 3, 6])[0]
        named: dict[str, Any] = {"command": how, "id": job["id"]}
        named |= {"release": {"delay": 0}}.get(how, {})
        return named if how else None


async def load(
    server: RedisServer, folder: Path, seconds: float, limits: dict[str, Limit], shards: int = 1
) -> Judgement:
    """Let workers loose for some seconds, and judge what happened. A third of the way a service is killed."""
    chance = random.Random(7)
    async with services(server, folder, limits, shards) as (started, redis):
        async with Client(started[0].url) as client:
            await fill(client, list(limits), int(max(limit.rate for limit in limits.values()) * seconds) + 300, chance)
        workers = [
            Worker(
                service.url,
                f"w{place}-{n}",
                chance.sample(list(limits), chance.randint(1, len(limits))),
                100 * place + n,
            )
            for place, service in enumerate(started)
            for n in range(WORKERS)
        ]
        tasks = [asyncio.create_task(worker.run()) for worker in workers]
        await asyncio.sleep(seconds / 3)
        await started[-1].kill()
        await asyncio.sleep(seconds * 2 / 3)
        for task in tasks:
            task.cancel()
        ended = await asyncio.gather(*tasks, return_exceptions=True)
        assert all(isinstance(each, asyncio.CancelledError) for each in ended), ended
        return await judge(redis, shards)


def main() -> None:
    seconds = float(sys.argv[1])
    faults = []
    for shards, limits in ((1, LIMITS), (3, RATES)):
        with tempfile.TemporaryDirectory() as folder, RedisServer(Path(folder)) as server:
            told = asyncio.run(load(server, Path(folder), seconds, limits, shards))
        print(
            f"{SERVICES} services, {SERVICES * WORKERS} workers, {shards} shards, {seconds:g} s",
            *told.lines(limits),
            sep="\n",
        )
        faults += told.faults(limits, PERMIT_LATE_S[shards])
    sys.exit("\n".join(faults) or None)


if __name__ == "__main__":
    main()
