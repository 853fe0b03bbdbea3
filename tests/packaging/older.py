"""An older version of the service, built from the history and installed into an environment of its own."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tarfile
import venv
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.kit.service import ROOT

_PROMISED = "f4547b115bed15b9172bb57e6bec7985300f1fea"
"""The oldest version that the present one runs beside, as docs/upgrade.md promises. At a release it becomes that of the
release before."""


class Older(NamedTuple):
    """A version, by its commit, and the command that runs it."""

    commit: str
    program: str


def _git(*arguments: str) -> str:
    # The checkout may belong to another user.
    command = ("git", "-c", "safe.directory=*", "-C", str(ROOT), *arguments)
    return subprocess.run(command, check=True, capture_output=True, text=True, timeout=60).stdout


def _commit() -> str:
    """The promised version; in a shallow clone that lacks it, the oldest one that there is."""
    known = _git("rev-list", "HEAD").split()
    return _PROMISED if _PROMISED in known else known[-1]


def installed(folder: Path) -> Older:
    """Build and install it in a folder. A checkout without any history skips, which CI does not allow."""
    if shutil.which("git") is None or not (ROOT / ".git").exists():
        pytest.skip("there is no git history to build an older version from")
    commit = _commit()
    _git("archive", "--output", str(folder / "source.tar"), commit)
    with tarfile.open(folder / "source.tar") as archive:
        archive.extractall(folder / "source", filter="data")
    environment = folder / "environment"
    venv.create(environment)
    # Not pip, which takes ten times the work.
    uv = (sys.executable, "-m", "uv", "pip", "install", "--quiet", "--python", str(environment / "bin" / "python"))
    own = {name: value for name, value in os.environ.items() if not name.startswith("PYTHONPATH")}
    command = (*uv, str(folder / "source"))
    done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=600, env=own, cwd=folder)
    assert done.returncode == 0, done.stdout + done.stderr
    return Older(commit, str(environment / "bin" / "jobqueue"))
