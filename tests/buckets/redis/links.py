"""Looks inside a Redis object, at its server and connection."""

from __future__ import annotations

import asyncio

from buckets.redis.client import Redis
from buckets.redis.link import Link
from buckets.redis.server import Server
from tests.kit.waiting import PATIENCE_S


async def server_of(redis: Redis) -> Server:
    """The only server of a Redis."""
    return await redis._servers.find(None, asyncio.get_running_loop().time() + PATIENCE_S)


async def link_of(redis: Redis) -> Link:
    """Its connection; waits for it."""
    return await (await server_of(redis)).connected(asyncio.get_running_loop().time() + PATIENCE_S)


def known_link(redis: Redis) -> Link | None:
    """Its connection, if there has been one."""
    server = redis._servers.of(None)
    return server.link if server else None
