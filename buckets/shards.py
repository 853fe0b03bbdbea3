"""The shards of a namespace: their keys, and calls of scripts, for one job or for batches over all shards."""

from __future__ import annotations

import asyncio
import os
import socket
import time
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from contextvars import ContextVar
from itertools import chain
from typing import Any, NamedTuple, Self

from buckets.clock import Clock
from buckets.errors import JobQueueError, Unavailable
from buckets.keys import Keys, shard_of
from buckets.namespace import Numbers, Switch, found, open_namespace
from buckets.pool.limits import Limits
from buckets.redis.client import Redis, judge_all
from buckets.redis.link import Orphan
from buckets.scripts import SCRIPTS, Value

ACTOR: ContextVar[str] = ContextVar("actor", default="")
"""The actor of the current request, for the events of its moves; empty if unknown."""
MOST = 200  # jobs of a batch in one script
MOST_BYTES = 1 << 20  # bytes of a batch in one script


class Item(NamedTuple):
    """The arguments for one job in a script that takes many jobs, or for a group that stays together."""

    id: str
    """The id that decides on the shard; no script gets the same id twice."""
    values: Sequence[Any]
    size: int = 0
    """The size of the values in bytes."""
    jobs: int = 1


Work = Callable[[int, Sequence[Item]], Awaitable[list[Any]]]
"""Works on items of a shard; returns a result for each."""


class OneScript:
    """Items for one script: few enough that it is short, and with different ids, so that it can read all before it
    writes."""

    def __init__(self) -> None:
        self._ids: set[str] = set()
        self._jobs = self._size = 0

    def take(self, items: Sequence[Item]) -> bool:
        """Add more items, if there is room; returns whether they were added. After the first False, no more are
        accepted."""
        ids = {item.id for item in items}
        jobs, size = self._jobs + sum([item.jobs for item in items]), self._size + sum([item.size for item in items])
        if len(ids) < len(items) or jobs > MOST or size > MOST_BYTES or not self._ids.isdisjoint(ids):
            self._jobs = MOST  # no room for others
            return False
        self._ids |= ids
        self._jobs, self._size = jobs, size
        return True


def _chunks(items: Sequence[Item]) -> Iterator[Sequence[Item]]:
    """Split a batch into the parts that one script may take."""
    if OneScript().take(items):
        if items:
            yield items
        return
    chunk: list[Item] = []
    script = OneScript()
    for item in items:
        if not script.take([item]) and chunk:
            yield chunk
            chunk, script = [], OneScript()
            script.take([item])
        chunk.append(item)
    yield chunk


def _flat(values: Iterable[Sequence[Value]]) -> list[Value]:
    return list(chain.from_iterable(values))


