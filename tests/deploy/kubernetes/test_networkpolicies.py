"""Who may reach the pods, and whom they may reach."""

from __future__ import annotations

from ipaddress import ip_address, ip_network
from typing import Any

import pytest

from tests.deploy.kubernetes.conftest import Overlay

PRIVATE = [
    *("10.1.2.3", "172.16.0.1", "172.31.255.1", "192.168.1.1", "100.64.0.1", "169.254.169.254", "127.0.0.1", "0.0.0.1"),
    *("224.0.0.1", "255.255.255.255", "::1", "fd00::1", "fe80::1", "64:ff9b::a00:1", "::ffff:10.0.0.1", "2002:a00:1::"),
]
PUBLIC = ["1.1.1.1", "93.184.215.14", "172.32.0.1", "2606:4700:4700::1111"]


def test_the_service_is_reached_from_labelled_namespaces_and_from_monitoring(overlay: Overlay) -> None:
    policy = overlay.one("NetworkPolicy")["spec"]
    sources = [source["namespaceSelector"]["matchLabels"] for rule in policy["ingress"] for source in rule["from"]]
    assert policy["policyTypes"] == ["Ingress", "Egress"]
    assert sources == [{"jobqueue.client": "true"}, {"kubernetes.io/metadata.name": "monitoring"}]


def test_the_service_reaches_redis_and_dns_only(overlay: Overlay) -> None:
    assert reached(overlay.one("NetworkPolicy")) == {
        ("jobqueue.redis", 6379),
        ("jobqueue.redis", 26379),
        ("kubernetes.io/metadata.name", 53),
    }


def reached(policy: dict[str, Any]) -> set[tuple[str, int]]:
    """The label of namespaces, or of pods, and the port, of each way out that is not by address."""
    ways = [
        (to, port["port"]) for rule in policy["spec"]["egress"] for to in rule["to"] for port in rule.get("ports", [])
    ]
    return {(next(iter(next(iter(to.values()))["matchLabels"])), port) for to, port in ways}


def test_callbacks_are_reached_by_nobody_and_reach_the_service_but_not_redis(called_back: Overlay) -> None:
    policy = called_back.one("NetworkPolicy", "jobqueue-callbacks")
    assert policy["spec"]["policyTypes"] == ["Ingress", "Egress"]
    assert "ingress" not in policy["spec"]
    assert reached(policy) == {("app.kubernetes.io/name", 8000), ("kubernetes.io/metadata.name", 53)}
    let_in = called_back.one("NetworkPolicy", "jobqueue-from-callbacks")["spec"]
    service = called_back.one("Deployment")["spec"]["template"]["metadata"]["labels"]
    callbacks = called_back.one("Deployment", "jobqueue-callbacks")["spec"]["template"]["metadata"]["labels"]
    assert let_in["podSelector"]["matchLabels"] == service
    assert let_in["ingress"][0]["from"] == [{"podSelector": {"matchLabels": callbacks}}]


@pytest.mark.parametrize("address", [*PRIVATE, *PUBLIC])
def test_callbacks_reach_the_world_but_no_private_address(called_back: Overlay, address: str) -> None:
    policy = called_back.one("NetworkPolicy", "jobqueue-callbacks")["spec"]
    blocks = [to["ipBlock"] for rule in policy["egress"] for to in rule["to"] if "ipBlock" in to]
    at = ip_address(address)
    allowed = [
        block
        for block in blocks
        if at in ip_network(block["cidr"]) and not any(at in ip_network(each) for each in block.get("except", []))
    ]
    assert bool(allowed) == (address in PUBLIC)


def test_the_console_is_reached_from_the_ingress_and_reaches_the_service_but_not_redis(looked_at: Overlay) -> None:
    policy = looked_at.one("NetworkPolicy", "jobqueue-console")
    (rule,) = policy["spec"]["ingress"]
    assert [each["namespaceSelector"]["matchLabels"] for each in rule["from"]] == [{"jobqueue.ingress": "true"}]
    assert reached(policy) == {("app.kubernetes.io/name", 8000), ("kubernetes.io/metadata.name", 53)}
    let_in = looked_at.one("NetworkPolicy", "jobqueue-from-console")["spec"]
    service = looked_at.one("Deployment")["spec"]["template"]["metadata"]["labels"]
    console = looked_at.one("Deployment", "jobqueue-console")["spec"]["template"]["metadata"]["labels"]
    assert policy["spec"]["podSelector"]["matchLabels"] == console
    assert let_in["podSelector"]["matchLabels"] == service
    assert let_in["ingress"][0]["from"] == [{"podSelector": {"matchLabels": console}}]


def test_the_journal_is_reached_from_monitoring_and_reaches_redis_and_its_database(told: Overlay) -> None:
    policy = told.one("NetworkPolicy", "jobqueue-journal")
    labels = told.one("Deployment", "jobqueue-journal")["spec"]["template"]["metadata"]["labels"]
    assert policy["spec"]["podSelector"]["matchLabels"] == labels
    (rule,) = policy["spec"]["ingress"]
    assert [each["namespaceSelector"]["matchLabels"] for each in rule["from"]] == [
        {"kubernetes.io/metadata.name": "monitoring"}
    ]
    assert reached(policy) == {
        *(("jobqueue.redis", port) for port in (6379, 26379)),
        *(("jobqueue.journal", port) for port in (5432, 3306)),
        ("kubernetes.io/metadata.name", 53),
    }
