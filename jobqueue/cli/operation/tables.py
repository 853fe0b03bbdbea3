"""Operations as tables for a terminal, like `jobqueue.cli.tables`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from rich import box
from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from jobqueue.cli import humanize

Fields = Mapping[str, Any]

_COLOURS = {"running": "green", "paused": "yellow", "failed": "red", "cancelled": "yellow"}


def operation(fields: Fields) -> RenderableType:
    """A line for each thing that is known of an operation."""
    table = Table(box=None, show_header=False, pad_edge=False)
    table.add_column(style="bold", no_wrap=True)
    table.add_column(overflow="fold")
    for name, words in _facts(fields):
        style = _COLOURS.get(words, "") if name == "state" else ""
        table.add_row(Text(name), Text(humanize.clean(words), style=style))
    return table


def operations(some: Iterable[Fields]) -> RenderableType:
    """A row per operation."""
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    table.add_column("operation", no_wrap=True)
    table.add_column("kind", no_wrap=True)
    table.add_column("state", no_wrap=True)
    table.add_column("done", no_wrap=True, justify="right")
    table.add_column("which", overflow="fold")
    table.add_column("planned", no_wrap=True)
    table.add_column("by", overflow="fold")
    for each in some:
        table.add_row(
            Text(humanize.clean(each["operation"])),
            Text(humanize.clean(each["kind"])),
            Text(humanize.clean(each["state"]), style=_COLOURS.get(each["state"], "")),
            Text(_progress(each)),
            Text(humanize.clean(which(each["filter"]))),
            Text(humanize.clock(each["begun"])),
            Text(humanize.clean(each["by"])),
        )
    return table


def which(wanted: Fields) -> str:
    """A filter in words."""
    return ", ".join(f"{name.replace('_', ' ')} {_member(value)}" for name, value in wanted.items())


def _member(value: Any) -> str:
    return str(value) if isinstance(value, str) else humanize.clock(value)


def _facts(fields: Fields) -> Iterator[tuple[str, str]]:
    yield "operation", fields["operation"]
    yield "kind", fields["kind"] + _move(fields)
    yield "state", fields["state"]
    if "error" in fields:
        yield "error", fields["error"]
    yield "which", which(fields["filter"])
    yield "jobs", ("" if fields["exact"] else "about ") + humanize.number(fields["count"])
    if fields["started"] is not None:
        yield "done", humanize.number(fields["done"]) + _speed(fields)
        yield "skipped", humanize.number(fields["skipped"])
    if fields["left"] is not None:
        yield "left", humanize.span(fields["left"])
    yield "planned", _moment(fields["begun"], fields["by"])
    for name, by in (("started", fields["started_by"]), ("ended", "")):
        if fields[name] is not None:
            yield name, _moment(fields[name], by)
    if fields["samples"]:
        yield "such as", " ".join(fields["samples"])


def _move(fields: Fields) -> str:
    """What a reschedule makes of the jobs' times."""
    if "shift" in fields:
        return f", {humanize.span(abs(fields['shift']))} {'later' if fields['shift'] > 0 else 'earlier'}"
    spread = f", over {humanize.span(fields['spread'])}" if fields.get("spread") else ""
    return f", to {humanize.clock(fields['at'])}{spread}" if "at" in fields else ""


def _speed(fields: Fields) -> str:
    if fields["state"] != "running":
        return ""
    slowed = ", slowed down because jobs come late" if fields["slowed"] else ""
    return f" ({humanize.number(round(fields['speed']))} a second{slowed})"


def _moment(when: float, by: str) -> str:
    return humanize.when(when) + (f", by {by}" if by else "")


def _progress(fields: Fields) -> str:
    """How many jobs are done, of how many."""
    total = ("" if fields["exact"] else "~") + humanize.number(fields["count"])
    return total if fields["started"] is None else f"{humanize.number(fields['done'])}/{total}"
