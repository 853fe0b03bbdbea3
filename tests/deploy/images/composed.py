"""The services of a compose file as processes of this machine, each on a loopback address of its own.

Names of services become these addresses, and paths of containers become folders; all else is what the file says:
commands, settings, secrets, environment, health checks and the order of starts. Valkey's programs are played by the
Redis of the tests.
"""

from __future__ import annotations

import os
import random
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import yaml

from tests.deploy.images import dockerfile
from tests.kit.redis_node import die_with_parent
from tests.kit.redis_server import binary
from tests.kit.service import ROOT
from tests.kit.waiting import until

PATIENCE_S = 60.0
_ENDED_S = 120.0
_EVERYWHERE = "0.0.0.0"  # noqa: S104 - here, the service's own address
_PATHS = r"/(?:data|run/secrets|etc/valkey|etc/jobqueue|\w[\w-]*\.(?:sh|py))(?![\w-])"


def with_secrets(folder: Path) -> tuple[Path, str]:
    """A copy of deploy/docker in which `make-secrets.sh` has run, and what that printed."""
    docker = folder / "docker"
    shutil.copytree(ROOT / "deploy" / "docker", docker, ignore=shutil.ignore_patterns("secrets"))
    shutil.copytree(ROOT / "deploy" / "redis", folder / "redis")
    made = subprocess.run(
        [docker / "make-secrets.sh"],
        env=_environment(JOBQUEUE=f"{sys.executable} -m jobqueue"),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    assert made.returncode == 0, made.stdout
    return docker, made.stdout


class Composed:
    """The services of a file. `variables` are those of the shell that calls `docker compose`."""

    def __init__(self, file: Path, folder: Path, **variables: str) -> None:
        self._source = file.parent
        self.secrets = file.parent / "secrets"
        self._folder = folder
        self._file = yaml.safe_load(_interpolated(file.read_text(), variables))
        self.services: dict[str, Any] = self._file["services"]
        block = f"127.{random.randint(10, 250)}.{random.randint(1, 250)}"
        self._addresses = {name: f"{block}.{place + 10}" for place, name in enumerate(self.services)}
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        self._healthy: set[str] = set()

    async def up(self) -> None:
        """Start all services that have no profile, each when those that it depends on are as it wants them."""
        for name, service in self.services.items():
            if "profiles" not in service:
                await self._start_after_others(name)
        for name in self._processes.keys() - self._healthy:
            await self.until_healthy(name)

    async def _start_after_others(self, name: str) -> None:
        if name in self._processes:
            return
        for other, wish in self.services[name].get("depends_on", {}).items():
            await self._start_after_others(other)
            if wish["condition"] == "service_completed_successfully":
                assert self._processes[other].wait(PATIENCE_S) == 0, self.log(other)
            elif other not in self._healthy:
                await self.until_healthy(other)
        self.start(name)

    def start(self, name: str) -> None:
        """Start a service, or start it again with the data that it had."""
        self._processes[name] = self._popen(name, self._command(name))

    def kill(self, name: str) -> None:
        """SIGKILL."""
        self._processes[name].kill()
        self._processes[name].wait(PATIENCE_S)

    def run(self, name: str, *arguments: str) -> str:
        """What a service printed that was run to its end, with other arguments than the file's. It has to succeed."""
        command = [*self.services[name].get("entrypoint", []), *arguments] if arguments else self._command(name)
        process = self._popen(name, command)
        assert process.wait(_ENDED_S) == 0, self.log(name)
        return self.log(name)

    def address(self, name: str) -> str:
        """Where a service listens."""
        return self._addresses[name]

    def log(self, name: str) -> str:
        """What a service printed."""
        return (self._root(name) / "log").read_text()

    def down(self) -> None:
        """End all."""
        for process in self._processes.values():
            process.kill()
        for process in self._processes.values():
            process.wait(PATIENCE_S)

    async def until_healthy(self, name: str) -> None:
        """Wait until its health check says so."""
        test = self.services[name].get("healthcheck", {}).get("test")
        command = ["CMD", *dockerfile.healthcheck()] if test is None and _is_ours(self.services[name]) else test
        if command is None:  # a program that ends
            return
        asked = ["sh", "-c", command[1]] if command[0] == "CMD-SHELL" else command[1:]

        def healthy() -> bool:
            assert self._processes[name].poll() is None, self.log(name)
            return subprocess.run(**self._how(name, asked), capture_output=True, check=False).returncode == 0

        try:
            await until(healthy, PATIENCE_S, every_s=0.1)
        except TimeoutError:
            raise AssertionError(f"{name} is not healthy: {self.log(name)}") from None
        self._healthy.add(name)

    def _command(self, name: str) -> list[str]:
        service = self.services[name]
        return service["command"] if "command" in service else dockerfile.command()

    def _popen(self, name: str, command: list[str]) -> subprocess.Popen[bytes]:
        how = self._how(name, command)
        self._make_root(name)
        with (self._root(name) / "log").open("wb") as log:
            return subprocess.Popen(**how, stdout=log, stderr=log, preexec_fn=die_with_parent)  # noqa: PLW1509

    def _how(self, name: str, command: list[str]) -> dict[str, Any]:
        """A command of a container as one of this machine."""
        ours = dockerfile.environment() if _is_ours(self.services[name]) else {}
        given = {**ours, "JOBQUEUE_HOST": _EVERYWHERE, **self.services[name].get("environment", {})}
        placed = {key: self._placed(name, str(value)) for key, value in given.items()}
        path = f"{self._root(name) / 'bin'}:{os.environ['PATH']}"
        return {
            "args": [self._placed(name, word) for word in command],
            "env": _environment(PATH=path, TMPDIR=str(self._root(name) / "tmp"), **placed),
        }

    def _root(self, name: str) -> Path:
        return self._folder / "containers" / name

    def _make_root(self, name: str) -> None:
        """The files of a container; its data stay."""
        root, service = self._root(name), self.services[name]
        for folder in ("bin", "tmp", "data", "run/secrets", "etc/valkey", "etc/jobqueue"):
            (root / folder).mkdir(parents=True, exist_ok=True)
        for given in service.get("secrets", []):
            source, target = (given, given) if isinstance(given, str) else (given["source"], given["target"])
            text = self._read(self._file["secrets"][source])
            (root / "run/secrets" / target).write_text(self._named(text) if source.endswith("-url") else text)
        for given in service.get("configs", []):
            text = self._read(self._file["configs"][given["source"]])
            (root / given["target"].lstrip("/")).write_text(self._placed(name, text))
        if _is_ours(service):
            settings = (self._source / "jobqueue.toml").read_text()
            (root / "etc/jobqueue/jobqueue.toml").write_text(self._placed(name, settings))
        self._make_programs(name)

    def _make_programs(self, name: str) -> None:
        at, server = self._addresses[name], binary()
        bound = f"--bind {at} --bind-source-addr {at}"
        programs = {
            "valkey-server": f'{server} "$@" {bound}',
            "valkey-sentinel": f'{server} "$@" --sentinel {bound}',
            "valkey-cli": f'redis-cli -h {at} "$@"',
            "jobqueue": f'{shlex.quote(sys.executable)} -m jobqueue "$@"',
            "python": f'{shlex.quote(sys.executable)} "$@"',
        }
        for program, line in programs.items():
            file = self._root(name) / "bin" / program
            file.write_text(f"#!/bin/sh\nexec {line}\n")
            file.chmod(0o755)

    def _read(self, given: dict[str, str]) -> str:
        return (self._source / given["file"]).read_text()

    def _placed(self, name: str, text: str) -> str:
        """A text with the addresses and folders that stand for a container's names and paths."""
        text = self._named(text).replace(_EVERYWHERE, self._addresses[name])
        return re.sub(rf"(?<![\w./]){_PATHS}", lambda path: f"{self._root(name)}{path[0]}", text)

    def _named(self, text: str) -> str:
        for name, service in self.services.items():
            networks = service.get("networks")
            fixed = networks["redis"]["ipv4_address"] if isinstance(networks, dict) else None
            text = text.replace(fixed, self._addresses[name]) if fixed else text
            text = re.sub(rf"(?:(?<=[@, ])|(?<=//)){name}(?![\w-]|:[^@\s]*@)", self._addresses[name], text)
        return text


def _is_ours(service: dict[str, Any]) -> bool:
    return bool(service["image"].startswith("jobqueue:") and "entrypoint" not in service)


def _interpolated(text: str, variables: dict[str, str]) -> str:
    text = re.sub(r"(?<!\$)\$\{(\w+):-([^}]*)\}", lambda found: variables.get(found[1], found[2]), text)
    return text.replace("$$", "$")


def _environment(**own: str) -> dict[str, str]:
    """That of this process without settings of the service."""
    return {name: value for name, value in os.environ.items() if not name.startswith("JOBQUEUE_")} | own
