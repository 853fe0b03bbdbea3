"""Opening the Redis of a service, embedded or external; its fitness is checked once, before it gets a job.

A Redis that would lose jobs is refused with Unfit. A Redis that may lose jobs in a crash causes a warning. A Redis user
whose ACL lacks a command that moves jobs is refused too: a script asks Redis for that, which needs no further right.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
import shlex
import tempfile
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping
from contextlib import AsyncExitStack
from pathlib import Path
from urllib.parse import urlsplit

import structlog

from buckets.durable import FSYNCED, LOCAL, REPLICATED
from buckets.errors import JobQueueError, Unavailable, Unfit
from buckets.keys import Keys
from buckets.meter import Meter
from buckets.redis.client import Redis
from buckets.redis.info import Server, facts_of
from buckets.scripts import SCRIPTS
from jobqueue.access.secret_values import without_secret
from jobqueue.loops import Loop, running
from jobqueue.redis_server.embedded import EmbeddedRedis
from jobqueue.settings import Settings

_OLDEST = (7, 0)
_PERSIST = "Set `appendonly yes` to keep them."
NO_SUBSCRIPTION = "Redis accepts no subscription; an ACL user needs +ssubscribe and access to channels"


def redis_at(url: str, timeout_s: float, meter: Meter | None = None) -> Redis:
    """The Redis at the URL in the settings. Raises Unfit for an invalid URL, with a message without its password."""
    try:
        return Redis(url, timeout_s, meter)
    except TypeError as error:
        why = f"unknown parameter {str(error).rpartition('argument ')[2]}"
    except ValueError as error:
        why = str(error)
        if "Port could not" in why or "netloc" in why:  # these messages quote text that may be part of the password
            why = "its port is not a number; in a name or password, write characters such as / and # as %2F and %23"
    raise Unfit(f"the setting redis is not a valid Redis URL: {why}")


def unusable(url: str, why: str) -> str:
    """The message about a Redis that cannot be used, with a command to test it, and without secrets."""
    return f"the Redis at {without_secret(url)} cannot be used: {why.rstrip('.')}; try it: {_ping(url)}"


def _ping(url: str) -> str:
    scheme, _, rest = url.partition("://")
    _, has_secret, place = rest.rpartition("@")
    options = f"{' --tls' if scheme.startswith('rediss') else ''}{' --askpass' if has_secret else ''}"
    if scheme == "unix":
        return f"redis-cli -s {shlex.quote(place.partition('?')[0])}{options} PING"
    first = urlsplit(f"//{re.split('[,/?]', place)[0]}")
    port = first.port or (26379 if scheme.endswith("sentinel") else 6379)
    return f"redis-cli -h {first.hostname or 'localhost'} -p {port}{options} PING"


async def check_subscription(redis: Redis, channel: str) -> None:
    """Raise Unfit if Redis does not let us subscribe to a channel."""
    begun = asyncio.Event()
    tasks = [asyncio.create_task(redis.listen(channel, _ignore, begun.set)), asyncio.create_task(begun.wait())]
    try:
        await asyncio.wait(tasks, timeout=redis.timeout_s, return_when=asyncio.FIRST_COMPLETED)
        if not begun.is_set():
            raise Unfit(NO_SUBSCRIPTION)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def _ignore(_: str) -> None:
    """Ignore a received message."""


async def judge(server: Server, settings: Settings) -> list[str]:
    """Check a server that stores jobs; returns the warnings, one sentence each.

    Raises Unfit if the server is not suitable for the queue, Unavailable if it does not answer.
    """
    info = await facts_of(server)
    refuse_old(info)
    _refuse_replica(info)
    _refuse_lone_node(info, settings.redis)
    config = await _config(server, "save", "appendfsync", "no-appendfsync-on-rewrite")
    return [
        *_judge_eviction(info, settings.allow_eviction),
        *_judge_persistence(info, config),
        *_PROMISES[settings.durability](info, config, settings),
    ]


async def _config(server: Server, *names: str) -> Mapping[str, str]:
    """The settings that CONFIG GET shows; a missing one could not be read."""
    try:
        reply = await server.read("CONFIG", "GET", *names)
    except Unavailable:
        await server.read("PING")  # raises if the server is really gone, and did not only refuse
        return {}
    except JobQueueError:
        return {}
    words = [word.decode("utf-8", "replace") for word in reply]
    return dict(zip(words[::2], words[1::2], strict=True))


def refuse_old(info: Mapping[str, str]) -> None:
    """Refuse a Redis older than 7.0, by the fields of INFO: it does not support script flags. Every Valkey is newer."""
    if info.get("server_name") == "valkey" or "valkey_version" in info:
        return
    version = info.get("redis_version", "0")
    if tuple(int(part) for part in version.split(".")[:2] if part.isdigit()) < _OLDEST:
        raise Unfit(f"this Redis is version {version}, which is too old: 7.0 or newer is needed, or any Valkey")


def _refuse_replica(info: Mapping[str, str]) -> None:
    if info.get("role") == "slave":
        master = f"{info.get('master_host')}:{info.get('master_port')}"
        raise Unfit(f"this Redis is a replica and takes no jobs; use its master, {master}")


def _refuse_lone_node(info: Mapping[str, str], url: str) -> None:
    if info.get("redis_mode", info.get("server_mode")) == "cluster" and "+cluster://" not in url:
        raise Unfit("this Redis is a server of a Cluster: its URL begins with redis+cluster://")


def _judge_eviction(info: Mapping[str, str], allow_eviction: bool) -> Iterator[str]:
    """A policy that may evict any key evicts jobs.

    `volatile-*` evicts only keys that expire: here tombstones and the timers' locks, never a job. A lost lock does no
    harm, since it guards nothing; after a lost tombstone, a repeated add of a finished job runs the job again. That
    deserves a warning, not a refusal: a Redis full of jobs then answers as with `noeviction`. An unknown policy
    counts as one that evicts jobs.
    """
    policy = info.get("maxmemory_policy")
    if policy is None:
        yield "This Redis does not show its maxmemory-policy, which must be `noeviction`."
    elif policy.startswith("volatile-"):
        yield (
            f"Redis's maxmemory-policy is {policy}: when memory is full, it forgets finished jobs before their"
            " retention is over, and a repeated add then runs again. Set it to `noeviction`."
        )
    elif policy != "noeviction":
        drops = f"Redis's maxmemory-policy is {policy}: when memory is full, it silently drops jobs"
        if not allow_eviction:
            raise Unfit(f"{drops}. Set it to `noeviction`, or allow the loss in the settings")
        yield f"{drops}. The settings allow it."


def _judge_persistence(info: Mapping[str, str], config: Mapping[str, str]) -> Iterator[str]:
    if info.get("aof_enabled") == "1":
        if "appendfsync" not in config:
            yield "Redis does not show how often it syncs its append-only file (appendfsync)."
        elif config["appendfsync"] == "no":
            yield (
                "Redis leaves it to the kernel when its append-only file reaches the disk (appendfsync no): a power"
                " cut loses the jobs of about the last 30 seconds. Set `appendfsync everysec`."
            )
    elif "save" not in config:
        yield f"Redis keeps no append-only file and does not say whether it takes snapshots: a crash may lose jobs. \
{_PERSIST}"
    elif not config["save"]:
        yield f"Redis keeps nothing on disk: all jobs are lost when it stops. {_PERSIST}"
    else:
        yield f"Redis only takes snapshots ({config['save']}): a crash loses the jobs since the last one. {_PERSIST}"


def _judge_local(info: Mapping[str, str], config: Mapping[str, str], settings: Settings) -> Iterator[str]:
    """`local` promises no more than persistence does, which is judged for every durability."""
    yield from ()


def _judge_replicated(info: Mapping[str, str], config: Mapping[str, str], settings: Settings) -> Iterator[str]:
    """Replicas may come and go while the service runs, so missing ones do not prevent a start."""
    replicas, wanted = int(info.get("connected_slaves", "0")), settings.replicas
    if replicas < wanted:
        yield (
            f"The settings promise changes on {wanted} replicas (durability replicated), and this Redis has {replicas}:"
            " answers will say `local`."
        )
    if "min_slaves_good_slaves" not in info:  # INFO has it only when min-replicas-to-write is set
        yield (
            "Redis accepts changes with no replica connected (min-replicas-to-write 0): an old master that is cut off"
            " accepts jobs that are lost when it comes back. Their answers say `local`; with"
            f" `min-replicas-to-write {wanted}` it accepts none."
        )


def _judge_fsynced(info: Mapping[str, str], config: Mapping[str, str], settings: Settings) -> Iterator[str]:
    """WAITAOF is not tried here; see buckets/durable.py for what its answer is worth."""
    promise = "the settings promise that changes are on the disk (durability fsynced)"
    if info.get("aof_enabled") != "1":
        raise Unfit(f"{promise}, and this Redis keeps no append-only file. Set `appendonly yes`")
    if "appendfsync" not in config:
        yield f"{promise[0].upper()}{promise[1:]}, and Redis does not show whether it syncs: answers say `local`."
    elif config["appendfsync"] != "always":
        raise Unfit(
            f"{promise}, and this Redis answers before that (appendfsync {config['appendfsync']})."
            " Set `appendfsync always`"
        )
    elif config.get("no-appendfsync-on-rewrite") != "no":
        yield (
            "Redis does not sync its append-only file while rewriting it (no-appendfsync-on-rewrite yes), so answers"
            " say `local`. Set it to `no`."
        )


_PROMISES = {LOCAL: _judge_local, REPLICATED: _judge_replicated, FSYNCED: _judge_fsynced}


_EVERYWHERE = ("add", "due", "pop", "finish", "release", "touch", "sign_in", "beat")
"""The scripts that every service runs all the time."""
_AT_TIMES = {"DUMP", "XADD"}  # only for records that cannot be read, and for a journal
_WITH_SUBCOMMANDS = {"MEMORY", "XGROUP", "XINFO"}  # for a journal; the first word alone cannot be judged
_WORD = re.compile(r"--.*|'([A-Z]+)'")
_A_USER_THAT_MAY = "deploy/redis/users.acl has a user that may"


async def judge_rights(redis: Redis, namespace: str) -> list[str]:
    """The warnings about commands that the user may not run on the server of shard 0; none if Redis does not report
    them.

    Raises Unfit if jobs cannot be moved, Unavailable if Redis does not answer.
    """
    keys = Keys(namespace, 0)
    needed = _commands_of(_EVERYWHERE) - _AT_TIMES
    asked = sorted(_commands_of(SCRIPTS) - _WITH_SUBCOMMANDS)
    try:
        found = await redis.call("lacking", asked, meta=keys.meta, never=keys.never, bell=keys.bell)
    except Unavailable:
        raise
    except JobQueueError as error:
        if error.message.startswith("NOPERM"):
            raise Unfit(f"Redis lets its user run no script: {error.message}; {_A_USER_THAT_MAY}") from None
        return []
    lacking = [command.decode() for command in found]
    names = ", ".join(lacking)
    if needed.intersection(lacking):
        raise Unfit(f"the Redis user may not run {names}, and no job moves without; {_A_USER_THAT_MAY}")
    return [f"The Redis user may not run {names}: what needs them fails; {_A_USER_THAT_MAY}."] if names else []


def _commands_of(scripts: Iterable[str]) -> set[str]:
    """The commands that scripts run, together with any other words in capitals in their strings."""
    return {word for name in scripts for word in _WORD.findall(SCRIPTS[name].text)} - {""}


log = structlog.get_logger()


@contextlib.asynccontextmanager
async def service_redis(settings: Settings) -> AsyncIterator[str]:
    """The URL of the Redis to use. An embedded Redis is started, kept alive, and stopped at the end. Raises Unfit."""
    async with AsyncExitStack() as stack:
        url = settings.redis or await _embedded(settings, stack)
        await _judge(url, settings)
        yield url


@contextlib.asynccontextmanager
async def private_redis(settings: Settings) -> AsyncIterator[str]:
    """The URL of an embedded Redis in memory, in a temporary folder of its own, which is removed at the end."""
    async with AsyncExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="jobqueue-test-"))
        yield await _run(EmbeddedRedis(Path(folder), settings.redis_server or None, None), settings, stack)


async def _embedded(settings: Settings, stack: AsyncExitStack) -> str:
    """Start the embedded Redis; returns its URL."""
    appendfsync = "always" if settings.durability == FSYNCED else "everysec"
    return await _run(EmbeddedRedis(Path(settings.data), settings.redis_server or None, appendfsync), settings, stack)


async def _run(embedded: EmbeddedRedis, settings: Settings, stack: AsyncExitStack) -> str:
    url = await embedded.start()
    stack.push_async_callback(_stop, embedded, settings.grace_s)
    await stack.enter_async_context(running(Loop("embedded Redis", embedded.watch)))
    return url


async def _stop(embedded: EmbeddedRedis, grace_s: float) -> None:
    """Stop the embedded Redis within the grace time; if that fails, the next start takes it over."""
    try:
        async with asyncio.timeout(grace_s):
            await embedded.stop()
    except TimeoutError:
        log.error("redis.left_running", reason="it does not answer")


async def _judge(url: str, settings: Settings) -> None:
    """Log what is risky about a Redis. Raises Unfit if it is not suitable for the queue."""
    redis = redis_at(url, settings.redis_timeout_s)
    try:
        warnings = {server.name: await judge(server, settings) for server in await redis.servers()}
        rights = await judge_rights(redis, settings.namespace)
    except Unavailable as error:
        raise Unfit(unusable(url, redis.trouble or error.message)) from None
    finally:
        await redis.close()
    for server, sentences in warnings.items():
        for warning in sentences:
            log.warning("redis.judged", server=server, warning=warning)
    for warning in rights:
        log.warning("redis.judged", warning=warning)
