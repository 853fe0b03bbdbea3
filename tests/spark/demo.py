"""`make demo-spark`: from a file of orders to callbacks received.

It uses 6,919 real orders (clients/spark/examples/orders.csv). `reconcile` finds that none has a callback in the queue.
`emit` schedules one for each, spread over a minute by the order's date. `jobqueue callbacks` calls a receiver on this
machine, which refuses every hundredth order once (503, Retry-After: 1). Finally `reconcile` finds all of them finished.
Each step is the command that a user would type. The demo ends with a table, and fails if an order was not called
exactly as often as it should be, or too early. `python -m tests.spark.demo 300 5 15`: 300 orders, spread over 5 s, the
first one after 15 s.
"""

from __future__ import annotations

import asyncio
import contextlib
import csv
import json
import os
import signal
import sys
import tempfile
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import date
from typing import Any, NamedTuple

from aiohttp import web

from bench.figures import percentile
from tests.kit.service import JOBQUEUE, ROOT, ServiceProcess

TOPIC = "example-callback"
ORDERS = ROOT / "clients" / "spark" / "examples" / "orders.csv"
REFUSED_ONCE = 100
FIRST_DAY = date(1997, 1, 1)
_DAYS = 546  # from the first order to the last
_LATER_S = 600.0
_AFTER_LAST_S = 60.0


class Receiver:
    """Stands for the shop's own service: it is called with each order at its due time."""

    def __init__(self) -> None:
        self.url = ""
        self.calls: dict[str, list[float]] = {}
        """The times of each order's calls, in unix seconds."""
        self.to_come = 0
        self.all_came = asyncio.Event()

    async def take(self, request: web.Request) -> web.Response:
        now = time.time()
        order = str((await request.json())["order"])
        calls = self.calls.setdefault(order, [])
        calls.append(now)
        self.to_come -= 1
        if self.to_come == 0:
            self.all_came.set()
        if len(calls) == 1 and int(order) % REFUSED_ONCE == 0:
            return web.Response(status=503, headers={"Retry-After": "1"})
        return web.Response()


@asynccontextmanager
async def receiver() -> AsyncIterator[Receiver]:
    """A receiver that is listening."""
    made = Receiver()
    application = web.Application()
    application.router.add_post("/orders", made.take)
    runner = web.AppRunner(application, access_log=None)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    made.url = "http://{}:{}/orders".format(*runner.addresses[0][:2])
    try:
        yield made
    finally:
        await runner.cleanup()


@asynccontextmanager
async def caller(url: str) -> AsyncIterator[None]:
    """Run `jobqueue callbacks`, allowed to call this machine."""
    process = await asyncio.create_subprocess_exec(
        *(*JOBQUEUE, "callbacks", "--topic", TOPIC, "--url", url, "--allow-network", "127.0.0.0/8"),
        stderr=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.DEVNULL,
    )
    try:
        yield
    finally:
        process.send_signal(signal.SIGTERM)
        await process.wait()


