"""The pods: what they may do, how they are probed, stopped, spread and scaled."""

from __future__ import annotations

import asyncio
import contextlib
import os
from http import HTTPStatus
from pathlib import Path

import aiohttp

from jobqueue.journal.reading.running import STOPPED_S
from jobqueue.settings import Settings
from tests.deploy.images import dockerfile
from tests.deploy.kubernetes.conftest import Overlay
from tests.kit.ports import free_port
from tests.kit.redis_server import RedisServer
from tests.kit.service import JOBQUEUE, ServiceProcess
from tests.kit.waiting import until
from tests.packaging.test_service import run

WORKER_MB, SUPERVISOR_MB, INCOMPLETE_MB = 60, 50, 256
KILLED_AFTER_S = 2  # beyond grace_s


def test_pods_are_restricted(overlay: Overlay) -> None:
    """The profile `restricted` of Kubernetes, a root that nobody writes to, and no token of the cluster."""
    assert overlay.one("ServiceAccount")["automountServiceAccountToken"] is False
    for template in overlay.pods():
        pod = template["spec"]
        assert pod["automountServiceAccountToken"] is False
        assert pod["securityContext"] == {
            "runAsNonRoot": True,
            "runAsUser": 65532,
            "runAsGroup": 65532,
            "fsGroup": 65532,
            "seccompProfile": {"type": "RuntimeDefault"},
        }
        assert not {"hostNetwork", "hostPID", "hostIPC"} & pod.keys()
        for container in pod["containers"]:
            assert container["securityContext"] == {
                "allowPrivilegeEscalation": False,
                "readOnlyRootFilesystem": True,
                "capabilities": {"drop": ["ALL"]},
            }


def test_tmp_is_in_memory_and_secrets_are_files_that_only_the_service_reads(overlay: Overlay) -> None:
    for template in overlay.pods():
        volumes = {volume["name"]: volume for volume in template["spec"]["volumes"]}
        assert volumes["tmp"]["emptyDir"]["medium"] == "Memory"
        if template["metadata"]["labels"]["app.kubernetes.io/component"] != "console":  # it has none
            secrets = volumes["secrets"]
            assert secrets.get("secret", secrets.get("projected"))["defaultMode"] == 0o440
        for container in template["spec"]["containers"]:
            assert "env" not in container
            assert {mount["name"] for mount in container["volumeMounts"]} == volumes.keys()


async def test_the_probes_ask_paths_that_the_service_answers(overlay: Overlay, tmp_path: Path) -> None:
    container = overlay.container()
    probes = {name: container[f"{name}Probe"]["httpGet"] for name in ("startup", "readiness", "liveness")}
    assert {name: probe["path"] for name, probe in probes.items()} == {
        "startup": "/healthz",
        "readiness": "/readyz",
        "liveness": "/healthz",
    }
    if overlay.name == "single":  # all ask the same: one real service will do
        with RedisServer(tmp_path) as redis:
            async with ServiceProcess("--redis", redis.url) as service, aiohttp.ClientSession() as session:
                for probe in probes.values():
                    async with session.get(service.url + probe["path"]) as answer:
                        assert answer.status == HTTPStatus.OK


def test_a_pod_without_redis_is_not_ready_soon_and_one_that_hangs_is_restarted(overlay: Overlay) -> None:
    probes = [overlay.container()[f"{name}Probe"] for name in ("readiness", "liveness", "startup")]
    starting = 900 if overlay.name == "single" else 30  # that one loads all of its data first
    assert [(each["periodSeconds"], each["failureThreshold"]) for each in probes] == [(2, 2), (10, 3), (2, starting)]


def test_the_ports_agree(overlay: Overlay) -> None:
    (port,) = overlay.container()["ports"]
    (served,) = overlay.one("Service")["spec"]["ports"]
    policies = [each for each in overlay.resources if each["kind"] == "NetworkPolicy"]
    policies = [each for each in policies if each["metadata"]["name"] not in ("jobqueue-journal", "jobqueue-console")]
    let_in = {
        each["port"] for policy in policies for rule in policy["spec"].get("ingress", []) for each in rule["ports"]
    }
    assert served["targetPort"] == port["name"] == "http"
    assert {port["containerPort"], served["port"], int(dockerfile.last("EXPOSE")), Settings().port} == {8000}
    assert let_in == {8000}
    assert {overlay.container()[f"{name}Probe"]["httpGet"]["port"] for name in ("readiness", "liveness")} == {"http"}


def test_a_pod_stops_in_order(overlay: Overlay) -> None:
    pod = overlay.pod()
    assert overlay.container()["lifecycle"]["preStop"] == {"exec": {"command": ["sleep", "5"]}}
    assert pod["terminationGracePeriodSeconds"] == 30 > 5 + Settings().grace_s + KILLED_AFTER_S


def test_an_upgrade_takes_no_pod_before_another_is_ready(overlay: Overlay) -> None:
    if overlay.name != "single":
        assert overlay.one("Deployment")["spec"]["strategy"] == {"rollingUpdate": {"maxUnavailable": 0, "maxSurge": 1}}
        assert overlay.one("PodDisruptionBudget")["spec"]["maxUnavailable"] == 1


