"""The built wheel in the sandbox of the units: what they forbid, the service and the callbacks do without."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from base64 import b64encode
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import aiohttp
import pytest

from tests.acceptance.receiver import Receiver, status
from tests.acceptance.worker_processes import lines
from tests.deploy.programs import program
from tests.deploy.systemd.sandbox import USER
from tests.deploy.systemd.unit import FOLDER
from tests.jobqueue.console.consoles import OWN
from tests.jobqueue.service_manager import ServiceManager
from tests.kit.ports import free_port
from tests.kit.redis_server import RedisServer
from tests.kit.service import JOBQUEUE, ROOT, Client
from tests.kit.waiting import until

# It may have to fetch packages from the registry.
pytestmark = [
    pytest.mark.skipif(os.geteuid() != 0, reason="the sandbox needs root, which CI is"),
]


PROBE = """
import ctypes, json, mmap, os, pathlib, socket

def error(what, *arguments):
    try:
        what(*arguments)
    except (OSError, PermissionError) as refused:
        return refused.strerror
    return None

def call(name, *arguments):
    libc = ctypes.CDLL(None, use_errno=True)
    if getattr(libc, name)(*arguments) in (-1, ctypes.c_void_p(-1).value):
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))

status = dict(line.split(":\t", 1) for line in pathlib.Path("/proc/self/status").read_text().splitlines())
print(json.dumps({
    "user": os.getuid(), "effective": status["CapEff"], "bounding": status["CapBnd"], "gains": status["NoNewPrivs"],
    "root": error(os.mkdir, "/new"), "programs": error(os.mkdir, "/opt/jobqueue/new"),
    "usr": error(os.mkdir, "/usr/new"), "mask": os.umask(0),
    "temporary": error(os.mkdir, "/tmp/new"), "state": error(os.mkdir, "/var/lib/jobqueue/new"),
    "secrets": error(open, "/etc/jobqueue/tokens.toml"),
    "credentials": error(open, "/run/credentials/jobqueue.service/tokens.toml"),
    "code": error(lambda: mmap.mmap(-1, 4096, prot=mmap.PROT_WRITE | mmap.PROT_EXEC)),
    "netlink": error(lambda: socket.socket(socket.AF_NETLINK).close()),
    "kill": error(os.kill, os.getpid(), 0), "privileged": error(call, "setuid", os.getuid()),
    "resources": error(call, "setpriority", 0, 0, 5),
    "other": error(call, "mount", b"none", b"/tmp", b"tmpfs", 0, None),
    "homes": os.path.exists("/home"),
    "kernel": os.path.exists("/proc/sys"), "others": os.path.exists("/proc/1"),
}))
"""


class Host:
    """A machine on which the units are installed: /etc/jobqueue and the rest of what the sandbox shows to a service."""

    def __init__(self, folder: Path, environment: Path, tokens: Path, token: str) -> None:
        """`tokens`: the file of tokens; `token`: the text of one that may do everything."""
        self.folder = folder
        self.etc = folder / "etc"
        self.log = folder / "log"
        self.token = token
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self.etc.mkdir()
        (folder / "manager").mkdir()
        (folder / "environment").symlink_to(environment)
        self.unit = Path(shutil.copy(FOLDER / "jobqueue.service", folder))
        self.console = Path(shutil.copy(FOLDER / "jobqueue-console.service", folder))
        self.callbacks = Path(shutil.copy(FOLDER / "jobqueue-callbacks@.service", folder))
        shutil.copy(FOLDER / "console.toml", self.etc)
        self.settings = Path(shutil.copy(FOLDER / "jobqueue.toml", self.etc))
        shutil.copy(tokens, self.etc / "tokens.toml")

    @asynccontextmanager
    async def running(self, unit: Path, instance: str = "", **asked: str) -> AsyncIterator[asyncio.subprocess.Process]:
        """The program of a unit in its sandbox; `asked`: what a drop-in adds to its environment. It is killed, if it
        did not end."""
        command = (program("unshare"), "--mount", sys.executable, "-m", "tests.deploy.systemd.sandbox")
        with self.log.open("ab") as log:
            process = await asyncio.create_subprocess_exec(
                *(*command, str(unit), instance, str(self.folder)),
                stdout=log,
                stderr=log,
                cwd=ROOT,
                env={"PATH": os.environ["PATH"], **asked},
            )
        try:
            yield process
        finally:
            if process.returncode is None:
                process.kill()
            await process.wait()

    @asynccontextmanager
    async def serving(self, workers: int) -> AsyncIterator[tuple[asyncio.subprocess.Process, ServiceManager, Client]]:
        """The service, which has said that it is ready. In the end it stops in order, and nothing went wrong in it."""
        asked = {"JOBQUEUE_PORT": str(self.port), "JOBQUEUE_WORKERS": str(workers)}
        address = self.folder / "manager" / "notify"
        with ServiceManager(str(address)) as manager:
            os.chown(address, USER, USER)
            async with self.running(self.unit, **asked) as service, Client(self.url, self.token) as client:
                await until(lambda: bool(manager.heard) or service.returncode is not None, within_s=60)
                assert manager.heard == ["READY=1"], self.log.read_text()
                yield service, manager, client
                if service.returncode is None:
                    service.terminate()
                assert await service.wait() == 0, self.log.read_text()
        address.unlink()
        assert not [line for line in lines(self.log) if line["level"] in ("error", "critical")], self.log.read_text()


def change(file: Path, old: str, new: str) -> None:
    text = file.read_text()
    assert text.count(old) == 1
    file.write_text(text.replace(old, new))


@pytest.fixture(scope="module")
def token(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """A file of tokens, for root alone, and the text of its only one."""
    file = tmp_path_factory.mktemp("tokens") / "tokens.toml"
    file.touch(0o600)
    command = [*JOBQUEUE, "token", "create", "admin", "--may", "admin", "--record", str(file)]
    made = subprocess.run(command, check=True, capture_output=True, text=True, timeout=60)
    return file, made.stdout.strip()


@pytest.fixture
def host(environment: Path, token: tuple[Path, str]) -> Iterator[Host]:
    with tempfile.TemporaryDirectory(prefix="jq-") as name:
        yield Host(Path(name), environment, *token)


async def test_the_service_with_a_redis_of_its_own_serves_reloads_and_stops_in_the_sandbox(host: Host) -> None:
    change(host.unit, "WatchdogSec=30", "WatchdogSec=1")
    async with host.serving(workers=2) as (service, manager, client):
        await does_a_job(client)
        with host.settings.open("a") as settings:
            settings.write('[virtual_topics]\npaid = ["invoice", "mail"]\n')
        service.send_signal(signal.SIGHUP)
        await manager.hears("READY=1", "RELOADING=1", "READY=1")
        assert len((await client.ask("add", topic="paid", id="2", body=1))["jobs"]) == 2
        await manager.hears_watchdog(1)
    assert [line["event"] for line in lines(host.log)][-2:] == ["redis.stopped", "service.stopped"]
    async with host.serving(workers=2) as (_, _, client):
        assert (await client.ask("get", id="2@mail"))["state"] == "ready"


async def does_a_job(client: Client) -> None:
    added = await client.insist("add", topic="example-t", id="1", body={"order": 1001}, delay=0.05)
    assert added["success"], added
    job = await client.ask("pop", topic="example-t", wait=30)
    assert job["value"] == {"order": 1001}
    assert (await client.ask("finish", id="1", lease=job["lease"]))["state"] == "finished"


async def test_the_service_reaches_a_redis_whose_url_is_a_credential_and_the_callbacks_reach_both(host: Host) -> None:
    change(host.unit, "#LoadCredential=redis-url", "LoadCredential=redis-url")
    change(host.settings, "# redis_file", "redis_file")
    port = free_port()
    (host.etc / "redis-url").write_text(f"redis://localhost:{port}")
    (host.etc / "callback-secret").write_text(f"whsec_{b64encode(bytes(32)).decode()}")
    # What it calls here is on this machine.
    change(host.callbacks, " --token-file", " --allow-network 127.0.0.0/8 --token-file")
    with RedisServer(host.folder, "--port", str(port)):
        async with host.serving(workers=1) as (_, _, client), Receiver() as receiver:
            await does_a_job(client)
            token = await new_token(host, "--may", "consume", "--topics", "example-callback")
            (host.etc / "callbacks-example-callback.token").write_bytes(token)
            await client.ask("add", topic="example-callback", id="3", body={"url": receiver.at("/ok", status(200))})
            async with host.running(host.callbacks, "example-callback", JOBQUEUE_URL=host.url) as callbacks:
                await until(lambda: bool(lines(host.log, "callback.called")), within_s=60)
                callbacks.terminate()
                assert await callbacks.wait() == 0, host.log.read_text()
            (request,) = receiver.requests
            assert request.headers["webhook-signature"]


async def test_the_console_serves_those_who_sign_in_and_stops_in_the_sandbox(host: Host) -> None:
    port = free_port()
    async with host.serving(workers=1), aiohttp.ClientSession(f"http://localhost:{port}") as session:
        asked = {"JOBQUEUE_URL": host.url, "JOBQUEUE_CONSOLE_PORT": str(port)}
        async with host.running(host.console, **asked) as console:
            await until(lambda: bool(lines(host.log, "console.started")), within_s=60)
            async with session.post("/sign-in", data={"token": host.token}, headers=OWN) as response:
                assert response.status == 200 and response.url.path == "/", await response.text()
            console.terminate()
            assert await console.wait() == 0, host.log.read_text()


async def new_token(host: Host, *options: str) -> bytes:
    """A token that the service has made, asked by the one that may do everything."""
    (host.folder / "admin.token").write_text(host.token)
    command = [*JOBQUEUE, "token", "create", "callbacks", "--url", host.url, *options]
    made = await asyncio.create_subprocess_exec(
        *command, "--token-file", host.folder / "admin.token", stdout=asyncio.subprocess.PIPE
    )
    return (await made.communicate())[0]


async def test_the_sandbox_forbids_what_the_unit_says(host: Host) -> None:
    change(host.unit, "jobqueue serve --config /etc/jobqueue/jobqueue.toml", "python /etc/jobqueue/probe.py")
    (host.etc / "probe.py").write_text(PROBE)
    async with host.running(host.unit) as probe:
        await probe.wait()
    read_only, not_permitted, no_access = "Read-only file system", "Operation not permitted", "Permission denied"
    assert json.loads(host.log.read_text()) == {
        **{"user": USER, "effective": "0" * 16, "bounding": "0" * 16, "gains": "1", "mask": 0o077},
        **{"root": read_only, "programs": read_only, "usr": read_only, "temporary": None, "state": None},
        **{"secrets": no_access, "credentials": None, "homes": False, "kernel": False, "others": False, "kill": None},
        **{"code": not_permitted, "privileged": not_permitted, "resources": not_permitted, "other": not_permitted},
        "netlink": "Address family not supported by protocol",
    }
