"""How many jobs a second each kind of sink hands on: service, Redis, `deliver` and broker on one machine.

`python -m bench.sinks.throughput [JOBS] [KIND]…`: jobs a kind, and the kinds; all of them by default.
"""

from __future__ import annotations

import asyncio
import sys
import tempfile
import time
from pathlib import Path

from jobqueue_client import AsyncClient

from tests.jobqueue.sinks.brokers.stage import Stage
from tests.kit.brokers import BROKERS, new_broker
from tests.kit.program import Missing
from tests.kit.redis_server import RedisServer
from tests.kit.service import ServiceProcess

IN_FLIGHT = 200


async def measure(kind: str, jobs: int) -> float:
    """Jobs a second, from when the broker is up for the sink until the last one is finished. Raises Missing."""
    broker = new_broker(kind)
    try:
        await broker.start()
        await broker.prepare(["jobs"])
        with tempfile.TemporaryDirectory(prefix="jq-") as folder, RedisServer(Path(folder)) as redis:
            async with ServiceProcess("--redis", redis.url) as service, AsyncClient(service.url) as client:
                stage = Stage(broker, service, client, Path(folder))
                stage.write(in_flight=IN_FLIGHT)
                await stage.add([{"topic": "jobs", "id": f"job:{n}", "body": {"order": n}} for n in range(jobs)])
                await stage.deliver.start()
                while not stage.deliver.logged("sink.up"):  # noqa: ASYNC110 - of another process
                    await asyncio.sleep(0.01)
                began = time.perf_counter()
                await stage.until_none_is_left()
                seconds = time.perf_counter() - began
                await stage.end()
                return jobs / seconds
    finally:
        broker.remove()


async def main(jobs: int, kinds: list[str]) -> None:
    print(f"{jobs:,} jobs of 100 bytes, {IN_FLIGHT} in flight")
    for kind in kinds:
        try:
            print(f"{kind:16} {await measure(kind, jobs):8,.0f} a second", flush=True)
        except Missing as error:
            print(f"{kind:16} {error}")


if __name__ == "__main__":
    given = sys.argv[1:]
    asyncio.run(main(int(given[0]) if given else 20_000, given[1:] or list(BROKERS)))
