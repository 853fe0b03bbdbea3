"""The lock of the image's libraries. `make lock` updates it."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.deploy.images.dockerfile import DOCKER
from tests.kit.service import ROOT

LOCK = DOCKER / "requirements.lock"


def test_the_lock_is_what_make_lock_writes(tmp_path: Path) -> None:
    """Pins that satisfy pyproject.toml stay as they are, so this fails only when they do not, or are gone."""
    again = tmp_path / "requirements.lock"
    shutil.copy(LOCK, again)
    run("make", "--old-file=setup-test", "lock", f"LOCK={again}")
    assert again.read_text() == LOCK.read_text()


@pytest.mark.parametrize("machine", ["x86_64", "aarch64"])
def test_every_library_has_a_wheel(machine: str, tmp_path: Path) -> None:
    """The base has no compiler."""
    options = ["--dry-run", "--only-binary", ":all:", "--require-hashes", "--no-deps", "--target", str(tmp_path)]
    where = ["--python", sys.executable, "--python-version", "3.11", "--python-platform", f"{machine}-manylinux_2_36"]
    uv = str(Path(sys.executable).with_name("uv"))
    planned = run(uv, "pip", "install", *options, *where, "--requirement", str(LOCK))
    assert len(re.findall(r"^ \+ ", planned, re.MULTILINE)) > 20


def run(*command: str) -> str:
    ran = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    return ran.stdout + ran.stderr
