"""Pollers: the workers that pop through this instance, and the reports of all instances about their workers.

Each instance keeps a table in memory, fed by its pops. Every two seconds the instance writes the table to a key of its
own, which expires; a request for the pollers reads the keys of all live instances. The table serves people who look for
the cause of a delay: no job depends on it, and it is bounded, so with very many workers the rest is only summed up.

A job in hand is a lease that was granted through this instance and is still valid. A finish through this instance
removes it at once; every report asks Redis about the others, which may have ended through another instance, or by a
release.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

from buckets.errors import JobQueueError
from buckets.job import Job, State
from buckets.shards import Item, Shards
from buckets.waiting.notifier import Listener, Notifier

log = logging.getLogger(__name__)

EVERY_S = 2.0
KEPT_S = 10.0  # how long a report is kept if its instance no longer writes
GONE_S = 90.0  # after its last pop began, until a worker without a job in hand is forgotten; a pop may wait for 60 s
MOST_ROWS = 300
_MOST_BYTES = 100_000  # of a report
_MOST_LEASES = 10_000
_COUNTED_S = 1.0
_LEAVE_S = 1.0  # how long a shutdown waits for Redis

_RESERVED = State.RESERVED


class Client(Protocol):
    """The client that sent a pop."""

    @property
    def address(self) -> str:
        """Its network address."""

    @property
    def is_connected(self) -> bool:
        """Whether its connection is still there."""


class Poller:
    """A worker that polls the same topics through this instance."""

    __slots__ = ("blocked", "client", "has_left", "last", "owner", "since", "topics", "waiting", "worker")

    def __init__(self, worker: str, client: Client | None, topics: Iterable[str]) -> None:
        self.worker = worker
        self.client = client
        self.topics = sorted(topics)
        self.since = self.last = time.monotonic()
        self.waiting = 0  # pops in progress
        self.has_left = False
        self.owner = ""  # the owner of the last pop
        self.blocked = ""  # why the last pop took no job

    @property
    def is_lost(self) -> bool:
        """Whether the worker has no name, only a connection, which is closed."""
        return not (self.worker or self.client is None or self.client.is_connected)


@dataclass(frozen=True, slots=True)
class Polling:
    """One row of a report; times are ms since the epoch."""

    worker: str
    """The worker's name, or the client's address if its pops have no name."""
    topics: list[str]
    instance: str
    client: str
    since: int
    last: int
    waiting: int
    """How many pops wait."""
    jobs: int
    """How many jobs are in hand."""
    blocked: str = ""
    """Why the worker takes no jobs, as the worker said; empty if it takes jobs."""


@dataclass(slots=True)
class Pollings:
    """The reports of the live instances: their rows, and sums over the workers without a row."""

    rows: list[Polling] = field(default_factory=list)
    other_waiting: int = 0
    other_jobs: int = 0

    def within(self, reaches: Callable[[str], bool]) -> Pollings:
        """Only the rows with a topic for which `reaches` returns True, reduced to these topics."""
        rows = [replace(row, topics=topics) for row in self.rows if (topics := [*filter(reaches, row.topics)])]
        return Pollings(rows)

    def parked(self, topic: str | None = None) -> int:
        """How many pops wait. For a topic, only pops in the rows are counted."""
        if topic is None:
            return sum(row.waiting for row in self.rows) + self.other_waiting
        return sum(row.waiting for row in self.rows if topic in row.topics)

    def polling(self) -> Counter[str]:
        """How many different workers poll each topic."""
        return _by_topic(self.rows)

    def blocked(self) -> Counter[str]:
        """How many different workers of each topic take no jobs now, as they said."""
        return _by_topic(row for row in self.rows if row.blocked)


def _by_topic(rows: Iterable[Polling]) -> Counter[str]:
    pairs = {(row.worker, topic) for row in rows for topic in row.topics}
    return Counter(topic for _, topic in pairs)


class Pollers:
    """The pollers of one instance. `token`: the instance's token in the list of members."""

    def __init__(self, shards: Shards, notifier: Notifier, token: str) -> None:
        self._shards = shards
        self._token = token
        self._key = shards.keys[0].workers(token)
        self._pollers: dict[Any, Poller] = {}
        self._others = Poller("", None, ())  # all workers for which there is no room
        self._leases: dict[str, tuple[Poller, int]] = {}  # by job
        self._is_written = False
        self._counted: Counter[str] | None = None
        self._counted_at = 0.0
        self.instance = ""
        """The name of this instance for people."""
        notifier.register(Listener(leave=self._let_go))

    def _let_go(self, worker: str, owner: str | None) -> None:
        """Note that a worker is about to stop: it disappears once it has no jobs. With `owner`, only the worker whose
        pops have this owner."""
        for poller in self._pollers.values():
            poller.has_left |= poller.worker == worker and owner in (None, poller.owner)

    def begin(
        self, worker: str, client: Client | None, topics: Sequence[str], owner: str = "", blocked: str = ""
    ) -> Poller:
        """Note that a pop begins; `end` or `break_off` must follow. A pop without a `worker` belongs to its connection.
        `owner`: the owner of the pop, if any. `blocked`: why it takes no job."""
        key = (worker or client, topics[0] if len(topics) == 1 else frozenset(topics))
        poller = self._pollers.get(key)
        if poller is None:
            poller = self._enter(key, worker, client)
        poller.waiting += 1
        poller.last = time.monotonic()
        poller.client = client
        poller.has_left = False
        poller.blocked = blocked
        if owner:
            poller.owner = owner
        return poller

    def _enter(self, key: Any, worker: str, client: Client | None) -> Poller:
        if len(self._pollers) >= MOST_ROWS:
            return self._others
        topics = key[1]
        poller = self._pollers[key] = Poller(worker, client, (topics,) if isinstance(topics, str) else topics)
        return poller

    def end(self, poller: Poller, jobs: Sequence[Job]) -> None:
        """Note that a pop was answered with jobs."""
        poller.waiting -= 1
        leases = self._leases
        if len(leases) + len(jobs) <= _MOST_LEASES:
            leases.update([(job.id, (poller, job.lease)) for job in jobs if job.kind.state is _RESERVED])

    def break_off(self, poller: Poller, *, is_gone: bool) -> None:
        """Note that a pop was not answered. `is_gone`: whether its client hung up; then a worker without other pops or
        jobs is removed."""
        poller.waiting -= 1
        if is_gone and not poller.waiting and not any(owner is poller for owner, _ in self._leases.values()):
            self._pollers = {key: each for key, each in self._pollers.items() if each is not poller}

    def finished(self, jobs: Sequence[tuple[str, int | None]], results: Sequence[object]) -> None:
        """Note that jobs were finished through this instance. `jobs`, `results`: the argument and the result of
        `Pool.finish`. Refused finishes are ignored, since they may come from an earlier worker."""
        leases = self._leases
        if leases:
            for (job_id, _), result in zip(jobs, results, strict=True):
                if isinstance(result, str):
                    leases.pop(job_id, None)

    async def tick(self) -> None:
        """Write the report, if there is something to report, or was the last time."""
        await self._check_leases()
        self._forget()
        if not (self._pollers or self._others.waiting or self._leases or self._is_written):
            return
        self._is_written = bool(self._pollers)
        await self._shards.call(
            "report_workers",
            0,
            now=self._shards.clock.now(),
            token=self._token,
            life=int(KEPT_S * 1000),
            report=self._report(),
        )

    async def _check_leases(self) -> None:
        """Drop the leases that are no longer valid."""
        all_seen = list(self._leases.items())
        items = [Item(job_id, (job_id, lease)) for job_id, (_, lease) in all_seen]
        holds = await self._shards.each("check_leases", items)
        for (job_id, seen), hold in zip(all_seen, holds, strict=True):
            if hold == 0 and self._leases.get(job_id) is seen:
                del self._leases[job_id]

    def _forget(self) -> None:
        """Forget the workers that have left and, if there is no room for others, the nameless ones that hung up."""
        busy = {id(poller) for poller, _ in self._leases.values()}
        old = time.monotonic() - GONE_S
        is_full = len(self._pollers) >= MOST_ROWS
        self._pollers = {
            key: each
            for key, each in self._pollers.items()
            if each.waiting
            or id(each) in busy
            or (each.last >= old and not each.has_left and not (is_full and each.is_lost))
        }

    def _report(self) -> str:
        """The report: the rows, those with the latest pop first, and the sums over the rest."""
        jobs = Counter(id(poller) for poller, _ in self._leases.values())
        pollers = sorted(self._pollers.values(), key=lambda each: each.last, reverse=True)
        now, size, rows = time.monotonic(), 0, []
        for each in pollers:
            row = _row(each, now, jobs[id(each)])
            size += len(json.dumps(row))
            if size > _MOST_BYTES:
                break
            rows.append(row)
        rest = [*pollers[len(rows) :], self._others]
        return json.dumps(
            {
                "instance": self.instance,
                "rows": rows,
                "blocked": {place: each.blocked for place, each in enumerate(pollers[: len(rows)]) if each.blocked},
                "waiting": sum(each.waiting for each in rest),
                "jobs": sum(jobs[id(each)] for each in rest),
            }
        )

    async def read(self) -> Pollings:
        """The reports of all live instances: the current one of this instance, the last ones of the others."""
        await self.tick()
        pollings = Pollings()
        for raw in await self._shards.call("read_workers", 0):
            _add(pollings, raw)
        return pollings

    async def name_of(self, token: str) -> str | None:
        """The name of the instance with a token, or None if it is unknown because the instance has no workers."""
        if token == self._token:
            return self.instance or None
        raw = await self._shards.redis.read("GET", self._shards.keys[0].workers(token))
        return name_in(raw or b"") or None

    async def polling(self) -> Counter[str]:
        """How many different workers poll each topic, as of at most a second ago: a listing of topics has many
        pages."""
        now = time.monotonic()
        if self._counted is None or now - self._counted_at > _COUNTED_S:
            self._counted, self._counted_at = (await self.read()).polling(), now
        return self._counted

    async def run(self) -> None:
        """Report until cancelled; then remove the report."""
        try:
            while True:
                await asyncio.sleep(EVERY_S)
                try:
                    await self.tick()
                except JobQueueError:
                    pass  # Redis is away, which others log; the report follows when Redis is back
                except Exception:
                    log.exception("workers.failed")
        finally:
            with contextlib.suppress(JobQueueError, TimeoutError):
                async with asyncio.timeout(_LEAVE_S):
                    await self._shards.redis.read("UNLINK", self._key)


