"""What `jobqueue operation` asks a service, and how it shows the answers: as tables, like those of
`jobqueue.cli.tables`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator
from typing import Any

import click
from rich import box
from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from jobqueue.cli import humanize, output
from jobqueue.cli.ask import DONE, REFUSED, Extras, Fields
from jobqueue.cli.client import Answer, Client
from jobqueue.cli.output import Output

_COLOURS = {"running": "green", "paused": "yellow", "failed": "red", "cancelled": "yellow"}


def operation(fields: Fields) -> RenderableType:
    """A line for each fact about an operation."""
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
    """How a reschedule changes the jobs' times, in words."""
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


MANY = 1000
"""To change more jobs than this, the user types their number, and a deletion first shows how to export them."""
_LOOK_S = 0.5
_UNPLANNED = ("planning",)
_UNENDED = ("waiting", "running", "paused")


async def plan(client: Client, fields: Fields, extras: Extras, out: Output) -> int:
    """Plan an operation, and show what it would do once that is known."""
    answer = await client.ask("operation", do="plan", **fields)
    if answer.fields["kind"] == "find":
        return _show_found(await _until_ended(client, answer), out)
    while answer.fields["state"] in _UNPLANNED:
        answer = await _look(client, answer)
    _show(answer, out)
    found = answer.fields
    if found["state"] != "planned":
        return REFUSED
    if found["count"]:
        _advise_export(found, out)
        out.say(f"to start it: jobqueue operation start {found['operation']} --expect {found['count']}")
    return DONE


async def start(wait: bool, client: Client, fields: Fields, extras: Extras, out: Output) -> int:
    """Start a plan and, if `wait`, wait until it has ended."""
    if "expect" not in fields:
        fields = {**fields, "expect": await _confirmed(client, fields["plan"], out)}
    answer = await client.ask("operation", do="start", **fields)
    return await _shown(wait, client, answer, out)


async def _confirmed(client: Client, plan: str, out: Output) -> int:
    """The count of a plan, once somebody at the terminal has agreed to it. Raises UsageError if there is no terminal to
    ask on."""
    if not output.can_ask():
        raise click.UsageError("--expect is missing: the count of the plan")
    found = (await client.ask("operation", do="get", operation=plan)).fields
    count: int = found["count"]
    question = f"{found['kind'].capitalize()} {humanize.jobs(count)} ({which(found['filter'])})"
    if found["state"] != "planned" or not count:
        return count  # there is nothing to agree to, and the service says why
    if count <= MANY:
        output.confirm(f"{question}?")
        return count
    _advise_export(found, out)
    return int(click.prompt(humanize.clean(f"{question}: type how many"), type=int, err=True))


def _advise_export(found: Fields, out: Output) -> None:
    """Say how to export the jobs before many of them are deleted."""
    if found["kind"] == "delete" and found["count"] > MANY:
        wanted = found["filter"]
        state = f" --state {wanted['state']}" if "state" in wanted else ""
        topic = "TOPIC" if {"*", "?"} & {*wanted["topic"]} else wanted["topic"]
        out.say(f"to export the jobs first: jobqueue peek {topic}{state} --all --json > jobs.jsonl")


async def steer(do: str, client: Client, fields: Fields, extras: Extras, out: Output) -> int:
    """Pause, resume or cancel an operation."""
    _show(await client.ask("operation", do=do, **fields), out)
    return DONE


async def get(wait: bool, client: Client, fields: Fields, extras: Extras, out: Output) -> int:
    """Show an operation; if `wait`, once it has ended."""
    return await _shown(wait, client, await client.ask("operation", do="get", **fields), out)


async def listing(client: Client, fields: Fields, extras: Extras, out: Output) -> int:
    """Show the newest operations."""
    answer = await client.ask("operation", do="list")
    if out.as_json:
        out.json(answer)
    elif answer.fields["operations"]:
        out.console.print(operations(answer.fields["operations"]))
    else:
        out.say("there are no operations")
    return DONE


async def find(client: Client, fields: Fields, extras: Extras, out: Output) -> int:
    """Search all jobs, and show the ids that were found."""
    if extras.all or "count" in fields or "cursor" in fields:
        raise click.UsageError("--all, --count and --cursor go with --topic; without it, up to 1,000 ids are shown")
    begun = await client.ask("find", **fields)
    return _show_found(await _until_ended(client, await _look(client, begun)), out)


async def _shown(wait: bool, client: Client, answer: Answer, out: Output) -> int:
    if wait:
        answer = await _until_ended(client, answer)
    if answer.fields["kind"] == "find" and answer.fields["state"] == "done":
        return _show_found(answer, out)
    _show(answer, out)
    return REFUSED if wait and answer.fields["state"] != "done" else DONE


async def _until_ended(client: Client, answer: Answer) -> Answer:
    """Wait until an operation has ended, and return the answer about it. Meanwhile, a progress bar on the terminal
    shows how far it is."""
    found = answer.fields
    total = 0 if found["kind"] == "find" else found["count"]  # nobody knows how many jobs a find will find
    with output.progress(found["kind"], total) as advance:
        before = 0
        while answer.fields["state"] in _UNENDED:
            answer = await _look(client, answer)
            handled = answer.fields["done"] + answer.fields["skipped"]
            advance(handled - before)
            before = handled
    return answer


async def _look(client: Client, answer: Answer) -> Answer:
    """Ask about an operation again, after a pause."""
    await asyncio.sleep(_LOOK_S)
    return await client.ask("operation", do="get", operation=answer.fields["operation"])


def _show(answer: Answer, out: Output) -> None:
    if out.as_json:
        out.json(answer)
    else:
        out.console.print(operation(answer.fields))


def _show_found(answer: Answer, out: Output) -> int:
    """Show the ids that a search found, each on a line, and return the exit code."""
    found = answer.fields
    if found["state"] != "done":
        _show(answer, out)
        return REFUSED
    if out.as_json:
        out.json(answer)
        return DONE
    for job_id in found["samples"]:
        out.say(job_id)
    if not found["samples"]:
        out.say(f"no job matches: {which(found['filter'])}")
    elif not found["exact"]:
        out.say(f"there are more than these {humanize.number(found['count'])}; a longer prefix or a topic finds them")
    return DONE
