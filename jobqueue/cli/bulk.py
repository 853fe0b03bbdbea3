"""The commands on many jobs: `purge`, and `kick` of a topic. They ask for confirmation and show their progress.

The service works in bounded steps; these commands request step after step until all is done. As JSON, they print one
answer at the end, with the sum of the steps.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing

import click
import msgspec

from jobqueue.cli import humanize, output
from jobqueue.cli.ask import DONE, Extras, Fields, once
from jobqueue.cli.client import Answer, Client, Refusal, Unreachable
from jobqueue.cli.output import Output

_STEP = 1000  # dead letters kicked at a time

Steps = AsyncGenerator[int, None]  # how many jobs each step handled


async def kick(client: Client, fields: Fields, extras: Extras, out: Output) -> int:
    """Make dead letters ready again: one by its id, or many of a topic."""
    if ("id" in fields) == ("topic" in fields):
        raise click.UsageError("kick takes either ID or --topic")
    if "id" in fields and ("count" in fields or extras.all):
        raise click.UsageError("--count and --all go with --topic")
    most = None if extras.all else fields.get("count", 1)
    if "id" in fields or most == 1:
        return await once("kick")(client, fields, extras, out)
    dead = (await _counts(client, fields, extras))["dead"]
    total = dead if most is None else min(most, dead)
    if total and not extras.yes:
        output.confirm(f"Kick {humanize.number(total)} of {humanize.number(dead)} dead letters of {fields['topic']}?")
    return await _work_through("Kicking", "kicked", _kicks(client, fields["topic"], total), total, fields, out)


async def purge(client: Client, fields: Fields, extras: Extras, out: Output) -> int:
    """Delete the jobs of a topic."""
    counts = await _counts(client, fields, extras)
    if "state" in fields:
        counts = {fields["state"]: counts[fields["state"]]}
    total = sum(counts.values())
    if total and not extras.yes:
        which = ", ".join(f"{humanize.number(count)} {state}" for state, count in counts.items() if count)
        output.confirm(f"Delete {humanize.jobs(total)} of {fields['topic']} ({which})?")
    return await _work_through("Deleting", "deleted", _purges(client, fields), total, fields, out)


async def _counts(client: Client, fields: Fields, extras: Extras) -> dict[str, int]:
    """How many jobs the topic has by state. Raises UsageError if a confirmation is needed and there is no terminal to
    ask on."""
    if not extras.yes:
        output.insist_on_terminal()
    stats = (await client.ask("stats", topic=fields["topic"])).fields
    if stats.get("known") is False:
        output.remark(humanize.unknown(fields["topic"]))
    counts: dict[str, int] = stats["counts"]
    return counts


async def _kicks(client: Client, topic: str, left: int) -> Steps:
    """Kick no more jobs than were dead at the start: otherwise, jobs that die again at once would keep the loop running
    for ever."""
    while left > 0:
        count = (await client.ask("kick", topic=topic, count=min(left, _STEP))).fields["count"]
        if not count:
            return
        yield count
        left -= count


async def _purges(client: Client, fields: Fields) -> Steps:
    while True:
        answer = (await client.ask("purge", **fields)).fields
        yield answer["count"]
        if not answer["cursor"]:
            return
        fields = {**fields, "cursor": answer["cursor"]}


async def _work_through(doing: str, done: str, steps: Steps, total: int, fields: Fields, out: Output) -> int:
    """Go through the steps, show the sum, and return the exit code. If a step fails, report how many jobs the earlier
    steps handled."""
    count = 0
    try:
        with output.progress(f"{doing} jobs of {fields['topic']}", total) as advance:
            async with aclosing(steps):
                async for some in steps:
                    count += some
                    advance(some)
    except (Refusal, Unreachable):
        if count:
            output.remark(f"{humanize.jobs(count)} {done} before this:")
        raise
    out.show(_summed(fields["topic"], count))
    return DONE


def _summed(topic: str, count: int) -> Answer:
    fields = {"success": True, "topic": topic, "count": count}
    return Answer(fields, msgspec.json.encode(fields))
