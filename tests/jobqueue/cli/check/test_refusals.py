"""What `serve` refuses to start for, `check` reports as bad, in the same words."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager, closing, contextmanager, nullcontext
from pathlib import Path
from typing import NamedTuple

import pytest

from buckets import Pool, Redis
from tests.jobqueue.access.authorities import Files
from tests.kit.ports import free_port
from tests.kit.redis_server import RedisServer
from tests.kit.service import Client, ServiceProcess
from tests.kit.shell import Shell
from tests.kit.waiting import until


class Place(NamedTuple):
    """A service that is to start: its folder, its port, and the settings that both commands read."""

    folder: Path
    port: int
    config: Path

    def set(self, text: str) -> None:
        with self.config.open("a") as file:
            file.write(f"{text}\n")

    @property
    def flags(self) -> tuple[str, ...]:
        return ("--config", str(self.config), "--data", str(self.folder / "data"))


@contextmanager
def hanging_up(other: socket.socket) -> Iterator[None]:
    """Another program that listens, and closes each connection: `check` waits 5 s for one that is silent."""

    def hang_up() -> None:
        other.accept()[0].close()

    other.listen()
    asyncio.get_running_loop().add_reader(other, hang_up)
    yield
    asyncio.get_running_loop().remove_reader(other)


@contextmanager
def listening(port: int, kind: socket.SocketKind = socket.SOCK_STREAM) -> Iterator[int]:
    """Another program that has a port; the port."""
    with socket.socket(socket.AF_INET, kind) as other:
        other.bind(("127.0.0.1", port))
        with hanging_up(other) if kind == socket.SOCK_STREAM else nullcontext():
            yield port


def table(name: str, port: int, *lines: str) -> str:
    return "\n".join((f"[protocols.{name}]", f"port = {port}", *lines))


Fault = Callable[[Place, AsyncExitStack], object]


def its_port(place: Place, stack: AsyncExitStack) -> None:
    stack.enter_context(listening(place.port))


def port_of_a_protocol(place: Place, stack: AsyncExitStack) -> None:
    place.set(table("beanstalkd", stack.enter_context(listening(free_port()))))


def udp_port(place: Place, stack: AsyncExitStack) -> None:
    place.set(table("queue_server", stack.enter_context(listening(free_port(), socket.SOCK_DGRAM)), "udp = true"))


def port_of_the_console(place: Place, stack: AsyncExitStack) -> None:
    place.set(f"console_port = {stack.enter_context(listening(free_port()))}")


def socket_in_use(place: Place, stack: AsyncExitStack) -> None:
    path = place.folder / "s"
    other = stack.enter_context(closing(socket.socket(socket.AF_UNIX)))
    other.bind(str(path))
    stack.enter_context(hanging_up(other))
    place.set(f"socket = '{path}'")


def file_in_place_of_a_socket(place: Place, stack: AsyncExitStack) -> None:
    (place.folder / "s").write_text("")
    place.set(f"socket = '{place.folder / 's'}'")


def socket_without_folder(place: Place, stack: AsyncExitStack) -> None:
    place.set(f"socket = '{place.folder}/none/s'")


def unknown_host(place: Place, stack: AsyncExitStack) -> None:
    place.set('host = "no.such.host.invalid"')


def open_to_all(place: Place, stack: AsyncExitStack) -> None:
    place.set('host = "0.0.0.0"')


def certificate_gone(place: Place, stack: AsyncExitStack) -> None:
    files = Files(place.folder)
    place.set(files.toml())
    files.cert.unlink()


def key_of_another_certificate(place: Place, stack: AsyncExitStack) -> None:
    (place.folder / "other").mkdir()
    files, other = Files(place.folder), Files(place.folder / "other")
    place.set(files.toml())
    files.key.write_text(other.key.read_text())


def no_file_of_tokens(place: Place, stack: AsyncExitStack) -> None:
    place.set('access = "tokens"\ntokens_file = "/nowhere/tokens.toml"')


def journal_of_no_kind(place: Place, stack: AsyncExitStack) -> None:
    place.set('journal = "oracle://host/db"\njournal_run = true')


def open_console(place: Place, stack: AsyncExitStack) -> None:
    place.set(f'console_port = {free_port()}\nconsole_host = "0.0.0.0"')


def console_without_certificate(place: Place, stack: AsyncExitStack) -> None:
    place.set(f'console_port = {free_port()}\nconsole_tls_cert = "/nowhere"\nconsole_tls_key = "/nowhere"')


def console_without_token_of_a_group(place: Place, stack: AsyncExitStack) -> None:
    place.set(
        f'console_port = {free_port()}\naccess = "tokens"\ntrusted_proxies = ["127.0.0.1"]\n'
        'console_user_header = "X-User"\nconsole_groups_header = "X-Groups"\n'
        '[console_roles]\nstaff = "/nowhere/token"'
    )


def data_in_a_file(place: Place, stack: AsyncExitStack) -> None:
    (place.folder / "data").write_text("")


async def data_of_another_service(place: Place, stack: AsyncExitStack) -> None:
    await stack.enter_async_context(ServiceProcess("--data", str(place.folder / "data")))


def no_server_program(place: Place, stack: AsyncExitStack) -> None:
    place.set('redis_server = "no-such-redis-server"')


def bad_url(place: Place, stack: AsyncExitStack) -> None:
    place.set('redis = "nonsense"')


def redis_away(place: Place, stack: AsyncExitStack) -> None:
    place.set('redis = "redis://127.0.0.1:1"\nredis_timeout_s = 0.2')


def of(*options: str, **others: str) -> Fault:
    """A Redis with options. `others`: settings."""

    def fault(place: Place, stack: AsyncExitStack) -> None:
        server = stack.enter_context(RedisServer(place.folder, *options))
        place.set("\n".join((f"redis = '{server.url}'", *(f"{name} = {value}" for name, value in others.items()))))

    return fault


def with_first(*commands: tuple[str, ...], **others: str) -> Fault:
    """A Redis that was asked for something before."""

    async def fault(place: Place, stack: AsyncExitStack) -> None:
        server = stack.enter_context(RedisServer(place.folder))
        redis = Redis(server.url)
        for command in commands:
            await redis.read(*command)
        await redis.close()
        of_it = "\n".join(f"{name} = {value}" for name, value in others.items())
        place.set(f"redis = '{server.url}'\n{of_it}")

    return fault


async def limit_over_shards(place: Place, stack: AsyncExitStack) -> None:
    server = stack.enter_context(RedisServer(place.folder))
    redis = Redis(server.url)
    await (await Pool.open(redis, shards=2, buckets=1)).close()
    await redis.close()
    place.set(f"redis = '{server.url}'\n[topics.t]\nconcurrency = 1")


FAULTS: Mapping[str, tuple[Fault, str]] = {
    "port": (its_port, "is in use"),
    "port of a protocol": (port_of_a_protocol, "of protocols.beanstalkd is in use"),
    "udp port": (udp_port, "of protocols.queue_server is in use"),
    "port of the console": (port_of_the_console, "of the console (console_port) is in use"),
    "socket": (socket_in_use, "is in use"),
    "file in place of a socket": (file_in_place_of_a_socket, "there is another file"),
    "socket without folder": (socket_without_folder, "No such file"),
    "unknown host": (unknown_host, "host = 'no.such.host.invalid' cannot be resolved"),
    "open to all": (open_to_all, "allow_open = true"),
    "certificate gone": (certificate_gone, "No such file"),
    "key of another certificate": (key_of_another_certificate, "KEY_VALUES_MISMATCH"),
    "no file of tokens": (no_file_of_tokens, "/nowhere/tokens.toml"),
    "journal of no kind": (journal_of_no_kind, "the setting journal: not the URL of a journal"),
    "open console": (open_console, "console_host = '0.0.0.0'"),
    "console without certificate": (console_without_certificate, "console_tls_cert and console_tls_key"),
    "console without token of a group": (console_without_token_of_a_group, "console_roles.staff"),
    "data in a file": (data_in_a_file, "cannot be used: [Errno 20] Not a directory"),
    "data of another service": (data_of_another_service, "already runs on the data directory"),
    "no server program": (no_server_program, "no Redis to start: no-such-redis-server was not found"),
    "bad url": (bad_url, "the setting redis is not a valid Redis URL"),
    "redis away": (redis_away, "the Redis at redis://127.0.0.1:1 cannot be used"),
    "wrong password": (of("--requirepass", "secret", redis_timeout_s="2"), "Authentication required"),
    "replica": (of("--replicaof", "127.0.0.1 1"), "this Redis is a replica and takes no jobs"),
    "eviction": (of("--maxmemory-policy", "allkeys-lru"), "it silently drops jobs"),
    "promise of the disk": (of(durability='"fsynced"'), "keeps no append-only file"),
    "another version": (with_first(("HSET", "{jq:0}:meta", "format", "99", "hash", "crc32")), "another version"),
    "key of another program": (with_first(("SET", "{jq:0}:meta", "x")), "is not a hash: another program wrote it"),
    "no subscription": (
        with_first(("ACL", "SETUSER", "default", "-ssubscribe"), redis_timeout_s="2"),
        "Redis accepts no subscription",
    ),
    "no command": (with_first(("ACL", "SETUSER", "default", "-zadd")), "the Redis user may not run ZADD, and no job"),
    "limit over shards": (limit_over_shards, "topics.t.concurrency needs a namespace of one shard"),
}


@asynccontextmanager
async def faulty(fault: Fault, folder: Path) -> AsyncIterator[Place]:
    place = Place(folder, free_port(), folder / "jobqueue.toml")
    place.config.write_text("")
    async with AsyncExitStack() as stack:
        made = fault(place, stack)
        if made is not None:
            await made  # type: ignore[misc]
        yield place


@pytest.mark.parametrize("name", FAULTS)
async def test_check_reports_what_serve_refuses_in_the_same_words(name: str, tmp_path: Path) -> None:
    fault, words = FAULTS[name]
    async with faulty(fault, tmp_path) as place:
        checked = await Shell("").run("check", *place.flags, "--port", str(place.port))
        refusal = await ServiceProcess(*place.flags, port=place.port, log=tmp_path / "log").refusal()
    sentence = refusal.splitlines()[-1].removeprefix("Error: ")
    assert words in sentence
    assert checked.code == 1, checked
    assert any(line.startswith("bad ") and line.endswith(f": {sentence}") for line in checked.out.splitlines()), checked


async def test_the_folder_of_metrics_and_a_number_of_workers_are_judged_alike(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("")
    flags = ("--data", str(tmp_path / "data"))
    port = free_port()
    monkeypatch.setenv("PROMETHEUS_MULTIPROC_DIR", str(tmp_path / "file" / "shared"))
    refusal = await ServiceProcess(*flags, port=port, log=tmp_path / "log").refusal()
    checked = await Shell("").run("check", *flags, "--port", str(port))
    assert f"bad  metrics: {refusal.splitlines()[-1].removeprefix('Error: ')}" in checked.out
    checked = await Shell("", JOBQUEUE_WORKERS="65").run("check", *flags, "--port", str(port))
    assert checked.code == 1 and "bad  settings: JOBQUEUE_WORKERS in the environment" in checked.out
    assert not (tmp_path / "data").exists()


async def test_what_runs_by_these_settings_is_no_fault_of_them(tmp_path: Path) -> None:
    """Its ports, its socket and its data directory are taken: by itself."""
    place = Place(tmp_path, free_port(), tmp_path / "jobqueue.toml")
    place.config.write_text(f"socket = '{tmp_path}/s'\n{table('beanstalkd', free_port())}\n")
    arguments = ("check", *place.flags, "--port", str(place.port))
    for workers in (1, 2):
        async with ServiceProcess(*place.flags, port=place.port, workers=workers):
            ran = await Shell("").run(*arguments)
        assert ran.code == 0, ran


async def is_listed(client: Client) -> bool:
    return all(each["pid"] for each in (await client.ask("instances"))["instances"])


async def test_a_service_of_other_settings_is_named_and_the_wrong_redis_not_judged(tmp_path: Path) -> None:
    async with ServiceProcess("--data", str(tmp_path / "its")) as service, Client(service.url) as client:
        await until(lambda: is_listed(client))  # it says who it is a moment after it is ready
        named = await Shell("").run("check", "--data", str(tmp_path / "data"), "--port", str(service.port))
        by_default = await Shell("", JOBQUEUE_PORT=str(service.port)).run("check", "--namespace", "other")
    assert named.code == 1 and f"bad  port: port {service.port} is in use" in named.out
    other = f"warn service: the one at {service.url} has another Redis or namespace; what it says: jobqueue check --url"
    assert other in named.out and other in by_default.out
    assert f"Redis: embedded, in {tmp_path}/data; namespace: jq" in named.out
