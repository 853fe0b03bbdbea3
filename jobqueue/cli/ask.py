"""What the command line asks a service for each command, and how it shows the answers.

Most commands ask once and show the answer. `peek`, `find`, `topics` and `schedules` follow cursors here; commands on
many jobs are in `bulk`, and `stats`, which may repeat its request, is in `watch`.
"""

from __future__ import annotations

import contextlib
import shlex
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any, NamedTuple

from buckets.errors import NotFound
from jobqueue.cli import humanize, output
from jobqueue.cli.client import Answer, Client, Refusal, Unreachable
from jobqueue.cli.output import Output
from jobqueue.health.findings import Finding

DONE, REFUSED, USAGE, UNREACHABLE, NOTHING = range(5)
"""Exit codes. NOTHING: a pop found no job."""

_PAGE = 1000  # jobs, at most
_ROWS = 200  # of a table: a single table of a whole topic would show nothing before the last job arrives


class Extras(NamedTuple):
    """Options that are not fields of the command."""

    all: bool = False
    yes: bool = False
    watch: float | None = None


_OF_TOPIC = {"kick": "kick --topic", "delete": "purge"}
"""By the name of a command on one job: the command that does the same to all jobs of a topic. For other commands,
`peek` is suggested."""

Fields = dict[str, Any]
Talk = Callable[[Client, Fields, Extras, Output], Awaitable[int]]


async def hold(talk: Talk, client: Client, fields: Fields, extras: Extras, out: Output) -> int:
    """Run a conversation with a service, from the first request on, and return the exit code."""
    try:
        async with client:
            try:
                return await talk(client, fields, extras, out)
            except Refusal as error:
                return await refused(client, error, out)
    except Unreachable as error:
        output.complain(str(error))
        return UNREACHABLE


async def refused(client: Client, error: Refusal, out: Output) -> int:
    """Show a refusal, and return the exit code. If the unknown id is the name of a topic, suggest a command for the
    topic. Raises Unreachable."""
    if out.as_json:
        out.json(error.answer)
    output.complain(str(error))
    name = error.answer.fields.get("id")
    if name and error.answer.fields.get("code") == NotFound.code:
        with contextlib.suppress(Refusal):  # the id cannot be the name of a topic, or the topic is out of reach
            if (await client.ask("stats", topic=name)).fields.get("known", True):
                does = _OF_TOPIC.get(error.command, "peek")
                output.remark(f"{name} is a topic; did you mean jobqueue {does} {shlex.quote(name)}?")
    return REFUSED


def once(name: str) -> Talk:
    """A conversation that sends one command and shows the answer."""
    show = _SHOWN.get(name)

    async def talk(client: Client, fields: Fields, extras: Extras, out: Output) -> int:
        answer = await client.ask(name, **fields)
        if show is None or out.as_json:
            out.show(answer)
        else:
            show(fields, answer.fields, out)
        return DONE

    return talk


async def get(client: Client, fields: Fields, extras: Extras, out: Output) -> int:
    """Show jobs, each as soon as its answer arrives. If a job does not exist, the others are still shown."""
    code = DONE
    for number, job_id in enumerate(fields["id"]):
        if number:
            out.say("")
        try:
            out.show(await client.ask("get", id=job_id))
        except Refusal as error:
            code = await refused(client, error, out)
    return code


async def pop(client: Client, fields: Fields, extras: Extras, out: Output) -> int:
    """Show the jobs that were popped. If there are none, say why, and return the exit code NOTHING."""
    answer = await client.ask("pop", **fields)
    found = answer.fields["jobs"] if "jobs" in answer.fields else answer.fields["id"]
    if found and "jobs" in answer.fields and not out.as_json:
        out.table("jobs", found)
    elif found or out.as_json:
        out.show(answer)
    else:
        unknown = [humanize.unknown(fields["topic"])] if answer.fields.get("known") is False else []
        nothing = "nothing may be popped now" if answer.fields.get("limited") else "nothing is ready"
        out.say("; ".join([nothing, *unknown, *_pauses(answer.fields), *_limit(answer.fields)]))
    return DONE if found else NOTHING


def _pauses(fields: Fields) -> list[str]:
    """The topics that a pop found paused, in words."""
    paused: dict[str, float | None] = fields.get("paused") or {}
    ends = {topic: "it is resumed" if until is None else humanize.when(until) for topic, until in paused.items()}
    return [f"{topic} is paused until {end}" for topic, end in ends.items()]


def _limit(fields: Fields) -> list[str]:
    """The limit that kept a pop from returning ready jobs, in words."""
    limit = fields.get("limited")
    if limit == "rate":
        return [f"the rate of the topic is reached; ask again in {humanize.span(fields['retry_after'])}"]
    if limit == "per_key":
        return ["the limit of its key is reached"]
    return ["the concurrency of the topic is reached"] if limit else []


async def jobs(name: str, client: Client, fields: Fields, extras: Extras, out: Output) -> int:
    """Show up to `count` of the jobs that a command lists, or all of them. As JSON, show one answer per page, each on a
    line."""
    most = None if extras.all else fields.pop("count", 20)
    rows: list[Fields] = []
    cursor, seen = None, False
    async for answer in _pages(client, name, "jobs", fields, most):
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
    named = f" whose ids begin with {fields['prefix']}" if "prefix" in fields else ""
    return f"{fields['topic']} has no {which}{named}"


