"""The programs that the files of `deploy/` are for."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path

import pytest


def program(name: str) -> str:
    """The path of a program, of this environment or another one. The test is skipped where it is missing: `.ci/run`
    installs it."""
    path = shutil.which(name, path=os.pathsep.join((str(Path(sys.executable).parent), os.environ["PATH"])))
    if not path:
        pytest.skip(f"{name} is not installed; .ci/run installs it")
    return path
