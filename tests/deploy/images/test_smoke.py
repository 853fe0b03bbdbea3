"""Each compose file with real servers and services: jobs added before a master is killed are popped after it."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.deploy.images.composed import Composed, with_secrets
from tests.deploy.images.dockerfile import DOCKER

pytestmark = pytest.mark.skipif(
    not shutil.which("redis-cli"), reason="health checks of the compose files use redis-cli"
)

# Servers are given up sooner than in the files.
SOONER = {"DOWN_AFTER_MS": "500", "NODE_TIMEOUT_MS": "1000"}


@pytest.fixture(scope="module")
def docker(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    return with_secrets(tmp_path_factory.mktemp("deploy"))


@pytest.fixture(params=["compose.yaml", "compose.sentinel.yaml", "compose.cluster.yaml"])
def composed(docker: tuple[Path, str], request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Composed]:
    file = Composed(docker[0] / request.param, tmp_path, **SOONER)
    yield file
    file.down()


async def test_what_the_file_says_of_its_smoke_test_works(composed: Composed, request: pytest.FixtureRequest) -> None:
    await composed.up()
    if "make-cluster" in composed.services:
        composed.run("make-cluster")  # a second time
    for step in steps(request.node.callspec.params["composed"]):
        word, *service = step.split()
        if word in ("kill", "start"):
            getattr(composed, word)(*service)
        else:
            assert "30 jobs" in composed.run("smoke", word)
    if "make-cluster" in composed.services:
        await made_again_after_a_failover(composed)


async def made_again_after_a_failover(composed: Composed) -> None:
    """It is no harm that the container that makes the Cluster runs again whenever the file is brought up."""
    composed.start("redis-0")
    await composed.until_healthy("redis-0")
    composed.run("make-cluster")
    assert role(composed, "redis-3") == "master"


def role(composed: Composed, name: str) -> str:
    """What a server says that it is."""
    access = ["--user", "operator", "--pass", (composed.secrets / "operator.password").read_text()]
    asked = ["redis-cli", "--no-auth-warning", "-h", composed.address(name), *access, "role"]
    return subprocess.run(asked, capture_output=True, text=True, check=True).stdout.split()[0]


def steps(file: str) -> list[str]:
    """The steps of the smoke test, as the head of a file lists them."""
    (line,) = re.findall("Smoke test: (.*):", (DOCKER / file).read_text())
    found = re.findall("`(.*?)`", line)
    assert found[0] == "add"
    assert found[1].startswith("kill ")
    assert found[-1] == "pop"
    return found
