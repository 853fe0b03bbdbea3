"""`make bench-explain`: ms that `jobqueue explain` and `jobqueue audit` take of a large journal, in each database.

The journal has a week of lives of four events each, of 100 topics: a job is due 10 ms after its add, waits up to 191 ms
(one in a thousand 5 min) and is worked on. `python -m bench.explain 1000000 sqlite` sets another number of
events, and the databases.
"""

from __future__ import annotations

import asyncio
import random
import statistics
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from contextlib import ExitStack
from itertools import pairwise

from sqlalchemy import Connection, text
from sqlalchemy.ext.asyncio import AsyncEngine

from jobqueue.journal import audit, keeping, tables
from jobqueue.journal.audit import Asked
from jobqueue.journal.database import open_engine, open_store
from jobqueue.journal.explainer import explain_of
from jobqueue.journal.history import Journal
from jobqueue.metrics.process import LATENESS_S
from tests.kit.databases import MariaDB, PostgreSQL
from tests.kit.program import Missing

EVENTS = 10_000_000
_EXPLAINED, _AUDITED = 300, 7
_WEEK_MS = 7 * keeping.DAY_MS
_SERVERS = {"postgresql": PostgreSQL, "mariadb": MariaDB}
KINDS = ("sqlite", "postgresql")
_NUMBERS = {
    "sqlite": "(WITH RECURSIVE n(i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM n WHERE i < {last}) SELECT i FROM n)",
    "postgresql": "(SELECT i FROM generate_series(0, {last}) AS n(i))",
    "mysql": "(SELECT seq AS i FROM seq_0_to_{last})",
}
_JOINED = {"sqlite": "{} || ({})", "postgresql": "{} || ({})", "mysql": "CONCAT({}, {})"}
_OVER = {"sqlite": "/", "postgresql": "/", "mysql": "DIV"}


def _lives(kind: str, lives: int, begin_ms: int) -> str:
    """The lives as a query: their number, and when they were added, popped and finished."""
    numbers = _NUMBERS[kind].format(last=lives - 1)
    is_long = "CASE WHEN i % 1000 = 7 THEN 300000 ELSE 0 END"
    added = f"{begin_ms} + i * {_WEEK_MS // lives}"
    return f"(SELECT i, {added} - {is_long} AS added, {added} + 11 + i % 20 * 10 AS popped FROM {numbers} AS numbers)"


def _events(kind: str, lives: int, begin_ms: int) -> str:
    """An INSERT of all events, in the order of their places as far as that is easy."""
    joined = _JOINED[kind].format
    due, end, worker = "added + 10", "popped + 5", joined("'billing-'", "i % 50")
    columns = {
        "ms": f"CASE k WHEN 0 THEN added WHEN 1 THEN {due} WHEN 2 THEN popped ELSE {end} END",
        **{"source": "'jq'", "shard": "0", "seq": "CASE WHEN i % 1000 = 7 THEN 1 ELSE 0 END", "n": "0", "branch": "0"},
        **{"id": joined("'order-close:'", "i"), "life": "added", "topic": joined("'topic-'", "i % 100")},
        "verb": "CASE k WHEN 0 THEN 1 WHEN 1 THEN 3 WHEN 2 THEN 4 ELSE 9 END",
        **{"state_before": "k", "state_after": "CASE k WHEN 3 THEN 5 ELSE k + 1 END"},
        "at": f"1000 * (CASE k WHEN 0 THEN added WHEN 1 THEN {due} WHEN 2 THEN popped ELSE {end} END)",
        "was": f"CASE k WHEN 0 THEN 0 WHEN 3 THEN popped + 60000 ELSE {due} END",
        "due": due,
        "next": f"CASE k WHEN 2 THEN popped + 60000 WHEN 3 THEN {end} + 60000 ELSE {due} END",
        **{"priority": "4", "cause": "0", "attempts": "k / 2", "deliveries": "k / 2"},
        "lease": "CASE WHEN k > 1 THEN popped * 1000 ELSE 0 END",
        **{"instance": "'shop1:812:0'", "actor": "''"},
        "worker": f"CASE k WHEN 2 THEN {worker} END",
        **{"reason": "NULL", "checksum": "0"},
    }
    if kind == "mysql":
        columns |= dict.fromkeys(("attempts", "deliveries"), "k DIV 2")
    assert list(columns) == [column.name for column in tables.event.columns]
    names = ", ".join(f"`{name}`" if kind == "mysql" else name for name in columns)
    steps = "(SELECT 0 AS k UNION ALL SELECT 1 UNION ALL SELECT 2 UNION ALL SELECT 3)"
    source = f"{_lives(kind, lives, begin_ms)} AS lives CROSS JOIN {steps} AS steps"
    return f"INSERT INTO jq_event ({names}) SELECT {', '.join(columns.values())} FROM {source} ORDER BY i, k"


def _minutes(kind: str) -> str:
    late, is_first = "(at / 1000000.0 - due / 1000.0)", "verb = 4 AND deliveries = 1"
    bounds = [-1e9, *LATENESS_S, 1e12]
    ranges = [
        f"SUM(CASE WHEN {is_first} AND {late} > {low} AND {late} <= {high} THEN 1 ELSE 0 END)"
        for low, high in pairwise(bounds)
    ]
    sums = [
        "COUNT(*)",
        f"SUM(CASE WHEN {is_first} THEN 1 ELSE 0 END)",
        f"SUM(CASE WHEN {is_first} THEN {late} ELSE 0 END)",
        f"MAX(CASE WHEN {is_first} THEN {late} ELSE 0 END)",
    ]
    key = f"at {_OVER[kind]} 60000000, source, topic, verb, state_after"
    return f"INSERT INTO jq_minute SELECT {key}, {', '.join(sums + ranges)} FROM jq_event GROUP BY 1, 2, 3, 4, 5"


