"""A barrier: it establishes whether everything answered on a connection so far has reached the replicas, or the disk.

WAIT covers only the writes of its own connection, and after a failover it knows nothing of what the old master
answered. A barrier is therefore a small write (barrier.lua) followed by WAIT, both on the connection on which the
changes were answered. It covers changes that wrote nothing, too: a repeated add does not write.

WAIT blocks the commands behind it. So only one barrier is in flight at a time, and all callers that arrive meanwhile
share the next one.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence, Set
from typing import Any, Final, Literal

from buckets.errors import Unanswered
from buckets.keys import Keys
from buckets.meter import Meter
from buckets.redis.link import ErrorReply, Link
from buckets.scripts import SCRIPTS, Value

Durability = Literal["local", "replicated", "fsynced"]
LOCAL: Final = "local"  # in the memory of the Redis that took it, and in its file as that Redis is configured
REPLICATED: Final = "replicated"
FSYNCED: Final = "fsynced"
_SCRIPT = SCRIPTS["barrier"].text
# Only with these settings does Redis answer every write after an fsync. WAITAOF alone is no proof: with `everysec`,
# Redis 7.4 and Valkey up to 9.1 let it succeed before the fsync (redis/redis#13793; seen with strace).
_SYNCED = {b"appendonly": b"yes", b"appendfsync": b"always", b"no-appendfsync-on-rewrite": b"no"}


class _Round:
    """The callers that share one barrier."""

    def __init__(self) -> None:
        self.shards: dict[str, Keys] = {}
        self.wanted: set[str] = set()
        self.outcome: asyncio.Future[tuple[Set[str], Set[str]]] = asyncio.get_running_loop().create_future()
        """The shards (by the keys of their meta) whose barrier was written, and the durabilities that were reached."""


class Barrier:
    """The barriers of one connection."""

    def __init__(self, link: Link, replicas: int, timeout_ms: int, meter: Meter) -> None:
        """`replicas`: how many must acknowledge; `timeout_ms`: how long to wait for them, at least 1."""
        self.link = link
        self._replicas = replicas
        self._meter = meter
        self._waits: dict[str, list[Sequence[Value]]] = {
            REPLICATED: [("WAIT", replicas, timeout_ms)],
            FSYNCED: [("CONFIG", "GET", *_SYNCED), ("WAITAOF", 1, 0, timeout_ms)],
        }
        self._holds: dict[str, Callable[..., bool]] = {REPLICATED: self._is_replicated, FSYNCED: _is_synced}
        self._next: _Round | None = None
        self._working: asyncio.Task[None] | None = None

    async def reached(self, shard: Keys, wanted: Set[str]) -> Set[str]:
        """Which of these hold for everything answered on this connection about the shard so far. Raises Unanswered when
        that is unknown: the connection is lost, or its server no longer serves the shard."""
        current = self._next = self._next or _Round()
        current.shards[shard.meta] = shard
        current.wanted |= wanted
        if self._working is None or self._working.done():
            self._working = asyncio.create_task(self._work())
        passed, reached = await asyncio.shield(current.outcome)
        if shard.meta not in passed:
            raise Unanswered
        return reached & wanted

    async def _work(self) -> None:
        while self._next:
            current, self._next = self._next, None
            begun = time.perf_counter()
            try:
                current.outcome.set_result(await self._put(current))
            except Unanswered as error:
                current.outcome.set_exception(error)
                current.outcome.exception()  # retrieved here: perhaps nobody waits for it any more
            self._meter.barrier_passed(time.perf_counter() - begun)

    async def _put(self, current: _Round) -> tuple[Set[str], Set[str]]:
        if self.link.lost:
            raise Unanswered
        ask = self.link.ask
        barriers = [ask(("EVAL", _SCRIPT, 2, shard.meta, shard.never)) for shard in current.shards.values()]
        waits = {each: list(map(ask, commands)) for each, commands in self._waits.items() if each in current.wanted}
        written = await asyncio.gather(*barriers)
        passed = {
            meta for meta, reply in zip(current.shards, written, strict=True) if not isinstance(reply, ErrorReply)
        }
        reached = {each for each, replies in waits.items() if self._holds[each](*await asyncio.gather(*replies))}
        return passed, reached

    def _is_replicated(self, replicas: Any) -> bool:
        return isinstance(replicas, int) and replicas >= self._replicas


def _is_synced(config: Any, waited: Any) -> bool:
    """Whether what was answered before is on the disk, by the replies of CONFIG GET and of WAITAOF. Redis 7.0 has no
    WAITAOF; where it exists, it also covers an append-only file that is still being created."""
    if isinstance(config, ErrorReply) or dict(zip(config[::2], config[1::2], strict=True)) != _SYNCED:
        return False
    if isinstance(waited, ErrorReply):
        return "unknown command" in str(waited)
    return bool(waited[0] == 1)
