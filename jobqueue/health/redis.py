"""Findings about a Redis: whether it can carry the queue, its clock, and what it holds for the namespace."""

from __future__ import annotations

import asyncio
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping

from buckets.access import Tokens
from buckets.errors import Unfit
from buckets.keys import Keys
from buckets.namespace import look, read_meta, slices_of
from buckets.redis.client import Redis
from buckets.redis.info import facts_of, memory_in
from buckets.shards import Shards
from jobqueue.access import token_table
from jobqueue.access.tokens import from_json
from jobqueue.engine.new_jobs import Policies
from jobqueue.errors import SettingsError
from jobqueue.health.findings import Finding, Findings
from jobqueue.health.journal import check_events
from jobqueue.redis_server.opening import judge, judge_rights
from jobqueue.settings import Settings

_CLOCK_S = 1.0  # clocks that are further apart count as different
_NEARLY_FULL = 0.85  # of maxmemory; the same as in the alert JobqueueRedisAlmostFull


async def check_redis(redis: Redis, chosen: Settings) -> Findings:
    """All findings about a Redis. Raises JobQueueError if it cannot be used."""
    async for finding in _judged(redis, chosen):
        yield finding
    yield await _clock(redis)
    async for finding in _namespace(redis, chosen):
        yield finding


async def _judged(redis: Redis, chosen: Settings) -> Findings:
    """Whether Redis can carry the queue, how each of its servers keeps the data, and what its user may not do."""
    servers = await redis.servers()
    for server in servers:
        subject = "redis" if len(servers) == 1 else f"redis {server.name}"
        info = await facts_of(server)
        yield Finding("ok", subject, _described(info))
        for finding in _memory(info, subject):
            yield finding
        try:
            for warning in await judge(server, chosen):
                yield Finding("warn", subject, warning)
        except Unfit as error:
            yield Finding("bad", subject, error.message)
    try:
        for warning in await judge_rights(redis, chosen.namespace):
            yield Finding("warn", "redis", warning)
    except Unfit as error:
        yield Finding("bad", "redis", error.message)


def _described(info: Mapping[str, str]) -> str:
    vendor = "valkey" if "valkey_version" in info else "redis"
    memory = info.get("maxmemory_human", "?")
    limit = "no memory limit" if info.get("maxmemory") == "0" else f"a memory limit of {memory}"
    append = "an append-only file" if info.get("aof_enabled") == "1" else "no append-only file"
    policy = info.get("maxmemory_policy", "unknown")
    number = int(info.get("connected_slaves", 0))
    replicas = f"{number or 'no'} {'replica' if number < 2 else 'replicas'}"
    return f"{vendor} {info.get(f'{vendor}_version')}, {limit}, maxmemory-policy {policy}, {append}, {replicas}"


def _memory(info: Mapping[str, str], subject: str) -> Iterator[Finding]:
    """A finding if memory is full or nearly full, and Redis would then refuse commands that need more."""
    used, limit = memory_in(info)
    if not limit or used < _NEARLY_FULL * limit or info.get("maxmemory_policy", "").startswith("allkeys"):
        return
    sentence = f"{used / (1 << 20):,.0f} of {limit / (1 << 20):,.0f} MB are used (maxmemory)"
    if used >= limit:
        sentence = f"full: {sentence}: adds are refused (NO_ROOM), while pops and finishes go on"
    yield Finding(
        "bad" if used >= limit else "warn",
        subject,
        f"{sentence}. Raise maxmemory, or let workers drain the largest topics: jobqueue topics",
    )


async def _tokens(shards: Shards, chosen: Settings) -> Findings:
    """A finding if there is no live token, although every request needs one."""
    stored = await Tokens(shards).read()
    try:
        of_file = await asyncio.to_thread(token_table.read, chosen.tokens_file) if chosen.tokens_file else []
    except SettingsError:  # another check reports the file
        return
    records = [*of_file, *map(from_json, stored.records.values())]
    if any(record and record.is_live(stored.now_us / 1e6) for record in records):
        return
    lost = "jobqueue restore --tokens" if chosen.journal else "docs/redis-lost.md"
    yield Finding(
        "bad",
        "access",
        "no token exists, and every request needs one: jobqueue token create NAME --may admin. If there were some,"
        f" Redis has lost them: {lost}",
    )


async def _clock(redis: Redis) -> Finding:
    before = time.time()
    seconds, us = map(int, await redis.read("TIME"))
    apart = (before + time.time()) / 2 - (seconds + us / 1e6)
    if abs(apart) <= _CLOCK_S:
        return Finding("ok", "clock", f"the clocks of this host and of Redis are {abs(apart) * 1000:.0f} ms apart")
    sentence = f"this host's clock is {abs(apart):.1f} s {'ahead of' if apart > 0 else 'behind'} that of Redis"
    return Finding("warn", "clock", f"{sentence}: jobs with `at` are due by Redis's; see on both: chronyc tracking")


async def _namespace(redis: Redis, chosen: Settings) -> Findings:
    """What Redis holds about the namespace, which is not created here."""
    subject = f"namespace {chosen.namespace}"
    try:
        numbers = await look(redis, chosen.namespace)
    except Unfit as error:
        yield Finding("bad", subject, error.message)
        return
    own = chosen.numbers(redis.is_cluster)
    if fault := Policies(chosen).fault(numbers.shards if numbers else own[0]):
        yield Finding("bad", "settings", fault)
    if not numbers:
        sentence = f"not there yet; serve will create it with shards: {own[0]}, buckets: {own[1]}"
        yield Finding("ok", subject, sentence)
        return
    shards, buckets = numbers
    has_slices = slices_of(await read_meta(redis, Keys(chosen.namespace, 0)))
    form = "format 2" if has_slices else "format 1 (`jobqueue upgrade` saves memory)"
    yield Finding("ok", subject, f"{form}, shards: {shards}, buckets: {buckets}")
    async for finding in _spread(redis, chosen.namespace, shards):
        yield finding
    for name, wanted, found in (("shards", chosen.shards, shards), ("buckets", chosen.buckets, buckets)):
        if wanted not in (0, found):
            yield Finding(
                "warn", subject, f"the setting {name} = {wanted} has no effect: the namespace was created with {found}"
            )
    aside = [Keys(chosen.namespace, shard).aside for shard in range(shards)]
    count = sum([int(await redis.read("HLEN", key)) for key in aside])
    if count:
        yield Finding("warn", subject, f"unreadable records that were set aside: {count}, in {', '.join(aside)}")
    else:
        yield Finding("ok", subject, "no record was set aside")
    if chosen.access == "tokens":
        async for finding in _tokens(Shards(redis, chosen.namespace, shards, buckets), chosen):
            yield finding
    async for finding in check_events(Shards(redis, chosen.namespace, shards, buckets), chosen.events_max_mb):
        yield finding


async def _spread(redis: Redis, namespace: str, shards: int) -> Findings:
    """If there are several servers: which shards each of them has."""
    servers = await redis.servers()
    if len(servers) == 1:
        return
    by_server = defaultdict[str | None, list[int]](list)
    for shard in range(shards):
        by_server[redis.server_of(Keys(namespace, shard).meta)].append(shard)
    for server in servers:
        has = ", ".join(map(str, by_server[server.name])) or "none"
        yield Finding("ok", f"redis {server.name}", f"shards of the namespace {namespace}: {has}")
