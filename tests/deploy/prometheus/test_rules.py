"""deploy/prometheus: Prometheus takes the rules, each alert fires and is quiet in a case each, and has a runbook."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.deploy.programs import program
from tests.deploy.prometheus.expressions import FOLDER, RULES, alerts, recorded, rules, uses
from tests.deploy.prometheus.live import Live
from tests.documents.test_readme import anchors
from tests.kit.service import ROOT

_CASES = FOLDER / "rules_test.yaml"


def promtool(*arguments: str | Path) -> str:
    """What promtool says; fails with it."""
    ran = subprocess.run([program("promtool"), *arguments], capture_output=True, text=True, timeout=120, check=False)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    return ran.stdout


def test_prometheus_takes_the_rules() -> None:
    assert f"{len(rules())} rules found" in promtool("check", "rules", RULES)


def test_each_alert_fires_when_it_should_and_is_quiet_otherwise() -> None:
    assert "SUCCESS" in promtool("test", "rules", _CASES)


def expected() -> list[tuple[str, list[dict[str, Any]]]]:
    """Of each question in the cases, the alert and what is to fire."""
    cases = yaml.safe_load(_CASES.read_text())["tests"]
    tests = [test for case in cases for test in case["alert_rule_test"]]
    return [(test["alertname"], test["exp_alerts"]) for test in tests]


@pytest.mark.parametrize("alert", alerts(), ids=lambda alert: f"{alert['alert']}-{alert['labels'].get('burn', '')}")
def test_the_cases_have_each_alert_fire_and_be_quiet(alert: dict[str, Any]) -> None:
    own = [fires for name, fires in expected() if name == alert["alert"]]
    assert any(not fires for fires in own)
    assert any(fired["exp_labels"].items() >= alert["labels"].items() for fires in own for fired in fires)


@pytest.mark.parametrize("alert", alerts(), ids=lambda alert: str(alert["alert"]))
def test_an_alert_has_a_severity_a_summary_and_a_runbook_that_exists(alert: dict[str, Any]) -> None:
    assert alert["labels"]["severity"] in ("page", "ticket")
    assert alert["annotations"]["summary"]
    document, _, anchor = alert["annotations"]["runbook"].partition("#")
    assert anchor == alert["alert"].lower()
    assert anchor in anchors(ROOT / document)


def test_each_runbook_belongs_to_an_alert() -> None:
    section = (ROOT / "docs" / "operations.md").read_text().partition("\n## Alerts\n")[2].partition("\n## ")[0]
    titles = [line.removeprefix("### ") for line in section.splitlines() if line.startswith("### ")]
    assert sorted(titles) == sorted({alert["alert"] for alert in alerts()})


def test_each_metric_is_one_that_a_service_or_redis_exporter_has(live_metrics: Live) -> None:
    named = {use.metric for rule in rules() for use in uses(rule["expr"])}
    assert len(named) > 30
    assert named - live_metrics.kinds.keys() - recorded() == set()


def misused(expression: str, live: Live) -> list[str]:
    """The metrics that an expression adds up in a wrong way: what all instances report alike is taken with max, what
    each process counts with sum, and a gauge of each in any way but not as it is."""
    return [
        f"{use.metric} in {use.aggregation}"
        for use in uses(expression)
        if use.metric in live.kinds and use.aggregation not in _right(use.metric, live)
    ]


def _right(metric: str, live: Live) -> set[str]:
    if metric in live.agreed:
        return {"max"}
    if metric.startswith("jobqueue_") and live.kinds[metric] in ("counter", "histogram"):
        return {"sum"}
    return {"sum", "max", "min", "count", "absent"}


def test_what_all_instances_read_is_taken_with_max_and_what_each_counts_with_sum(live_metrics: Live) -> None:
    assert live_metrics.agreed >= {"jobqueue_jobs", "jobqueue_timers", "jobqueue_clock_jumps_total"}
    assert [fault for rule in rules() for fault in misused(rule["expr"], live_metrics)] == []


@pytest.mark.parametrize(
    "wrong",
    [
        "sum by (topic) (jobqueue_jobs)",
        "max by (job) (rate(jobqueue_commands_total[5m]))",
        'max by (job) (sum by (le) (rate(jobqueue_job_events_total{event="sum"}[5m])))',
        "jobqueue_locks_held < 8",
    ],
)
def test_the_walk_over_expressions_finds_what_is_wrong(wrong: str, live_metrics: Live) -> None:
    assert len(misused(wrong, live_metrics)) == 1
