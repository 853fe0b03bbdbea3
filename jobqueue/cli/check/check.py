"""`jobqueue check`: what an operator should know before or while a service runs. It changes nothing.

It founds no namespace and starts no server. Each finding is a line that begins with `ok`, `warn` or `bad`.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from buckets.errors import JobQueueError, Unfit
from jobqueue import settings
from jobqueue.access.secret_values import without_secret
from jobqueue.cli.access import url_of
from jobqueue.cli.check.service import check_running
from jobqueue.errors import SettingsError
from jobqueue.health.access import check_access
from jobqueue.health.findings import Finding, Findings
from jobqueue.health.journal import check_journal
from jobqueue.health.redis import check_redis
from jobqueue.health.setup import check_packages, check_workers, told_protocols, told_settings
from jobqueue.redis_server.embedded import EmbeddedRedis
from jobqueue.redis_server.fitness import redis_at
from jobqueue.redis_server.program import build_of, find_server
from jobqueue.settings import Settings

if TYPE_CHECKING:
    from jobqueue_client.access.options import AccessFields

_ANSWER_S = 5.0  # for the embedded Redis


async def check(flags: Mapping[str, Any], file: str | None, files: AccessFields | None = None) -> Findings:
    """All findings, one after the other. `files`: what to show the service, if it runs."""
    for finding in check_packages():
        yield finding
    try:
        chosen = settings.load(flags, file)
    except SettingsError as error:
        yield Finding("bad", "settings", str(error))
        return
    yield told_settings(chosen.unlike(Settings()))
    async for finding in check_access(chosen):
        yield finding
    yield check_workers(chosen)
    for finding in told_protocols(chosen):
        yield finding
    async for finding in check_journal(chosen):
        yield finding
    url = chosen.redis
    if not url:
        embedded = EmbeddedRedis(Path(chosen.data), chosen.redis_server or None)
        running, finding = await _embedded(embedded, chosen)
        yield finding
        url = embedded.url if running else ""
    if url:
        async for finding in _redis(url, chosen):
            yield finding
    url = url_of(chosen)
    if not url:
        yield Finding("ok", "service", "it will listen on any free port, so none was asked")
        return
    async for finding in check_running(url, files, absent="warn"):
        yield finding


async def redis_of(chosen: Settings) -> str:
    """The URL of the Redis of these settings; empty: it would be the embedded one, which does not run."""
    if chosen.redis:
        return chosen.redis
    embedded = EmbeddedRedis(Path(chosen.data), chosen.redis_server or None)
    return embedded.url if await _listens(embedded) else ""


async def _embedded(embedded: EmbeddedRedis, chosen: Settings) -> tuple[bool, Finding]:
    """Whether the embedded Redis runs, and the finding about it, or about the one that would be started."""
    if await _listens(embedded):
        return True, Finding("ok", "redis", f"the embedded Redis runs on {embedded.data}")
    try:
        program = find_server(chosen.redis_server or None)
    except Unfit as error:
        return False, Finding("bad", "redis", error.message)
    if not _may_write(embedded.data):
        return False, Finding("bad", "redis", f"the data directory {embedded.data} is not writable")
    would = f"it would be {build_of(program)} ({program}), with its data in {embedded.data}"
    return False, Finding("ok", "redis", f"the embedded Redis is not running; {would}")


async def _listens(embedded: EmbeddedRedis) -> bool:
    try:
        async with asyncio.timeout(_ANSWER_S):
            return await embedded.seen()
    except TimeoutError:  # it does, and does not answer: the next checks report that
        return True


def _may_write(folder: Path) -> bool:
    """Whether we may write to a directory, or create it."""
    while not folder.exists():
        folder = folder.parent
    return folder.is_dir() and os.access(folder, os.W_OK | os.X_OK)


async def _redis(url: str, chosen: Settings) -> Findings:
    try:
        redis = redis_at(url, chosen.redis_timeout_s)
    except Unfit as error:
        yield Finding("bad", "redis", error.message)
        return
    try:
        async for finding in check_redis(redis, chosen):
            yield finding
    except JobQueueError as error:
        why = redis.trouble or error.message
        yield Finding("bad", "redis", f"the Redis at {without_secret(url)} cannot be used: {why}")
    finally:
        await redis.close()
