"""Migrates a namespace from one Redis to another, job by job, while services run on both.

A page of jobs migrates in three steps. `export` on the old Redis removes them and keeps their records in a hash;
`import` on the new one stores them as they were, unless an id is known there; then the hash is deleted. So no job is
live on both, and a migration may die at any moment: the next migration imports what the hash still contains. Reserved
jobs stay until they are finished or come back. Schedules migrate likewise (buckets/schedules/moving.py), each after its
last occurrence.
"""

from __future__ import annotations

import asyncio
import itertools
import re
import secrets
from collections import Counter, defaultdict
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Self

from buckets.access import Tokens
from buckets.errors import JobQueueError, NoRoom, Unavailable, Unfit
from buckets.job import LIVE, Job, Verb
from buckets.keys import FAMILIES, shard_of
from buckets.namespace import examine
from buckets.pages import Pages, chunks
from buckets.pool.numbers import KEPT_MS, Numbers
from buckets.pool.pool import Pool
from buckets.record import unpack_all
from buckets.redis.client import Redis
from buckets.schedules import moving
from buckets.scripts import Value
from buckets.shards import Item
from buckets.topics.topics import Topics

REST = 1.0
PATIENCE_S = 10.0  # after this, a hash counts as left by a dead migration
_PAGE = 100  # jobs per script: about 3 ms of Redis
_ROOM = 1 << 20  # bytes of records per script
_TRIES = 12  # attempts of five seconds each, while the new Redis does not answer
_AHEAD = 1_000_000  # numbers left to services that continue on the old Redis, so that their jobs' ids stay unused
_NAMES = 20  # schedules per script
_WAIT_S = 0.2  # before looking again for remaining jobs

_ImportIn = Callable[[Pool, Callable[[], int], int, Sequence[Item]], Awaitable[list[Any]]]
Progress = Callable[[int, int], None]
"""Called with how many jobs and tombstones were migrated, and how many jobs were reserved at the last look."""


@dataclass(slots=True)
class Migrated:
    """What was migrated: jobs by topic and state, and schedules. `known`: how many of these the new Redis already had,
    and kept unchanged; `astray`: how many jobs came to other shards than their keys. `done`: True if the old Redis was
    found empty, False if the migration was stopped."""

    topics: defaultdict[str, Counter[str]] = field(default_factory=lambda: defaultdict(Counter))
    schedules: int = 0
    known: int = 0
    astray: int = 0
    done: bool = False

    @property
    def jobs(self) -> int:
        """How many jobs and tombstones were migrated."""
        return sum(states.total() for states in self.topics.values())


class _Stopped(Exception):
    """The migration was stopped, between two pages."""


