"""Opening the Redis of a service, the embedded one or somebody else's; either is judged before it gets a job."""

from __future__ import annotations

import asyncio
import contextlib
import tempfile
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path

import structlog

from buckets.durable import FSYNCED
from buckets.errors import Unavailable, Unfit
from jobqueue.loops import Loop, running
from jobqueue.redis_server.embedded import EmbeddedRedis
from jobqueue.redis_server.fitness import judge, judge_rights, redis_at, unusable
from jobqueue.settings import Settings

log = structlog.get_logger()


@contextlib.asynccontextmanager
async def service_redis(settings: Settings) -> AsyncIterator[str]:
    """The URL of the Redis to use. The embedded one is started, kept alive, and stopped at the end. Raises Unfit."""
    async with AsyncExitStack() as stack:
        url = settings.redis or await _embedded(settings, stack)
        await _judge(url, settings)
        yield url


@contextlib.asynccontextmanager
async def private_redis(settings: Settings) -> AsyncIterator[str]:
    """The URL of an embedded Redis in memory, in a temporary folder of its own, which is removed at the end."""
    async with AsyncExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="jobqueue-test-"))
        yield await _run(EmbeddedRedis(Path(folder), settings.redis_server or None, None), settings, stack)


async def _embedded(settings: Settings, stack: AsyncExitStack) -> str:
    """Start the embedded Redis; its URL."""
    appendfsync = "always" if settings.durability == FSYNCED else "everysec"
    return await _run(EmbeddedRedis(Path(settings.data), settings.redis_server or None, appendfsync), settings, stack)


async def _run(embedded: EmbeddedRedis, settings: Settings, stack: AsyncExitStack) -> str:
    url = await embedded.start()
    stack.push_async_callback(_stop, embedded, settings.grace_s)
    await stack.enter_async_context(running(Loop("embedded Redis", embedded.watch)))
    return url


async def _stop(embedded: EmbeddedRedis, grace_s: float) -> None:
    """Stop the embedded Redis within the grace time; if that fails, the next start takes it over."""
    try:
        async with asyncio.timeout(grace_s):
            await embedded.stop()
    except TimeoutError:
        log.error("redis.left_running", reason="it does not answer")


async def _judge(url: str, settings: Settings) -> None:
    """Log what is risky about a Redis. Raises Unfit when it cannot carry the queue."""
    redis = redis_at(url, settings.redis_timeout_s)
    try:
        warnings = {server.name: await judge(server, settings) for server in await redis.servers()}
        rights = await judge_rights(redis, settings.namespace)
    except Unavailable as error:
        raise Unfit(unusable(url, redis.trouble or error.message)) from None
    finally:
        await redis.close()
    for server, sentences in warnings.items():
        for warning in sentences:
            log.warning("redis.judged", server=server, warning=warning)
    for warning in rights:
        log.warning("redis.judged", warning=warning)
