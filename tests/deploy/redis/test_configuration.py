"""deploy/redis: the commands of its README make a Redis, and a set with Sentinels, about which `check` says nothing."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import redis

from tests.kit.ports import free_ports
from tests.kit.redis_server import binaries
from tests.kit.service import ROOT, Client, ServiceProcess
from tests.kit.shell import Shell
from tests.kit.waiting import until

FOLDER = ROOT / "deploy" / "redis"
WORDS = {
    "PASSWORD": "the-queues",
    "OPERATOR_PASSWORD": "the-operators",
    "REPLICA_PASSWORD": "the-replicas",
    "SENTINEL_PASSWORD": "the-sentinels",
}
SETTINGS = 'access = "tokens"\ndurability = "{durability}"\n'


def steps(heading: str) -> str:
    """The commands below a heading of the README, without those that start or ask a server."""
    text = (
        (FOLDER / "README.md").read_text().partition(f"## {heading}\n")[2].partition("```sh\n")[2].partition("```")[0]
    )
    running = ("systemctl ", "jobqueue ", "chown ")
    return "".join(line for line in text.splitlines(keepends=True) if not line.startswith(running))


class Machine:
    """What is on one machine: a Redis, and a Sentinel where there are replicas."""

    def __init__(self, folder: Path, port: int, sentinel: int = 0, master: int = 0) -> None:
        """`sentinel`: the port of its own; `master`: the port of the Redis that is the first master."""
        self.folder, self.port, self.sentinel = folder, port, sentinel
        self._processes: list[subprocess.Popen[bytes]] = []
        folder.mkdir()
        script = "set -e\n" + steps("One Redis") + (steps("Replicas and Sentinels") if sentinel else "")
        if master not in (0, port):
            script += f'echo "replicaof 127.0.0.1 {master}" >> /etc/redis/replicated.conf\n'
        script = script.replace("/etc/redis", str(folder)).replace("/etc/systemd/system", f"{folder}/units")
        script = script.replace("> redis-url", f"> {folder}/redis-url")
        subprocess.run(
            ["/bin/sh", "-c", script], check=True, cwd=FOLDER, env={"PATH": "/usr/bin:/bin", **WORDS}, timeout=10
        )
        places = {"/etc/redis": str(folder), "/var/lib/redis": str(folder), "10.0.0.21 6379": f"127.0.0.1 {master}"}
        places |= {"port 6379": f"port {port}", "port 26379": f"port {sentinel}", "10.0.0.21": "127.0.0.1"}
        for file in folder.glob("*.conf"):
            text = file.read_text()
            for old, new in places.items():
                text = text.replace(old, new)
            file.write_text(text)

    def start(self, server: str) -> None:
        """Start its servers."""
        file = "replicated.conf" if self.sentinel else "redis.conf"
        self._start(server, file)
        if self.sentinel:
            self._start(server, "sentinel.conf", "--sentinel")

    def _start(self, server: str, file: str, *more: str) -> None:
        with (self.folder / f"{file}.log").open("wb") as log:
            command = [server, str(self.folder / file), *more]
            self._processes.append(subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log))

    def kill(self) -> None:
        """End its servers without notice."""
        while self._processes:
            process = self._processes.pop()
            process.kill()
            process.wait(30)

    def ask(self, *command: str | int, user: str | None = "operator") -> Any:
        """What the Redis answers to a command; the Sentinel, without a user."""
        port = self.port if user else self.sentinel
        with redis.Redis(
            port=port, username=user, password=WORDS["OPERATOR_PASSWORD"] if user else None, decode_responses=True
        ) as client:
            return client.execute_command(*command)

    def answers(self, *command: str | int, user: str | None = "operator") -> Any:
        """The same; None while there is no answer."""
        with suppress(redis.RedisError):
            return self.ask(*command, user=user)
        return None


@pytest.fixture
def machines() -> Iterator[list[Machine]]:
    """Whatever a test puts in is killed."""
    held: list[Machine] = []
    yield held
    for each in held:
        each.kill()


async def check_is_silent(url: str, folder: Path, durability: str) -> None:
    settings = folder / "jobqueue.toml"
    settings.write_text(SETTINGS.format(durability=durability))
    port = str(free_ports(1)[0])
    said = await Shell("").run("check", "--config", str(settings), "--redis", url, "--port", port)
    assert said.code == 0, said
    warnings = [line for line in said.out.splitlines() if not line.startswith("ok ")]
    assert [each for each in warnings if not each.startswith("warn service: none is listening")] == [], said


@pytest.mark.parametrize("server", binaries())
async def test_one_redis_has_what_the_service_asks_for_and_keeps_its_jobs(
    server: str, machines: list[Machine], tmp_path: Path
) -> None:
    machine = Machine(tmp_path / "one", *free_ports(1))
    machines.append(machine)
    machine.start(server)
    await until(lambda: machine.answers("PING") is not None)
    url = f"redis://jobqueue:{WORDS['PASSWORD']}@127.0.0.1:{machine.port}"
    await check_is_silent(url, tmp_path, "local")
    assert machine.ask("INFO", "memory")["maxmemory_policy"] == "noeviction"
    async with ServiceProcess("--redis", url) as service, Client(service.url) as client:
        added = await client.ask("add", topic="t", body=1, delay=3600)
        machine.kill()
        machine.start(server)
        assert (await client.insist("get", id=added["id"]))["state"] == "delayed"


@pytest.mark.parametrize("server", binaries())
async def test_a_replica_takes_over_and_a_master_without_replicas_takes_nothing(
    server: str, machines: list[Machine], tmp_path: Path
) -> None:
    ports = free_ports(6)
    machines += [
        Machine(tmp_path / f"{port}", port, watch, ports[0]) for port, watch in zip(ports[:3], ports[3:], strict=True)
    ]
    for each in machines:
        each.start(server)
    await until(lambda: settled(machines), within_s=30)
    watches = ",".join(f"127.0.0.1:{each.sentinel}" for each in machines)
    url = f"redis+sentinel://jobqueue:{WORDS['PASSWORD']}@{watches}/jobqueue"
    await check_is_silent(url, tmp_path, "replicated")
    async with ServiceProcess("--redis", url) as service, Client(service.url) as client:
        added = await client.ask("add", topic="t", id="a", body=1, durability="replicated")
        assert added["durability"] == "replicated"
        machines[0].kill()
        assert (await client.insist("pop", topic="t", wait=30))["id"] == "a"
        refused = [each.answers("ACL", "LOG") for each in machines[1:]]
        assert refused == [[], []]
    master = next(each for each in machines[1:] if each.ask("ROLE")[0] == "master")
    next(each for each in machines[1:] if each is not master).kill()
    await until(lambda: master.ask("INFO", "replication")["min_slaves_good_slaves"] == 0, within_s=30)
    with pytest.raises(redis.ResponseError, match="NOREPLICAS"):
        master.ask("SET", "{jq:0}:name", 1)


def settled(machines: list[Machine]) -> bool:
    """Whether both replicas follow, and the Sentinels know them and each other."""
    for each in machines:
        each.answers("SENTINEL", "DEBUG", "info-period", 300, "publish-period", 300, user=None)
    told = [each.answers("SENTINEL", "MASTER", "jobqueue", user=None) or {} for each in machines]
    known = [(int(each.get("num-slaves", 0)), int(each.get("num-other-sentinels", 0))) for each in told]
    following = (machines[0].answers("INFO", "replication") or {}).get("min_slaves_good_slaves", 0)
    return known == [(2, 2)] * 3 and following == 2
