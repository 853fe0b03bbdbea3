"""What faults cost a kind of sink: repetitions by kills of `deliver`, and how soon it goes on after an outage.

`python -m bench.sinks.faults [JOBS] [KIND]…`: jobs a fault, and the kinds; all of them by default. `deliver` is
killed 10 times, the broker stands still for 30 s, and is gone for 60 s (where it can start again with what it had).
"""

from __future__ import annotations

import asyncio
import signal
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

from jobqueue_client import AsyncClient

from tests.jobqueue.sinks.brokers.stage import Stage
from tests.kit.brokers import BROKERS, RESTARTED, new_broker
from tests.kit.program import Missing
from tests.kit.redis_server import RedisServer
from tests.kit.service import ServiceProcess

IN_FLIGHT, KILLS = 200, 10
FROZEN_S, GONE_S = 30.0, 60.0


async def kills(stage: Stage, jobs: int) -> str:
    """Kill `deliver` in a stream of jobs."""
    await add(stage, "kill", jobs)
    for _ in range(KILLS):
        await stage.deliver.start()
        before = await stage.left()
        while await stage.left() > max(before - jobs // (2 * KILLS), 0):  # noqa: ASYNC110 - of other processes
            await asyncio.sleep(0.005)
        await stage.deliver.stop(signal.SIGKILL)
    await stage.deliver.start()
    await stage.until_none_is_left()
    return f"{KILLS} kills: {await told(stage, 'kill', jobs)}"


async def outage(stage: Stage, jobs: int, way: str, seconds: float) -> str:
    """Take the broker away in a stream of jobs."""
    await add(stage, way, jobs)
    while await stage.left() > jobs * 3 // 4:  # noqa: ASYNC110 - of other processes
        await asyncio.sleep(0.005)
    (stage.broker.freeze if way == "frozen" else stage.broker.kill)()
    await asyncio.sleep(seconds)
    if way == "frozen":
        stage.broker.thaw()
    else:
        await stage.broker.start()
    began, left = time.monotonic(), await stage.left()
    while await stage.left() == left:  # noqa: ASYNC110 - of other processes
        await asyncio.sleep(0.01)
    after = time.monotonic() - began
    await stage.until_none_is_left()
    return f"{way} for {seconds:.0f} s: goes on after {after:.1f} s, {await told(stage, way, jobs)}"


async def add(stage: Stage, name: str, jobs: int) -> None:
    await stage.add([{"topic": "jobs", "id": f"{name}:{n}", "body": {"n": n}, "ttr": 2} for n in range(jobs)])


async def told(stage: Stage, name: str, jobs: int) -> str:
    """What the receiver got of the jobs of a fault."""
    own = [each for each in await stage.received() if each.key.startswith(f"{name}:")]
    keys = Counter(each.key for each in own)
    most = max(int(each.headers["jobqueue-attempt"]) for each in own)
    return f"missing {jobs - len(keys)}, repetitions {sum(keys.values()) - len(keys)}, most attempts {most}"


async def measure(kind: str, jobs: int) -> None:
    """Print a line for each fault. Raises Missing."""
    broker = new_broker(kind)
    try:
        await broker.start()
        await broker.prepare(["jobs"])
        with tempfile.TemporaryDirectory(prefix="jq-") as folder, RedisServer(Path(folder)) as redis:
            async with ServiceProcess("--redis", redis.url) as service, AsyncClient(service.url) as client:
                stage = Stage(broker, service, client, Path(folder))
                stage.write(in_flight=IN_FLIGHT, timeout_s=5)
                print(f"{kind:16} {await kills(stage, jobs)}", flush=True)
                print(f"{kind:16} {await outage(stage, jobs, 'frozen', FROZEN_S)}", flush=True)
                if kind in RESTARTED:
                    print(f"{kind:16} {await outage(stage, jobs, 'gone', GONE_S)}", flush=True)
                await stage.end()
    finally:
        broker.remove()


async def main(jobs: int, kinds: list[str]) -> None:
    for kind in kinds:
        try:
            await measure(kind, jobs)
        except Missing as error:
            print(f"{kind:16} {error}")


if __name__ == "__main__":
    given = sys.argv[1:]
    asyncio.run(main(int(given[0]) if given else 10_000, given[1:] or list(BROKERS)))
