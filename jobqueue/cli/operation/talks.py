"""What `jobqueue operation` asks a service, and what it shows of the answers."""

from __future__ import annotations

import asyncio

import click

from jobqueue.cli import humanize, output
from jobqueue.cli.ask import DONE, REFUSED, Extras, Fields
from jobqueue.cli.client import Answer, Client
from jobqueue.cli.operation import tables
from jobqueue.cli.output import Output

MANY = 1000
"""Jobs: to change more, their number is typed, and a deletion names the way to export them first."""
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
    """Start a plan, and perhaps wait for its end."""
    if "expect" not in fields:
        fields = {**fields, "expect": await _confirmed(client, fields["plan"], out)}
    answer = await client.ask("operation", do="start", **fields)
    return await _shown(wait, client, answer, out)


async def _confirmed(client: Client, plan: str, out: Output) -> int:
    """The count of a plan, once somebody at the terminal has agreed to it. Raises UsageError where nobody can."""
    if not output.can_ask():
        raise click.UsageError("--expect is missing: the count of the plan")
    found = (await client.ask("operation", do="get", operation=plan)).fields
    count: int = found["count"]
    question = f"{found['kind'].capitalize()} {humanize.jobs(count)} ({tables.which(found['filter'])})"
    if found["state"] != "planned" or not count:
        return count  # there is nothing to agree to, and the service says why
    if count <= MANY:
        output.confirm(f"{question}?")
        return count
    _advise_export(found, out)
    return int(click.prompt(humanize.clean(f"{question}: type how many"), type=int, err=True))


def _advise_export(found: Fields, out: Output) -> None:
    """Before many jobs are deleted: how to keep them."""
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
    """Show an operation, perhaps once it has ended."""
    return await _shown(wait, client, await client.ask("operation", do="get", **fields), out)


async def listing(client: Client, fields: Fields, extras: Extras, out: Output) -> int:
    """Show the newest operations."""
    answer = await client.ask("operation", do="list")
    if out.as_json:
        out.json(answer)
    elif answer.fields["operations"]:
        out.console.print(tables.operations(answer.fields["operations"]))
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
    """The answer about an operation that has ended. Meanwhile a bar on the terminal shows how far it is."""
    found = answer.fields
    total = 0 if found["kind"] == "find" else found["count"]  # how many a find will find, nobody knows
    with output.progress(found["kind"], total) as advance:
        before = 0
        while answer.fields["state"] in _UNENDED:
            answer = await _look(client, answer)
            handled = answer.fields["done"] + answer.fields["skipped"]
            advance(handled - before)
            before = handled
    return answer


async def _look(client: Client, answer: Answer) -> Answer:
    """What is known of an operation a while later."""
    await asyncio.sleep(_LOOK_S)
    return await client.ask("operation", do="get", operation=answer.fields["operation"])


def _show(answer: Answer, out: Output) -> None:
    if out.as_json:
        out.json(answer)
    else:
        out.console.print(tables.operation(answer.fields))


def _show_found(answer: Answer, out: Output) -> int:
    """The ids that a search found, each on a line."""
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
        out.say(f"no job matches: {tables.which(found['filter'])}")
    elif not found["exact"]:
        out.say(f"there are more than these {humanize.number(found['count'])}; a longer prefix or a topic finds them")
    return DONE
