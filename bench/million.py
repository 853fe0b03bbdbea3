"""`make bench-million`: a million orders through `emit`, then through `reconcile`.

Each pipeline runs as a user would run it, with a driver and one executor of two cores as separate processes, whose
memory is read from /proc four times a second. The driver may receive results of 8 MB in total
(spark.driver.maxResultSize), so a pipeline that collects its data fails.
`python -m bench.million 3000 local[2]` sets another number of orders and another master.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import shutil
import sys
import tempfile
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow
import pyarrow.parquet
import pyspark

from tests.kit.redis_server import RedisServer
from tests.kit.service import ROOT, Client, ServiceProcess

ORDERS = 1_000_000
CLUSTER = "local-cluster[1,2,1024]"
TOPIC = "order-close"
ID, DUE = f"concat('{TOPIC}:', order)", "pay_until"
SPARK = {
    "spark.driver.maxResultSize": "8m",
    "spark.driver.memory": "1g",
    "spark.executor.memory": "1g",
    "spark.driver.host": "127.0.0.1",
    "spark.ui.enabled": "false",
    "spark.sql.shuffle.partitions": "8",
}
_PARTS = {"SparkSubmit": "driver", "CoarseGrainedExecutorBackend": "executor", "pyspark.daemon": "Python workers"}


class Process(NamedTuple):
    """A process, from /proc."""

    pid: int
    parent: int
    rss: int  # bytes
    command: str


def processes() -> list[Process]:
    found = []
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            with contextlib.suppress(OSError, IndexError):  # it has ended meanwhile
                stat = (folder / "stat").read_text().rpartition(")")[2].split()
                pages = int((folder / "statm").read_text().split()[1])
                command = (folder / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
                found.append(Process(int(folder.name), int(stat[1]), pages * os.sysconf("SC_PAGE_SIZE"), command))
    return found


def memory_of(root: int) -> dict[str, int]:
    """The resident bytes of a driver's processes, by their role."""
    family, memory = {root}, dict.fromkeys(["driver", "executor", "Python workers", "Python of the driver"], 0)
    for process in sorted(processes()):  # children mostly have larger numbers than their parents
        if process.parent in family or process.pid == root:
            family.add(process.pid)
            part = next((name for word, name in _PARTS.items() if word in process.command), "Python of the driver")
            memory[part] += process.rss
    return memory


async def watched(master: str, *command: str) -> tuple[dict[str, Any], float, dict[str, int]]:
    """Run a pipeline. Returns its report, its total seconds, and the peak memory of each part."""
    began, most = time.monotonic(), dict[str, int]()
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", *command, "--json", "--master", master),
        *(flag for name, text in SPARK.items() for flag in ("--conf", f"{name}={text}")),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        cwd=ROOT,
    )
    told = asyncio.create_task(process.communicate())
    while not told.done():
        now = await asyncio.to_thread(memory_of, process.pid)
        most = {part: max(size, most.get(part, 0)) for part, size in now.items()}
        await asyncio.wait([told], timeout=0.25)
    said, errors = told.result()
    if not said:
        raise RuntimeError(next((line for line in errors.decode().splitlines() if line.startswith("error: ")), "?"))
    return json.loads(said), time.monotonic() - began, most


def write_orders(file: Path, count: int) -> None:
    """Write orders that are to be paid within a period of two hours, a day from now, in eight parts."""
    base = datetime.now(UTC).replace(microsecond=0) + timedelta(days=1)
    file.mkdir()
    for part in range(8):
        numbers = range(part, count, 8)
        columns = {
            "order": pyarrow.array([f"{number:09}" for number in numbers]),
            "customer": pyarrow.array([number % 99_991 for number in numbers]),
            "total": pyarrow.array([number % 20_000 / 100 for number in numbers]),
            "pay_until": pyarrow.array(
                [base + timedelta(milliseconds=number * 7_200_000 // count) for number in numbers],
                pyarrow.timestamp("ms", "UTC"),
            ),
        }
        pyarrow.parquet.write_table(pyarrow.table(columns), file / f"part-{part}.parquet")


def show(name: str, report: dict[str, Any], seconds: float, memory: dict[str, int]) -> None:
    megabytes = ", ".join(f"{part} {size / 2**20:,.0f} MB" for part, size in memory.items())
    print(f"{name}: {report['seconds']:.1f} s, {seconds:.1f} s with Spark's start; at most: {megabytes}", flush=True)
    print(f"  {json.dumps({name: value for name, value in report.items() if isinstance(value, int | float | dict)})}")


async def main(count: int = ORDERS, master: str = CLUSTER) -> int:
    """Return 0 if all orders were emitted and found again."""
    with tempfile.TemporaryDirectory(prefix="jq-") as folder, RedisServer(Path(folder)) as redis:
        orders = Path(folder) / "orders.parquet"
        write_orders(orders, count)
        async with ServiceProcess("--redis", redis.url) as service, Client(service.url) as client:
            common = ["--url", service.url, "--from", str(orders), "--topic", TOPIC, "--id", ID, "--due-at", DUE]
            body = ["--body", "struct(order, customer, total)"]
            emitted = await watched(master, "pyspark_jobqueue.pipelines.emit", *common, *body)
            show(f"emit of {count:,} orders", *emitted)
            compared = await watched(master, "pyspark_jobqueue.pipelines.reconcile", *common)
            show(f"reconcile of {count:,} orders", *compared)
            counts = (await client.ask("stats", topic=TOPIC))["counts"]
    shutil.rmtree(Path(pyspark.__file__).parent / "work", ignore_errors=True)  # left behind by Spark's cluster
    return 0 if counts["delayed"] == count and emitted[0]["accepted"] == count else 1


if __name__ == "__main__":
    orders = int(sys.argv[1]) if len(sys.argv) > 1 else ORDERS
    sys.exit(asyncio.run(main(orders, *sys.argv[2:3])))