class Shards:
    """One namespace on a Redis. Made by `open`."""

    def __init__(self, redis: Redis, namespace: str, shards: int, buckets: int, clock: Clock | None = None) -> None:
        self.redis = redis
        self.namespace = namespace
        self.clock = clock or Clock()
        self.keys = [Keys(namespace, shard) for shard in range(shards)]
        self.buckets = buckets
        self.switches: list[Switch | None] = [None] * shards
        """By shard, the switch of events as last read; `ensure_meta` uses it to switch events on again."""
        self.switches_read = [0.0] * shards
        """By shard, when `switches` was read, by time.monotonic."""
        self.slices_ms = 0
        """As `slices_of` returned it for the namespace; `ensure_meta` uses it."""
        self.limits: Limits = {}
        """The limits of topics that have any."""
        self.instance = f"{socket.gethostname()}:{os.getpid()}"
        """This instance, which the events of its moves name; without spaces, up to 96 characters."""

    @classmethod
    async def open(
        cls, redis: Redis, namespace: str = "jq", *, shards: int = 1, buckets: int = 8, clock: Clock | None = None
    ) -> Self:
        """Found the namespace, or join an existing one: then its own numbers of shards and buckets apply, not the
        arguments.

        Raises Unfit for a bad name, and for a namespace that another version wrote or that is damaged.
        """
        founded = await open_namespace(redis, namespace, Numbers(shards, buckets))
        opened = cls(redis, namespace, *founded[0].numbers, clock)
        opened.switches, opened.switches_read = [each.switch for each in founded], [time.monotonic()] * len(founded)
        opened.slices_ms = founded[0].slices_ms
        return opened

    async def ensure_meta(self, shard: int) -> None:
        """Write the settings of a shard again if they were lost, as when Redis was emptied. Raises Unfit."""
        numbers = Numbers(len(self.keys), self.buckets)
        await found(self.redis, self.keys[shard], numbers, self.switches[shard], self.slices_ms)

    def is_away(self, shard: int) -> bool:
        """Whether the server of the shard cannot be asked now."""
        return self.redis.is_away(self.keys[shard].meta)

    def is_passed_over(self, shard: int) -> bool:
        """Whether the shard cannot be asked now but another shard can."""
        return self.is_away(shard) and not all(map(self.is_away, range(len(self.keys))))

    async def now_ms(self) -> int:
        """The time that scripts use, in ms since the epoch."""
        return await self.now_us() // 1000

    async def newest_ms(self) -> int:
        """The latest time at which an existing job may have been created: now, in ms rounded up."""
        return -(-await self.now_us() // 1000)

    async def now_us(self) -> int:
        """The time that scripts use, in us since the epoch."""
        held = self.clock.now()
        if held:
            return int(held)
        seconds, us = map(int, await self.redis.read("TIME"))
        return seconds * 1_000_000 + us

    async def take_permits(self, topic: str, want: int) -> tuple[int, int]:
        """Take up to `want` permits of a topic's rate in the shard that keeps them, which may not be the shard of its
        jobs; returns how many, and after how many us there are permits again (0 if some are left)."""
        rate, burst, _ = self.limits[topic].arguments
        shard = shard_of(topic, len(self.keys))
        permits, opens_us = await self.call(
            "take_permits", shard, now=self.clock.now(), topic=topic, rate=rate, burst=burst, want=want
        )
        return permits, opens_us

    async def call(
        self,
        script: str,
        shard: int,
        rest: Sequence[Value] = (),
        *,
        repeat: bool | None = None,
        orphan: Orphan | None = None,
        **arguments: Value,
    ) -> Any:
        """As `Redis.call`, on the keys of a shard."""
        keys = self.keys[shard]
        if SCRIPTS[script].has_events:
            arguments["by"] = self._by()
        return await self.redis.call(
            script, rest, repeat=repeat, orphan=orphan, meta=keys.meta, never=keys.never, **arguments
        )

    def _by(self) -> str:
        actor = ACTOR.get()
        return f"{self.instance} {actor}" if actor else self.instance

    async def one(self, script: str, job_id: str, *, repeat: bool | None = None, **arguments: Value) -> Any:
        """Run a script for one job."""
        shard = shard_of(job_id, len(self.keys))
        return await self.call(
            script, shard, (), repeat=repeat, orphan=None, now=self.clock.now(), id=job_id, **arguments
        )

    async def spread(self, items: Sequence[Item], work: Work) -> list[Any]:
        """Call `work` on the items of each shard, for all shards at once; returns the results in the order of the
        items."""
        if len(self.keys) == 1:
            return await work(0, items)
        places: dict[int, list[int]] = {}
        for place, item in enumerate(items):
            places.setdefault(shard_of(item.id, len(self.keys)), []).append(place)
        told = await asyncio.gather(*(work(shard, [items[each] for each in own]) for shard, own in places.items()))
        results: list[Any] = [None] * len(items)
        for own, some in zip(places.values(), told, strict=True):
            for place, result in zip(own, some, strict=True):
                results[place] = result
        return results

    async def each(
        self, script: str, items: Sequence[Item], *, read: Callable[[list[Any]], list[Any]] = list, **arguments: Value
    ) -> list[Any]:
        """Run a script that takes many jobs on all their shards; returns the results in the order of the items. `read`:
        as for `run_in`."""

        async def work(shard: int, items: Sequence[Item]) -> list[Any]:
            return await self.run_in(shard, script, items, arguments, read=read)

        return await self.spread(items, work)

    async def run_in(
        self,
        shard: int,
        script: str,
        items: Sequence[Item],
        arguments: Mapping[str, Value],
        *,
        fresh: Callable[[], dict[str, Value]] = dict,
        repeat: bool | None = None,
        pack: Callable[[Iterable[Any]], list[Value]] = _flat,
        read: Callable[[list[Any]], list[Any]] = list,
    ) -> list[Any]:
        """Run a script that takes many jobs on the jobs of one shard. `fresh` returns the arguments that differ in each
        call of the script, `pack` turns the values of the items into arguments, and `read` turns the reply into a
        result for each item."""
        results: list[Any] = []
        away: Unavailable | None = None
        for chunk in _chunks(items):
            try:
                if away:
                    raise away
                rest = pack([item.values for item in chunk])
                reply = await self.call(
                    script,
                    shard,
                    rest,
                    repeat=repeat,
                    orphan=None,
                    **arguments,
                    **fresh(),
                )
                results += read(judge_all(reply))
            except JobQueueError as error:
                away = error if isinstance(error, Unavailable) else None  # one wait for Redis is enough
                results += [error] * len(chunk)
        return results
