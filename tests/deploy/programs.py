"""The programs that the files of `deploy/` are for."""

from __future__ import annotations

import shutil

import pytest


def program(name: str) -> str:
    """The path of a program. The test is skipped where it is missing: `.ci/run` installs it."""
    path = shutil.which(name)
    if not path:
        pytest.skip(f"{name} is not installed; .ci/run installs it")
    return path