class Migration:
    """The migration of one namespace. Made by `open`."""

    def __init__(self, old: Pool, new: Pool, rest: float, patience_s: float, progress: Progress | None) -> None:
        self._old = old
        self._new = new
        self._pages = Pages(old.redis, rest)
        self._patience_s = patience_s
        self._progress = progress or (lambda moved, reserved: None)
        self._turn = itertools.count()
        self._stopping = False
        self._left = 0  # jobs and hashes that this pass had to leave for later
        self.migrated = Migrated()

    @classmethod
    async def open(
        cls,
        old: Redis,
        new: Redis,
        namespace: str = "jq",
        *,
        shards: int = 1,
        buckets: int = 8,
        rest: float = REST,
        patience_s: float = PATIENCE_S,
        progress: Progress | None = None,
    ) -> Self:
        """Open both namespaces. `shards`, `buckets`: for the new namespace, if it does not exist yet; `rest`: for how
        many seconds to leave both to others after each second of work.

        Raises Unfit if one is damaged or of another version, or if the old one does not exist.
        """
        found = await examine(old, namespace, buckets)
        if found.empty:
            raise Unfit(f"the old Redis has no namespace {namespace}")
        if found.faults:
            raise Unfit(
                f"the namespace {namespace} in the old Redis is damaged: run `jobqueue fsck --repair` on it first"
            )
        source = Pool(old, namespace, *found.numbers)
        return cls(source, await Pool.open(new, namespace, shards=shards, buckets=buckets), rest, patience_s, progress)

    def stop(self) -> None:
        """Let `run` end after the page in flight."""
        self._stopping = True

    async def run(self) -> Migrated:
        """Migrate until the old Redis has no job and no schedule; returns what was migrated. Raises NoRoom if the new
        one is full, and Unavailable if one of them does not answer: nothing is lost then, and the migration can be run
        again."""
        paused = await self._copy_pauses()
        await self._copy_numbers(ahead=_AHEAD)
        await self._copy_tokens()
        try:
            while not await self._pass():  # noqa: ASYNC110 - nothing signals that others return jobs
                await asyncio.sleep(_WAIT_S if self._left else 0)
        except _Stopped:
            return self.migrated
        finally:
            await self._free_keys()
        await self._copy_numbers()
        await self._copy_tokens()
        for topic in paused:
            await Topics(self._old).resume(topic)
        self.migrated.done = True
        return self.migrated

    async def _copy_pauses(self) -> list[str]:
        """Pause on the new Redis the topics that are paused on the old one; returns their names."""
        old, new, shard, cursor = Topics(self._old), Topics(self._new), 0, 0
        paused = []
        while True:
            topics, shard, cursor = await old.page("*", shard, cursor)
            for topic in topics:
                if topic.paused_until is not None:
                    paused.append(topic.name)
                    await self._pause(new, topic.name, topic.paused_until)
            if not shard and not cursor:
                return paused

    async def _pause(self, new: Topics, topic: str, until: int) -> None:
        if await new.paused_until(topic) is None:
            await new.pause(topic, max(until - await self._new.now_ms(), 1) if until else None)

    async def _copy_numbers(self, ahead: int = 0) -> None:
        """Make the new Redis continue after the numbers of the old one, leaving the next `ahead` numbers to services on
        the old one, and copy the aliases."""
        old, new = Numbers(self._old), Numbers(self._new)
        last = await old.last()
        if last:
            await new.raise_to(last + ahead)
        keys = self._old.keys[0]
        async for page in self._pages.keys(f"{keys.tag}{FAMILIES['ALIAS']}*"):
            numbers = [key.rpartition(b":")[2] for key in page]
            await self._copy_aliases([int(number) for number in numbers if number.isdigit()])

    async def _copy_aliases(self, numbers: Sequence[int]) -> None:
        old, new = Numbers(self._old), Numbers(self._new)
        read, key = self._old.redis.read, self._old.keys[0].alias
        ids = await asyncio.gather(*map(old.resolve, numbers))
        left_ms = await asyncio.gather(*(read("PTTL", key(number)) for number in numbers))
        now_ms = await self._new.now_ms()
        await new.keep(
            [
                (number, job_id, now_ms + left - KEPT_MS)
                for number, job_id, left in zip(numbers, ids, left_ms, strict=True)
                if job_id is not None and left > 0
            ]
        )

    async def _copy_tokens(self) -> None:
        """Copy the tokens of the old Redis to the new one; for a token that both have, the record changed last wins."""
        new = Tokens(self._new)
        stored = await Tokens(self._old).read()
        await new.write(stored.entries(), least=stored.version)
        await new.note_used(stored.used)

    async def _pass(self) -> bool:
        """Migrate all jobs and schedules that can be migrated now; returns whether there were none."""
        before, self._left = self.migrated.jobs + self.migrated.schedules, 0
        for shard in range(len(self._old.keys)):
            await self._move_ready(shard)
        self._left = 0  # the next step meets the same jobs again
        await self._move_all()
        for shard in range(len(self._old.keys)):
            await self._move_schedules(shard)
        if self.migrated.jobs + self.migrated.schedules > before:
            return False
        if self._left:
            await self._end_leases()
        return not self._left

    async def _end_leases(self) -> None:
        """Do the work of the timers, in case no instance is left to run them."""
        for shard in range(len(self._old.keys)):
            for bucket in range(self._old.buckets):
                await self._pages.step(self._old.due(shard, bucket))

    async def _move_ready(self, shard: int) -> None:
        """Migrate the ready jobs of each topic: those in the lists, in their order, then those that wait for their
        keys, in theirs."""
        keys = self._old.keys[shard]
        for topic in await Topics(self._old).names(shard):
            lists = range(9, -1, -1)
            read = self._old.redis.read
            lengths = await asyncio.gather(*(read("LLEN", keys.ready(each, topic)) for each in lists))
            for priority, length in zip(lists, lengths, strict=True):
                left = length
                while left > 0:  # jobs that arrive meanwhile are left to the next pass
                    looked = await self._move(shard, (), f"{priority}:{topic}")
                    left = left - looked if looked else 0
            await self._move_blocked(shard, topic)

    async def _move_blocked(self, shard: int, topic: str) -> None:
        key, after = self._old.keys[shard].blocked(topic), b"-"
        while page := await self._old.redis.read("ZRANGEBYLEX", key, after, "+", "LIMIT", 0, _PAGE):
            await self._move_these(shard, [entry.partition(b"@")[2].partition(b":")[2] for entry in page], "blocked")
            after = b"(" + page[-1]

    async def _free_keys(self) -> None:
        """Let the jobs that are left, or that were added meanwhile, have the keys of those that are gone."""
        for shard, keys in enumerate(self._old.keys):
            for topic in await Topics(self._old).names(shard):
                async for page in self._pages.members(keys.holders(topic).encode()):
                    for entries in chunks(page, _PAGE):
                        freed = self._old.call(
                            *("remove_orphans", shard, entries),
                            now=self._old.clock.now(),
                            family="kh",
                            which=topic,
                        )
                        await self._pages.step(freed)

    async def _move_all(self) -> None:
        """Migrate all other jobs, and those that a dead migration left in a hash."""
        namespace = self._old.keys[0].tag.partition(":")[0]
        form = re.compile(re.escape(namespace.encode()) + rb":(\d{1,3})\}:([jm]):(.*)", re.S)
        async for page in self._pages.keys(f"{namespace}:*}}:[jm]:*"):
            ids: defaultdict[int, dict[bytes, None]] = defaultdict(dict)
            for key in page:
                match = form.fullmatch(key)
                if match and int(match[1]) < len(self._old.keys):
                    shard = int(match[1])
                    if match[2] == FAMILIES["JOB"][:1].encode():
                        ids[shard][match[3]] = None
                    else:
                        await self._move_left_behind(shard, key)
            for shard, some in ids.items():
                for chunk in chunks(list(some), _PAGE):
                    await self._move_these(shard, chunk)

    async def _move_these(self, shard: int, ids: Sequence[bytes], front: str = "") -> None:
        looked = 0
        while looked < len(ids):
            looked += await self._move(shard, ids[looked:], front)

    async def _move(self, shard: int, ids: Sequence[bytes], front: str = "") -> int:
        """Migrate a page of jobs, from a ready list or by their ids (see export.lua); returns how many entries or ids
        were looked at."""
        if self._stopping:
            raise _Stopped
        looked, reserved, key, *pairs = await self._pages.step(
            self._old.call(
                *("export", shard, ids),
                now=self._old.clock.now(),
                batch=secrets.token_hex(8),
                front=front,
                page=_PAGE,
                room=_ROOM,
            )
        )
        self._left += reserved
        if pairs:
            await self._deliver(key, unpack_all(pairs))
        return int(looked)

    async def _move_left_behind(self, shard: int, key: bytes) -> None:
        taken_ms = int(key.split(b":")[-2])
        if await self._old.now_ms() - taken_ms < self._patience_s * 1000:
            self._left += 1  # another migration is about to import these
            return
        flat = await self._old.redis.read("HGETALL", key)
        if flat and moving.are_schedules(flat):
            await self._deliver_schedules(key, flat)
        elif flat:
            await self._deliver(key, unpack_all(flat))

    async def _move_schedules(self, shard: int) -> None:
        """Migrate the schedules of a shard whose last occurrences are done or were migrated."""
        async for page in moving.names(self._old, self._pages, shard):
            for chunk in chunks(list(dict.fromkeys(page)), _NAMES):
                looked = 0
                while looked < len(chunk):
                    if self._stopping:
                        raise _Stopped
                    exported = await self._pages.step(moving.export(self._old, shard, chunk[looked:]))
                    looked += exported.looked
                    self._left += exported.left
                    if exported.flat:
                        await self._deliver_schedules(exported.key, exported.flat)

    async def _deliver_schedules(self, key: bytes, flat: Sequence[bytes]) -> None:
        """As `_deliver`."""
        items = moving.items(flat)
        arrived = await self._put(key, items, moving.import_in)
        for item, result in zip(items, arrived, strict=True):
            if not isinstance(result, NoRoom) and moving.has_record(item):
                self.migrated.schedules += 1
                self.migrated.known += not result
        _raise_first(arrived)

    async def _deliver(self, key: bytes, jobs: Sequence[Job]) -> None:
        """Import jobs that were exported, then delete the hash that keeps them. Raises NoRoom if some were put back."""
        results = await self._put(key, [Item(job.id, (job.id, job.raw), len(job.raw)) for job in jobs], _import_in)
        for job, result in zip(jobs, results, strict=True):
            if not isinstance(result, NoRoom):
                self.migrated.topics[job.topic][job.state.word] += 1
                self.migrated.known += not result
                self.migrated.astray += bool(result) and self._is_astray(job)
        self._progress(self.migrated.jobs, self._left)
        _raise_first(results)

    def _is_astray(self, job: Job) -> bool:
        """Whether the new Redis has a live job in another shard than its key leads to."""
        shards = len(self._new.keys)
        return job.state in LIVE and job.key is not None and shard_of(job.id, shards) != shard_of(job.key, shards)

    async def _put(self, key: bytes, items: Sequence[Item], work: _ImportIn) -> list[Any]:
        """Import exported items, put back those for which the new Redis has no room, and delete the hash that keeps
        them. Returns the results of the import."""
        results = await self._import(self._new, items, work)
        refused = [item for item, result in zip(items, results, strict=True) if isinstance(result, NoRoom)]
        # Some items may have arrived: the hash stays.
        _raise_first(result for result in results if not isinstance(result, NoRoom))
        _raise_first(await self._import(self._old, refused, work))
        await self._old.redis.read("UNLINK", key)
        return results

    async def _import(self, pool: Pool, items: Sequence[Item], work: _ImportIn) -> list[Any]:
        """Import items; returns for each item 1, 0 if it is known there, or an error."""
        results: list[Any] = [Unavailable()] * len(items)
        for _ in range(_TRIES):
            unanswered = [at for at, result in enumerate(results) if isinstance(result, Unavailable)]
            if not unanswered:
                break
            some = await pool.spread([items[at] for at in unanswered], partial(work, pool, self._turn.__next__))
            for at, result in zip(unanswered, some, strict=True):
                results[at] = result
        return results


async def _import_in(pool: Pool, turn: Callable[[], int], shard: int, items: Sequence[Item]) -> list[Any]:
    """Import jobs into a shard; returns for each 1, 0 if its id is known there, or an error. `turn`: returns a
    bucket."""
    own: dict[str, Value] = {"now": pool.clock.now(), "verb": int(Verb.IMPORT), "buckets": pool.buckets}
    return await pool.run_in(shard, "import", items, own, fresh=lambda: {"bucket": turn()})


def _raise_first(results: Iterable[Any]) -> None:
    for result in results:
        if isinstance(result, JobQueueError):
            raise result
