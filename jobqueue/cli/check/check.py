"""`jobqueue check`: what an operator should know before or while a service runs. It changes nothing.

It creates no namespace and starts no server. Each finding is a line that begins with `ok`, `warn` or `bad`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from buckets.errors import JobQueueError, Unfit
from buckets.keys import Keys
from jobqueue import settings
from jobqueue.access.secret_values import without_secret
from jobqueue.cli.access import url_of
from jobqueue.cli.check.service import Whose, check_running, whose_service
from jobqueue.cli.console.chosen import options_of
from jobqueue.errors import SettingsError
from jobqueue.health.access import check_access
from jobqueue.health.findings import Finding, Findings
from jobqueue.health.journal import check_journal
from jobqueue.health.redis import check_redis
from jobqueue.health.start import (
    check_connections,
    check_packages,
    check_start,
    check_workers,
    told_protocols,
    told_settings,
)
from jobqueue.redis_server.embedded import EmbeddedRedis
from jobqueue.redis_server.opening import check_subscription, redis_at, unusable
from jobqueue.redis_server.program import build_of
from jobqueue.settings import Settings

if TYPE_CHECKING:
    from jobqueue_client.access import AccessFields

_ANSWER_S = 5.0  # for the embedded Redis


async def check(flags: Mapping[str, Any], file: settings.File | None, files: AccessFields | None = None) -> Findings:
    """All findings, one after the other. `files`: the token and TLS files for asking the service, if it runs."""
    for finding in check_packages():
        yield finding
    try:
        chosen, sources = settings.load_with_sources(flags, file)
    except SettingsError as error:
        yield Finding("bad", "settings", str(error))
        return
    yield told_settings(chosen.unlike(Settings()), _place_of(chosen))
    url, redis = url_of(chosen), await redis_of(chosen)
    whose = await whose_service(url, files, redis, chosen) if url else Whose.NOBODYS
    if whose is not Whose.OTHERS or sources:
        async for finding in _of_start(chosen, redis, whose):
            yield finding
    if whose is Whose.OTHERS:
        sentence = f"the one at {url} has another Redis or namespace; what it says: jobqueue check --url {url}"
        yield Finding("warn", "service", sentence)
    if not url:
        yield Finding("ok", "service", "it will listen on any free port, so none was asked")
    elif whose is not Whose.OTHERS or not sources:  # without any setting, the user means the running service
        async for finding in check_running(url, files, absent="warn", is_known=whose is not Whose.OTHERS):
            yield finding


async def _of_start(chosen: Settings, redis: str, whose: Whose) -> Findings:
    """What a start with these settings would find. `redis`: the URL of its Redis, or an empty string if it is the
    embedded Redis and not running."""
    refused = set()
    async for finding in check_start(chosen, runs=whose is Whose.OURS):
        refused.add(finding.subject)
        yield finding
    if chosen.console_port:
        for finding in _console(chosen):
            yield finding
    async for finding in check_access(chosen):
        yield finding
    yield check_workers(chosen)
    for finding in check_connections(chosen):
        yield finding
    for finding in told_protocols(chosen):
        yield finding
    if not chosen.redis:
        yield await asyncio.to_thread(_embedded, chosen, is_listening=bool(redis), is_ours=whose is Whose.OURS)
    if redis:
        async for finding in _redis(redis, chosen, asks_journal="journal" not in refused):
            yield finding
    elif "journal" not in refused:
        async for finding in check_journal(chosen):
            yield finding


def _place_of(chosen: Settings) -> str:
    """Which Redis and namespace are examined."""
    where = without_secret(chosen.redis) if chosen.redis else f"embedded, in {_of(chosen).data}"
    return f"Redis: {where}; namespace: {chosen.namespace}"


def _of(chosen: Settings) -> EmbeddedRedis:
    return EmbeddedRedis(Path(chosen.data), chosen.redis_server or None)


def _console(chosen: Settings) -> Iterator[Finding]:
    """Why the console's process would not start: this process reads its files itself, after `serve` has begun."""
    try:
        options_of(chosen, "", chosen.console_port)
    except SettingsError as error:
        yield Finding("bad", "console", str(error))


async def redis_of(chosen: Settings) -> str:
    """The URL of the Redis of these settings, or an empty string if that is the embedded Redis and it is not
    running."""
    if chosen.redis:
        return chosen.redis
    embedded = _of(chosen)
    return embedded.url if await _listens(embedded) else ""


def _embedded(chosen: Settings, *, is_listening: bool, is_ours: bool) -> Finding:
    """The finding about the embedded Redis that runs, or that would be started. `is_ours`: True if the service with
    these settings is running, and therefore holds the data directory."""
    embedded = _of(chosen)
    try:
        if not is_ours:
            embedded.check_may_claim()
        if is_listening:
            return Finding("ok", "redis", f"the embedded Redis runs on {embedded.data}")
        embedded.check_nobody_has_data()
        program = embedded.program()
    except Unfit as error:
        return Finding("bad", "redis", error.message)
    would = f"it would be {build_of(program)} ({program}), with its data in {embedded.data}"
    return Finding("ok", "redis", f"the embedded Redis is not running; {would}")


async def _listens(embedded: EmbeddedRedis) -> bool:
    try:
        async with asyncio.timeout(_ANSWER_S):
            return await embedded.seen()
    except TimeoutError:  # it listens, but does not answer, which the next checks report
        return True


async def _redis(url: str, chosen: Settings, *, asks_journal: bool) -> Findings:
    """The findings about Redis and, if `asks_journal`, about its journal."""
    redis, is_usable = None, False
    try:
        try:
            redis = redis_at(url, chosen.redis_timeout_s)
            async for finding in check_redis(redis, chosen):
                yield finding
            is_usable = True
            await check_subscription(redis, Keys(chosen.namespace, 0).bell)
        except Unfit as error:
            yield Finding("bad", "redis", error.message)
        except JobQueueError as error:
            yield Finding("bad", "redis", unusable(url, (redis.trouble if redis else "") or error.message))
        if asks_journal:
            async for finding in check_journal(chosen, redis if is_usable else None):
                yield finding
    finally:
        if redis:
            await redis.close()
