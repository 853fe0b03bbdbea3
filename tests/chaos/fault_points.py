"""The fault-point run: kills the service (SIGKILL) or cuts its connection immediately before and after each command
that it sends to Redis, and checks all invariants each time.

`python -m tests.chaos.fault_points`: a scripted life of some jobs (load/scripted_life.py) runs once behind a gate that
counts commands (kit/gate.py), which yields the points. Then it runs once for each point. After a kill the service
is restarted, the client repeats what was not answered, the queue is drained, and the checker judges the history.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self

from buckets import Fsck, Redis
from tests.chaos.forked_service import ForkedService
from tests.chaos.history import Event, History, read
from tests.chaos.judges.checker import check
from tests.chaos.judges.findings import Finding
from tests.chaos.load.scripted_life import VIRTUAL_TOPICS, ScriptedLife, without_calls
from tests.chaos.load.wire import Wire
from tests.chaos.survey import drained, survey
from tests.kit.gate import AFTER, BEFORE, Gate, Point
from tests.kit.redis_server import RedisServer

KILL = "kill"
CUT = "cut"
HOWS = (KILL, CUT)
_BUCKETS = 2
_LIFE_S = 30.0
_DRAIN_S = 20.0
_PATIENCE_S = 30.0  # with the Redis of a lane: six of them share the machine
_SHOWN = 2000  # characters of the log to print
_TURNS = 3  # for a point that a life did not reach, because its timing varies


@dataclass
class Outcome:
    """The outcome of one life."""

    point: Point | None
    how: str
    passed: Counter[str]
    struck: bool = False
    findings: list[Finding] = field(default_factory=list)
    log: str = ""


class Lane:
    """A Redis, a gate in front of it, and a service behind the gate; plays one life after another. Use with `async
    with`."""

    def __init__(self) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="jq-points-")
        self._path = Path(self._folder.name)
        self._redis = RedisServer(self._path)
        self._gate = Gate(str(self._redis.socket), str(self._path / "gate.sock"))

    async def __aenter__(self) -> Self:
        await asyncio.to_thread(self._redis.start)
        await self._gate.__aenter__()
        self._service = ForkedService(
            self._path / "service.log",
            redis=self._gate.url,
            buckets=_BUCKETS,
            grace_s=1.0,
            durability_timeout_s=0.05,  # no replica exists, and no answer claims one
            virtual_topics=VIRTUAL_TOPICS,
        )
        return self

    async def __aexit__(self, *exception: object) -> None:
        self._service.kill()
        await self._gate.__aexit__()
        self._redis.kill()
        self._folder.cleanup()

    async def play(self, point: Point | None, how: str) -> Outcome:
        """Play one life on an empty Redis, with a strike at a point."""
        await self._begin()
        self._gate.arm(point, self._service.kill if how == KILL else None)
        self._starts = 0
        alive = asyncio.create_task(self._keep_alive())
        with tempfile.TemporaryDirectory(dir=self._path) as parts:
            with History(Path(parts) / "life.jsonl") as history:
                wire = Wire([self._service.url])
                life = ScriptedLife("life", history, wire)
                is_drained = await self._live(life, history)
                wire.give_up()
            alive.cancel()
            await asyncio.gather(alive, return_exceptions=True)
            await self._stop()
            outcome = Outcome(point, how, Counter(self._gate.passed), self._gate.struck)
            events = read(Path(parts))
            outcome.findings = check(without_calls(events)).findings
        if how == CUT:
            outcome.findings += self._unheard(events)
        outcome.findings += [Finding("refusal", str(answer)) for answer in life.errors]
        outcome.findings += await self._faults()
        outcome.log = self._service.log.read_text()
        if not is_drained:
            outcome.findings.append(Finding("stuck", "the life did not end, or the queue did not drain"))
        if "Traceback" in outcome.log:
            outcome.findings.append(Finding("refusal", "a traceback in the log"))
        return outcome

    async def _begin(self) -> None:
        redis = Redis(self._redis.url, timeout_s=_PATIENCE_S)
        await redis.read("FLUSHALL")
        await redis.read("SCRIPT", "FLUSH")
        await redis.close()
        self._service.log.unlink(missing_ok=True)

    async def _keep_alive(self) -> None:
        """Start the service, and restart it whenever it has been killed."""
        while True:
            self._service.start()
            self._starts += 1
            await self._service.ended()

    async def _live(self, life: ScriptedLife, history: History) -> bool:
        try:
            async with asyncio.timeout(_LIFE_S):
                await life.run()
        except TimeoutError:
            return False
        self._gate.open = True
        ended = asyncio.Event()
        draining = asyncio.create_task(life.drain(ended))
        try:
            return await drained([self._service.url], history, _DRAIN_S)
        finally:
            ended.set()
            await draining
            await survey([self._service.url], self._redis.url, life.ids, history)

    async def _stop(self) -> None:
        """Send SIGTERM, so that it releases its locks."""
        self._gate.open = False
        self._service.stop()
        await self._service.ended()

    def _unheard(self, events: Iterable[Event]) -> Iterator[Finding]:
        """Check that a service that loses a connection to Redis goes on, and answers within its deadline."""
        if self._starts > 1:
            yield Finding("refusal", "the service ended")
        for event in events:
            if event.code == "NOT_ANSWERED":
                yield Finding("refusal", f"no answer to {event.command}", event.id, (event.line,))

    async def _faults(self) -> list[Finding]:
        """What fsck reports at the end."""
        redis = Redis(self._redis.url, timeout_s=_PATIENCE_S)
        try:
            report = await (await Fsck.open(redis, rest=0)).run()
        finally:
            await redis.close()
        return [Finding("broken", f"fsck found {found.found} of {kind}") for kind, found in report.findings.items()]


def points_of(passed: Counter[str]) -> list[Point]:
    """All points of a life that consisted of these commands."""
    return [
        Point(command, number, when)
        for command in sorted(passed)
        for number in range(1, passed[command] + 1)
        for when in (BEFORE, AFTER)
    ]


async def play_all(points: Iterable[tuple[Point, str]], lanes: int) -> list[Outcome]:
    """Play a life for each point, several at a time."""
    todo = list(points)[::-1]
    outcomes: list[Outcome] = []

    async def work() -> None:
        async with Lane() as lane:
            while todo:
                point, how = todo.pop()
                for _ in range(_TURNS):
                    outcome = await lane.play(point, how)
                    if outcome.struck or outcome.findings:
                        break
                outcomes.append(outcome)
                if outcome.findings:
                    tell(outcome)

    async with asyncio.TaskGroup() as group:
        for _ in range(min(lanes, len(todo))):
            group.create_task(work())
    return outcomes


async def learn() -> Outcome:
    """Play one life without a strike; its commands are the points."""
    async with Lane() as lane:
        return await lane.play(None, CUT)


def chosen(points: list[Point], every: int, seed: int) -> list[tuple[Point, str]]:
    """Every `every`th point, with a kill and with a cut, starting at a random one."""
    both = [(point, how) for how in HOWS for point in points]
    return both[random.Random(seed).randrange(every) :: every]


def tell(outcome: Outcome) -> None:
    """Print what was found, and the end of the service's log."""
    print(f"\n{outcome.how} {outcome.point}:", *outcome.findings, sep="\n  ")
    print(outcome.log[-_SHOWN:], flush=True)


