"""The packages of the clients, by the tools of their languages."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from tests.acceptance.service import ROOT

NODE, PHP = ROOT / "clients" / "node", ROOT / "clients" / "php"


def run(folder: Path, *command: str) -> str:
    """What a tool says; fails when it does."""
    program = shutil.which(command[0])
    if program is None:
        pytest.skip(f"{command[0]} is not installed; .ci/run installs it")
    ran = subprocess.run([program, *command[1:]], check=False, cwd=folder, capture_output=True, text=True, timeout=200)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    return ran.stdout


@pytest.fixture
def node_package(tmp_path: Path) -> Path:
    """A copy, so that nothing is installed into the checkout."""
    return Path(shutil.copytree(NODE, tmp_path / "node", ignore=shutil.ignore_patterns("node_modules")))


def test_the_types_of_the_node_client_hold_for_a_strict_user(node_package: Path) -> None:
    run(node_package, "npm", "ci", "--silent", "--no-audit", "--no-fund")
    run(node_package, "npm", "run", "check")


def test_the_node_package_has_what_it_needs_and_no_more(node_package: Path) -> None:
    (packed,) = json.loads(run(node_package, "npm", "pack", "--dry-run", "--json"))
    files = {each["path"] for each in packed["files"]}
    assert {"README.md", "package.json", "src/index.js", "types/index.d.ts"} <= files
    assert all(file.startswith(("src/", "types/")) or file in ("README.md", "package.json") for file in files)
    assert not json.loads((NODE / "package.json").read_text()).get("dependencies")


def test_the_php_package_is_valid_and_its_files_are_php() -> None:
    run(PHP, "composer", "validate", "--strict", "--no-check-lock", "--no-interaction")
    for file in sorted(PHP.rglob("*.php")):
        run(PHP, "php", "-l", str(file))


def test_composer_loads_every_class_of_the_php_client(tmp_path: Path) -> None:
    package = Path(shutil.copytree(PHP, tmp_path / "php", ignore=shutil.ignore_patterns("vendor")))
    run(package, "composer", "dump-autoload", "--quiet", "--no-interaction")
    files = sorted((package / "src").rglob("*.php"))
    names = [str(file.relative_to(package / "src").with_suffix("")).replace("/", "\\") for file in files]
    asked = ";".join(
        f"(class_exists('JobQueue\\Client\\{name}') || enum_exists('JobQueue\\Client\\{name}')"
        f" || interface_exists('JobQueue\\Client\\{name}')) || exit('{name}')"
        for name in names
    )
    assert names and run(package, "php", "-r", f"require 'vendor/autoload.php';{asked};") == ""


def wheel(folder: Path, tmp_path: Path) -> set[str]:
    """The files of the wheel that a folder makes."""
    source = shutil.copytree(folder, tmp_path / "source", ignore=shutil.ignore_patterns(".*", "build", "*.egg-info"))
    run(tmp_path, sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", str(source))
    (made,) = tmp_path.glob("*.whl")
    return set(zipfile.ZipFile(made).namelist())


def test_the_project_brings_its_python_clients_along(tmp_path: Path) -> None:
    files = wheel(ROOT, tmp_path)
    assert {
        "jobqueue/app.py",
        "buckets/lua/moves/add.lua",
        "jobqueue_client/py.typed",
        "pyspark_jobqueue/py.typed",
    } <= files
    for client in (ROOT / "clients" / "python" / "jobqueue_client", ROOT / "clients" / "spark" / "pyspark_jobqueue"):
        assert {str(each.relative_to(client.parent)) for each in client.rglob("*.py")} <= files


@pytest.mark.parametrize("client", ["python/jobqueue_client", "spark/pyspark_jobqueue"])
def test_a_python_client_is_a_package_of_its_own_too(client: str, tmp_path: Path) -> None:
    package = ROOT / "clients" / client
    files = {file for file in wheel(package.parent, tmp_path) if ".dist-info/" not in file}
    own = {str(each.relative_to(package.parent)) for each in package.rglob("*.py")}
    assert files == {*own, f"{package.name}/py.typed"}
