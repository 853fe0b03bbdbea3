"""The commands on many jobs: `purge`, and `kick` of a topic. They ask first, and show how far they are meanwhile.

The service works in bounded steps; here they are asked for until all is done. As JSON there is one answer in the end,
with the sum of the steps.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing

import click
import msgspec

from jobqueue.cli import humanize, output
from jobqueue.cli.ask import DONE, Fields, Wishes, once
from jobqueue.cli.client import Answer, Client, Refusal, Unreachable
from jobqueue.cli.output import Output

_STEP = 1000  # dead letters kicked at a time

Steps = AsyncGenerator[int, None]  # how many jobs each step was


async def kick(client: Client, fields: Fields, wishes: Wishes, out: Output) -> int:
    """Dead letters are ready again: one by its id, or many of a topic."""
    if ("id" in fields) == ("topic" in fields):
        raise click.UsageError("kick takes either ID or --topic")
    if "id" in fields and ("count" in fields or wishes.all):
        raise click.UsageError("--count and --all go with --topic")
    most = None if wishes.all else fields.get("count", 1)
    if "id" in fields or most == 1:
        return await once("kick")(client, fields, wishes, out)
    dead = (await _counts(client, fields, wishes))["dead"]
    total = dead if most is None else min(most, dead)
    if total and not wishes.yes:
        output.confirm(f"Kick {humanize.number(total)} of {humanize.number(dead)} dead letters of {fields['topic']}?")
    return await _work_through("Kicking", "kicked", _kicks(client, fields["topic"], total), total, fields, out)


async def purge(client: Client, fields: Fields, wishes: Wishes, out: Output) -> int:
    """Delete the jobs of a topic."""
    counts = await _counts(client, fields, wishes)
    if "state" in fields:
        counts = {fields["state"]: counts[fields["state"]]}
    total = sum(counts.values())
    if total and not wishes.yes:
        which = ", ".join(f"{humanize.number(count)} {state}" for state, count in counts.items() if count)
        output.confirm(f"Delete {humanize.jobs(total)} of {fields['topic']} ({which})?")
    return await _work_through("Deleting", "deleted", _purges(client, fields), total, fields, out)


async def _counts(client: Client, fields: Fields, wishes: Wishes) -> dict[str, int]:
    """How many jobs the topic has by state. Raises UsageError where nobody can be asked about them."""
    if not wishes.yes:
        output.insist_on_terminal()
    counts: dict[str, int] = (await client.ask("stats", topic=fields["topic"])).fields["counts"]
    return counts


async def _kicks(client: Client, topic: str, left: int) -> Steps:
    """No more than were dead at the beginning: those that die again at once would keep it going for ever."""
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
    """Go through the steps; when one fails, tell how many jobs those before it were."""
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