async def pipeline(name: str, url: str, *flags: str) -> dict[str, Any]:
    """Run a pipeline and return its report."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", f"pyspark_jobqueue.pipelines.{name}", "--json", "--master", "local[2]"),
        *("--url", url, "--conf", "spark.ui.enabled=false", "--conf", "spark.driver.host=127.0.0.1", *flags),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        cwd=ROOT,
        env={**os.environ, "TZ": "UTC"},
    )
    output, errors = await process.communicate()
    if not output:
        raise RuntimeError(f"{name} failed: {errors.decode()[-2000:]}")
    report: dict[str, Any] = json.loads(output)
    return report


class Plan(NamedTuple):
    """How many orders to call, and when."""

    orders: int
    first_ms: int
    spread_ms: int

    def flags(self) -> list[str]:
        """The flags for emit and reconcile: their input, and the id and due time of a row."""
        due = f"CAST({self.first_ms} + datediff(date, '{FIRST_DAY}') * {self.spread_ms} / {_DAYS} AS BIGINT)"
        query = (
            f"SELECT order, customer, CAST(dollars AS DECIMAL(10, 2)) AS dollars, timestamp_millis({due}) AS call_at "  # noqa: S608
            f"FROM input WHERE CAST(order AS INT) <= {self.orders}"
        )
        expected = ["--id", f"concat('{TOPIC}:', order)", "--due-at", "call_at"]
        return ["--from", str(ORDERS), "--sql", query, "--topic", TOPIC, *expected]

    def dues(self) -> dict[str, float]:
        """When each order is due, in unix seconds, computed without Spark."""
        with ORDERS.open() as file:
            rows = list(csv.DictReader(file))[: self.orders]
        days = {row["order"]: (date.fromisoformat(row["date"]) - FIRST_DAY).days for row in rows}
        return {order: int(self.first_ms + day * self.spread_ms / _DAYS) / 1000 for order, day in days.items()}


def kinds(report: dict[str, Any]) -> dict[str, int]:
    """The number of orders of each kind, according to `reconcile`."""
    known = ("ok", "finished", "deleted", "missing", "wrong_due", "wrong_topic", "dead", "unexpected")
    return {kind: report[kind] for kind in known if report[kind]}


def times(order: str) -> int:
    """How often an order should be called."""
    return 2 if int(order) % REFUSED_ONCE == 0 else 1


def faults(made: Receiver, dues: dict[str, float], reports: list[dict[str, Any]]) -> list[str]:
    """The errors, as sentences."""
    before, emitted, after = reports
    count = len(dues)
    wrong = [
        f"order {order} was called {len(made.calls.get(order, ()))} times, not {times(order)}"
        for order in dues
        if len(made.calls.get(order, ())) != times(order)
    ]
    wrong += [f"order {order} was called too early" for order, came in made.calls.items() if came[0] < dues[order]]
    if (kinds(before), emitted["accepted"], kinds(after)) != ({"missing": count}, count, {"finished": count}):
        wrong.append(f"the reports do not show {count} orders, first missing and then finished: {reports}")
    return wrong


def show(made: Receiver, dues: dict[str, float], reports: list[dict[str, Any]]) -> None:
    before, emitted, after = reports
    late_ms = [(came[0] - dues[order]) * 1000 for order, came in made.calls.items()]
    again = sum(len(came) - 1 for came in made.calls.values())
    p50, p99 = percentile(late_ms, 50), percentile(late_ms, 99)
    print(f"reconcile before    {kinds(before)}")
    print(f"emit                {emitted['accepted']:,} of {len(dues):,} orders in {emitted['seconds']} s")
    print(f"received            {len(late_ms):,} orders; {again:,} of them again after one refusal")
    print(
        f"after the due time  {min(late_ms):.1f} ms at least, p50 {p50:.1f}, p99 {p99:.1f}, at most {max(late_ms):.1f}"
    )
    print(f"reconcile after     {kinds(after)}")


async def main(count: int = 6919, spread_s: int = 60, first_s: int = 40) -> int:
    """Return 0 if every order was called as often as it should be, and none early. `first_s`: the time from the start
    of `emit` to the first call, which must suffice for Spark's start and the write."""
    with tempfile.TemporaryDirectory(prefix="jq-") as folder:
        async with ServiceProcess("--data", folder) as service, receiver() as made, caller(service.url):
            before = await pipeline("reconcile", service.url, *Plan(count, _ms(_LATER_S), spread_s * 1000).flags())
            plan = Plan(count, _ms(first_s), spread_s * 1000)
            call = ["--callback-url", f"'{made.url}'", "--payload", "struct(order, customer, dollars)"]
            made.to_come = sum(map(times, plan.dues()))
            emitted = await pipeline("emit", service.url, *plan.flags(), *call)
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(made.all_came.wait(), spread_s + _AFTER_LAST_S)
            await asyncio.sleep(1)  # an extra call would arrive now
            after = await pipeline("reconcile", service.url, *plan.flags())
    reports = [before, emitted, after]
    show(made, plan.dues(), reports)
    wrong = faults(made, plan.dues(), reports)
    print("\n".join(wrong[:20]) or "every order as often as it should be, none early")
    return 1 if wrong else 0


def _ms(from_now_s: float) -> int:
    """A time from now, in ms since the epoch."""
    return int((time.time() + from_now_s) * 1000)


if __name__ == "__main__":
    sys.exit(asyncio.run(main(*map(int, sys.argv[1:4]))))
