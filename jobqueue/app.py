"""The service: everything is built here, started from top to bottom and stopped in the reverse order."""

from __future__ import annotations

import asyncio
import gc
from contextlib import AsyncExitStack
from pathlib import Path

from aiohttp import web

from buckets import Bell, Durable, Locks, Members, Pool, Redis, Sweep, Timer, Topics, Walk
from buckets.errors import Unfit
from jobqueue.access.connections import ConnectionLimits, most_connections
from jobqueue.engine import Engine
from jobqueue.metrics.process import Metrics
from jobqueue.metrics.scrape import Scrape, leave
from jobqueue.metrics.totals import Totals
from jobqueue.policies import Policies
from jobqueue.redis_server.fitness import redis_at
from jobqueue.redis_server.opening import service_redis
from jobqueue.settings import Settings, shared_metrics_folder
from jobqueue.tasks import running, running_all
from jobqueue.web.address import url_of
from jobqueue.web.runner import Runner
from jobqueue.web.site import Web

_BACKLOG = 1024  # connections that wait to be accepted; beyond them a client tries again a second later
_NEW_OBJECTS = 20_000  # before the cycle collector looks at them; some 5 MB
_REDIS_QUIET_S = 3.0  # without an answer for so long, Redis counts as gone


class Service:
    """One running service. `async with Service(settings) as service:` starts and stops it.

    `worker`: its number, where it is one of several processes on a port. Their supervisor has then started and judged
    the Redis whose URL stands in the settings, and holds the port.
    """

    workers = 1

    def __init__(self, settings: Settings, worker: int | None = None) -> None:
        self._settings = settings
        self._worker = worker
        self._policies = Policies(settings)
        self._engine: Engine | None = None
        self._stack = AsyncExitStack()
        self.url = ""
        """Where it listens, once it does."""

    def reload(self, settings: Settings) -> None:
        """Let the policies of other settings hold from now on."""
        self._policies = Policies(settings)
        if self._engine:
            self._engine.policies = self._policies

    def kill(self) -> None:
        """All that is ours ends with this process, but for our own Redis, which the next start takes over."""

    async def __aenter__(self) -> Service:
        try:
            await self._start()
        except BaseException:
            await self._stack.aclose()
            raise
        return self

    async def __aexit__(self, *exception: object) -> None:
        await self._stack.aclose()

    async def _start(self) -> None:
        settings, stack = self._settings, self._stack
        folder = shared_metrics_folder()
        metrics = self._metrics(folder)
        url = settings.redis if self._worker else await stack.enter_async_context(service_redis(settings))
        redis = redis_at(url, settings.redis_timeout_s, metrics)
        stack.push_async_callback(redis.close)
        shards, buckets = settings.numbers(redis.is_cluster)
        pool = await Pool.open(redis, settings.namespace, shards=shards, buckets=buckets)
        stack.push_async_callback(pool.close)
        bell = Bell(pool)
        topics = Topics(pool)
        durable = self._durable(redis_at(url, settings.redis_timeout_s, metrics), pool)
        engine = self._engine = Engine(
            pool, topics, Walk(pool), bell, self._policies, durable, self._settings.durability
        )
        scrape = Scrape(metrics, topics, bell, Totals(settings.namespace, folder), folder)
        if folder:
            await stack.enter_async_context(running("metrics", scrape.run()))
        loops = [await stack.enter_async_context(running("bell", bell.run()))]
        roll = Members(pool, bell, settings.clock_limit_s)
        locks = [Locks(pool, bell, roll, shard) for shard in range(len(pool.keys))]
        sweeps = [Sweep(topics, lock, engine.bounds, settings.idle_topic_s) for lock in locks]
        for works in (
            {f"locks {lock.shard}": lock.run() for lock in locks},
            {
                f"timer {lock.shard}/{bucket}": Timer(pool, bell, lock, bucket).run()
                for lock in locks
                for bucket in range(pool.buckets)
            },
            {f"sweep {shard}": sweep.run() for shard, sweep in enumerate(sweeps)},
            {"roll": roll.run()},  # first at a stop: then others take the locks that are given up
        ):
            loops += await stack.enter_async_context(running_all(works))
        await self._subscribed(bell)
        site_web = Web(engine, settings, lambda: _readiness(roll, locks, loops, bell), metrics, scrape)
        _spare_collections()
        await self._listen(site_web, bell)

    def _metrics(self, folder: Path | None) -> Metrics:
        """What counts the work of this process. Raises Unfit when the folder to share it in cannot be made."""
        if folder is None:
            return Metrics(self._settings.metrics_topics)
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise Unfit(f"PROMETHEUS_MULTIPROC_DIR is no folder for metrics: {error}") from None
        metrics = Metrics(self._settings.metrics_topics, folder)
        self._stack.callback(leave, metrics, folder)
        return metrics

    def _durable(self, redis: Redis, pool: Pool) -> Durable:
        """What durable changes go through: the same shards over a connection of its own, made when it is first used."""
        own = Pool(redis, self._settings.namespace, len(pool.keys), pool.buckets)
        own.ready_shards = pool.ready_shards  # what is added there is ready here
        self._stack.push_async_callback(redis.close)
        self._stack.push_async_callback(own.close)
        return Durable(own, self._settings.replicas, self._settings.durability_timeout_s)

    async def _subscribed(self, bell: Bell) -> None:
        """Wait until the bell hears. Raises Unfit when Redis does not let it."""
        try:
            async with asyncio.timeout(self._settings.redis_timeout_s):
                await bell.connected.wait()
        except TimeoutError:
            raise Unfit("Redis takes no subscription; an ACL user needs +ssubscribe and its channels") from None

    async def _listen(self, site_web: Web, bell: Bell) -> None:
        settings = self._settings
        limits = ConnectionLimits(settings.client_timeout_s, most_connections(settings.max_connections))
        await self._stack.enter_async_context(running("limits", limits.run()))
        runner = Runner(
            site_web.application(),
            site_web,
            limits,
            handler_cancellation=True,  # off by default; without it a gone client's pop would go on
            access_log=None,
            shutdown_timeout=settings.grace_s,
        )
        await runner.setup()
        self._stack.push_async_callback(runner.cleanup)
        site = web.TCPSite(runner, settings.host, settings.port, backlog=_BACKLOG, reuse_port=self._worker is not None)
        await site.start()
        self._stack.push_async_callback(_close, site, site_web, bell)
        self.url = url_of(runner.addresses[0])


def _spare_collections() -> None:
    """Let the cycle collector leave alone what is there from the start, and look at the rest less often: requests leave
    hardly a cycle behind, and its looks were a fifth of their time."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(_NEW_OBJECTS)


async def _close(site: web.TCPSite, site_web: Web, bell: Bell) -> None:
    """Take no more requests, and answer the pops that wait."""
    site_web.closing = True
    await site.stop()
    bell.close()


def _readiness(roll: Members, locks: list[Locks], loops: list[asyncio.Task[None]], bell: Bell) -> dict[str, bool]:
    last_answer = max(roll.last_answer, *(lock.last_answer for lock in locks))
    return {
        "redis": asyncio.get_running_loop().time() - last_answer < _REDIS_QUIET_S,
        "timers": not any(loop.done() for loop in loops),
        "bell": bell.hears,
    }
