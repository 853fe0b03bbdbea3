"""The service: everything is built here, started from top to bottom and stopped in the reverse order."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import structlog
from aiohttp import web

from buckets import Bell, Locks, Pool, Redis, Sweep, Timer, Topics, Walk
from buckets.errors import Unavailable, Unfit
from buckets.lock import LEASE_S
from jobqueue.embedded import EmbeddedRedis
from jobqueue.engine import Engine
from jobqueue.errors import SettingsError
from jobqueue.fitness import judge, redis_at, without_secret
from jobqueue.metrics import Metrics
from jobqueue.policies import Policies
from jobqueue.runner import Runner
from jobqueue.scrape import Scrape, leave
from jobqueue.settings import RELOADED, Settings, shared_metrics_folder
from jobqueue.web import Web

log = structlog.get_logger()

_REDIS_QUIET_S = 3 * LEASE_S  # without an answer for so long, Redis counts as gone


class Service:
    """One running service. `async with Service(settings) as service:` starts and stops it."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._read = settings  # the last ones: what they change in a running service holds
        self._stack = AsyncExitStack()
        self.url = ""
        """Where it listens, once it does."""

    def reload(self, settings: Settings) -> None:
        """Let the policies of other settings hold from now on; what else they change needs a new start."""
        self._engine.policies = Policies(settings)
        changed = settings.unlike(self._read)
        waiting = [name for name in settings.unlike(self._settings) if name not in RELOADED]
        self._read = settings
        log.info("settings.reloaded", changed=changed, **({"need_a_restart": waiting} if waiting else {}))

    async def __aenter__(self) -> Service:
        try:
            await self._start()
        except BaseException:
            await self._stack.aclose()
            raise
        return self

    async def __aexit__(self, *exception: object) -> None:
        await self._stack.aclose()
        log.info("service.stopped")

    async def _start(self) -> None:
        settings, stack = self._settings, self._stack
        folder = shared_metrics_folder()
        metrics = self._metrics(folder)
        url = settings.redis or await self._embedded()
        redis = redis_at(url, settings.redis_timeout_s, metrics)
        stack.push_async_callback(redis.close)
        await self._judge(redis)
        pool = await Pool.open(redis, settings.namespace, buckets=settings.buckets)
        stack.push_async_callback(pool.close)
        bell = Bell(pool)
        topics = Topics(pool)
        engine = Engine(pool, topics, Walk(pool), bell, Policies(settings))
        scrape = Scrape(metrics, topics, bell, folder)
        if folder:
            await stack.enter_async_context(_running("metrics", scrape.run()))
        locks = [Locks(pool, bell, shard) for shard in range(len(pool.keys))]
        loops = [await stack.enter_async_context(_running("bell", bell.run()))]
        for lock in locks:
            loops.append(await stack.enter_async_context(_running(f"locks {lock.shard}", lock.run())))
        loops += [
            await stack.enter_async_context(
                _running(f"timer {lock.shard}/{bucket}", Timer(pool, bell, lock, bucket).run())
            )
            for lock in locks
            for bucket in range(pool.buckets)
        ]
        for lock in locks:
            sweep = Sweep(topics, lock, engine.bounds, settings.idle_topic_s)
            loops.append(await stack.enter_async_context(_running(f"sweep {lock.shard}", sweep.run())))
        self._engine = engine
        await self._subscribed(bell)
        site_web = Web(engine, settings, lambda: _readiness(locks, loops, bell), metrics, scrape)
        await self._listen(site_web, bell)

    def _metrics(self, folder: Path | None) -> Metrics:
        """What counts the work of this process. Raises Unfit when the folder to share it in cannot be made."""
        if folder is None:
            return Metrics(self._settings.metrics_topics)
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise Unfit(f"PROMETHEUS_MULTIPROC_DIR is no folder for metrics: {error}") from None
        metrics = Metrics(self._settings.metrics_topics, shared=True)
        self._stack.callback(leave, metrics, folder)
        return metrics

    async def _judge(self, redis: Redis) -> None:
        """Refuse a Redis that cannot carry the queue, and warn of what is not so good. Raises Unfit."""
        try:
            warnings = await judge(redis, allow_eviction=self._settings.allow_eviction)
        except Unavailable as error:
            where = without_secret(self._settings.redis)
            raise Unfit(f"the Redis at {where} cannot be used: {redis.trouble or error.message}") from None
        for warning in warnings:
            log.warning("redis.judged", warning=warning)

    async def _subscribed(self, bell: Bell) -> None:
        """Wait until the bell hears. Raises Unfit when Redis does not let it."""
        try:
            async with asyncio.timeout(self._settings.redis_timeout_s):
                await bell.connected.wait()
        except TimeoutError:
            raise Unfit("Redis takes no subscription; an ACL user needs +subscribe and its channels") from None

    async def _embedded(self) -> str:
        """Start the Redis that comes along; its URL."""
        embedded = EmbeddedRedis(Path(self._settings.data), self._settings.redis_server or None)
        url = await embedded.start()
        self._stack.push_async_callback(self._stop_embedded, embedded)
        await self._stack.enter_async_context(_running("embedded", embedded.watch()))
        return url

    async def _stop_embedded(self, embedded: EmbeddedRedis) -> None:
        """Stop our own server, if it lets itself be stopped in the grace time; else the next start takes it over."""
        try:
            async with asyncio.timeout(self._settings.grace_s):
                await embedded.stop()
        except TimeoutError:
            log.error("redis.left_running", reason="it does not answer")

    async def _listen(self, site_web: Web, bell: Bell) -> None:
        settings = self._settings
        runner = Runner(
            site_web.application(),
            site_web,
            handler_cancellation=True,  # off by default; without it a gone client's pop would go on
            access_log=None,
            shutdown_timeout=settings.grace_s,
        )
        await runner.setup()
        self._stack.push_async_callback(runner.cleanup)
        site = web.TCPSite(runner, settings.host, settings.port)
        await site.start()
        self._stack.push_async_callback(_close, site, site_web, bell)
        self.url = _address(runner)
        log.info("service.started", url=self.url, namespace=settings.namespace, redis=without_secret(settings.redis))


