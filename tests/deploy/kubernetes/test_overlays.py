"""The overlays of deploy/kubernetes are whole, and Kubernetes knows all of their fields."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml

from jobqueue import __version__, settings
from tests.deploy.images import dockerfile
from tests.deploy.kubernetes.conftest import OVERLAYS, Overlay
from tests.deploy.kubernetes.kustomize import KUBERNETES, build

OLDEST, NEWEST = "1.25", kubernetes_validate.latest_version()


def test_kubernetes_knows_every_field_in_the_oldest_and_the_newest_version(overlay: Overlay) -> None:
    assert len(overlay.resources) > 5
    for resource in overlay.resources:
        for version in (OLDEST, NEWEST):
            kubernetes_validate.validate(resource, version, strict=True)


@pytest.mark.parametrize("name", OVERLAYS)
def test_kustomize_makes_the_same_of_it_where_it_is_installed(overlays: Path, name: str) -> None:
    """`kubectl` brings it; neither is in Debian 12 or on PyPI."""
    for program in (["kubectl", "kustomize"], ["kustomize", "build"]):
        if shutil.which(program[0]):
            built = subprocess.run([*program, overlays / name], capture_output=True, text=True, check=True).stdout
            unhashed = re.sub(r"(?<=name: jobqueue)(-console)?-\w{10}$", r"\1", built, flags=re.MULTILINE)
            assert _sorted([*yaml.safe_load_all(unhashed)]) == _sorted(build(overlays / name))


def _sorted(value: Any) -> Any:
    """With the entries of every list in some fixed order: they may come in any."""
    if isinstance(value, dict):
        return {name: _sorted(value[name]) for name in sorted(value)}
    return sorted(map(_sorted, value), key=repr) if isinstance(value, list) else value


def test_no_file_is_left_over() -> None:
    named = {"kustomization.yaml"}
    for file in KUBERNETES.rglob("kustomization.yaml"):
        wish = yaml.safe_load(file.read_text())
        named |= {*wish.get("resources", []), *(patch.get("path") for patch in wish.get("patches", []))}
        named |= {name for generator in wish.get("configMapGenerator", []) for name in generator["files"]}
    assert {file.name for file in KUBERNETES.rglob("*") if file.is_file()} <= named
    assert {folder.name for folder in (KUBERNETES / "overlays").iterdir()} == {
        each for each in OVERLAYS if not each.startswith("with-")
    }


def test_every_file_begins_with_the_lines_that_use_it() -> None:
    for file in KUBERNETES.rglob("*.*"):
        first, second = file.read_text().splitlines()[:2]
        assert re.match(r"# (kubectl|kustomize) ", first), file
        assert second.startswith("# "), file


def test_everything_is_in_one_namespace_of_its_own(overlay: Overlay) -> None:
    assert {each["metadata"]["namespace"] for each in overlay.resources} == {"jobqueue"}


def test_the_image_is_this_version(overlay: Overlay) -> None:
    images = {container["image"] for pod in overlay.pods() for container in pod["spec"]["containers"]}
    assert images == {f"jobqueue:{__version__}" + ("-embedded" if overlay.name == "single" else "")}


def test_the_settings_ask_for_tokens_and_their_files_are_mounted(overlay: Overlay, tmp_path: Path) -> None:
    text = overlay.one("ConfigMap")["data"]["jobqueue.toml"]
    mounts = [mount["mountPath"] for mount in overlay.container()["volumeMounts"]]
    paths = re.findall(r'"(/[^"]+)"', text)
    assert len(paths) > 1
    assert all(any(path.startswith(mount) for mount in mounts) for path in paths)
    (tmp_path / "redis-url").write_text("redis://redis:6379")
    file = tmp_path / "jobqueue.toml"
    file.write_text(text.replace("/run/secrets/jobqueue/", f"{tmp_path}/"))
    loaded = settings.load({}, str(file), {})
    assert loaded.access == "tokens"
    assert loaded.tokens_file
    assert dockerfile.environment()["JOBQUEUE_CONFIG"] == "/etc/jobqueue/jobqueue.toml"
    assert "/etc/jobqueue" in mounts


def test_a_change_of_the_settings_replaces_the_pods() -> None:
    """By the hash that kustomize adds to the name of what it generates."""
    wishes = [yaml.safe_load(file.read_text()) for file in KUBERNETES.rglob("kustomization.yaml")]
    assert [wish for wish in wishes if "configMapGenerator" in wish]
    assert not [wish for wish in wishes if "generatorOptions" in wish]


def test_one_pod_on_a_volume_is_never_two(overlay: Overlay) -> None:
    if overlay.name == "single":
        deployment = overlay.one("Deployment")["spec"]
        assert deployment["replicas"] == 1
        assert deployment["strategy"] == {"type": "Recreate"}
        assert overlay.kinds().isdisjoint({"HorizontalPodAutoscaler", "PodDisruptionBudget"})
        assert overlay.one("PersistentVolumeClaim")


def test_with_tls_the_probes_speak_it(overlay: Overlay) -> None:
    probes = [overlay.container()[f"{name}Probe"]["httpGet"] for name in ("startup", "readiness", "liveness")]
    has_tls = "tls_cert" in overlay.one("ConfigMap")["data"]["jobqueue.toml"]
    assert has_tls == (overlay.name == "tls")
    assert {probe.get("scheme") for probe in probes} == {"HTTPS" if has_tls else None}
