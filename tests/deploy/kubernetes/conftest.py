"""The overlays, and one with the component of callbacks."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.acceptance.service import ROOT
from tests.deploy.kubernetes.kustomize import Resource, build

KUBERNETES = ROOT / "deploy" / "kubernetes"
OVERLAYS = ["single", "highly-available", "tls", "with-callbacks"]


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
def with_callbacks(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An overlay to which somebody added the component of callbacks."""
    copied = tmp_path_factory.mktemp("kubernetes") / "kubernetes"
    shutil.copytree(KUBERNETES, copied)
    folder = copied / "overlays" / "with-callbacks"
    shutil.copytree(copied / "overlays" / "highly-available", folder)
    with (folder / "kustomization.yaml").open("a") as file:
        file.write("components:\n  - ../../callbacks\n")
    return folder


@pytest.fixture(params=OVERLAYS)
def overlay(request: pytest.FixtureRequest, with_callbacks: Path) -> Overlay:
    """Each overlay."""
    folder = with_callbacks if request.param == "with-callbacks" else KUBERNETES / "overlays" / request.param
    return Overlay(folder)


@pytest.fixture
def called_back(with_callbacks: Path) -> Overlay:
    """The overlay with callbacks."""
    return Overlay(with_callbacks)
