"""What a real service and a real redis_exporter answer to a scrape."""

from __future__ import annotations

import asyncio
import contextlib
import re
import sqlite3
import tempfile
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import NamedTuple

import aiohttp

from jobqueue.outbox.table import ddl
from tests.deploy.programs import program
from tests.jobqueue.journal.reading.process import JournalProcess
from tests.kit.ports import free_port
from tests.kit.redis_server import RedisServer
from tests.kit.service import JOBQUEUE, ROOT, ServiceProcess
from tests.kit.waiting import until

_SUFFIXES = {"histogram": ("_bucket", "_count", "_sum")}


class Live(NamedTuple):
    """The metrics of live programs."""

    kinds: Mapping[str, str]
    """By name: counter, gauge, histogram."""
    agreed: frozenset[str]
    """Those that all instances report alike."""


@contextlib.asynccontextmanager
async def exporting(redis_url: str, port: int = 0) -> AsyncIterator[str]:
    """A redis_exporter of a Redis; its host and port."""
    address = f"127.0.0.1:{port or free_port()}"
    process = await asyncio.create_subprocess_exec(
        program("prometheus-redis-exporter"),
        *("--redis.addr", redis_url, "--web.listen-address", address),
        stderr=asyncio.subprocess.DEVNULL,
    )
    try:
        await until(lambda: _answers(address), within_s=30)
        yield address
    finally:
        process.kill()
        await process.wait()


async def _answers(address: str) -> bool:
    try:
        return "redis_up 1" in await scraped(address)
    except aiohttp.ClientError:
        return False


async def scraped(address: str) -> str:
    """The metrics of a host and port."""
    async with aiohttp.ClientSession() as session, session.get(f"http://{address}/metrics") as answer:
        answer.raise_for_status()
        return await answer.text()


async def live() -> Live:
    """What there is to be scraped."""
    with tempfile.TemporaryDirectory(prefix="jq-") as folder, RedisServer(Path(folder)) as redis:
        async with ServiceProcess("--redis", redis.url) as service, exporting(redis.url) as exporter:
            text = await scraped(f"127.0.0.1:{service.port}") + await scraped(exporter)
            text += await _journal_metrics(Path(folder), redis.url)
            async with relaying(Path(folder), service.url) as relay:
                text += await scraped(relay)
    kinds = dict(re.findall(r"^# TYPE (\S+) (\w+)$", text, re.M))
    same = set(re.findall(r"^# HELP (\S+) .*take the maximum", text, re.M))
    for name, kind in list(kinds.items()):
        kinds.update({name + suffix: kind for suffix in _SUFFIXES.get(kind, ())})
    return Live({**kinds, "up": "gauge"}, frozenset(same | _documented()))


async def _journal_metrics(folder: Path, redis: str) -> str:
    """Those of `jobqueue journal run`."""
    flags = ("--metrics-port", str(port := free_port()))
    async with JournalProcess(redis, f"sqlite:///{folder}/journal.db", folder / "log", *flags):
        await until(lambda: _is_open(port), within_s=30)
        return await scraped(f"127.0.0.1:{port}")


@contextlib.asynccontextmanager
async def relaying(folder: Path, service_url: str) -> AsyncIterator[str]:
    """A relay of an empty outbox; the host and port of its metrics."""
    with sqlite3.connect(folder / "outbox.db") as connection:
        connection.executescript(ddl("sqlite"))
    port = free_port()
    options = ("--from", f"sqlite:///{folder}/outbox.db", "--url", service_url, "--metrics-port", str(port))
    process = await asyncio.create_subprocess_exec(*JOBQUEUE, "outbox", *options, stderr=asyncio.subprocess.DEVNULL)
    try:
        await until(lambda: _is_open(port), within_s=30)
        yield f"127.0.0.1:{port}"
    finally:
        process.terminate()
        await process.wait()


async def _is_open(port: int) -> bool:
    with contextlib.suppress(aiohttp.ClientError):
        return bool(await scraped(f"127.0.0.1:{port}"))
    return False


def _documented() -> set[str]:
    """Those of which docs/operations.md says that the maximum is to be taken."""
    return set(re.findall(r"^\| `(\w+).*ake the maximum", (ROOT / "docs" / "operations.md").read_text(), re.M))
