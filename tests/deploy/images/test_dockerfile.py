"""The Dockerfile: what can be known of an image without building it."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from jobqueue import __version__, settings
from tests.deploy.images.dockerfile import DOCKER, FILE, command, environment, healthcheck, instructions, last
from tests.kit.service import ROOT

NOBODY = "65532:65532"


def copied() -> set[str]:
    """What the image takes from the repository."""
    return {
        source
        for name, rest in instructions()
        if name == "COPY"
        for source in rest.split()[:-1]
        if not source.startswith("--")
    }


def test_hadolint_finds_nothing() -> None:
    program = Path(sys.executable).with_name("hadolint")
    ran = subprocess.run([program, FILE], capture_output=True, text=True, check=False)
    assert (ran.returncode, ran.stdout) == (0, "")


def test_what_is_copied_exists_and_is_not_kept_from_the_build() -> None:
    let_in = [line[1:] for line in (DOCKER / "Dockerfile.dockerignore").read_text().splitlines() if line[:1] == "!"]
    for source in copied():
        assert (ROOT / source).exists()
        assert [pattern for pattern in let_in if Path(source).match(pattern)], f"{source} is ignored"


def test_every_source_of_the_wheel_is_copied() -> None:
    clients = {f"clients/{each}" for each in ("python/jobqueue_client", "spark/pyspark_jobqueue")}
    assert copied() > {"pyproject.toml", "LICENSE", "docs/package.md", "buckets", "jobqueue", *clients}


def test_both_stages_come_from_one_base_with_a_digest() -> None:
    assert re.fullmatch(r"PYTHON=python:3\.11\.\d+-slim-bookworm@sha256:[0-9a-f]{64}", instructions()[0][1])
    bases = [rest.split()[0] for name, rest in instructions() if name == "FROM"]
    assert set(bases) == {"${PYTHON}", "run"}


def test_the_image_runs_the_service_as_nobody() -> None:
    stages = re.split(r"^FROM ", FILE.read_text(), flags=re.MULTILINE)
    variants = [stage for stage in stages if stage.startswith("run AS")]
    assert [stage.split()[2] for stage in variants] == ["embedded", "jobqueue"]
    assert all(stage.rstrip().endswith(f"USER {NOBODY}") for stage in variants)
    assert " ".join(command()) == "jobqueue serve --host 0.0.0.0 --config /etc/jobqueue/jobqueue.toml"
    assert last("STOPSIGNAL") == "SIGTERM"
    assert healthcheck() == ["jobqueue", "healthcheck"]
    assert environment() == {"JOBQUEUE_CONFIG": command()[-1]}


def test_nothing_is_left_in_it_that_installs() -> None:
    installs = [rest for name, rest in instructions() if name == "RUN" and "from=wheels" in rest]
    assert len(installs) == 2
    for install in installs:
        assert "--no-index" in install
        assert "pip uninstall --yes pip setuptools wheel" in install
        assert "ensurepip" in install


def test_a_journal_can_be_written_and_a_console_be_served_by_what_is_in_it() -> None:
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    locked = (DOCKER / "requirements.lock").read_text()
    for _, install in [each for each in instructions() if each[0] == "RUN" and "from=wheels" in each[1]]:
        (named,) = re.findall(r"jobqueue-\*\.whl\)\[([\w,-]+)\]", install)
        assert {"console", "journal", "journal-postgresql", "journal-mysql"} <= {*named.split(",")} <= extras.keys()
        for wish in (each for name in named.split(",") for each in extras[name]):
            package = re.split(r"[\[<>=]", wish)[0]
            assert re.search(rf"^{package}==", locked, re.MULTILINE), package


def test_its_labels_name_this_version() -> None:
    labels = dict(re.findall(r'org\.opencontainers\.image\.(\w+)="([^"]*)"', FILE.read_text()))
    assert labels.keys() == {"title", "version", "licenses", "source", "revision"}
    assert (labels["version"], labels["licenses"]) == (__version__, "Apache-2.0")
    assert f"jobqueue:{__version__}" in FILE.read_text()


@pytest.mark.parametrize("file", ["jobqueue.toml", "embedded.toml"])
def test_its_settings_ask_for_tokens(file: str, tmp_path: Path) -> None:
    (tmp_path / "redis-url").write_text("redis://redis:6379")
    (tmp_path / file).write_text((DOCKER / file).read_text().replace("/run/secrets", str(tmp_path)))
    loaded = settings.load({}, str(tmp_path / file), {})
    assert (loaded.access, loaded.tokens_file) == ("tokens", str(tmp_path / "tokens.toml"))
    assert loaded.redis or loaded.data in last("VOLUME")