async def _main(wanted: argparse.Namespace) -> int:
    begun = time.monotonic()
    first = await learn()
    if first.findings:
        tell(first)
    points = points_of(first.passed)
    todo = chosen(points, wanted.every, wanted.seed)
    if wanted.only:
        todo = [(point, how) for point, how in todo if f"{how} {point}".startswith(wanted.only)]
    kinds = ", ".join(f"{command} {number}" for command, number in sorted(first.passed.items()))
    print(f"seed {wanted.seed}; {len(points)} points, {len(todo)} lives; commands: {kinds}", flush=True)
    outcomes = [first, *await play_all(todo, wanted.lanes)]
    missed = [outcome for outcome in outcomes[1:] if not outcome.struck]
    bad = [outcome for outcome in outcomes if outcome.findings]
    struck = Counter(outcome.how for outcome in outcomes if outcome.struck)
    told = ", ".join(f"{struck[how]} by {how}" for how in HOWS)
    print(f"struck at {told}; not reached: {', '.join(f'{each.how} {each.point}' for each in missed) or 'none'}")
    print(f"{len(points)} points, {len(todo)} lives, {len(bad)} failed, {time.monotonic() - begun:.0f} s")
    return 1 if bad else 0


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.chaos.fault_points", description=__doc__)
    parser.add_argument("--every", type=int, default=1, help="only every Nth point")
    parser.add_argument("--seed", type=int, default=random.randrange(1_000_000), help="chooses which points")
    parser.add_argument("--lanes", type=int, default=6, help="how many lives run at a time")
    parser.add_argument("--only", help="only points that begin with this, such as `kill before add`")
    return asyncio.run(_main(parser.parse_args()))


if __name__ == "__main__":
    sys.exit(main())
