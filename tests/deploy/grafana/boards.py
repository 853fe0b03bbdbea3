"""The committed dashboards of deploy/grafana: their panels and expressions."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

from deploy.grafana.dashboards import FOLDER, UIDS

VARIABLES = {"$job": "jobqueue", "$redis_job": "jobqueue-redis", "$topic": "example-mail", "$__rate_interval": "5m"}
"""What Grafana puts in their place."""


def boards() -> dict[str, Any]:
    """Each dashboard by its file's name."""
    return {name: json.loads((FOLDER / f"{name}.json").read_text()) for name in UIDS}


def panels(board: Any) -> list[Any]:
    """The panels of a dashboard, without the titles of rows."""
    return [panel for panel in board["panels"] if panel["type"] != "row"]


def targets(variables: Mapping[str, str] = VARIABLES) -> Iterator[tuple[str, set[str]]]:
    """Each expression of each dashboard, as Prometheus gets it, and the labels in its legend."""
    for board in boards().values():
        for target in (target for panel in panels(board) for target in panel["targets"]):
            expression = target["expr"]
            for name, value in variables.items():
                expression = expression.replace(name, value)
            yield expression, set(re.findall(r"{{(\w+)}}", target["legendFormat"]))


def expressions() -> Iterator[str]:
    """The expressions alone."""
    return (expression for expression, _ in targets())
