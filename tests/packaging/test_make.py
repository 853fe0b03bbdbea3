"""The Makefile in a fresh checkout: what its targets install, how large that is, and what they say."""

from __future__ import annotations

import re
import shutil
import sys
from pathlib import Path

import pytest

from tests.kit.service import ROOT
from tests.packaging.test_service import copy_checkout, run

# It installs packages from the registry, on a machine that runs other tests at the same time.
pytestmark = pytest.mark.timeout(900)

_PYTHON = f"PYTHON={sys.base_prefix}/bin/python3"
_TOLERANCE = 0.15
"""Libraries grow from release to release, and differ between machines."""
_MOST_LINES = 60


@pytest.fixture(scope="module")
def checkout(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("make") / "checkout"
    copy_checkout(folder)
    return folder


def megabytes(folder: Path) -> float:
    """What `du` counts."""
    return sum(file.lstat().st_blocks * 512 for file in folder.rglob("*")) / 2**20


def documented(file: str, pattern: str) -> float:
    """The size that a file names, in MB."""
    (found,) = re.findall(pattern, (ROOT / file).read_text())
    number, unit = found
    return float(number) * (1000 if unit == "GB" else 1)


_SIZES = {
    "setup": {"README.md": r"into \.venv \(([\d.]+) (MB|GB)\)", "Makefile": r"(?m)^setup:.*; ([\d.]+) (MB|GB)$"},
    "setup-test": {
        "README.md": r"\bto \.venv \(([\d.]+) (MB|GB)\)",
        "Makefile": r"(?m)^setup-test:.*; ([\d.]+) (MB|GB)$",
    },
}


def test_setup_is_as_large_as_the_documents_say(checkout: Path) -> None:
    run("make", "setup", _PYTHON, cwd=checkout)
    size = megabytes(checkout / ".venv")
    for file, pattern in _SIZES["setup"].items():
        assert documented(file, pattern) == pytest.approx(size, rel=_TOLERANCE), file


def test_setup_test_is_as_large_as_the_documents_say() -> None:
    """This runs in such an environment."""
    size = megabytes(Path(sys.prefix))
    for file, pattern in _SIZES["setup-test"].items():
        assert documented(file, pattern) == pytest.approx(size, rel=_TOLERANCE), file


def test_setup_dev_runs_a_unit_test_and_has_no_spark(checkout: Path) -> None:
    run("make", "setup-dev", _PYTHON, cwd=checkout)
    python = checkout / ".venv" / "bin" / "python"
    assert " passed" in run(python, "-m", "pytest", "-q", "tests/buckets/test_job.py", cwd=checkout)
    assert "pyspark " not in run(python, "-m", "pip", "list", cwd=checkout)
    (added,) = re.findall(r"(?m)^setup-dev:.*; (\d+) MB$", (ROOT / "Makefile").read_text())
    (whole,) = re.findall(r"(?m)^make setup-dev .*: (\d+) MB$", (ROOT / "CONTRIBUTING.md").read_text())
    assert int(whole) == pytest.approx(megabytes(checkout / ".venv"), rel=_TOLERANCE)
    assert int(whole) - int(added) == documented("Makefile", _SIZES["setup"]["Makefile"])


def test_package_needs_a_small_environment_of_its_own(tmp_path: Path) -> None:
    copy_checkout(tmp_path / "checkout")
    run("make", "package", _PYTHON, cwd=tmp_path / "checkout")
    assert {file.suffix for file in (tmp_path / "checkout" / "dist").iterdir()} == {".whl", ".gz"}
    assert not (tmp_path / "checkout" / ".venv").exists()
    assert megabytes(tmp_path / "checkout" / ".venv-build") < 60


def test_the_help_has_every_target_on_a_screen() -> None:
    shown = run("make", "--no-print-directory", "help", cwd=ROOT)
    described = set(re.findall(r"(?m)^([a-z-]+):.*?## ", (ROOT / "Makefile").read_text()))
    benches = {name for name in described if name.startswith("bench-")} - {"bench-check"}
    assert {name for name in described if not re.search(rf"(?m)^  make {name} ", shown)} == benches
    (line,) = re.findall(r"(?m)^  make bench-NAME +one of: (.*)$", shown)
    assert {f"bench-{name}" for name in line.split()} == benches
    assert len(shown.splitlines()) <= _MOST_LINES
    listed = run("make", "--no-print-directory", "help-bench", cwd=ROOT)
    assert set(re.findall(r"(?m)^  make (bench-[a-z-]+) ", listed)) == benches | {"bench-check"}


def test_a_run_without_the_journal_that_another_began_says_so(tmp_path: Path) -> None:
    """The service itself is not started."""
    for name in ("Makefile", "pyproject.toml"):
        shutil.copy(ROOT / name, tmp_path)
    command = tmp_path / ".venv" / "bin" / "jobqueue"
    command.parent.mkdir(parents=True)
    command.write_text("#!/bin/sh\necho started\n")
    command.chmod(0o755)
    (tmp_path / ".venv" / ".complete").touch()
    assert "nobody reads it" not in run("make", "run", cwd=tmp_path)
    (tmp_path / "jobqueue-data").mkdir()
    (tmp_path / "jobqueue-data" / "journal.db").touch()
    said = run("make", "run", cwd=tmp_path)
    assert "jobqueue-data has a journal, which this run does not write" in said and "started" in said
    assert "nobody reads it" not in run("make", "run", "JOURNAL=1", cwd=tmp_path)
    assert "nobody reads it" not in run("make", "run", "DATA=another", cwd=tmp_path)
