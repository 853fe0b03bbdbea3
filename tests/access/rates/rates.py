"""`make bench-rates`: the rate of a token over three instances of two workers, under greedy clients in processes of
their own, while one instance is killed with SIGKILL in the middle.

In every window of T seconds at most `burst + rate x (T + 1)` commands may pass, and over all at least 95 % of what the
rate allows. `python -m tests.access.rates.rates 20` sets another number of seconds.
"""

from __future__ import annotations

import asyncio
import bisect
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from tests.access.rates.greedy import Outcome, ask
from tests.kit.guarded import guarded

RATE, BURST = 500, 1000
WINDOWS_S = (1, 2, 5, 10)
INSTANCES, WORKERS = 3, 2
WANTED = 0.95


class Window(NamedTuple):
    """What passed in the windows of one length."""

    seconds: int
    least: int
    """In the emptiest window."""
    most: int
    """In the fullest."""

    @property
    def bound(self) -> int:
        """More must not pass."""
        return BURST + RATE * (self.seconds + 1)


async def measure(seconds: float, folder: Path) -> Outcome:
    """What passes in so many seconds; one instance is killed in the middle."""
    async with guarded(folder, instances=INSTANCES, workers=WORKERS) as services:
        issued = await services.token("produce", rate=RATE, burst=BURST)
        ports = [service.port for service in services.services]
        asking = asyncio.create_task(ask(ports, issued, seconds, processes=3, connections=6, pause_s=0.005))
        await asyncio.sleep(seconds / 2)
        await services.services[1].kill()
        return await asking


def window(taken: Sequence[float], seconds: int) -> Window:
    """What passed in windows of so many seconds. `taken`: when commands passed, in order."""
    ends = [bisect.bisect_left(taken, begin + seconds) for begin in taken]
    most = max(end - place for place, end in enumerate(ends))
    # The emptiest one begins just behind a command, and lies within the time in which there were any.
    within = [end - place - 1 for place, end in enumerate(ends) if end < len(taken)]
    return Window(seconds, min(within, default=0), most)


def share(outcome: Outcome) -> float:
    """How much passed of what the rate allows between the first and the last command, the burst included."""
    taken = outcome.taken
    return len(taken) / (BURST + RATE * (taken[-1] - taken[0]))


async def main(seconds: float = 60) -> int:
    with tempfile.TemporaryDirectory(prefix="jq-") as folder:
        outcome = await measure(seconds, Path(folder))
    windows = [window(outcome.taken, each) for each in WINDOWS_S if each < seconds]
    print(f"{RATE} a second, burst {BURST}, {seconds:g} s, one of {INSTANCES} instances killed:", end=" ")
    print(f"{len(outcome.taken)} passed, {outcome.refused} refused, {outcome.broken} connections broke")
    for each in windows:
        least, most = each.least / each.seconds, each.most
        print(f"in any {each.seconds:2} s: at most {most:5} (bound {each.bound:5}), at least {least:5.0f} a second")
    print(f"over all: {share(outcome):.1%} of burst and rate (at least {WANTED:.0%} wanted)", flush=True)
    holds = all(each.most <= each.bound for each in windows) and share(outcome) >= WANTED
    return 0 if holds and not outcome.others else 1


if __name__ == "__main__":
    sys.exit(asyncio.run(main(*map(float, sys.argv[1:]))))
