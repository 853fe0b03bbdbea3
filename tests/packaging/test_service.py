"""The wheel and the sdist of the service, each installed into an empty environment."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import time
import urllib.request
import venv
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from jobqueue import __version__
from tests.kit.ports import free_port
from tests.kit.service import ROOT

# It installs packages from the registry, on a machine that runs other tests at the same time.
pytestmark = pytest.mark.timeout(900)

PACKAGES = {
    "buckets": ROOT / "buckets",
    "jobqueue": ROOT / "jobqueue",
    "jobqueue_client": ROOT / "clients" / "python" / "jobqueue_client",
    "pyspark_jobqueue": ROOT / "clients" / "spark" / "pyspark_jobqueue",
}
# Other tests may write beside these while they are copied.
_FOLDERS = (".ci", ".github", "buckets", "clients", "conf", "deploy", "docs", "jobqueue", "tests")
_FILES = ("*.md", "*.toml", "*.cfg", "*.in", "LICENSE", "Makefile", ".gitignore", ".luacheckrc")
_LEFT_BY_TOOLS = (".*_cache", ".hypothesis", "node_modules", "__pycache__", "build", "dist", "*.egg-info")


def _left_by_tools(folder: str, names: list[str]) -> set[str]:
    """What tools have left in a folder, as composer in that of the PHP client."""
    composers = {"vendor"} if Path(folder).name == "php" else set()
    return shutil.ignore_patterns(*_LEFT_BY_TOOLS)(folder, names) | composers


def copy_checkout(folder: Path) -> None:
    """Copy this checkout, without what tools have left in it."""
    for name in _FOLDERS:
        shutil.copytree(ROOT / name, folder / name, ignore=_left_by_tools)
    for pattern in _FILES:
        for file in ROOT.glob(pattern):
            shutil.copy(file, folder)


class Release(NamedTuple):
    """The two files of a release, and what they were built from."""

    source: Path
    sdist: Path
    wheel: Path


def run(*command: str | Path, cwd: Path, timeout: float = 600) -> str:
    """The output of a program that has to succeed; it gets no settings from this one's environment."""
    environment = {
        name: value for name, value in os.environ.items() if not name.startswith(("JOBQUEUE_", "PYTHONPATH"))
    }
    ran = subprocess.run(
        command, check=False, cwd=cwd, capture_output=True, text=True, timeout=timeout, env=environment
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    return ran.stdout


@pytest.fixture(scope="module")
def release(tmp_path_factory: pytest.TempPathFactory) -> Release:
    """The sdist, and the wheel that is built from it, of a copy of the checkout in which tools have left things."""
    folder = tmp_path_factory.mktemp("release")
    source, built = folder / "source", folder / "built"
    copy_checkout(source)
    shutil.copytree(source, built)
    for left in (
        "tests/__pycache__/a.pyc",
        "clients/node/node_modules/a/a.js",
        "clients/php/vendor/a.php",
        ".venv/a.py",
    ):
        (built / left).parent.mkdir(parents=True)
        (built / left).touch()
    run(sys.executable, "-m", "build", "--installer", "uv", "--outdir", folder / "dist", built, cwd=folder)
    (sdist,), (wheel,) = (folder / "dist").glob("*.tar.gz"), (folder / "dist").glob("*.whl")
    return Release(source, sdist, wheel)


def sources() -> set[str]:
    """Every file of the packages, as a path inside the wheel."""
    return {
        f"{name}/{path.relative_to(folder)}"
        for name, folder in PACKAGES.items()
        for path in folder.rglob("*")
        if path.suffix in (".py", ".lua", ".typed", ".toml", ".html", ".css", ".js", ".svg", ".txt")
    }


def test_the_wheel_holds_the_packages_whole_and_nothing_else(release: Release) -> None:
    files = set(zipfile.ZipFile(release.wheel).namelist())
    about = f"jobqueue-{__version__}.dist-info"
    assert {file for file in files if not file.startswith(f"{about}/")} == sources()
    assert f"{about}/licenses/LICENSE" in files


def test_the_wheel_has_the_version_and_license_of_the_project(release: Release) -> None:
    with zipfile.ZipFile(release.wheel) as wheel:
        metadata = wheel.read(f"jobqueue-{__version__}.dist-info/METADATA").decode()
    assert f"\nVersion: {__version__}\n" in metadata
    assert "\nLicense-Expression: Apache-2.0\n" in metadata


def test_the_wheel_requires_none_of_our_own_names(release: Release) -> None:
    """None of them is registered by us; whoever registers one would be installed by our users."""
    with zipfile.ZipFile(release.wheel) as wheel:
        metadata = wheel.read(f"jobqueue-{__version__}.dist-info/METADATA").decode()
    required = [line for line in metadata.splitlines() if line.startswith("Requires-Dist:")]
    assert len(required) > 10
    assert not [line for line in required if "jobqueue" in line]


def test_the_description_on_a_package_index_has_no_relative_links(release: Release) -> None:
    with zipfile.ZipFile(release.wheel) as wheel:
        metadata = wheel.read(f"jobqueue-{__version__}.dist-info/METADATA").decode()
    description = metadata.partition("\n\n")[2]
    assert "delay-queue service" in description
    assert not re.findall(r"\]\((?!https://)[^)]*\)", description)


def test_the_sdist_holds_the_whole_repository_and_nothing_that_tools_left(release: Release) -> None:
    with tarfile.open(release.sdist) as sdist:
        files = {each.name.partition("/")[2] for each in sdist.getmembers() if each.isfile()}
    made = {file for file in files if file == "PKG-INFO" or file.startswith("jobqueue.egg-info/")}
    there = {str(path.relative_to(release.source)) for path in release.source.rglob("*") if path.is_file()}
    assert {"docs/protocol.md", "conf/jobqueue.toml", "Makefile", ".ci/run", "tests/packaging/test_service.py"} <= there
    assert files - made == there


def test_the_tests_in_the_sdist_run(release: Release, tmp_path: Path) -> None:
    with tarfile.open(release.sdist) as sdist:
        sdist.extractall(tmp_path, filter="data")
    (folder,) = tmp_path.iterdir()
    tests = ("tests/test_layers.py", "tests/documents/test_readme.py", "tests/buckets/test_job.py")
    said = run(sys.executable, "-m", "pytest", "-q", *tests, cwd=folder)
    assert " passed" in said and "skipped" not in said


@contextmanager
def serving(environment: Path, folder: Path) -> Iterator[str]:
    """The service as an environment's `jobqueue` starts it, with the Redis of the extra `embedded`."""
    port = free_port()
    program = str(environment / "bin" / "jobqueue")
    command = [program, "serve", "--port", str(port), "--workers", "1", "--data", "data"]
    with (folder / "log").open("w") as log, subprocess.Popen(command, cwd=folder, stdout=log, stderr=log) as service:
        try:
            yield _ready(f"http://127.0.0.1:{port}", service, folder / "log")
        finally:
            service.terminate()
            service.wait(30)


def _ready(url: str, service: subprocess.Popen[bytes], log: Path) -> str:
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline and service.poll() is None:
        with suppress(OSError):
            fetch(f"{url}/readyz")
            return url
        time.sleep(0.1)
    raise AssertionError(log.read_text())


def fetch(url: str, body: object = None) -> str:
    """The answer to a GET, or to a POST of a body as JSON."""
    data = json.dumps(body).encode() if body else None
    with urllib.request.urlopen(url, data, timeout=10) as response:  # noqa: S310  # the test's own http URL
        text: str = response.read().decode()
    return text


def ask(url: str, **command: object) -> dict[str, Any]:
    answer: dict[str, Any] = json.loads(fetch(f"{url}/command", command))
    return answer


@pytest.mark.parametrize("kind", ["sdist", "wheel"])
def test_a_service_installed_from_it_does_a_job(kind: str, release: Release, tmp_path: Path) -> None:
    environment = tmp_path / "environment"
    venv.create(environment)
    python, jobqueue = environment / "bin" / "python", environment / "bin" / "jobqueue"
    file = getattr(release, kind)
    # Not pip, which takes ten times the work.
    run(sys.executable, "-m", "uv", "pip", "install", "--quiet", "--python", python, f"{file}[embedded]", cwd=tmp_path)
    assert run(jobqueue, "--version", cwd=tmp_path).split()[-1] == __version__
    assert run(jobqueue, "config", cwd=tmp_path) == (ROOT / "conf" / "jobqueue.toml").read_text()
    with serving(environment, tmp_path) as url:
        assert ask(url, command="add", topic="t", id="1", body={"order": 1})["result"] == "created"
        assert ask(url, command="pop", topic="t", wait=5)["value"] == {"order": 1}
        assert ask(url, command="finish", id="1")["state"] == "finished"
        run(jobqueue, "healthcheck", "--port", url.rpartition(":")[2], cwd=tmp_path)
        run(jobqueue, "check", "--port", url.rpartition(":")[2], "--data", "data", cwd=tmp_path)
        assert f'jobqueue_build_info{{version="{__version__}"}}' in fetch(f"{url}/metrics")
        assert json.loads(fetch(f"{url}/openapi.json"))["paths"]
    run(python, "-c", "import jobqueue_client; jobqueue_client.Client; jobqueue_client.Worker", cwd=tmp_path)
    # The connector itself can be imported only where PySpark is installed.
    run(python, "-c", "import importlib.util as i; assert i.find_spec('pyspark_jobqueue')", cwd=tmp_path)
