"""The packages of the clients: built by the tools of their languages, installed on their own, and used."""

from __future__ import annotations

import asyncio
import json
import os
import re
import shutil
import subprocess
import tarfile
import tomllib
import venv
import zipfile
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from jobqueue import __version__
from tests.kit.redis_server import RedisServer
from tests.kit.service import ROOT, ServiceProcess

PYTHON, SPARK, NODE, PHP = (ROOT / "clients" / name for name in ("python", "spark", "node", "php"))

_LEFT = (".*", "build", "dist", "*.egg-info", "__pycache__", "node_modules", "vendor", "composer.lock")


def run(folder: Path, *command: str | Path) -> str:
    """The output of a tool that has to succeed. It gets no PYTHONPATH, which could lead back to the checkout."""
    program = shutil.which(command[0])
    if program is None:
        pytest.skip(f"{command[0]} is not installed; .ci/run installs it")
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    environment["COMPOSER_ALLOW_SUPERUSER"] = "1"
    ran = subprocess.run(
        [program, *command[1:]], check=False, cwd=folder, capture_output=True, text=True, timeout=400, env=environment
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    return ran.stdout


def copy(package: Path, folder: Path) -> Path:
    """A copy of a package, so that nothing is built or installed in the checkout."""
    return Path(shutil.copytree(package, folder / package.name, ignore=shutil.ignore_patterns(*_LEFT)))


def packed(folder: Path) -> Path:
    """The Node client as it would be published, in this folder."""
    run(copy(NODE, folder), "npm", "pack", "--silent", "--pack-destination", str(folder))
    (made,) = folder.glob("*.tgz")
    return made


def project(folder: Path, *packages: str | Path) -> Path:
    """A project of a user of Node, with these packages."""
    (folder / "package.json").write_text('{"type": "module"}')
    run(folder, "npm", "install", "--silent", "--no-audit", "--no-fund", *packages)
    return folder


@pytest.fixture
async def service(redis_server: RedisServer, redis: object) -> AsyncIterator[ServiceProcess]:
    async with ServiceProcess("--redis", redis_server.url) as service:
        yield service


def test_the_packages_have_the_version_and_the_license_of_the_project() -> None:
    python, spark = (tomllib.loads((each / "pyproject.toml").read_text())["project"] for each in (PYTHON, SPARK))
    node, lock, php = (
        json.loads(file.read_text())
        for file in (NODE / "package.json", NODE / "package-lock.json", PHP / "composer.json")
    )
    assert {python["version"], spark["version"], node["version"], lock["version"]} == {__version__}
    assert "version" not in php  # Composer takes it from the tag, and `validate --strict` refuses both
    assert {python["license"], spark["license"], node["license"], php["license"]} == {"Apache-2.0"}
    for package in (PYTHON, SPARK, NODE, PHP):
        assert (package / "LICENSE").read_text() == (ROOT / "LICENSE").read_text()


@pytest.fixture(scope="module")
def python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The interpreter of an environment that has pip and nothing else."""
    environment = tmp_path_factory.mktemp("environment")
    venv.create(environment, with_pip=True)
    return environment / "bin" / "python"


def wheel(python: Path, package: Path, folder: Path) -> Path:
    """The wheel of a package."""
    run(folder, python, "-m", "pip", "wheel", "--quiet", "--no-deps", "-w", "wheel", copy(package, folder))
    (made,) = (folder / "wheel").glob("*.whl")
    return made


@pytest.mark.parametrize("client", ["python/jobqueue_client", "spark/pyspark_jobqueue"])
def test_the_wheel_holds_the_package_whole_and_nothing_else(client: str, python: Path, tmp_path: Path) -> None:
    package = ROOT / "clients" / client
    files = zipfile.ZipFile(wheel(python, package.parent, tmp_path)).namelist()
    own = {str(each.relative_to(package.parent)) for each in package.rglob("*.py")}
    assert {file for file in files if ".dist-info/" not in file} == {*own, f"{package.name}/py.typed"}


def test_building_the_python_package_leaves_nothing_in_the_checkout(python: Path, tmp_path: Path) -> None:
    package = copy(PYTHON, tmp_path)
    before = sorted(package.rglob("*"))
    run(tmp_path, python, "-m", "pip", "wheel", "--quiet", "--no-deps", "-w", "wheel", package)
    assert sorted(package.rglob("*")) == before


PYTHON_PROGRAM = """
import sys
import jobqueue_client

with jobqueue_client.Client(sys.argv[1]) as client:
    client.add("package", {"order": 1}, id="python:1")
    job = client.pop("package", wait=5)
    client.finish(job)
    print(job.body["order"], jobqueue_client.__file__)
"""


async def test_the_python_package_works_in_an_empty_environment(
    service: ServiceProcess, python: Path, tmp_path: Path
) -> None:
    def install_and_use() -> str:
        run(tmp_path, python, "-m", "pip", "install", "--quiet", wheel(python, PYTHON, tmp_path))
        return run(tmp_path, python, "-c", PYTHON_PROGRAM, service.url)

    order, file = (await asyncio.to_thread(install_and_use)).split()
    assert order == "1" and Path(file).is_relative_to(python.parents[1])


def test_the_types_of_the_node_client_hold_for_a_strict_user(tmp_path: Path) -> None:
    package = copy(NODE, tmp_path)
    run(package, "npm", "ci", "--silent", "--no-audit", "--no-fund")
    run(package, "npm", "run", "check")


NODE_PROGRAM = """
import { Client } from 'jobqueue-client';

const client = new Client({ url: process.argv[2] });
await client.add('package', { order: 1 }, { id: 'node:1' });
const job = await client.pop('package', { wait: 5 });
await client.finish(job);
console.log(job.body.order);
client.close();
"""


REQUIRED = """
const [major, minor] = process.versions.node.split('.').map(Number);
const mayRequire = major > 22 || (major === 22 && minor >= 12) || (major === 20 && minor >= 19);
const loaded = mayRequire ? Promise.resolve(require('jobqueue-client')) : import('jobqueue-client');
loaded.then(({ Client }) => console.log(typeof Client));
"""  # as its README says


def test_the_node_package_has_what_it_needs_and_no_more(tmp_path: Path) -> None:
    (package,) = json.loads(run(copy(NODE, tmp_path), "npm", "pack", "--dry-run", "--json"))
    files = {each["path"] for each in package["files"]}
    own = {str(file.relative_to(NODE)) for part in ("src", "types") for file in (NODE / part).rglob("*.*s")}
    assert files == {*own, "LICENSE", "README.md", "package.json"}
    assert not json.loads((NODE / "package.json").read_text()).get("dependencies")


def test_the_lines_of_the_node_readme_install_a_copy_and_leave_the_checkout_alone(tmp_path: Path) -> None:
    package = copy(NODE, tmp_path / "jobqueue" / "clients")
    before = {file.relative_to(package) for file in package.rglob("*")}
    readme = (NODE / "README.md").read_text()
    lines = re.findall(r"npm (?:install|pack) [^#`\n]*jobqueue[^#`\n]*", readme)
    assert len(lines) == 3
    for used in (lines[:1], lines[1:]):
        shop = tmp_path / f"shop{len(used)}"
        shop.mkdir()
        (shop / "package.json").write_text("{}")
        for line in used:
            run(
                shop,
                *line.split(),
                "--silent",
                *(["--no-audit", "--no-fund", "--offline"] if "install" in line else []),
            )
        installed = shop / "node_modules" / "jobqueue-client"
        assert (installed / "src").is_dir() and not installed.is_symlink()
    assert {file.relative_to(package) for file in package.rglob("*")} == before


async def test_the_node_package_works_in_an_empty_folder(service: ServiceProcess, tmp_path: Path) -> None:
    def install_and_use() -> str:
        package = packed(tmp_path)
        shop = tmp_path / "shop"
        shop.mkdir()
        (shop / "package.json").write_text("{}")
        (shop / "program.mjs").write_text(NODE_PROGRAM)
        run(shop, "npm", "install", "--silent", "--no-audit", "--no-fund", "--offline", package)
        (shop / "program.cjs").write_text(REQUIRED)
        assert run(shop, "node", "program.cjs") == "function\n"
        return run(shop, "node", "program.mjs", service.url)

    assert await asyncio.to_thread(install_and_use) == "1\n"


def test_the_php_package_is_valid_and_its_files_are_php() -> None:
    run(PHP, "composer", "validate", "--strict", "--no-check-lock", "--no-interaction")
    for file in sorted(PHP.rglob("*.php")):
        run(PHP, "php", "-l", file)


# Folders of the PHP client whose classes extend those of a framework: tests/clients/php loads them with it.
ADAPTERS = {"Laravel", "Symfony", "Testing"}


def test_composer_loads_every_class_of_the_php_client(tmp_path: Path) -> None:
    package = copy(PHP, tmp_path)
    run(package, "composer", "dump-autoload", "--quiet", "--no-interaction")
    files = sorted(file for file in (package / "src").rglob("*.php") if file.parent.name not in ADAPTERS)
    names = [
        ".".join(("JobQueue", "Client", *file.relative_to(package / "src").with_suffix("").parts)) for file in files
    ]
    exists = " || ".join(f"{kind}_exists($name)" for kind in ("class", "enum", "interface", "trait"))
    asked = f"foreach ({names} as $each) {{ $name = strtr($each, '.', '\\\\'); ({exists}) || exit($name); }}"
    assert names and run(package, "php", "-r", f"require 'vendor/autoload.php';{asked}") == ""


PHP_PROGRAM = """<?php
require 'vendor/autoload.php';
$client = new JobQueue\\Client\\Client($argv[1]);
$client->add('package', ['order' => 1], id: 'php:1');
$job = $client->pop('package', wait: 5);
$client->finish($job);
echo $job->body['order'];
"""


async def test_the_php_package_works_in_an_empty_folder(service: ServiceProcess, tmp_path: Path) -> None:
    """Composer makes the archive; here a folder takes the place of the registry, under the project's version."""

    def install_and_use() -> str:
        archive = ("composer", "archive", "--quiet", "--format=tar", "--file=package", f"--dir={tmp_path}")
        run(copy(PHP, tmp_path), *archive)
        with tarfile.open(tmp_path / "package.tar") as packed:
            packed.extractall(tmp_path / "package", filter="data")
        shop = tmp_path / "shop"
        shop.mkdir()
        options = {"symlink": False, "versions": {"jobqueue/client": __version__}}
        repository = {"type": "path", "url": str(tmp_path / "package"), "options": options}
        wanted = {"repositories": [repository, {"packagist.org": False}], "require": {"jobqueue/client": __version__}}
        (shop / "composer.json").write_text(json.dumps(wanted))
        (shop / "program.php").write_text(PHP_PROGRAM)
        run(shop, "composer", "install", "--quiet", "--no-interaction")
        return run(shop, "php", "program.php", service.url)

    assert await asyncio.to_thread(install_and_use) == "1"
