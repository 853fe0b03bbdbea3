"""The public names of the engine: each is there, and loaded only when it is used."""

from __future__ import annotations

import subprocess
import sys

import pytest

import buckets
from buckets import public


def test_each_public_name_is_there() -> None:
    for name in public.__all__:
        assert getattr(buckets, name) is getattr(public, name)
    with pytest.raises(AttributeError, match="module 'buckets' has no attribute 'Pol'"):
        getattr(buckets, "Pol")  # noqa: B009 - mypy would find it


def test_the_command_line_does_not_load_what_only_the_service_needs() -> None:
    code = "import sys, jobqueue.cli.main; print({'redis', 'aiohttp', 'rich', 'structlog'} & set(sys.modules))"
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ran.stdout == "set()\n"
