"""The expressions of PromQL in rules and dashboards: which metrics they use, and how these are added up."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, NamedTuple

import yaml

from tests.kit.service import ROOT

FOLDER = ROOT / "deploy" / "prometheus"
RULES = FOLDER / "rules.yaml"

_TOKEN = re.compile(r'"[^"]*"|\[[^]]*\]|\{|\}|\(|\)|[a-zA-Z_:][\w:]*')
_METRIC = re.compile(r"(?:jobqueue|redis|process)[_:][\w:]+|up")
_AGGREGATIONS = {"sum", "max", "min", "avg", "count", "topk", "absent"}


class Use(NamedTuple):
    """A metric in an expression, with the innermost aggregation around it, if there is one."""

    metric: str
    aggregation: str | None


def uses(expression: str) -> Iterator[Use]:
    """Each metric that an expression names, recorded series included."""
    around: list[str] = []  # what stands before each open parenthesis
    word = aggregation = ""
    braces = False
    for part in _TOKEN.findall(expression):
        if part in "{}":
            braces = part == "{"
        elif part == "(":
            around.append(word)
            word = ""
        elif part == ")":
            word = aggregation if around.pop() in ("by", "without") else ""
        elif not braces:
            if part in _AGGREGATIONS:
                aggregation = part
            word = part
            if _METRIC.fullmatch(part) and (not around or around[-1] not in ("by", "on", "ignoring")):
                yield Use(part, next((name for name in reversed(around) if name in _AGGREGATIONS), None))


def rules() -> list[dict[str, Any]]:
    """All rules, of all groups."""
    return [rule for group in yaml.safe_load(RULES.read_text())["groups"] for rule in group["rules"]]


def alerts() -> list[dict[str, Any]]:
    """The rules that alert."""
    return [rule for rule in rules() if "alert" in rule]


def recorded() -> set[str]:
    """The series that rules record."""
    return {rule["record"] for rule in rules() if "record" in rule}
