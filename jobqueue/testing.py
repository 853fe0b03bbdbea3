"""The test service, `jobqueue serve --test`: in memory, and its clock stands still until a command advances it."""

from __future__ import annotations

from contextlib import AbstractAsyncContextManager

from buckets import HeldTime, Locks, Members, Planner, Pool, QueuedPool, Redis, SteppedClock, Sweep, Waiting
from jobqueue.app import Service
from jobqueue.loops import Loop
from jobqueue.protocols.command.protocol import TestProtocol
from jobqueue.redis_server.opening import private_redis


class TestService(Service):
    """One running test service. The work that timers and sweeps do in a real service is done when the clock is
    advanced."""

    protocol = TestProtocol
    holds_time = True

    def _redis(self) -> AbstractAsyncContextManager[str]:
        return private_redis(self._settings)

    async def _pool(self, redis: Redis) -> Pool:
        shards, buckets = self._settings.numbers(is_cluster=False)
        return await QueuedPool.open(
            redis, self._settings.namespace, shards=shards, buckets=buckets, clock=SteppedClock()
        )

    def _timer_loops(
        self,
        pool: Pool,
        waiting: Waiting,
        members: Members,
        locks: list[Locks],
        sweeps: list[Sweep],
        plan: Planner,
    ) -> list[list[Loop]]:
        assert self._engine and isinstance(pool, QueuedPool)
        self._engine.held_time = HeldTime(pool, waiting, sweeps, plan)
        return [
            [Loop(f"locks {lock.shard}", lock.run, "timers") for lock in locks],
            [Loop("members", members.run, "timers")],
        ]
