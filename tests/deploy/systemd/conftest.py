"""The built wheel in an environment of its own."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.kit.service import ROOT

_SOURCES = ("buckets", "jobqueue", "clients/python", "clients/spark")
_FILES = ("pyproject.toml", "setup.cfg", "LICENSE", "docs/package.md")


@pytest.fixture(scope="session")
def environment(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An environment with nothing but the wheel and what it and its console require; it may be mounted anywhere."""
    folder = tmp_path_factory.mktemp("wheel")
    source, made = folder / "source", folder / "environment"
    for name in _SOURCES:
        shutil.copytree(ROOT / name, source / name, ignore=shutil.ignore_patterns("__pycache__", "*.egg-info", "build"))
    for name in _FILES:
        (source / name).parent.mkdir(exist_ok=True)
        shutil.copy(ROOT / name, source / name)
    _uv("build", "--wheel", "--out-dir", folder, source)
    (wheel,) = folder.glob("*.whl")
    _uv("venv", "--relocatable", "--python", sys.executable, made)
    _uv("pip", "install", "--compile-bytecode", "--python", made / "bin" / "python", f"{wheel}[console]")
    return made


def _uv(*arguments: str | Path) -> None:
    command = [sys.executable, "-m", "uv", "--quiet", *arguments]
    done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