async def _close(site: web.TCPSite, site_web: Web, bell: Bell) -> None:
    """Take no more requests, and answer the pops that wait."""
    log.info("service.stopping")
    site_web.closing = True
    await site.stop()
    bell.close()


@contextlib.asynccontextmanager
async def _running(name: str, work: Coroutine[Any, Any, None]) -> AsyncIterator[asyncio.Task[None]]:
    """A task that runs until the block is left; should it end by itself, that is logged."""
    task = asyncio.create_task(work, name=name)
    task.add_done_callback(_tell_of_end)
    try:
        yield task
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


def _tell_of_end(task: asyncio.Task[None]) -> None:
    if not task.cancelled():
        log.error("task.ended", task=task.get_name(), exc_info=task.exception())


def _readiness(locks: list[Locks], loops: list[asyncio.Task[None]], bell: Bell) -> dict[str, bool]:
    now = asyncio.get_running_loop().time()
    return {
        "redis": all(now - lock.last_beat < _REDIS_QUIET_S for lock in locks),
        "timers": not any(loop.done() for loop in loops),
        "bell": bell.connected.is_set(),
    }


def _address(runner: web.AppRunner) -> str:
    host, port = runner.addresses[0][:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


async def serve(
    settings: Settings,
    started: Callable[[Service], None] | None = None,
    read_anew: Callable[[], Settings] | None = None,
) -> None:
    """Run the service until SIGTERM or SIGINT; a second one ends the process at once. `started(service)` is called
    when it listens. SIGHUP lets the policies of `read_anew()` hold; where it is not given, SIGHUP (a terminal that was
    closed) stops the service too."""
    stop = asyncio.Event()

    def told_to_stop() -> None:
        if stop.is_set():
            os._exit(1)  # what is reserved comes back after its TTR, and the next start takes our Redis over
        stop.set()

    loop = asyncio.get_running_loop()
    service = Service(settings)
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        loop.add_signal_handler(number, told_to_stop)
    starting = asyncio.create_task(service.__aenter__())
    waiting = asyncio.create_task(stop.wait())
    await asyncio.wait({starting, waiting}, return_when=asyncio.FIRST_COMPLETED)
    if not starting.done():  # told to stop while Redis still loads, or does not answer
        starting.cancel()
        await asyncio.gather(starting, return_exceptions=True)
        return
    await starting  # raises what went wrong
    if read_anew:
        loop.add_signal_handler(signal.SIGHUP, _reload, service, read_anew)
    try:
        if started:
            started(service)
        await waiting
    finally:
        await service.__aexit__()


def _reload(service: Service, read_anew: Callable[[], Settings]) -> None:
    """A bad file changes nothing, and the log says what is wrong with it."""
    try:
        service.reload(read_anew())
    except SettingsError as error:
        log.error("settings.refused", error=str(error))
