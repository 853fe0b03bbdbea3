"""`serve` with `console_port`: one more process serves the console, and no worker waits for it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import get_args, get_type_hints

import aiohttp
import pytest
import trustme

from jobqueue.console.options import COLOURS
from jobqueue.errors import SettingsError
from jobqueue.settings import Settings, load
from jobqueue.workers.console import console_url, service_url
from tests.acceptance.worker_processes import all_ended, lines, lives, pids, serving
from tests.jobqueue.access.authorities import Files
from tests.kit.ports import free_port
from tests.kit.redis_server import RedisServer
from tests.kit.service import Client, ServiceProcess
from tests.kit.shell import Shell
from tests.kit.waiting import until


class Served:
    """A service with a console, in a folder that has its settings and its log."""

    def __init__(self, folder: Path, redis: str, settings: str = "", workers: int = 1) -> None:
        self.port = free_port()
        self.log = folder / "log"
        file = folder / "settings.toml"
        file.write_text(f"console_port = {self.port}\n{settings}\n")
        self.service = ServiceProcess("--config", str(file), "--redis", redis, workers=workers, log=self.log)

    async def page(self, path: str) -> tuple[int, str]:
        """A page of the console: its status and its text."""
        async with (
            aiohttp.ClientSession() as session,
            session.get(f"http://127.0.0.1:{self.port}{path}", allow_redirects=False) as response,
        ):
            return response.status, await response.text()

    async def has_page(self, path: str) -> bool:
        """Whether the console answers at all, with that page."""
        try:
            return (await self.page(path))[0] == 200
        except aiohttp.ClientError:
            return False

    @property
    def processes(self) -> dict[str, int]:
        """The newest process of each worker and of the console."""
        return {str(name): pid for name, pid in pids(self.log).items()}


@pytest.mark.parametrize("workers", [1, 2])
async def test_a_service_serves_its_console_and_both_end_together(
    tmp_path: Path, redis_server: RedisServer, redis: object, workers: int
) -> None:
    served = Served(tmp_path, redis_server.url, 'console_title = "test bench"\nconsole_base_path = "/queue/"', workers)
    await serving(served.service, served.log)
    async with Client(served.service.url) as client:
        await client.insist("add", topic="orders", id="a", delay=60, body=1)
    status, text = await served.page("/queue/job?id=a")
    assert status == 200 and "test bench" in text and "delayed" in text
    assert (await served.page("/job?id=a"))[0] == 404
    assert set(served.processes) == {*map(str, range(1, workers + 1)), "console"}
    priorities = {name: os.getpriority(os.PRIO_PROCESS, pid) for name, pid in served.processes.items()}
    lowest = max(priorities[str(number)] for number in range(1, workers + 1))  # 19 where the tests are nice themselves
    assert priorities["console"] == min(lowest + 10, 19)
    assert await served.service.stop() == 0
    assert not any(map(lives, served.processes.values()))
    text = served.log.read_text()
    assert "console.stopped" in text and "Traceback" not in text


async def test_a_console_that_dies_is_replaced_and_ends_with_a_service_that_is_killed(
    tmp_path: Path, redis_server: RedisServer, redis: object
) -> None:
    served = Served(tmp_path, redis_server.url)
    await serving(served.service, served.log)
    before = served.processes
    os.kill(before["console"], signal.SIGKILL)
    await until(lambda: served.processes["console"] != before["console"])
    assert await served.has_page("/topics")
    assert served.processes["1"] == before["1"]
    async with Client(served.service.url) as client:
        await client.insist("add", topic="orders", id="a", body=1)
    (ended,) = lines(served.log, "worker.ended")
    assert (ended["worker"], ended["reason"]) == ("console", "killed by SIGKILL")
    await served.service.kill()
    await all_ended(pids(served.log))
    await serving(served.service, served.log)  # at once, on the same ports
    assert await served.has_page("/topics")
    assert await served.service.stop() == 0


async def test_over_tls_the_console_asks_at_the_unix_socket_and_so_may_the_command_line(
    tmp_path: Path, redis_server: RedisServer, redis: object
) -> None:
    """Which also holds where every client has to show a certificate."""
    tls = Files(tmp_path, clients=trustme.CA()).toml()
    served = Served(tmp_path, redis_server.url, f"{tls}socket = '{tmp_path}/unix'")
    await served.service.spawn()
    await until(lambda: served.has_page("/topics"))
    for command in ("stats", "check"):
        ran = await Shell(f"unix://{tmp_path}/unix").run(command)
        assert ran.code == 0, ran
    assert await served.service.stop() == 0
    assert lines(served.log, "console.started")[0]["service"] == f"unix://{tmp_path}/unix"


async def test_a_service_with_examples_prints_the_address_of_its_console(tmp_path: Path) -> None:
    """As `make run` starts it."""
    config, log, port = tmp_path / "settings.toml", tmp_path / "log", free_port()
    config.write_text(f"console_port = {port}\n")
    async with ServiceProcess("--config", str(config), "--data", str(tmp_path / "data"), "--examples", log=log):
        await until(lambda: f"its web console is at http://127.0.0.1:{port}/" in log.read_text())
        async with aiohttp.ClientSession() as session, session.get(f"http://127.0.0.1:{port}/") as response:
            assert response.status == 200


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ('console_host = "0.0.0.0"', "without tokens everybody who reaches it sees all jobs: set access"),
        ('console_host = "192.0.2.1"\naccess = "tokens"', "of the console (console_port) cannot be opened"),
    ],
)
async def test_a_console_that_cannot_be_is_refused_at_the_start(
    tmp_path: Path, redis_server: RedisServer, settings: str, said: str
) -> None:
    text = await Served(tmp_path, redis_server.url, settings).service.refusal()
    assert said in text and "Traceback" not in text


async def test_a_port_that_is_taken_is_refused_at_the_start(tmp_path: Path, redis_server: RedisServer) -> None:
    served = Served(tmp_path, redis_server.url)
    async with ServiceProcess("--test", port=served.port, workers=None):
        text = await served.service.refusal()
    assert f"the port {served.port} of the console (console_port) is in use" in text


def test_without_its_library_the_service_names_the_extra(tmp_path: Path) -> None:
    program = (
        "import sys, importlib.util as util; real = util.find_spec;"
        "util.find_spec = lambda name, *rest: None if name == 'jinja2' else real(name, *rest);"
        "from jobqueue.cli.main import main; main(['serve', '--port', '0', '--data', sys.argv[1]])"
    )
    ran = subprocess.run(
        [sys.executable, "-c", program, str(tmp_path / "data")],
        env={**os.environ, "JOBQUEUE_CONSOLE_PORT": str(free_port())},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert ran.returncode == 1
    assert "console_port: the console needs the library jinja2: install the extra [console] of" in ran.stderr
    assert not (tmp_path / "data").exists()


@pytest.mark.parametrize(
    ("environment", "said"),
    [
        ({"CONSOLE_PORT": "8000"}, "console_port is the service's own, 8000"),
        ({"CONSOLE_PORT": "1", "TLS_CERT": "/c", "TLS_KEY": "/k"}, "console_port with tls_cert needs socket"),
        ({"CONSOLE_HOSTS": "a.example,https://b.example"}, "console_hosts: 'https://b.example' is not a host"),
        ({"CONSOLE_HOSTS": "a.example:443"}, "without a scheme and a port"),
        ({"CONSOLE_BASE_PATH": "queue"}, "console_base_path: 'queue' is not a path such as /queue"),
        ({"CONSOLE_COLOUR": "pink"}, "JOBQUEUE_CONSOLE_COLOUR in the environment"),
    ],
)
def test_wrong_settings_of_the_console_are_named(environment: dict[str, str], said: str) -> None:
    with pytest.raises(SettingsError) as refused:
        load({}, None, {f"JOBQUEUE_{name}": value for name, value in environment.items()})
    assert said in str(refused.value)


def test_what_kubernetes_sets_for_a_service_that_is_called_jobqueue_console_is_no_setting() -> None:
    links = {
        "JOBQUEUE_CONSOLE_SERVICE_HOST": "10.0.0.1",
        "JOBQUEUE_CONSOLE_SERVICE_PORT": "8001",
        "JOBQUEUE_CONSOLE_PORT": "tcp://10.0.0.1:8001",
        "JOBQUEUE_CONSOLE_PORT_8001_TCP_ADDR": "10.0.0.1",
    }
    assert load({}, None, links) == Settings()


def test_the_console_asks_an_address_that_reaches_the_service() -> None:
    assert service_url(Settings(host="")) == "http://127.0.0.1:8000"
    assert service_url(Settings(host="::", port=1)) == "http://[::1]:1"
    assert service_url(Settings(socket="/run/j.sock")) == "unix:///run/j.sock"
    assert console_url(Settings(console_host="", console_port=1, console_base_path="/q")) == "http://127.0.0.1:1/q/"


def test_the_colours_of_the_settings_are_those_of_the_console() -> None:
    assert get_args(get_type_hints(Settings)["console_colour"]) == COLOURS
