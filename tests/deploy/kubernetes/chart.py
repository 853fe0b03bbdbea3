"""The templates of deploy/helm, made from deploy/kubernetes: `make chart` writes them.

The overlays are built, and their resources merged: a field that all of them have is written once, any other under the
values that choose an overlay. `_placed` turns fields into values; `_extended` adds what a chart needs besides.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterable, Iterator, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from itertools import groupby
from typing import Any

import yaml

from tests.deploy.kubernetes.kustomize import COMPONENTS, KUBERNETES, Resource, build
from tests.kit.service import ROOT

CHART = ROOT / "deploy" / "helm" / "jobqueue"
FOLDERS = ["service", *COMPONENTS]
"""Of the templates that are made."""

_HEAD = "{{- /* Made from deploy/kubernetes by `make chart`. */}}"
_WHEN = {
    frozenset({"single"}): ".Values.single.enabled",
    frozenset({"highly-available", "tls"}): "not .Values.single.enabled",
    frozenset({"tls"}): ".Values.tls.enabled",
    frozenset({"highly-available", "single"}): "not .Values.tls.enabled",
}
"""The condition of fields that these overlays have, and the others have not."""
_OVERLAYS = frozenset().union(*_WHEN)

_NAMED = re.compile(r"(^metadata|scaleTargetRef|configMap)\.name$|(serviceAccount|claim)Name$")
_SECRET = re.compile(r"secretName$|secret\.name$")
_SECRETS = {
    "jobqueue": ".Values.secret",
    "jobqueue-tls": ".Values.tls.secret",
    "jobqueue-callbacks": ".Values.callbacks.secret",
    "jobqueue-journal": ".Values.journal.secret",
}
_PEERS = {
    "jobqueue.client: true": "clients",
    "kubernetes.io/metadata.name: monitoring": "monitoring",
    "jobqueue.redis: true": "redis",
    "jobqueue.journal: true": "database",
    "jobqueue.ingress: true": "ingress",
}
"""Values of `networkPolicy`, by the label of the namespaces."""
_VALUES = {
    "metadata.namespace": "{{ .Release.Namespace | quote }}",
    "spec.minReplicas": "{{ .Values.autoscaling.min | default %s }}",
    "spec.maxReplicas": "{{ .Values.autoscaling.max | default %s }}",
    "spec.resources.requests.storage": "{{ .Values.single.storage | quote }}",
    "spec.template.spec.containers.image": '{{ include "jobqueue.image" . | quote }}',
}
"""Other fields that are values; %s is what the manifest has."""
_CHECKSUM = '(include (print .Template.BasePath "/%s/configmap.yaml") . | sha256sum)'
_CA = "/run/secrets/jobqueue-ca"


@dataclass(frozen=True)
class Given:
    """An expression, which may be empty: then the field is as in the manifests or, if that is None, left out."""

    expression: str
    otherwise: Any = None


@dataclass(frozen=True)
class Settings:
    """The text of a settings file: assignments, each unless the expression has a setting of that name; its text."""

    expression: str
    assignments: list[str]


def made() -> dict[str, str]:
    """The templates, by their paths below `templates/`."""
    overlays = {name: _overlay(name) for name in sorted(_OVERLAYS)}
    files: dict[str, list[str]] = {}
    for kind, name in dict.fromkeys(key for resources in overlays.values() for key in resources):
        variants = {each: resources[kind, name] for each, resources in overlays.items() if (kind, name) in resources}
        component = _component(name)
        document = ["---", *_lines(variants)]
        for condition in (
            _condition(variants.keys(), _OVERLAYS),
            f".Values.{component}.enabled" if component in COMPONENTS else "",
        ):
            document = [*_guarded(condition, document)]
        files.setdefault(f"{component}/{kind.lower()}.yaml", [_HEAD]).extend(document)
    return {path: "".join(f"{_deep(line)}\n" for line in lines) for path, lines in files.items()}


def _overlay(name: str) -> dict[tuple[str, str], Resource]:
    """The resources of an overlay and of all components, by kind and name, with their values."""
    resources = build(KUBERNETES / "overlays" / name)
    for component in COMPONENTS:
        resources += build(KUBERNETES / component)
    for deployment in resources:
        if name == "tls" and deployment["kind"] == "Deployment":
            _trust(deployment["spec"]["template"]["spec"])
    return {(each["kind"], each["metadata"]["name"]): _placed(_extended(each)) for each in resources}


def _trust(pod: Resource) -> None:
    """Let the client in a pod speak TLS."""
    (container,) = pod["containers"]
    if any(word.startswith("--url=") for word in container.get("args", [])):
        urls = [word.replace("http:", "https:") for word in container["args"]]
        container["args"] = [*urls, f"--ca-file={_CA}/ca.crt"]
        container["volumeMounts"].append({"name": "ca", "mountPath": _CA, "readOnly": True})
        authority = {"secretName": "jobqueue-tls", "items": [{"key": "ca.crt", "path": "ca.crt"}]}
        pod["volumes"].append({"name": "ca", "secret": {**authority, "defaultMode": 0o444}})


def _component(name: str) -> str:
    return re.sub("^jobqueue(-from)?-?", "", name) or "service"


def _extended(resource: Resource) -> Resource:
    """With the fields that only the chart has."""
    kind, component = resource["kind"], _component(resource["metadata"]["name"])
    labels = {"app.kubernetes.io/name": "jobqueue", "app.kubernetes.io/component": component}
    metadata = {"name": "", "namespace": "", "labels": labels, **resource["metadata"]}
    extended = {**resource, "metadata": metadata}
    if kind == "ServiceAccount":
        metadata["annotations"] = Given(".Values.serviceAccount.annotations")
        extended["imagePullSecrets"] = Given(".Values.image.pullSecrets")
    elif kind == "PersistentVolumeClaim":
        metadata["annotations"] = {"helm.sh/resource-policy": "keep"}
        extended["spec"]["storageClassName"] = Given(".Values.single.storageClass")
    elif kind == "ConfigMap":
        values = ".Values.settings" if component == "service" else f".Values.{component}.settings"
        extended["data"] = {name: Settings(values, _assignments(text)) for name, text in resource["data"].items()}
    elif kind == "Deployment":
        if component == "service":
            (container,) = extended["spec"]["template"]["spec"]["containers"]
            container["resources"] = Given(".Values.resources", container["resources"])
        annotations = ".Values.podAnnotations"
        if any("configMap" in volume for volume in extended["spec"]["template"]["spec"]["volumes"]):
            annotations = f'merge (dict "checksum/settings" {_CHECKSUM % component}) {annotations}'
        extended["spec"]["template"]["metadata"]["annotations"] = Given(annotations)
    return extended


def _assignments(text: str) -> list[str]:
    return [line for line in text.splitlines() if not line.startswith("#")]


def _placed(value: Any, path: str = "") -> Any:
    """With expressions in the place of what is a value of the chart. `path`: names, without the positions in lists."""
    if isinstance(value, dict):
        placed = {name: _placed(each, f"{path}.{name}".lstrip(".")) for name, each in value.items()}
        return _labelled(placed, path) if "app.kubernetes.io/component" in value else placed
    if isinstance(value, list):
        return _peers(value, [_placed(each, path) for each in value])
    return _scalar_placed(value, path)


def _scalar_placed(value: Any, path: str) -> Any:
    if path in _VALUES:
        return _VALUES[path].replace("%s", str(value))
    if _SECRET.search(path):
        return f"{{{{ {_SECRETS[value]} | quote }}}}"
    if _NAMED.search(path):
        return _name(value)
    return _argument(value) if path.endswith(".args") else value


def _labelled(labels: Resource, path: str) -> Resource:
    labels = {**labels, "app.kubernetes.io/instance": "{{ .Release.Name | quote }}"}
    if path == "metadata.labels":
        labels["app.kubernetes.io/managed-by"] = "{{ .Release.Service }}"
        labels["helm.sh/chart"] = "{{ .Chart.Name }}-{{ .Chart.Version }}"
    return labels


def _peers(peers: list[Any], placed: list[Any]) -> Any:
    if len(peers) == 1 and isinstance(peers[0], dict) and peers[0].keys() == {"namespaceSelector"}:
        ((label, value),) = peers[0]["namespaceSelector"]["matchLabels"].items()
        if f"{label}: {value}" in _PEERS:
            return Given(f".Values.networkPolicy.{_PEERS[f'{label}: {value}']}", placed)
    return placed


def _name(name: str) -> str:
    return name.replace("jobqueue", '{{ include "jobqueue.name" . }}', 1)


def _argument(word: str) -> str:
    if word == "--topic=callbacks":
        return '{{ print "--topic=" .Values.callbacks.topic | quote }}'
    return f"--url={_name(word.removeprefix('--url='))}" if word.startswith("--url=") else word


def _lines(variants: Mapping[str, Any]) -> list[str]:
    """The YAML of a mapping or list, by the overlays that have it: what some of them lack is under a condition."""
    parts = _fields(variants) if isinstance(_first(variants), dict) else _items(variants)
    return [
        line
        for condition, same in groupby(parts, key=lambda part: part[0])
        for line in _guarded(condition, [line for _, lines in same for line in lines])
    ]


def _fields(variants: Mapping[str, Resource]) -> Iterator[tuple[str, list[str]]]:
    for name in dict.fromkeys(name for each in variants.values() for name in each):
        having = {overlay: each[name] for overlay, each in variants.items() if name in each}
        for alike in _alike(having):
            yield _condition(alike.keys(), variants.keys()), _field(name, alike)


def _items(variants: Mapping[str, list[Any]]) -> Iterator[tuple[str, list[str]]]:
    for key in dict.fromkeys(_key(item) for items in variants.values() for item in items):
        having = {overlay: item for overlay, items in variants.items() for item in items if _key(item) == key}
        for alike in _alike(having):
            first, *others = _lines(alike) if isinstance(_first(alike), dict) else [_scalar(_first(alike))]
            yield _condition(alike.keys(), variants.keys()), [f"- {first}", *(f"  {line}" for line in others)]


def _alike(variants: dict[str, Any]) -> list[dict[str, Any]]:
    """The overlays in groups, each of which has the same here, or parts in common."""
    kinds = {*map(type, variants.values())}
    if len(kinds) == 1 and kinds <= {dict, list, Given, Settings}:
        return [variants]
    values = [value for number, value in enumerate(variants.values()) if value not in [*variants.values()][:number]]
    return [{overlay: each for overlay, each in variants.items() if each == value} for value in values]


def _field(name: str, variants: Mapping[str, Any]) -> list[str]:
    """The lines of a field, whose value is similar in these overlays."""
    value = _first(variants)
    if isinstance(value, Settings):
        return [f"{name}: |", *_indented(_settings(value.expression, variants))]
    if isinstance(value, dict | list) and value:
        return [f"{name}:", *_indented(_lines(variants))]
    if not isinstance(value, Given):
        return [f"{name}: {_scalar(value)}"]
    given = "{{- toYaml . | nindent @ }}"
    if value.otherwise is None:
        return [*_guarded(value.expression, [f"{name}:", f"  {given}"], "with")]
    otherwise = _lines({overlay: each.otherwise for overlay, each in variants.items()})
    return [f"{name}:", *_indented(_guarded(value.expression, [given, "{{- else }}", *otherwise], "with"))]


def _settings(expression: str, variants: Mapping[str, Settings]) -> Iterator[str]:
    says = f"{expression.removeprefix('.Values.')} is not TOML: "
    yield f"{{{{- $given := fromToml {expression} }}}}"
    yield from _guarded('hasKey $given "Error"', [f'{{{{- fail (print "{says}" $given.Error) }}}}'])
    for line in dict.fromkeys(line for each in variants.values() for line in each.assignments):
        having = {overlay for overlay, each in variants.items() if line in each.assignments}
        assigned = _guarded(f'not (hasKey $given "{line.partition(" = ")[0]}")', [line])
        yield from _guarded(_condition(having, variants.keys()), assigned)
    yield from _guarded(expression, ["{{- . | nindent @ }}"], "with")


def _guarded(condition: str, lines: Iterable[str], by: str = "if") -> Iterator[str]:
    yield from [f"{{{{- {by} {condition} }}}}", *lines, "{{- end }}"] if condition else lines


def _condition(having: AbstractSet[str], among: AbstractSet[str]) -> str:
    """When the chart is one of these overlays, if it is one of those."""
    if having == among:
        return ""
    for overlays, condition in _WHEN.items():
        if overlays & among == having:
            return condition
    raise LookupError(f"no condition tells {sorted(having)} from the others of {sorted(among)}")


def _first(variants: Mapping[str, Any]) -> Any:
    return next(iter(variants.values()))


def _key(item: Any) -> str:
    """What an item of a list is told apart by."""
    return str(item.get("name", item.get("topologyKey", item)) if isinstance(item, dict) else item)


def _scalar(value: Any) -> str:
    if isinstance(value, str) and "{{" in value:
        return value
    text: str = yaml.safe_dump(value, default_flow_style=True, width=10_000)
    return text.removesuffix("\n").removesuffix("\n...")


def _indented(lines: Iterable[str]) -> list[str]:
    return [f"  {line}" for line in lines]


def _deep(line: str) -> str:
    """With the number of its spaces, by which what it inserts is indented."""
    return line.replace("nindent @", "nindent " + str(len(line) - len(line.lstrip())))


if __name__ == "__main__":
    for folder in FOLDERS:
        shutil.rmtree(CHART / "templates" / folder, ignore_errors=True)
    for path, text in made().items():
        (CHART / "templates" / path).parent.mkdir(exist_ok=True)
        (CHART / "templates" / path).write_text(text)
