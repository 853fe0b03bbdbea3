"""The chart of deploy/helm has what the overlays have, and its values do what they say."""

from __future__ import annotations

import re
import shutil
import subprocess
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from jobqueue import __version__
from tests.deploy.kubernetes.chart import CHART, FOLDERS, made
from tests.deploy.kubernetes.conftest import OVERLAYS, VALUES, charted, helm
from tests.deploy.kubernetes.kustomize import COMPONENTS, Resource, build
from tests.kit.service import JOBQUEUE, ROOT
from tests.packaging.test_service import run

ALL = {name: {"enabled": True} for name in COMPONENTS}
TLS = {f"tls_{name}": f"/run/secrets/jobqueue-tls/tls.{ending}" for name, ending in (("cert", "crt"), ("key", "key"))}
LONGEST_NAME = 63
"""Of a Kubernetes service."""
ADDED = {
    *("app.kubernetes.io/instance", "app.kubernetes.io/managed-by", "helm.sh/chart"),  # labels
    "checksum/settings",  # in the place of the hash that kustomize puts into the name of a config map
    "helm.sh/resource-policy",  # keeps the volume when the release is uninstalled
}
"""What only the chart has, by the names of labels and annotations."""
_PEERS = [{"ipBlock": {"cidr": "192.0.2.1/32"}}]
GIVEN: dict[str, tuple[Any, Any]] = {
    "image.repository": ("registry.example/queue", {"image": f"registry.example/queue:{__version__}"}),
    "image.tag": ("7", {"image": "jobqueue:7"}),
    "image.pullSecrets": ([{"name": "registry"}], {"imagePullSecrets": [{"name": "registry"}]}),
    "secret": ("own", {"secretName": "own"}),
    "settings": (
        'durability = "local"\n[topics.mail]\nrate = 5',
        {"access": "tokens", "durability": "local", "topics": {"mail": {"rate": 5}}},
    ),
    "autoscaling": ({"min": 4, "max": 4}, {"minReplicas": 4, "maxReplicas": 4}),
    "resources": ({"requests": {"cpu": "3"}}, {"resources": {"requests": {"cpu": "3"}}}),
    "podAnnotations": ({"example/pod": "yes"}, {"annotations": {"example/pod": "yes"}}),
    "serviceAccount.annotations": ({"example/account": "yes"}, {"annotations": {"example/account": "yes"}}),
    "single.storage": ("9Gi", {"storage": "9Gi"}),
    "single.storageClass": ("fast", {"storageClassName": "fast"}),
    "tls.secret": ("own", {"secretName": "own"}),
    "callbacks.secret": ("own", {"secretName": "own"}),
    "callbacks.topic": ("calls: all", "--topic=calls: all"),
    "console.settings": ('console_hosts = ["queue"]', {"console_hosts": ["queue"], "console_colour": "grey"}),
    "journal.secret": ("own", {"name": "own"}),
    "networkPolicy.clients": (_PEERS, {"from": _PEERS}),
    "networkPolicy.monitoring": (_PEERS, {"from": _PEERS}),
    "networkPolicy.redis": (_PEERS, {"to": _PEERS}),
    "networkPolicy.database": (_PEERS, {"to": _PEERS}),
    "networkPolicy.ingress": (_PEERS, {"from": _PEERS}),
}
"""Each value, with what it brings into a resource."""
REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"replicas": 3}, "Additional property replicas is not allowed"),
    ({"image": {"tag": 1.0}}, "image.tag: Invalid type. Expected: string"),
    ({"secret": ""}, "secret: String length must be greater than or equal to 1"),
    ({"tls": {"enabled": True, "secret": ""}}, "tls.secret: String length"),
    ({"autoscaling": {"min": 0, "max": 3}}, "autoscaling.min: Must be greater than or equal to 1"),
    ({"autoscaling": {"min": 12}}, "autoscaling: Has a dependency on max"),
    ({"autoscaling": {"min": 4, "max": 3}}, "autoscaling: min is greater than max"),
    ({"single": {"enabled": True}, "autoscaling": {"min": 1, "max": 2}}, "single: one pod with a Redis"),
    ({"single": {"enabled": True}, "journal": {"enabled": True}}, "single: the journal needs a Redis of yours"),
    ({"single": {"storage": "0Gi"}}, "single.storage: Does not match pattern"),
    ({"callbacks": {"topic": ""}}, "callbacks.topic: String length"),
    ({"networkPolicy": {"redis": [{}]}}, "networkPolicy.redis.0: Must have at least 1 properties"),
    ({"settings": "durability"}, "settings is not TOML"),
    ({"console": {"enabled": True, "settings": "="}}, "console.settings is not TOML"),
]


