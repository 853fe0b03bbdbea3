"""A Redis with replicas, each a process on this machine."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from buckets.redis.client import Redis
from tests.kit.ports import free_port
from tests.kit.redis_server import RedisServer
from tests.kit.waiting import until


@contextmanager
def chain(servers: int, *options: str) -> Iterator[list[RedisServer]]:
    """Redis servers, each a replica of the previous one. They may not be in step yet: see `in_step`."""
    with ExitStack() as stack:
        chained: list[RedisServer] = []
        before = 0
        for _ in range(servers):
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="jq-")))
            port = free_port()
            master = ("--replicaof", "127.0.0.1", str(before)) if before else ()
            # By default a full copy waits 5 s for more replicas to come.
            own = ("--port", str(port), "--bind", "127.0.0.1", "--repl-diskless-sync-delay", "0", *master)
            server = RedisServer(folder, *own, *options)
            chained.append(stack.enter_context(server))
            before = port
        yield chained


async def in_step(redis: Redis, replicas: int = 1) -> None:
    """Wait until this many replicas receive what is written here."""

    async def online() -> bool:
        told: bytes = await redis.read("INFO", "replication")
        return told.count(b"state=online") >= replicas

    await until(online)


async def cut_off(master: Redis, replica: RedisServer) -> None:
    """Freeze this replica, and let nothing that the master writes from now on reach it. (Bytes that were sent before
    wait in its socket, and are read when it is thawed.)"""
    replica.freeze()
    await master.read("CLIENT", "KILL", "TYPE", "replica")
