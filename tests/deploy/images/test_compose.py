"""The compose files: what each service may do, and where its secrets are."""

from __future__ import annotations

import re
import stat
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from jobqueue import __version__
from jobqueue.settings import Settings
from tests.deploy.images.composed import with_secrets
from tests.deploy.images.dockerfile import DOCKER
from tests.kit.service import ROOT

FILES = sorted(DOCKER.glob("compose*.yaml"))
SERVICES = [
    pytest.param(name, service, id=f"{file.name}-{name}")
    for file in FILES
    for name, service in yaml.safe_load(file.read_text())["services"].items()
]
KILLED_AFTER_S = 2  # beyond grace_s


def test_the_files_are_in_the_compose_specification() -> None:
    program = Path(sys.executable).with_name("check-jsonschema")
    ran = subprocess.run(
        [program, "--builtin-schema", "vendor.compose-spec", *FILES], capture_output=True, text=True, check=False
    )
    assert len(FILES) == 3
    assert ran.returncode == 0, ran.stdout + ran.stderr


@pytest.mark.parametrize(("name", "service"), SERVICES)
def test_a_service_may_do_no_more_than_it_needs(name: str, service: dict[str, Any]) -> None:
    assert service["read_only"]
    assert service["tmpfs"] == "/tmp"  # noqa: S108
    assert service["cap_drop"] == ["ALL"]
    assert service["security_opt"] == ["no-new-privileges:true"]
    assert service["user"] in ("999:999", "65532:65532")
    assert service["mem_limit"]
    assert service["pids_limit"]
    assert "privileged" not in service


@pytest.mark.parametrize(("name", "service"), SERVICES)
def test_an_image_is_this_version_or_has_a_digest(name: str, service: dict[str, Any]) -> None:
    pinned = re.fullmatch(r"valkey/valkey:\d+\.\d+\.\d+@sha256:[0-9a-f]{64}", service["image"])
    assert service["image"] == f"jobqueue:{__version__}" or pinned


@pytest.mark.parametrize(("name", "service"), SERVICES)
def test_only_the_service_is_reached_from_outside_and_only_from_this_machine(
    name: str, service: dict[str, Any]
) -> None:
    ports = service.get("ports", [])
    assert bool(ports) == name.startswith("jobqueue")
    assert all(port.startswith("127.0.0.1:") for port in ports)
    if not service["image"].startswith("jobqueue"):
        assert list(service["networks"]) == ["redis"]


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.name)
def test_configs_are_files(file: Path) -> None:
    """Compose would copy what stands in the compose file itself into the container, whose root is read-only."""
    assert all((DOCKER / config["file"]).exists() for config in yaml.safe_load(file.read_text())["configs"].values())


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.name)
def test_redis_has_a_network_without_a_way_out(file: Path) -> None:
    assert yaml.safe_load(file.read_text())["networks"]["redis"]["internal"]


@pytest.mark.parametrize(("name", "service"), SERVICES)
def test_a_service_has_time_to_stop(name: str, service: dict[str, Any]) -> None:
    if name.startswith("jobqueue"):
        assert int(service["stop_grace_period"].removesuffix("s")) > Settings().grace_s + KILLED_AFTER_S


@pytest.mark.parametrize(("name", "service"), SERVICES)
def test_a_service_starts_when_what_it_needs_is_healthy(name: str, service: dict[str, Any]) -> None:
    waits = [wish["condition"] for wish in service.get("depends_on", {}).values()]
    assert set(waits) <= {"service_healthy", "service_completed_successfully"}
    assert waits or name.startswith("redis")


@pytest.mark.parametrize(("name", "service"), SERVICES)
def test_no_secret_is_in_the_environment(name: str, service: dict[str, Any]) -> None:
    assert service.get("environment", {}).keys() <= {
        *("JOBQUEUE_DURABILITY", "JOBQUEUE_URL", "JOBQUEUE_TOKEN_FILE", "ADDRESS")
    }


def test_secrets_are_made_once_and_not_shown(tmp_path: Path) -> None:
    docker, printed = with_secrets(tmp_path)
    secrets = docker / "secrets"
    assert stat.S_IMODE(secrets.stat().st_mode) == 0o700
    for file in FILES:
        for name, secret in yaml.safe_load(file.read_text())["secrets"].items():
            assert (docker / secret["file"]).stat().st_size, name
    files = [secrets / "operator.password", *secrets.glob("*.token")]
    words = [file.read_text().strip() for file in files]
    passwords = [re.findall(r":([0-9a-f]{48})@", file.read_text()) for file in secrets.glob("*-url")]
    assert len({*words, passwords[0][0]}) == 4
    assert not [word for word in (*words, *passwords[0]) if word in printed]
    before = {file: file.read_bytes() for file in secrets.iterdir()}
    assert subprocess.run([docker / "make-secrets.sh"], capture_output=True, check=False).returncode
    assert {file: file.read_bytes() for file in secrets.iterdir()} == before


def test_secrets_stay_out_of_the_repository_and_of_releases() -> None:
    assert "/deploy/docker/secrets/" in (ROOT / ".gitignore").read_text().splitlines()
    assert "prune deploy/docker/secrets" in (ROOT / "MANIFEST.in").read_text().splitlines()