def test_it_is_scaled_by_its_cpu(overlay: Overlay) -> None:
    if overlay.name != "single":
        scaler = overlay.one("HorizontalPodAutoscaler")["spec"]
        assert (scaler["minReplicas"], scaler["maxReplicas"]) == (3, 10)
        assert scaler["metrics"][0]["resource"]["target"] == {"type": "Utilization", "averageUtilization": 70}
        assert scaler["behavior"]["scaleDown"]["stabilizationWindowSeconds"] == 300
        assert scaler["scaleTargetRef"]["name"] == overlay.one("Deployment")["metadata"]["name"]
        assert "replicas" not in overlay.one("Deployment")["spec"]  # an apply would undo the scaling


def test_memory_is_enough_for_the_workers_of_its_cores(overlay: Overlay) -> None:
    limits = overlay.container()["resources"]["limits"]
    workers = max(1, int(limits["cpu"]) - 1)
    need_mb = WORKER_MB * workers + SUPERVISOR_MB + INCOMPLETE_MB
    assert _bytes(limits["memory"]) > need_mb * 1e6
    assert overlay.container()["resources"]["requests"]["memory"] == limits["memory"]


def _bytes(text: str) -> int:
    return int(text[:-2]) * {"Mi": 1 << 20, "Gi": 1 << 30}[text[-2:]]


def test_what_selects_pods_finds_those_of_the_service(overlay: Overlay) -> None:
    labels = overlay.one("Deployment")["spec"]["template"]["metadata"]["labels"]
    selectors = [
        overlay.one("Service")["spec"]["selector"],
        overlay.one("Deployment")["spec"]["selector"]["matchLabels"],
    ]
    selectors += [overlay.one("NetworkPolicy")["spec"]["podSelector"]["matchLabels"]]
    spread = overlay.pod()["topologySpreadConstraints"]
    selectors += [each["labelSelector"]["matchLabels"] for each in spread]
    if overlay.name != "single":
        selectors.append(overlay.one("PodDisruptionBudget")["spec"]["selector"]["matchLabels"])
    assert all(selector == labels for selector in selectors)
    assert [each["topologyKey"] for each in spread] == ["topology.kubernetes.io/zone", "kubernetes.io/hostname"]


def test_the_command_line_takes_the_arguments_of_callbacks(called_back: Overlay, tmp_path: Path) -> None:
    pod = called_back.one("Deployment", "jobqueue-callbacks")["spec"]["template"]["spec"]
    arguments = pod["containers"][0]["args"]
    for path in [word.partition("=")[2] for word in arguments if "-file=" in word]:
        assert os.path.dirname(path) == pod["containers"][0]["volumeMounts"][0]["mountPath"]  # noqa: PTH120
    assert "--topic=callbacks" in arguments
    assert "Usage: jobqueue callbacks" in run(*JOBQUEUE, *arguments, "--help", cwd=tmp_path)


def test_the_command_line_takes_the_arguments_of_the_journal(told: Overlay, tmp_path: Path) -> None:
    pod = told.one("Deployment", "jobqueue-journal")["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    (secrets, _) = pod["volumes"]
    mounted = {item["path"] for source in secrets["projected"]["sources"] for item in source["secret"]["items"]}
    files = {word.rpartition("/")[2] for word in container["args"] if "-file=" in word}
    assert files == mounted == {"redis-url", "journal-url"}
    assert pod["terminationGracePeriodSeconds"] > STOPPED_S
    assert "Usage: jobqueue journal run" in run(*JOBQUEUE, *container["args"], "--help", cwd=tmp_path)


async def test_the_console_answers_its_probes_with_its_settings(looked_at: Overlay, tmp_path: Path) -> None:
    """Without a service, too."""
    (container,) = looked_at.one("Deployment", "jobqueue-console")["spec"]["template"]["spec"]["containers"]
    (port,), (served,) = container["ports"], looked_at.one("Service", "jobqueue-console")["spec"]["ports"]
    assert served["targetPort"] == port["name"] and served["port"] == port["containerPort"] == 8001
    config = tmp_path / "console.toml"
    config.write_text(looked_at.one("ConfigMap", "jobqueue-console")["data"]["console.toml"])
    mounts = [mount["mountPath"] for mount in container["volumeMounts"]]
    assert f"--config={mounts[0]}/{config.name}" == container["args"][-1]
    here = free_port()
    arguments = [*container["args"][:-1], f"--config={config}", f"--port={here}"]
    process = await asyncio.create_subprocess_exec(*JOBQUEUE, *arguments, stderr=asyncio.subprocess.DEVNULL)
    try:
        async with aiohttp.ClientSession(f"http://127.0.0.1:{here}") as session:
            for name in ("readiness", "liveness"):
                probe = container[f"{name}Probe"]["httpGet"]
                heads = {each["name"]: each["value"] for each in probe["httpHeaders"]}
                assert probe["port"] == port["name"]

                async def answers(path: str = probe["path"], heads: dict[str, str] = heads) -> bool:
                    with contextlib.suppress(aiohttp.ClientError):
                        async with session.get(path, headers=heads) as response:
                            return response.status == HTTPStatus.OK
                    return False

                await until(answers)
    finally:
        process.terminate()
        assert await process.wait() == 0


def test_the_journal_is_scraped_at_its_port(told: Overlay) -> None:
    (container,) = told.one("Deployment", "jobqueue-journal")["spec"]["template"]["spec"]["containers"]
    (rule,) = told.one("NetworkPolicy", "jobqueue-journal")["spec"]["ingress"]
    (let_in,) = rule["ports"]
    (port,) = container["ports"]
    assert f"--metrics-port={port['containerPort']}" in container["args"]
    assert let_in["port"] == port["containerPort"]