async def _pages(client: Client, name: str, rows: str, fields: Fields, left: int | None) -> AsyncIterator[Answer]:
    """The pages of a command, until they have `left` rows in total, or all pages if `left` is None. `rows`: the field
    of an answer that has its rows."""
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
    """Show all topics except empty ones, which only --all shows. As JSON, show all topics, one answer per page, each on
    a line."""
    found: list[Fields] = []
    _complete_pattern(fields)
    async for answer in listing_pages(client, "topics", fields):
        if out.as_json:
            out.json(answer)
        found += answer.fields["topics"]
    if not out.as_json:
        shown = found if extras.all else [topic for topic in found if not is_empty(topic)]
        _show_topics(out, found, shown, fields.get("pattern"))
    return DONE


def _complete_pattern(fields: Fields) -> None:
    """Let a pattern without placeholders match the names that begin with it."""
    if "pattern" in fields and not set(fields["pattern"]) & set("*?"):
        fields["pattern"] += "*"


async def listing_pages(client: Client, name: str, fields: Fields) -> AsyncIterator[Answer]:
    """The pages of a listing whose page size the service chooses."""
    while True:
        answer = await client.ask(name, **fields)
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
    """Return True if a topic has no jobs and no workers, and is not paused."""
    return not (any(topic["counts"].values()) or topic["workers"] or topic["paused"])


async def schedules(client: Client, fields: Fields, extras: Extras, out: Output) -> int:
    """Show all schedules. As JSON, one answer per page, each on a line."""
    found: dict[str, Fields] = {}  # by name, because a page may repeat schedules of an earlier page
    _complete_pattern(fields)
    async for answer in listing_pages(client, "schedules", fields):
        if out.as_json:
            out.json(answer)
        found |= {each["name"]: each for each in answer.fields["schedules"]}
    if found and not out.as_json:
        out.table("schedules", [*found.values()])
    elif not found:
        out.say(f"no schedule matches {fields['pattern']}" if "pattern" in fields else "there are no schedules")
    return DONE


def _show_forecast(fields: Fields, found: Fields, out: Output) -> None:
    """Show how many jobs become due when."""
    if found["bins"]:
        out.table("forecast", found["bins"])
    out.say(f"{humanize.jobs(found['total'])} in {fields.get('hours', 24)} h, {humanize.jobs(found['later'])} later")
    if found["scheduled_until"] is not None:
        out.say(f"what schedules add is counted until {humanize.when(found['scheduled_until'])}")
    if found["left_out"]:
        out.say(f"only {humanize.number(found['topics'])} topics are added up; left out: {found['left_out']:,}")


def _show_figures(fields: Fields, found: Fields, out: Output) -> None:
    """Show what happened over time."""
    if found["bins"]:
        out.table("figures", found)
    else:
        out.say(f"nothing happened since {humanize.clock(found['since'])}")
    if refusals := found["total"].get("refusals"):
        out.say("refused: " + ", ".join(f"{humanize.number(number)} {kind}" for kind, number in refusals.items()))
    out.say(f"pops that wait now: {humanize.number(found['parked'])}")


def _show_workers(fields: Fields, found: Fields, out: Output) -> None:
    """Show the workers that poll."""
    rows, others = found["workers"], found["others"]
    if rows:
        out.table("workers", rows)
    else:
        out.say(f"no worker polls {fields['topic']}" if "topic" in fields else "no worker polls")
    if any(others.values()):
        out.say(f"more workers, not listed: {others['parked']} waiting pops, {humanize.jobs(others['jobs'])} in hand")


def _show_instances(fields: Fields, found: Fields, out: Output) -> None:
    """Show the processes of the service."""
    rows = found["instances"]
    out.table("instances", rows)
    versions = Counter(each["version"] or "not known" for each in rows)
    if len(versions) > 1:
        out.say(f"different versions run: {', '.join(f'{each} ({n})' for each, n in sorted(versions.items()))}")
    timers = found["shards"] * found["buckets"]
    held = sum(len(buckets) for each in rows for buckets in (each["timers"] or {}).values())
    if held < timers and all(each["timers"] is not None for each in rows):
        out.say(f"timers that no instance holds at the moment: {timers - held} of {timers}")


async def health(client: Client, fields: Fields, extras: Extras, out: Output) -> int:
    """Show the findings of the service about itself."""
    answer = await client.ask("health", **fields)
    if out.as_json:
        out.json(answer)
    for each in answer.fields["findings"]:
        out.say(str(Finding(each["level"], each["subject"], each["words"])))
    return REFUSED if any(each["level"] == "bad" for each in answer.fields["findings"]) else DONE


def _show_settings(fields: Fields, found: Fields, out: Output) -> None:
    """Show the settings in force."""
    out.table("settings", found["settings"])
    if found["policies"]:
        out.table("policies", found["policies"])
    for name, targets in found["virtual_topics"].items():
        out.say(f"an add to {name} becomes a job in each of: {', '.join(targets)}")


_SHOWN: dict[str, Callable[[Fields, Fields, Output], None]] = {
    "forecast": _show_forecast,
    "figures": _show_figures,
    "workers": _show_workers,
    "instances": _show_instances,
    "settings": _show_settings,
}
"""By command: shows an answer to people, given the fields of the request and those of the answer. For all other
commands, each field of the answer is a line."""
