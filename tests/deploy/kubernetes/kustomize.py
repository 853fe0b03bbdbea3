"""What `kustomize build` makes of a folder, for the few of its features that deploy/kubernetes uses."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

from tests.kit.service import ROOT

KUBERNETES = ROOT / "deploy" / "kubernetes"
COMPONENTS = ["callbacks", "console", "journal"]

Resource = dict[str, Any]

_FEATURES = {
    *("apiVersion", "kind", "namespace", "resources", "components"),
    *("configMapGenerator", "images", "patches"),
}
_KEYS = {
    "volumeMounts": ("mountPath",),
    "topologySpreadConstraints": ("topologyKey", "whenUnsatisfiable"),
    "containers": ("name",),
    "volumes": ("name",),
}
"""What entries of a list are told apart by; other lists are replaced as a whole, and these where the patch says so."""
_REPLACE = {"$patch": "replace"}


def build(folder: Path) -> list[Resource]:
    """The resources of an overlay. Raises FileNotFoundError or LookupError for what it names and is not there."""
    return _built(folder.resolve(), [])


def _built(folder: Path, resources: list[Resource]) -> list[Resource]:
    """The resources given, which a component changes, and those of a folder."""
    wish = yaml.safe_load((folder / "kustomization.yaml").read_text())
    assert wish.keys() <= _FEATURES, f"{folder} uses more than this module knows"
    for name in wish.get("resources", []):
        resources = resources + _read(folder / name)
    for generator in wish.get("configMapGenerator", []):
        _generate(folder, generator, resources)
    for name in wish.get("components", []):
        resources = _built((folder / name).resolve(), resources)
    for patch in wish.get("patches", []):
        text = patch["patch"] if "patch" in patch else (folder / patch["path"]).read_text()
        _patch(yaml.safe_load(text), resources)
    for image in wish.get("images", []):
        _tag(image, resources)
    for resource in resources if "namespace" in wish else []:
        resource["metadata"]["namespace"] = wish["namespace"]
    return resources


def _read(path: Path) -> list[Resource]:
    if path.is_dir():
        return _built(path.resolve(), [])
    return list(yaml.safe_load_all(path.read_text()))


def _generate(folder: Path, generator: dict[str, Any], resources: list[Resource]) -> None:
    data = {name: (folder / name).read_text() for name in generator["files"]}
    if generator.get("behavior") == "merge":
        _find({"kind": "ConfigMap", "metadata": {"name": generator["name"]}}, resources)["data"].update(data)
    else:
        resources.append(
            {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": generator["name"]}, "data": data}
        )


def _find(like: Resource, resources: list[Resource]) -> Resource:
    found = [each for each in resources if _named(each) == _named(like)]
    if len(found) != 1:
        raise LookupError(f"{_named(like)} is there {len(found)} times")
    return found[0]


def _named(resource: Resource) -> tuple[str, str]:
    return resource["kind"], resource["metadata"]["name"]


def _patch(patch: Resource, resources: list[Resource]) -> None:
    target = _find(patch, resources)
    if patch.get("$patch") == "delete":
        resources.remove(target)
    else:
        target.update(_merged(target, patch))


def _merged(old: dict[str, Any], new: dict[str, Any]) -> dict[str, Any]:
    merged = dict(old)
    for name, value in new.items():
        if value is None:
            merged.pop(name, None)
        elif isinstance(value, dict):
            merged[name] = _merged(merged.get(name, {}), value)
        elif name in _KEYS:
            merged[name] = _merged_list(merged.get(name, []), value, _KEYS[name])
        else:
            merged[name] = value
    return merged


def _merged_list(old: list[Resource], new: list[Resource], keys: tuple[str, ...]) -> list[Resource]:
    if _REPLACE in new:
        return [entry for entry in new if entry != _REPLACE]
    entries = {_key(entry, keys): entry for entry in old}
    for entry in new:
        entries[_key(entry, keys)] = _merged(entries.get(_key(entry, keys), {}), entry)
    return list(entries.values())


def _key(entry: Resource, keys: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(entry[key] for key in keys)


def _tag(image: dict[str, str], resources: list[Resource]) -> None:
    for resource in resources:
        for container in resource["spec"]["template"]["spec"]["containers"] if resource["kind"] == "Deployment" else []:
            name = container["image"].partition(":")[0]
            container["image"] = f"{name}:{image['newTag']}" if name == image["name"] else container["image"]