def name_in(report: bytes) -> str:
    """The name of the instance that wrote a report, or empty if it cannot be read."""
    with contextlib.suppress(ValueError, TypeError, LookupError):
        return str(json.loads(report.partition(b" ")[2])["instance"])
    return ""


def waiting_in(report: bytes, reaches: Callable[[str], bool] | None = None) -> int:
    """How many pops wait at the instance that wrote a report. With `reaches`, only pops of workers in its rows that ask
    for a topic for which `reaches` returns True are counted."""
    pollings = Pollings()
    _add(pollings, report)
    if reaches is not None:
        pollings = pollings.within(reaches)
    return sum(row.waiting for row in pollings.rows) + pollings.other_waiting


def _row(poller: Poller, now: float, jobs: int) -> list[Any]:
    """The row of a poller. Times become ages in ms, because the clocks of hosts are not compared."""
    address = poller.client.address if poller.client else ""
    ages = (int((now - poller.since) * 1000), int((now - poller.last) * 1000))
    return [poller.worker or address, poller.topics, address, *ages, poller.waiting, jobs]


def _add(pollings: Pollings, raw: bytes) -> None:
    """Add a report to `pollings`; data that another program wrote in its place is left out."""
    written, _, report = raw.partition(b" ")
    with contextlib.suppress(ValueError, TypeError, LookupError):
        at, found = int(written), json.loads(report)
        rows, blocked = found["rows"], found.get("blocked", {})  # reports of older versions have none
        pollings.rows += _rows(at, found["instance"], rows, blocked)
        pollings.other_waiting += found["waiting"]
        pollings.other_jobs += found["jobs"]


def _rows(at: int, instance: str, rows: list[list[Any]], blocked: Mapping[str, str]) -> Iterator[Polling]:
    for place, (worker, topics, client, since, last, waiting, jobs) in enumerate(rows):
        why = blocked.get(str(place), "")
        yield Polling(worker, topics, instance, client, at - since, at - last, waiting, jobs, why)
