"""Installs what the bench needs into .bench/ of the checkout, without root: each thing once, in the version given here.

beanstalkd comes from PATH if available, otherwise from its Debian package.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

from bench.compare import MissingError

HOME = Path(__file__).parents[2] / ".bench"
NPM = {"bullmq": "6.7.0", "ioredis": "6.0.0"}
# Separate environments: arq needs redis below 6, Celery 6.4 or newer.
PIP = {
    "arq": {"arq": "0.28.0", "hiredis": "3.5.0", "uvloop": "0.23.0"},
    "celery": {"celery[redis]": "5.7.0", "hiredis": "3.5.0"},
}
DEBIAN = {"beanstalkd": ["beanstalkd", "libsystemd0"]}
_NODE = (18,)
_PATIENCE_S = 300


def program(name: str) -> tuple[str, dict[str, str]]:
    """The path of a program of DEBIAN, and the environment to run it in. Raises MissingError if it is not available."""
    if found := shutil.which(name):
        return found, dict(os.environ)
    folder = HOME / "debian" / name
    if not (folder / ".complete").exists():
        _unpack(DEBIAN[name], folder)
    path = next((each for each in (folder / "usr" / "bin").glob(name)), None)
    libraries = ":".join({str(each.parent) for each in folder.glob("**/lib*.so.*")})
    if path is None:
        raise MissingError(f"no {name} in its Debian package")
    return str(path), {**os.environ, "LD_LIBRARY_PATH": libraries}


def _unpack(packages: list[str], folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    if not shutil.which("apt-get"):
        raise MissingError(f"{packages[0]} is not on PATH, and there is no apt-get to get it with")
    _run("apt-get", "download", *packages, cwd=folder)
    for each in folder.glob("*.deb"):
        _run("dpkg-deb", "-x", str(each), ".", cwd=folder)
    (folder / ".complete").touch()


def node() -> Path:
    """A folder whose node_modules has the packages of NPM. Raises MissingError without Node 18, or if npm cannot
    install them."""
    if not shutil.which("node") or not shutil.which("npm"):
        raise MissingError("node 18 or newer and npm are not on PATH")
    said = subprocess.run(["node", "--version"], capture_output=True, text=True, check=True).stdout  # noqa: S607
    if tuple(int(each) for each in said.lstrip("v").split(".")[:1]) < _NODE:
        raise MissingError(f"node is {said.strip()}, 18 or newer is needed")
    folder, wanted = HOME / "node", [f"{name}@{version}" for name, version in NPM.items()]
    if _stale(folder, wanted):
        folder.mkdir(parents=True, exist_ok=True)
        _run("npm", "install", "--prefix", str(folder), "--no-audit", "--no-fund", *wanted, cwd=folder)
        (folder / ".complete").write_text(" ".join(wanted))
    return folder


def python(system: str) -> Path:
    """The Python of an environment with a system's packages of PIP. Raises MissingError if pip cannot install them."""
    folder, wanted = HOME / f"venv-{system}", [f"{name}=={version}" for name, version in PIP[system].items()]
    if _stale(folder, wanted):
        _run(sys.executable, "-m", "venv", "--clear", str(folder), cwd=HOME.parent)
        _run(str(folder / "bin" / "pip"), "install", "--quiet", *wanted, cwd=folder)
        (folder / ".complete").write_text(" ".join(wanted))
    return folder / "bin" / "python"


def _stale(folder: Path, wanted: list[str]) -> bool:
    done = folder / ".complete"
    return not done.exists() or done.read_text() != " ".join(wanted)


def _run(*command: str, cwd: Path) -> None:
    try:
        subprocess.run(command, cwd=cwd, check=True, capture_output=True, text=True, timeout=_PATIENCE_S)
    except (subprocess.CalledProcessError, subprocess.TimeoutExpired) as error:
        said = (error.stderr or "") if isinstance(error.stderr, str) else ""
        hint = "; `apt-get update` may help" if command[0] == "apt-get" else ""
        raise MissingError(f"`{' '.join(command[:3])}` failed{hint}: {said.strip()[-300:]}") from error