def plain(value: Any) -> Any:
    """Without what only the chart has; settings are read, because the files have comments."""
    if isinstance(value, dict):
        value = {name: plain(each) for name, each in value.items() if name not in ADDED}
        if value.get("kind") == "ConfigMap":
            value["metadata"].pop("labels", None)
            value["data"] = {name: tomllib.loads(text) for name, text in value["data"].items()}
        return {name: each for name, each in value.items() if (name, each) != ("annotations", {})}
    return [plain(each) for each in value] if isinstance(value, list) else value


def by_name(resources: list[Resource]) -> dict[str, Resource]:
    return {f"{each['kind']} {each['metadata']['name']}": plain(each) for each in resources}


def within(value: Any) -> Iterator[Any]:
    """A value and all that is in it."""
    yield value
    for each in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
        yield from within(each)


def brings(resources: list[Resource], what: Any) -> bool:
    """Whether a value, or the fields of a mapping, are in a resource."""
    return any(
        each.items() >= what.items() if isinstance(each, dict) and isinstance(what, dict) else each == what
        for each in within([*by_name(resources).values()])
    )


def pods(resources: list[Resource]) -> dict[str, Resource]:
    return {each["metadata"]["name"]: each["spec"]["template"] for each in resources if each["kind"] == "Deployment"}


def test_the_templates_are_what_make_chart_writes() -> None:
    templates = CHART / "templates"
    files = [path for folder in FOLDERS for path in (templates / folder).iterdir()]
    assert {str(path.relative_to(templates)): path.read_text() for path in files} == made()


@pytest.mark.parametrize("name", OVERLAYS)
def test_the_chart_has_what_the_overlay_has(overlays: Path, name: str) -> None:
    assert by_name(charted(VALUES[name])) == by_name(build(overlays / name))


def test_one_pod_may_speak_tls(overlays: Path) -> None:
    """As if the patch of that overlay were applied to the other one."""
    folder = overlays / "single-with-tls"
    folder.mkdir(exist_ok=True)
    wish = {"namespace": "jobqueue", "resources": ["../single"], "patches": [{"path": "../tls/deployment.yaml"}]}
    (folder / "kustomization.yaml").write_text(yaml.safe_dump(wish))
    chart, overlay = by_name(charted(VALUES["single"] | VALUES["tls"])), by_name(build(folder))
    settings, without = (each["ConfigMap jobqueue"]["data"].pop("jobqueue.toml") for each in (chart, overlay))
    assert chart == overlay
    assert settings == without | TLS


def test_with_tls_callbacks_and_console_speak_it(tmp_path: Path) -> None:
    resources = charted(VALUES["tls"] | ALL)
    for name in ("callbacks", "console"):
        pod = pods(resources)[f"jobqueue-{name}"]["spec"]
        (container,), (volume,) = pod["containers"], (each for each in pod["volumes"] if each["name"] == "ca")
        (mount,) = (each for each in container["volumeMounts"] if each["name"] == "ca")
        assert {"--url=https://jobqueue:8000", f"--ca-file={mount['mountPath']}/ca.crt"} <= {*container["args"]}
        assert volume["secret"]["secretName"] == "jobqueue-tls"
        assert volume["secret"]["items"] == [{"key": "ca.crt", "path": "ca.crt"}]  # and not the key
        assert f"Usage: jobqueue {name}" in run(*JOBQUEUE, *container["args"], "--help", cwd=tmp_path)


def test_the_chart_accepts_the_values_in_the_readme() -> None:
    (text,) = re.findall(r"```yaml\n(image:.*?)```", (ROOT / "deploy" / "README.md").read_text(), re.DOTALL)
    values = yaml.safe_load(text)
    resources = charted(values)
    assert brings(resources, {"maxReplicas": values["autoscaling"]["max"]})
    assert brings(resources, tomllib.loads(values["settings"]))


def test_helm_finds_nothing_to_complain_about() -> None:
    assert "0 chart(s) failed" in helm("lint", "--strict", CHART, values=VALUES["tls"] | ALL)


