"""A barrier: it tells whether all that was answered on a connection so far is with the replicas too, or on the disk.

WAIT speaks only of what its own connection wrote, and after a failover it knows nothing of what the old master had
answered. So a barrier is a small write (barrier.lua) with WAIT right behind it, both on the very connection that the
changes were answered on. It covers them whether they wrote anything or not: a repeated add does not.

WAIT holds up what is asked behind it. So there is one barrier at a time, and all who come meanwhile share the next.
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
LOCAL: Final = "local"  # in the memory of the Redis that took it, and in its file as that Redis is set up
REPLICATED: Final = "replicated"
FSYNCED: Final = "fsynced"
_SCRIPT = SCRIPTS["barrier"].text
# Only with these settings every answer of Redis comes after an fsync. WAITAOF alone does not tell: with `everysec`,
# Redis 7.4 and Valkey up to 9.1 let it say yes before the fsync (redis/redis#13793; seen with strace).
_SYNCED = {b"appendonly": b"yes", b"appendfsync": b"always", b"no-appendfsync-on-rewrite": b"no"}


class _Turn:
    """Those who share a barrier."""

    def __init__(self) -> None:
        self.shards: dict[str, Keys] = {}
        self.wanted: set[str] = set()
        self.told: asyncio.Future[tuple[Set[str], Set[str]]] = asyncio.get_running_loop().create_future()
        """The shards (by the keys of their meta) that have a barrier, and what was reached."""


class Barrier:
    """The barriers of one connection."""

    def __init__(self, link: Link, replicas: int, timeout_ms: int, meter: Meter) -> None:
        """`replicas`: how many of them must have it; `timeout_ms`: how long to wait for these, 1 at least."""
        self.link = link
        self._replicas = replicas
        self._meter = meter
        self._waits: dict[str, list[Sequence[Value]]] = {
            REPLICATED: [("WAIT", replicas, timeout_ms)],
            FSYNCED: [("CONFIG", "GET", *_SYNCED), ("WAITAOF", 1, 0, timeout_ms)],
        }
        self._holds: dict[str, Callable[..., bool]] = {REPLICATED: self._is_replicated, FSYNCED: _is_synced}
        self._next: _Turn | None = None
        self._working: asyncio.Task[None] | None = None

    async def reached(self, shard: Keys, wanted: Set[str]) -> Set[str]:
        """Which of these is true of all that was answered on this connection about the shard so far. Raises Unanswered
        when the connection cannot tell: it is lost, or its server does not serve the shard any more."""
        turn = self._next = self._next or _Turn()
        turn.shards[shard.meta] = shard
        turn.wanted |= wanted
        if self._working is None or self._working.done():
            self._working = asyncio.create_task(self._work())
        passed, reached = await asyncio.shield(turn.told)
        if shard.meta not in passed:
            raise Unanswered
        return reached & wanted

    async def _work(self) -> None:
        while self._next:
            turn, self._next = self._next, None
            begun = time.perf_counter()
            try:
                turn.told.set_result(await self._put(turn))
            except Unanswered as error:
                turn.told.set_exception(error)
                turn.told.exception()  # seen, should nobody wait for it any more
            self._meter.barrier_passed(time.perf_counter() - begun)

    async def _put(self, turn: _Turn) -> tuple[Set[str], Set[str]]:
        if self.link.lost:
            raise Unanswered
        ask = self.link.ask
        barriers = [ask(("EVAL", _SCRIPT, 2, shard.meta, shard.never)) for shard in turn.shards.values()]
        waits = {each: list(map(ask, commands)) for each, commands in self._waits.items() if each in turn.wanted}
        told = await asyncio.gather(*barriers)
        passed = {meta for meta, reply in zip(turn.shards, told, strict=True) if not isinstance(reply, ErrorReply)}
        reached = {each for each, replies in waits.items() if self._holds[each](*await asyncio.gather(*replies))}
        return passed, reached

    def _is_replicated(self, replicas: Any) -> bool:
        return isinstance(replicas, int) and replicas >= self._replicas


def _is_synced(config: Any, waited: Any) -> bool:
    """Whether what was answered before is on the disk, by CONFIG GET and by WAITAOF, which Redis 7.0 does not have and
    which knows of an append-only file that is only being made."""
    if isinstance(config, ErrorReply) or dict(zip(config[::2], config[1::2], strict=True)) != _SYNCED:
        return False
    if isinstance(waited, ErrorReply):
        return "unknown command" in str(waited)
    return bool(waited[0] == 1)
