"""The settings in force and where each came from, the settings that topics have of their own, and virtual topics."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, NamedTuple

from aiohttp import web

from jobqueue.cli.client import Refusal
from jobqueue.console.visit import Visit


class Row(NamedTuple):
    """A setting: its name, its value as text, where it came from, and its topic if it belongs to one."""

    name: str
    value: str
    source: str
    topic: str = ""

    def has(self, text: str) -> bool:
        """Whether any of its fields contains a text, ignoring case."""
        return any(text.lower() in each.lower() for each in self)


async def show(visit: Visit) -> web.StreamResponse:
    """All settings, or those with the searched text in their names, values, sources or topics."""
    searched = visit.text("q")
    try:
        answer = await visit.ask("settings")
    except Refusal as refusal:
        if refusal.answer.fields.get("code") != "FORBIDDEN":
            raise
        return visit.page("settings", "Settings", status=403, refresh=False, may_look=False, searched=searched)
    rows = [Row(each["name"], as_text(each["value"]), each["source"]) for each in answer["settings"]]
    virtual = [Row(name, ", ".join(topics), "file") for name, topics in answer["virtual_topics"].items()]
    return visit.page(
        "settings",
        "Settings",
        refresh=False,
        may_look=True,
        searched=searched,
        settings=[row for row in rows if row.has(searched)],
        policies=[row for policy in answer["policies"] for row in own_of(policy) if row.has(searched)],
        virtual=[row for row in virtual if row.has(searched)],
    )


def own_of(policy: Mapping[str, Any]) -> list[Row]:
    """The settings that a topic has of its own."""
    return [Row(name, as_text(policy[name]), "file", policy["topic"]) for name in policy["own"]]


def in_force(answer: Mapping[str, Any], topic: str) -> list[Row]:
    """The settings in force for a topic, and where each came from: the topic itself, or the settings for all topics."""
    own = next((policy for policy in answer["policies"] if policy["topic"] == topic), None)
    rows = {row.name: row._replace(source="this topic") for row in own_of(own)} if own else {}
    for each in answer["settings"]:
        name = each["name"].removeprefix("default_")
        if name != each["name"] and name not in rows:
            rows[name] = Row(name, as_text(each["value"]), f"all topics ({each['source']})")
    return sorted(rows.values())


def as_text(value: Any) -> str:
    """A value as in the settings file, but without quotes around text."""
    if isinstance(value, dict):
        return "{" + ", ".join(f"{name} = {as_text(each)}" for name, each in value.items() if each is not None) + "}"
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
