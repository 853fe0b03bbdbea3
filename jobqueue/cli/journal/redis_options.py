"""The options that say which Redis a command of the journal talks to, and opening the namespace there."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from buckets.shards import Shards
    from jobqueue.settings import Settings


def reaching_redis(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options."""
    for option in (
        click.option("--namespace", metavar="NS", help="namespace of the service [jq]"),
        click.option("--data", metavar="DIR", help="data directory of the embedded Redis [jobqueue-data]"),
        click.option("--redis-file", metavar="FILE", help="file with the URL of the Redis, instead of --redis"),
        click.option("--redis", metavar="URL", help="the Redis of the service, if it is not the embedded one"),
        click.option("--config", metavar="FILE", help="settings file (TOML); `jobqueue config` prints one"),
    ):
        command = option(command)
    return command


@contextlib.asynccontextmanager
async def opened(chosen: Settings) -> AsyncIterator[Shards]:
    """The namespace of a service, which is not founded where there is none. Raises JobQueueError."""
    from buckets.errors import Unavailable  # noqa: PLC0415 - help and errors do not wait for it
    from buckets.namespace import join  # noqa: PLC0415
    from buckets.shards import Shards  # noqa: PLC0415
    from jobqueue.redis_server.data_directory import running_at  # noqa: PLC0415
    from jobqueue.redis_server.fitness import redis_at  # noqa: PLC0415

    redis = redis_at(chosen.redis or running_at(Path(chosen.data)), chosen.redis_timeout_s)
    try:
        yield Shards(redis, chosen.namespace, *await join(redis, chosen.namespace))
    except Unavailable as error:
        raise Unavailable(redis.trouble or error.message) from None
    finally:
        await redis.close()