def test_the_chart_is_of_this_version() -> None:
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())
    assert {chart["version"], chart["appVersion"]} == {__version__}


def test_every_value_is_tried_here() -> None:
    values = yaml.safe_load((CHART / "values.yaml").read_text())
    names = {f"{name}.{each}" for name, value in values.items() if isinstance(value, dict) for each in value}
    names |= {name for name, value in values.items() if not isinstance(value, dict) or not value}
    assert {name for name in names if not name.endswith(".enabled")} == GIVEN.keys()


@pytest.mark.parametrize("name", GIVEN)
def test_a_value_takes_the_place_of_the_default(name: str) -> None:
    given, brought = GIVEN[name]
    section, _, key = name.partition(".")
    enabled = VALUES.get(section, ALL)
    default = charted(enabled)
    changed = charted({**enabled, section: {**enabled.get(section, {}), key: given} if key else given})
    assert brings(changed, brought) and not brings(default, brought)
    assert by_name(changed).keys() == by_name(default).keys()


def test_wrong_values_are_refused() -> None:
    answers = []
    for values, _ in REFUSED:
        with pytest.raises(subprocess.CalledProcessError) as refusal:
            charted(values)
        answers.append(refusal.value.stderr)
    assert [(says, answer) for (_, says), answer in zip(REFUSED, answers, strict=True) if says not in answer] == []


def test_a_change_of_the_settings_replaces_the_pods_that_read_them() -> None:
    before, changed = pods(charted(ALL)), pods(charted({**ALL, "settings": 'log_format = "json"'}))
    assert {name for name, template in before.items() if changed[name] != template} == {"jobqueue"}
    console = {**ALL, "console": {"enabled": True, "settings": 'console_title = "queue"'}}
    assert pods(charted(console))["jobqueue-console"] != before["jobqueue-console"]


def test_the_volume_stays_when_the_release_is_uninstalled() -> None:
    (claim,) = (each for each in charted(VALUES["single"]) if each["kind"] == "PersistentVolumeClaim")
    assert claim["metadata"]["annotations"] == {"helm.sh/resource-policy": "keep"}


def test_releases_in_one_namespace_have_nothing_in_common() -> None:
    one, other = (by_name(charted(VALUES["tls"] | ALL, release)) for release in ("shop", "x" * 53))
    assert one.keys().isdisjoint(other)
    for release in (one, other):
        names = {each["metadata"]["name"] for each in release.values()}
        everything = [*within([*release.values()])]
        urls = [each for each in everything if isinstance(each, str) and each.startswith("--url=")]
        fields = [each for each in everything if isinstance(each, dict)]
        used = {re.split("[/:]+", url)[1] for url in urls}
        used |= {each["serviceAccountName"] for each in fields if "serviceAccountName" in each}
        used |= {each["configMap"]["name"] for each in fields if "configMap" in each}
        assert len(used) > 1 and used <= names
        assert max(map(len, names)) <= LONGEST_NAME


def test_what_selects_pods_selects_those_of_its_release() -> None:
    selectors = [
        each
        for each in within(charted(ALL, "shop"))
        if isinstance(each, dict) and "app.kubernetes.io/component" in each
    ]
    assert selectors and {each["app.kubernetes.io/instance"] for each in selectors} == {"shop"}


def test_the_notes_name_the_service_and_the_secrets(tmp_path: Path) -> None:
    """helm prints them only on a cluster: here another template has them."""
    chart = tmp_path / "jobqueue"
    shutil.copytree(CHART, chart)
    shutil.copy(CHART / "templates" / "NOTES.txt", chart)
    (chart / "templates" / "notes.yaml").write_text('notes: {{ tpl (.Files.Get "NOTES.txt") . | toJson }}')
    text = helm("template", "jobqueue", chart, "--show-only", "templates/notes.yaml", values=VALUES["tls"] | ALL)
    notes = yaml.safe_load(text)["notes"]
    assert "https://jobqueue.default:8000" in notes
    for resource in within(charted(VALUES["tls"] | ALL)):
        if isinstance(resource, dict) and "secretName" in resource:
            assert f"  {resource['secretName']} (" in notes
    assert "  jobqueue-journal (journal-url)" in notes


def test_it_may_be_a_part_of_another_chart() -> None:
    """Which passes its values `global` on."""
    assert charted({"global": {"registry": "registry.example"}}) == charted({})
