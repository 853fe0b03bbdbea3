"""`jobqueue check`: what an operator should know before or while a service runs. It changes nothing.

It founds no namespace and starts no server. Each finding is a line that begins with `ok`, `warn` or `bad`.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import time
from collections.abc import Iterator, Mapping
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path
from typing import TYPE_CHECKING, Any

from buckets.errors import JobQueueError, Unfit
from buckets.keys import Keys
from buckets.namespace import FORMAT, HASH, read_meta
from buckets.redis.client import Redis
from buckets.shards import Shards
from jobqueue import settings
from jobqueue.access.secret_values import without_secret
from jobqueue.cli.check.access import check_access
from jobqueue.cli.check.events import check_events
from jobqueue.cli.check.findings import Finding, Findings
from jobqueue.cli.check.service import check_running
from jobqueue.cli.healthcheck import LOOPBACK, Place
from jobqueue.dialect_settings import addresses
from jobqueue.errors import SettingsError
from jobqueue.redis_server.embedded import EmbeddedRedis
from jobqueue.redis_server.fitness import facts_of, judge, redis_at
from jobqueue.redis_server.program import build_of, find_server
from jobqueue.settings import Settings
from jobqueue.workers.cores import usable, workers_for

if TYPE_CHECKING:
    from jobqueue_client.access.options import AccessFields

_SERVICE, _CLIENT = "jobqueue", "jobqueue-client"  # distributions
_ANSWER_S = 5.0  # for the embedded Redis
_CLOCK_S = 1.0  # apart, from which on clocks count as different


async def check(flags: Mapping[str, Any], file: str | None, files: AccessFields | None = None) -> Findings:
    """All findings, one after the other. `files`: what to show the service, if it runs."""
    for finding in _packages():
        yield finding
    try:
        chosen = settings.load(flags, file)
    except SettingsError as error:
        yield Finding("bad", "settings", str(error))
        return
    own = chosen.unlike(Settings())
    yield Finding(
        "ok", "settings", f"{', '.join(own)} set, the others have their defaults" if own else "all have their defaults"
    )
    async for finding in check_access(chosen):
        yield finding
    yield _workers(chosen)
    for name, address in addresses(chosen.protocols, chosen.host).items():
        yield Finding("ok", f"protocols.{name}", f"at {address}")
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


def url_of(chosen: Settings) -> str:
    """Where a service with these settings listens; empty: on any free port."""
    if chosen.port == 0:
        return ""
    return str(Place(LOOPBACK.get(chosen.host, chosen.host), chosen.port, "", chosen.tls_cert))


async def redis_of(chosen: Settings) -> str:
    """The URL of the Redis of these settings; empty: it would be the embedded one, which does not run."""
    if chosen.redis:
        return chosen.redis
    embedded = EmbeddedRedis(Path(chosen.data), chosen.redis_server or None)
    return embedded.url if await _listens(embedded) else ""


def _packages() -> Iterator[Finding]:
    """A client that was installed beside the service shares its files with the one that the service's package has."""
    installed = set()
    for name in (_SERVICE, _CLIENT):
        with contextlib.suppress(PackageNotFoundError):
            installed.add(distribution(name).name)
    if installed == {_SERVICE, _CLIENT}:
        yield Finding(
            "warn",
            "packages",
            f"{_CLIENT} is installed beside {_SERVICE}, which contains it: uninstalling either removes files of the"
            f" other. Uninstall both, then install {_SERVICE} alone",
        )


def _workers(chosen: Settings) -> Finding:
    """How many processes would answer, compared with the cores available."""
    cores = usable()
    try:
        number = workers_for(chosen.workers)
    except SettingsError as error:
        return Finding("bad", "workers", str(error))
    sentence = f"serve starts {number}; cores available: {cores}"
    if number > cores:
        return Finding("warn", "workers", f"{sentence}; more workers than cores make it slower, not faster")
    return Finding("ok", "workers", sentence)


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
        async for finding in _judged(redis, chosen):
            yield finding
        yield await _clock(redis)
        async for finding in _namespace(redis, chosen):
            yield finding
    except JobQueueError as error:
        why = redis.trouble or error.message
        yield Finding("bad", "redis", f"the Redis at {without_secret(url)} cannot be used: {why}")
    finally:
        await redis.close()


async def _judged(redis: Redis, chosen: Settings) -> Findings:
    """Whether it can carry the queue, and how each of its servers keeps the data."""
    servers = await redis.servers()
    for server in servers:
        subject = "redis" if len(servers) == 1 else f"redis {server.name}"
        yield Finding("ok", subject, _described(await facts_of(server)))
        try:
            for warning in await judge(server, chosen):
                yield Finding("warn", subject, warning)
        except Unfit as error:
            yield Finding("bad", subject, error.message)


def _described(info: Mapping[str, str]) -> str:
    vendor = "valkey" if "valkey_version" in info else "redis"
    memory = info.get("maxmemory_human", "?")
    limit = "no memory limit" if info.get("maxmemory") == "0" else f"a memory limit of {memory}"
    append = "an append-only file" if info.get("aof_enabled") == "1" else "no append-only file"
    policy = info.get("maxmemory_policy", "unknown")
    return f"{vendor} {info.get(f'{vendor}_version')}, {limit}, maxmemory-policy {policy}, {append}"


async def _clock(redis: Redis) -> Finding:
    before = time.time()
    seconds, us = map(int, await redis.read("TIME"))
    apart = (before + time.time()) / 2 - (seconds + us / 1e6)
    if abs(apart) <= _CLOCK_S:
        return Finding("ok", "clock", "the clocks of this host and of Redis agree to the second")
    sentence = f"this host's clock is {abs(apart):.1f} s {'ahead of' if apart > 0 else 'behind'} that of Redis"
    return Finding("warn", "clock", f"{sentence}; harmless for the queue, which follows Redis, but confusing in logs")


async def _namespace(redis: Redis, chosen: Settings) -> Findings:
    """What Redis holds about the namespace, which is not created here."""
    subject = f"namespace {chosen.namespace}"
    meta = await read_meta(redis, Keys(chosen.namespace, 0))
    if not meta:
        own_shards, own_buckets = chosen.numbers(redis.is_cluster)
        sentence = f"not there yet; serve will create it with shards: {own_shards}, buckets: {own_buckets}"
        yield Finding("ok", subject, sentence)
        return
    numbers = [meta.get(name, "") for name in ("shards", "buckets")]
    if (meta.get("format"), meta.get("hash")) != (str(FORMAT), HASH) or not all(map(str.isdigit, numbers)):
        yield Finding("bad", subject, f"written by another version, in a format that this one does not know: {meta}")
        return
    shards, buckets = map(int, numbers)
    yield Finding("ok", subject, f"format {FORMAT}, shards: {shards}, buckets: {buckets}")
    for name, own, found in (("shards", chosen.shards, shards), ("buckets", chosen.buckets, buckets)):
        if own not in (0, found):
            yield Finding(
                "warn", subject, f"the setting {name} = {own} has no effect: the namespace was created with {found}"
            )
    aside = [Keys(chosen.namespace, shard).aside for shard in range(shards)]
    count = sum([int(await redis.read("HLEN", key)) for key in aside])
    if count:
        yield Finding("warn", subject, f"unreadable records that were set aside: {count}, in {', '.join(aside)}")
    else:
        yield Finding("ok", subject, "no record was set aside")
    async for finding in check_events(Shards(redis, chosen.namespace, shards, buckets), chosen.events_max_mb):
        yield finding
