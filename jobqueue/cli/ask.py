"""What each command of the command line asks a service, and what it shows of the answers.

Most commands ask once and show the answer. `peek` and `topics` follow cursors here; commands on many jobs are in
`bulk`, and repeated looks in `watch`.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any, NamedTuple

from jobqueue.cli import humanize, output
from jobqueue.cli.client import Answer, Client, Refusal, Unreachable
from jobqueue.cli.output import Output

DONE, REFUSED, USAGE, UNREACHABLE, NOTHING = range(5)
"""Exit codes. NOTHING: a pop found no job."""

_PAGE = 1000  # jobs, at most
_ROWS = 200  # of a table: a single one for a whole topic would show nothing before it has the last job


class Extras(NamedTuple):
    """Options that are not fields of the command."""

    all: bool = False
    yes: bool = False
    watch: float | None = None


Fields = dict[str, Any]
Talk = Callable[[Client, Fields, Extras, Output], Awaitable[int]]


async def hold(talk: Talk, client: Client, fields: Fields, extras: Extras, out: Output) -> int:
    """A conversation with a service, from the first request to the exit code."""
    try:
        async with client:
            return await talk(client, fields, extras, out)
    except Refusal as error:
        if out.as_json:
            out.json(error.answer)
        output.complain(str(error))
        return REFUSED
    except Unreachable as error:
        output.complain(str(error))
        return UNREACHABLE


def once(name: str) -> Talk:
    """Ask, and show the answer."""

    async def talk(client: Client, fields: Fields, extras: Extras, out: Output) -> int:
        out.show(await client.ask(name, **fields))
        return DONE

    return talk


async def get(client: Client, fields: Fields, extras: Extras, out: Output) -> int:
    """Show jobs, each as soon as it is known. One that does not exist keeps none of the others back."""
    code = DONE
    for number, job_id in enumerate(fields["id"]):
        if number:
            out.say("")
        try:
            out.show(await client.ask("get", id=job_id))
        except Refusal as error:
            if out.as_json:
                out.json(error.answer)
            output.complain(str(error))
            code = REFUSED
    return code


async def pop(client: Client, fields: Fields, extras: Extras, out: Output) -> int:
    """Show the jobs, or say that nothing is ready by the exit code."""
    answer = await client.ask("pop", **fields)
    found = answer.fields["jobs"] if "jobs" in answer.fields else answer.fields["id"]
    if found and "jobs" in answer.fields and not out.as_json:
        out.table("jobs", found)
    elif found or out.as_json:
        out.show(answer)
    else:
        unknown = [humanize.unknown(fields["topic"])] if answer.fields.get("known") is False else []
        out.say("; ".join(["nothing is ready", *unknown, *_pauses(answer.fields)]))
    return DONE if found else NOTHING


def _pauses(fields: Fields) -> list[str]:
    """The topics that a pop found paused, in words."""
    paused: dict[str, float | None] = fields.get("paused") or {}
    ends = {topic: "it is resumed" if until is None else humanize.when(until) for topic, until in paused.items()}
    return [f"{topic} is paused until {end}" for topic, end in ends.items()]


async def peek(client: Client, fields: Fields, extras: Extras, out: Output) -> int:
    """Show up to `count` jobs, or all. As JSON, one answer per page, each on a line."""
    most = None if extras.all else fields.pop("count", 20)
    rows: list[Fields] = []
    cursor, seen = None, False
    async for answer in _pages(client, "peek", "jobs", fields, most):
        seen = seen or bool(answer.fields["jobs"])
        cursor = answer.fields["cursor"]
        if out.as_json:
            out.json(answer)
        elif len(rows := rows + answer.fields["jobs"]) >= _ROWS:
            out.table("jobs", rows)
            rows = []
    if rows and not out.as_json:
        out.table("jobs", rows)
    if not seen:
        out.say(_nothing(fields, answer))
    if cursor:
        out.say("there may be more; --all shows them")
    return DONE


def _nothing(fields: Fields, answer: Answer) -> str:
    """The sentence in place of an empty table of jobs."""
    if answer.fields.get("known") is False:
        return humanize.unknown(fields["topic"])
    which = f"{fields['state']} jobs" if "state" in fields else "jobs"
    return f"{fields['topic']} has no {which}"


async def _pages(client: Client, name: str, rows: str, fields: Fields, left: int | None) -> AsyncIterator[Answer]:
    """The pages of a command, until they have `left` rows, which are the field `rows`; None: all."""
    while left is None or left > 0:
        answer = await client.ask(name, **fields, count=_PAGE if left is None else min(left, _PAGE))
        yield answer
        if left is not None:
            left -= len(answer.fields[rows])
        if not answer.fields["cursor"]:
            return
        fields = {**fields, "cursor": answer.fields["cursor"]}


async def actions(client: Client, fields: Fields, extras: Extras, out: Output) -> int:
    """Show up to `count` actions, or all. As JSON, one answer per page, each on a line."""
    most = None if extras.all else fields.pop("count", 20)
    found: list[Fields] = []
    async for answer in _pages(client, "actions", "actions", fields, most):
        if out.as_json:
            out.json(answer)
        found += answer.fields["actions"]
    if not found:
        out.say("nobody did anything that is logged")
    elif not out.as_json:
        out.table("actions", found)
    if answer.fields["cursor"]:
        out.say("there are more; --all shows them")
    return DONE


async def topics(client: Client, fields: Fields, extras: Extras, out: Output) -> int:
    """Show all topics but empty ones. As JSON, one answer per page, each on a line."""
    found: list[Fields] = []
    if "pattern" in fields and not set(fields["pattern"]) & set("*?"):
        fields["pattern"] += "*"
    async for answer in topic_pages(client, fields):
        if out.as_json:
            out.json(answer)
        found += answer.fields["topics"]
    if not out.as_json:
        shown = found if extras.all else [topic for topic in found if not is_empty(topic)]
        _show_topics(out, found, shown, fields.get("pattern"))
    return DONE


async def topic_pages(client: Client, fields: Fields) -> AsyncIterator[Answer]:
    """The pages of a listing of topics."""
    while True:
        answer = await client.ask("topics", **fields)
        yield answer
        if answer.fields["cursor"] is None:
            return
        fields = {**fields, "cursor": answer.fields["cursor"]}


def _show_topics(out: Output, found: list[Fields], shown: list[Fields], pattern: str | None) -> None:
    if shown:
        out.table("topics", shown)
    if not found:
        out.say("there are no topics yet" if pattern is None else f"no topic matches {pattern}")
    elif len(shown) < len(found):
        out.say(f"empty topics that are not shown: {len(found) - len(shown)}; --all shows them")


def is_empty(topic: Fields) -> bool:
    """Whether there is nothing to say about it."""
    return not (any(topic["counts"].values()) or topic["workers"] or topic["paused"])


async def workers(client: Client, fields: Fields, extras: Extras, out: Output) -> int:
    """Show who polls."""
    answer = await client.ask("workers", **fields)
    if out.as_json:
        out.json(answer)
        return DONE
    found, others = answer.fields["workers"], answer.fields["others"]
    if found:
        out.table("workers", found)
    else:
        out.say(f"no worker polls {fields['topic']}" if "topic" in fields else "no worker polls")
    if any(others.values()):
        out.say(f"more workers, not listed: {others['parked']} waiting pops, {humanize.jobs(others['jobs'])} in hand")
    return DONE
