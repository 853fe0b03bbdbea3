"""The overlays, and one with each component; the same by the chart."""

from __future__ import annotations

import functools
import json
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.deploy.kubernetes.chart import CHART
from tests.deploy.kubernetes.kustomize import COMPONENTS, KUBERNETES, Resource, build
from tests.deploy.programs import program

VALUES: dict[str, dict[str, Any]] = {
    "single": {"single": {"enabled": True}},
    "highly-available": {},
    "tls": {"tls": {"enabled": True}},
    **{f"with-{name}": {name: {"enabled": True}} for name in COMPONENTS},
}
"""The values with which the chart is like an overlay."""
OVERLAYS = [*VALUES]


class Overlay:
    """What an overlay brings into a cluster."""

    def __init__(self, name: str, resources: list[Resource]) -> None:
        self.name = name
        self.resources = resources

    def one(self, kind: str, name: str = "jobqueue") -> Resource:
        """The resource of this kind and name."""
        (found,) = (each for each in self.resources if (each["kind"], each["metadata"]["name"]) == (kind, name))
        return found

    def kinds(self) -> set[str]:
        """The kinds of its resources."""
        return {each["kind"] for each in self.resources}

    def pods(self) -> list[Resource]:
        """The templates of pods."""
        return [each["spec"]["template"] for each in self.resources if each["kind"] == "Deployment"]

    def pod(self) -> Resource:
        """What a pod of the service is to be."""
        found: Resource = self.one("Deployment")["spec"]["template"]["spec"]
        return found

    def container(self) -> Resource:
        """The container of the service."""
        (found,) = self.pod()["containers"]
        return dict(found)


@pytest.fixture(scope="session")
def overlays(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The overlays, and those to which somebody added a component."""
    copied = tmp_path_factory.mktemp("kubernetes") / "kubernetes"
    shutil.copytree(KUBERNETES, copied)
    for name in COMPONENTS:
        folder = copied / "overlays" / f"with-{name}"
        shutil.copytree(copied / "overlays" / "highly-available", folder)
        with (folder / "kustomization.yaml").open("a") as file:
            file.write(f"components:\n  - ../../{name}\n")
    return copied / "overlays"


def helm(*arguments: str | Path, values: dict[str, Any] | None = None) -> str:
    """What helm prints. Raises CalledProcessError with its error."""
    command = [program("helm"), *arguments, *(["--values", "-"] if values else [])]
    return subprocess.run(command, input=json.dumps(values), capture_output=True, text=True, check=True).stdout


def charted(values: dict[str, Any], release: str = "jobqueue") -> list[Resource]:
    """The resources of a release of the chart in the namespace `jobqueue`."""
    return [*yaml.safe_load_all(helm("template", release, CHART, "--namespace", "jobqueue", values=values))]


@functools.cache
def _charted(name: str) -> list[Resource]:
    return charted(VALUES[name])


@pytest.fixture(params=["kustomize", "helm"])
def built(request: pytest.FixtureRequest, overlays: Path) -> Callable[[str], Overlay]:
    """An overlay by its name, as kustomize and as the chart make it."""
    if request.param == "helm":
        return lambda name: Overlay(name, _charted(name))
    return lambda name: Overlay(name, build(overlays / name))


@pytest.fixture(params=OVERLAYS)
def overlay(request: pytest.FixtureRequest, built: Callable[[str], Overlay]) -> Overlay:
    """Each overlay."""
    return built(request.param)


@pytest.fixture
def called_back(built: Callable[[str], Overlay]) -> Overlay:
    """The overlay with callbacks."""
    return built("with-callbacks")


@pytest.fixture
def looked_at(built: Callable[[str], Overlay]) -> Overlay:
    """The overlay with a console."""
    return built("with-console")


@pytest.fixture
def told(built: Callable[[str], Overlay]) -> Overlay:
    """The overlay with a journal."""
    return built("with-journal")
