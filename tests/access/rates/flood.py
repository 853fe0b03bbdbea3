"""`make bench-flood`: what one client does to another. The client of a token with a rate asks without a pause over many
connections, nearly always in vain; another one adds a job and pops it 100 times a second.

It takes turns: some seconds without the flood, some with it. The time of an add and its pop begins when it should have
begun. At the 99th percentile it may at most double. `python -m tests.access.rates.flood 5 2` sets the seconds of a
turn, and how often they take turns.
"""

from __future__ import annotations

import asyncio
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

from bench.figures import percentile, show
from jobqueue.access.issuing import Issued
from tests.access.rates.greedy import Outcome, ask
from tests.kit.guarded import Guarded, guarded
from tests.kit.service import Client

RATE = 500
PER_SECOND = 100
WORKERS = 2
WANTED = 2.0
_STARTING_S = 1.0  # until the processes of the flood ask


class Figures(NamedTuple):
    """What was measured."""

    quiet: list[float]
    """Milliseconds of each add and its pop, without the flood."""
    flooded: list[float]
    floods: list[Outcome]
    seconds: float
    """How long the flood lasted, in all."""
    leases: int
    """How often Redis was asked for permits."""

    @property
    def factor(self) -> float:
        """By what the 99th percentile grew."""
        return percentile(self.flooded, 99) / percentile(self.quiet, 99)


async def steady(url: str, issued: Issued, seconds: float) -> list[float]:
    """Milliseconds of each add and its pop, begun at a steady rate."""
    took: list[float] = []

    async def once(client: Client, topic: str, due: float) -> None:
        await asyncio.sleep(due - time.monotonic())
        added = await client.ask("add", topic=topic, body=1)
        popped = await client.ask("pop", topic=topic)
        took.append((time.monotonic() - due) * 1000)
        assert added["id"] == popped["id"]
        await client.ask("finish", id=added["id"])

    async with Client(url, issued.token.text) as client:
        begin = time.monotonic()
        number = int(seconds * PER_SECOND)
        await asyncio.gather(*(once(client, f"other-{each}", begin + each / PER_SECOND) for each in range(number)))
    return took


async def measure(turn_s: float, turns: int, connections: int, folder: Path, rate: int = RATE) -> Figures:
    """Take turns."""
    async with guarded(folder, workers=WORKERS) as services:
        noisy = await services.token("produce", rate=rate)
        other = await services.token("produce", "consume")
        await steady(services.url, other, 1)  # not counted
        quiet: list[float] = []
        flooded: list[float] = []
        floods: list[Outcome] = []
        for _ in range(turns):
            quiet += await steady(services.url, other, turn_s)
            flood_s = turn_s + 2 * _STARTING_S
            flooding = asyncio.create_task(flood(services, noisy, flood_s, connections))
            await asyncio.sleep(_STARTING_S)
            flooded += await steady(services.url, other, turn_s)
            floods.append(await flooding)
        leases = await services.service.figure("jobqueue_rate_leases_total")
        return Figures(quiet, flooded, floods, flood_s * turns, leases)


async def flood(services: Guarded, noisy: Issued, seconds: float, connections: int) -> Outcome:
    return await ask([services.service.port], noisy, seconds, processes=2, connections=connections // 2, niceness=19)


async def main(turn_s: float = 5, turns: float = 6, connections: float = 64) -> int:
    with tempfile.TemporaryDirectory(prefix="jq-") as folder:
        figures = await measure(turn_s, int(turns), int(connections), Path(folder))
    refused = sum(each.refused for each in figures.floods) / figures.seconds
    taken = sum(len(each.taken) for each in figures.floods) / figures.seconds
    print(f"the flood over {connections:g} connections: {refused:.0f} refused and {taken:.0f} taken a second;", end=" ")
    print(f"Redis was asked for permits {figures.leases / figures.seconds:.0f} times a second")
    show("add and pop, alone", figures.quiet)
    show("add and pop, with the flood", figures.flooded)
    print(f"p99 is {figures.factor:.1f} times what it was (at most {WANTED:g} wanted)", flush=True)
    return 0 if figures.factor <= WANTED else 1


if __name__ == "__main__":
    sys.exit(asyncio.run(main(*map(float, sys.argv[1:]))))