def _jobs() -> str:
    values = (
        "source, id, shard, life, topic, 5, priority, 0, due, next, 60000, 16, 1, 1, 0, lease, 0, NULL, NULL, NULL, "
        "NULL, 0, ms, seq, n, at, at"
    )
    return f"INSERT INTO jq_job SELECT {values} FROM jq_event WHERE verb = 9"


async def fill(url: str, events: int, begin_ms: int) -> AsyncEngine:
    """A journal with so many events from a time on, and its engine."""
    await (await open_store(url)).close()
    engine = await open_engine(url)
    kind = engine.dialect.name
    async with engine.begin() as connection:
        await connection.run_sync(_make_days, begin_ms)
    statements = [
        _events(kind, max(1, events // 4), begin_ms),
        _minutes(kind),
        _jobs(),
        "INSERT INTO jq_position VALUES ('jq', 0, 0, "
        f"{begin_ms + _WEEK_MS}, 0, {events}, 'word', {begin_ms * 1000}, {(begin_ms + _WEEK_MS) * 1000})",
    ]
    for statement in statements:
        async with engine.begin() as connection:
            await connection.execute(text(statement))
    async with engine.connect() as opened:
        connection = await opened.execution_options(isolation_level="AUTOCOMMIT")
        for table in ("jq_event", "jq_minute", "jq_job"):
            await connection.execute(text(f"ANALYZE {'TABLE ' if kind == 'mysql' else ''}{table}"))
    return engine


def _make_days(connection: Connection, begin_ms: int) -> None:
    for day in range(9):
        for change in keeping.missing(connection, begin_ms + day * keeping.DAY_MS):
            for statement in change:
                connection.exec_driver_sql(statement)


async def timed(ask: Callable[[int], Awaitable[object]], times: int) -> list[float]:
    """ms that each call takes, in their order."""
    spans = []
    for number in range(times):
        began = time.perf_counter()
        await ask(number)
        spans.append((time.perf_counter() - began) * 1000)
    return spans


def _told(spans: list[float]) -> str:
    spans = sorted(spans)
    return f"p50 {statistics.median(spans):8.1f} ms   p99 {spans[min(len(spans) - 1, int(0.99 * len(spans)))]:8.1f} ms"


async def measure(engine: AsyncEngine, url: str, events: int, begin_ms: int, explained: int = _EXPLAINED) -> None:
    journal, lives = Journal(engine, "jq"), max(1, events // 4)
    chosen = random.Random(1)
    waited = [number * 1000 + 7 for number in range(max(1, lives // 1000))]

    async def explain(_: int) -> None:
        told = await explain_of(journal, f"order-close:{chosen.randrange(lives)}")
        assert told["timeline"] and len(told["timeline"]) == 4

    async def explain_long(_: int) -> None:
        told = await explain_of(journal, f"order-close:{chosen.choice(waited) % lives}")
        assert told["timeline"]

    print(f"  explain                            {_told(await timed(explain, explained))}")
    print(f"  explain, a wait of 5 min           {_told(await timed(explain_long, explained // 3 or 1))}", flush=True)
    end = begin_ms + _WEEK_MS
    hour = (end - 3_600_000) * 1000
    asked = {
        "late --over 1s, a week, by topic": ("late", Asked(begin_ms * 1000, end * 1000, over_s=1.0)),
        "late --over 1s, a day, by topic": ("late", Asked((end - keeping.DAY_MS) * 1000, end * 1000, over_s=1.0)),
        "waited --over 1s, an hour": ("waited", Asked(hour, end * 1000, over_s=1.0)),
        "slow, an hour, by worker": ("slow", Asked(hour, end * 1000, by="worker")),
    }
    for words, (name, question) in asked.items():

        async def ask(_: int, name: str = name, question: Asked = question) -> None:
            await audit.ask(url, None, name, question)

        print(f"  {words:35}{_told(await timed(ask, _AUDITED))}", flush=True)


async def main(events: int = EVENTS, kinds: tuple[str, ...] = KINDS) -> None:
    """Fill and measure, one database after the other."""
    begin_ms = time.time_ns() // 1_000_000 // keeping.DAY_MS * keeping.DAY_MS
    for kind in kinds:
        with ExitStack() as stack:
            folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="jq-explain-"))
            try:
                server = stack.enter_context(_SERVERS[kind]()) if kind in _SERVERS else None
            except Missing as missing:
                print(f"{kind}: {missing}")
                continue
            url = server.new_database() if server else f"sqlite:///{folder}/journal.db"
            began = time.perf_counter()
            engine = await fill(url, events, begin_ms)
            print(f"{kind}: {events:,} events in {time.perf_counter() - began:,.0f} s", flush=True)
            await measure(engine, url, events, begin_ms)
            await engine.dispose()


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1]) if sys.argv[1:] else EVENTS, tuple(sys.argv[2:]) or KINDS))
