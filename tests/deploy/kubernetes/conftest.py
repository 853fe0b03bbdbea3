"""The overlays, and one with each component."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.deploy.kubernetes.kustomize import Resource, build
from tests.kit.service import ROOT

KUBERNETES = ROOT / "deploy" / "kubernetes"
COMPONENTS = ["callbacks", "console", "journal"]
OVERLAYS = ["single", "highly-available", "tls", *(f"with-{name}" for name in COMPONENTS)]


class Overlay:
    """What an overlay brings into a cluster."""

    def __init__(self, folder: Path) -> None:
        self.name = folder.name
        self.folder = folder
        self.resources = build(folder)

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


@pytest.fixture(params=OVERLAYS)
def overlay(request: pytest.FixtureRequest, overlays: Path) -> Overlay:
    """Each overlay."""
    return Overlay(overlays / request.param)


@pytest.fixture
def called_back(overlays: Path) -> Overlay:
    """The overlay with callbacks."""
    return Overlay(overlays / "with-callbacks")


@pytest.fixture
def looked_at(overlays: Path) -> Overlay:
    """The overlay with a console."""
    return Overlay(overlays / "with-console")


@pytest.fixture
def told(overlays: Path) -> Overlay:
    """The overlay with a journal."""
    return Overlay(overlays / "with-journal")
