"""Probes of a server on a Unix socket: whether it listens, what it is, and whether it ends when it is asked to."""

from __future__ import annotations

import asyncio
import contextlib
import enum
from pathlib import Path

from redis.asyncio import Redis as Client
from redis.exceptions import RedisError

from buckets.errors import Unfit
from jobqueue.redis_server.program import Build, numbers

_AGAIN_S = 0.2  # between two requests to shut down


class State(enum.Enum):
    """What a PING shows."""

    GONE = enum.auto()  # nobody listens
    LOADING = enum.auto()
    READY = enum.auto()


async def state_of(socket: Path) -> State:
    """Send one PING. This may take long: a busy server answers when it is done."""
    try:
        reader, writer = await asyncio.open_unix_connection(socket)
    except OSError:
        return State.GONE
    with contextlib.closing(writer), contextlib.suppress(OSError):
        writer.write(b"PING\r\n")
        answer = await reader.readline()
        if answer.startswith((b"-LOADING", b"-ERR max number of clients")):
            return State.LOADING
        return State.READY if answer else State.GONE
    return State.GONE


async def identity_of(socket: Path) -> tuple[Build, str]:
    """Which server it is, and where it has its data. Raises Unfit when it does not say."""
    # With a time-out redis-py sends through asyncio.wait_for, which in Python 3.11 may swallow a cancellation.
    try:
        async with Client(
            unix_socket_path=str(socket), socket_timeout=None, protocol=2, decode_responses=True
        ) as client:
            info = await client.info("server")
            folder = (await client.config_get("dir"))["dir"]
    except RedisError as error:
        raise Unfit(f"the Redis on {socket} does not identify itself: {error}") from error
    vendor = "valkey" if "valkey_version" in info else "redis"
    return Build(vendor, numbers(str(info[f"{vendor}_version"]))), str(folder)


async def hung_up(socket: Path) -> None:
    """Return when the server closes an idle connection, as the kernel does for one that dies."""
    with contextlib.suppress(OSError):
        reader, writer = await asyncio.open_unix_connection(socket)
        with contextlib.closing(writer):
            await reader.read()


async def shut_down(socket: Path, within_s: float) -> str:
    """Send SHUTDOWN, again while it is refused; the last refusal, or nothing when the server ends.

    Raises OSError when nobody listens.
    """
    clock = asyncio.get_running_loop().time
    end = clock() + within_s
    reader, writer = await asyncio.open_unix_connection(socket)
    answer = b""
    with contextlib.closing(writer), contextlib.suppress(OSError):
        while clock() < end:
            writer.write(b"SHUTDOWN\r\n")
            answer = await reader.readline()
            if not answer:  # the connection ended, after the data were written
                break
            await asyncio.sleep(_AGAIN_S)
        return answer.decode("utf-8", "replace").strip()
    return ""
