"""The Redis of a service: one of our own, or another's; in either case judged before a job is trusted to it."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path

import structlog

from buckets.durability.barrier import FSYNCED
from buckets.errors import Unavailable, Unfit
from jobqueue.loops import Loop, running
from jobqueue.redis_server.embedded import EmbeddedRedis
from jobqueue.redis_server.fitness import judge, redis_at, without_secret
from jobqueue.settings import Settings

log = structlog.get_logger()


@contextlib.asynccontextmanager
async def service_redis(settings: Settings) -> AsyncIterator[str]:
    """The URL of the Redis to use; one of our own is started, kept alive, and stopped at the end. Raises Unfit."""
    async with AsyncExitStack() as stack:
        url = settings.redis or await _embedded(settings, stack)
        await _judge(url, settings)
        yield url


async def _embedded(settings: Settings, stack: AsyncExitStack) -> str:
    """Start the Redis that comes along; its URL."""
    appendfsync = "always" if settings.durability == FSYNCED else "everysec"
    embedded = EmbeddedRedis(Path(settings.data), settings.redis_server or None, appendfsync)
    url = await embedded.start()
    stack.push_async_callback(_stop, embedded, settings.grace_s)
    await stack.enter_async_context(running(Loop("embedded Redis", embedded.watch)))
    return url


async def _stop(embedded: EmbeddedRedis, grace_s: float) -> None:
    """Stop our own server, if it lets itself be stopped in the grace time; else the next start takes it over."""
    try:
        async with asyncio.timeout(grace_s):
            await embedded.stop()
    except TimeoutError:
        log.error("redis.left_running", reason="it does not answer")


async def _judge(url: str, settings: Settings) -> None:
    """Refuse a Redis that cannot carry the queue, and warn of what is not so good. Raises Unfit."""
    redis = redis_at(url, settings.redis_timeout_s)
    try:
        warnings = {server.name: await judge(server, settings) for server in await redis.servers()}
    except Unavailable as error:
        where = without_secret(settings.redis)
        raise Unfit(f"the Redis at {where} cannot be used: {redis.trouble or error.message}") from None
    finally:
        await redis.close()
    for server, words in warnings.items():
        for warning in words:
            log.warning("redis.judged", server=server, warning=warning)
