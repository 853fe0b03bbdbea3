"""deploy/grafana: the dashboards are those that the code makes, hang together, and ask Prometheus for what there is."""

from __future__ import annotations

import re
from itertools import combinations
from pathlib import Path
from typing import Any

import pytest
import yaml

from deploy.grafana.dashboards import FOLDER, UIDS, made
from jobqueue.console.site import PAGES
from tests.deploy.grafana.boards import boards, expressions, panels
from tests.deploy.prometheus.expressions import recorded, uses
from tests.deploy.prometheus.live import Live
from tests.deploy.prometheus.test_rules import misused, promtool

BOARDS = sorted(UIDS)


@pytest.fixture(params=BOARDS)
def board(request: pytest.FixtureRequest) -> Any:
    """Each dashboard."""
    return boards()[request.param]


def test_the_files_are_what_make_dashboards_writes() -> None:
    committed = {path.name: path.read_text() for path in FOLDER.glob("*.json")}
    assert committed == made()


def test_prometheus_can_read_every_expression(tmp_path: Path) -> None:
    rules = [{"record": f"panel:{n}", "expr": expression} for n, expression in enumerate(expressions())]
    file = tmp_path / "rules.yaml"
    file.write_text(yaml.safe_dump({"groups": [{"name": "panels", "rules": rules}]}))
    assert f"{len(rules)} rules found" in promtool("check", "rules", file)


def test_no_variable_is_left_in_an_expression() -> None:
    assert [expression for expression in expressions() if "$" in expression] == []


def test_each_metric_is_one_that_a_service_or_redis_exporter_has_or_a_rule_records(live_metrics: Live) -> None:
    named = {use.metric for expression in expressions() for use in uses(expression)}
    assert len(named) > 30
    assert named - live_metrics.kinds.keys() - recorded() == set()


def test_what_all_instances_read_is_taken_with_max_and_what_each_counts_with_sum(live_metrics: Live) -> None:
    assert [fault for expression in expressions() for fault in misused(expression, live_metrics)] == []


def test_the_uids_are_fixed_and_unique_and_the_data_source_is_the_choice_of_the_reader() -> None:
    assert {name: board["uid"] for name, board in boards().items()} == UIDS
    assert len(set(UIDS.values())) == len(UIDS)
    text = "".join(made().values())
    assert set(re.findall(r'"uid": "(.*)"', text)) - set(UIDS.values()) == {"${datasource}"}


def test_panels_have_ids_of_their_own_a_title_a_unit_and_a_description(board: Any) -> None:
    ids = [panel["id"] for panel in board["panels"]]
    assert len(set(ids)) == len(ids)
    assert all(ids)
    for panel in panels(board):
        assert panel["title"]
        assert panel["description"]
        assert panel["fieldConfig"]["defaults"]["unit"], panel["title"]
        assert panel["targets"]


def test_panels_fill_lines_and_do_not_overlap(board: Any) -> None:
    cells = [
        {(x, y) for x in range(at["x"], at["x"] + at["w"]) for y in range(at["y"], at["y"] + at["h"])}
        for at in (panel["gridPos"] for panel in board["panels"])
    ]
    assert not any(one & other for one, other in combinations(cells, 2))
    covered = set().union(*cells)
    assert covered == {(x, y) for x in range(24) for y in range(max(y for _, y in covered) + 1)}


def test_each_dashboard_leads_to_the_others(board: Any) -> None:
    link, _ = board["links"]
    assert (link["type"], link["tags"]) == ("dashboards", board["tags"])
    assert link["keepTime"] and link["includeVars"]


def test_a_topic_in_the_overview_leads_to_its_dashboard() -> None:
    links = [url for url in re.findall(r'"url": "(.*)"', made()["overview.json"]) if "console" not in url]
    assert [link.partition("?")[0] for link in links] == [f"/d/{UIDS['topic']}"]
    assert "topic" in {variable["name"] for variable in boards()["topic"]["templating"]["list"]}


def test_each_dashboard_leads_to_the_page_of_the_console_that_shows_the_same() -> None:
    """Its paths are those of the console."""
    for name, board in boards().items():
        _, link = board["links"]
        (console,) = [each for each in board["templating"]["list"] if each["name"] == "console"]
        assert (link["title"], link["type"], console["type"]) == ("Console", "link", "textbox")
        path = link["url"].removeprefix("${console:raw}/").partition("?")[0]
        assert path in PAGES and (path == "topic") == (name == "topic")


def test_each_variable_that_an_expression_uses_is_one_of_its_dashboard(board: Any) -> None:
    own = {variable["name"] for variable in board["templating"]["list"]}
    named = {
        name for panel in panels(board) for each in panel["targets"] for name in re.findall(r"\$(\w+)", each["expr"])
    }
    assert named - {"__rate_interval"} <= own
