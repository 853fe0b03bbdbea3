"""The actions of people: a function for each POST. The service decides whether a person may act, not this module.

An action ends by returning to the page where it began, with a note of what was done. A refusal is shown with the
service's sentence and status.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable
from typing import Any

import msgspec
from aiohttp import web

from jobqueue.cli import humanize, times
from jobqueue.cli.client import Refusal, Unreachable
from jobqueue.console.pages.operations import TIMES
from jobqueue.console.visit import BadQuery, Note, Visit

_AT_ONCE = 10  # concurrent requests for ticked jobs
_MOST_TICKED = 1000
_PURGED_FOR_S = 8.0
_MOST_KICKED = 1000


async def pause(visit: Visit) -> web.StreamResponse:
    """Pause topics, for some time or until they are resumed."""
    typed = text(visit, "seconds")
    lasting = {"seconds": _duration("seconds", typed)} if typed else {}
    return await _each(visit, "topic", "paused", lambda topic: ask(visit, "pause", topic=topic, **lasting))


async def resume(visit: Visit) -> web.StreamResponse:
    """End the pauses of topics."""
    return await _each(visit, "topic", "resumed", lambda topic: ask(visit, "resume", topic=topic))


async def purge(visit: Visit) -> web.StreamResponse:
    """Delete the jobs of a topic, in one state or in all. The person must type the topic's name again to confirm."""
    topic, state = text(visit, "topic"), text(visit, "state")
    if text(visit, "confirm") != topic:
        raise BadQuery("confirm", "the name of the topic, so that nobody purges another one by accident")
    wanted, deleted, cursor = ({"state": state} if state else {}), 0, None
    loop = asyncio.get_running_loop()
    end = loop.time() + _PURGED_FOR_S
    while True:
        answer = await ask(visit, "purge", topic=topic, **wanted, **({"cursor": cursor} if cursor else {}))
        deleted, cursor = deleted + answer["count"], answer["cursor"]
        if not cursor or loop.time() >= end:
            break
    rest = "; more are left, purge again to go on" if cursor else ""
    return done(visit, f"{humanize.jobs(deleted)} deleted{rest}")


async def kick_topic(visit: Visit) -> web.StreamResponse:
    """Make the oldest dead letters of a topic ready again, up to a thousand."""
    count = _whole("count", text(visit, "count"), 1, _MOST_KICKED)
    answer = await ask(visit, "kick", topic=text(visit, "topic"), count=count)
    return done(visit, f"{humanize.jobs(answer['count'])} kicked")


async def add(visit: Visit) -> web.StreamResponse:
    """Add a job to a topic, as a test."""
    given: dict[str, Any] = {"topic": text(visit, "topic"), "body": _json("body", text(visit, "body", 1 << 20))}
    given |= {name: value for name in ("id", "key") if (value := text(visit, name))}
    if delay := text(visit, "delay"):
        given["delay"] = _duration("delay", delay)
    answer = await ask(visit, "add", **given)
    job = answer.get("id") or answer["topic"]
    return done(visit, f"job {job}: {answer.get('result', 'added')}")


async def run(visit: Visit) -> web.StreamResponse:
    """Make delayed jobs due now."""
    return await _each(visit, "id", "made due", lambda job: ask(visit, "run", id=job))


async def kick(visit: Visit) -> web.StreamResponse:
    """Make dead letters ready again."""
    return await _each(visit, "id", "kicked", lambda job: ask(visit, "kick", id=job))


async def delete(visit: Visit) -> web.StreamResponse:
    """Delete jobs."""
    return await _each(visit, "id", "deleted", lambda job: ask(visit, "delete", id=job))


async def release(visit: Visit) -> web.StreamResponse:
    """Release a reserved job, on behalf of the worker that has it."""
    given: dict[str, Any] = {"id": text(visit, "id"), "attempt": False}
    if delay := text(visit, "delay"):
        given["delay"] = _duration("delay", delay)
    if reason := text(visit, "reason", 1000):
        given["reason"] = reason
    answer = await ask(visit, "release", **given)
    return done(visit, f"released; it is {answer['state']}")


async def bury(visit: Visit) -> web.StreamResponse:
    """Move a reserved job to the dead letters."""
    reason = text(visit, "reason", 1000)
    await ask(visit, "bury", id=text(visit, "id"), **({"reason": reason} if reason else {}))
    return done(visit, "buried")


async def reschedule(visit: Visit) -> web.StreamResponse:
    """Change when a delayed job is due: after a duration, or at a time with its offset."""
    typed = text(visit, "when")
    try:
        when: dict[str, Any] = {"delay": times.duration(typed)}
    except ValueError:
        when = {"at": typed}
    answer = await ask(visit, "update", id=text(visit, "id"), **when)
    return done(visit, f"rescheduled; it is {answer['state']}, due {humanize.ahead(answer['due'])}")


async def prioritise(visit: Visit) -> web.StreamResponse:
    """Change the priority of a delayed or ready job."""
    priority = _whole("priority", text(visit, "priority"), 0, 9)
    await ask(visit, "update", id=text(visit, "id"), priority=priority)
    return done(visit, f"priority {priority}")


async def edit(visit: Visit) -> web.StreamResponse:
    """Replace the body of a delayed or ready job, byte for byte as it was typed."""
    await ask(visit, "update", id=text(visit, "id"), body=_json("body", text(visit, "body", 1 << 20)))
    return done(visit, "the body was replaced")


async def plan(visit: Visit) -> web.StreamResponse:
    """Plan an operation; its page shows what it would change."""
    names = ("topic", "state", "prefix", "cause", "reason", "tag")
    wanted: dict[str, Any] = {name: text(visit, name) for name in names if text(visit, name)}
    wanted |= {name: _moment(text(visit, name)) for name in TIMES if text(visit, name)}
    given: dict[str, Any] = {"kind": text(visit, "kind"), "filter": wanted}
    if shift := text(visit, "shift"):
        given["shift"] = -_duration("shift", shift[1:]) if shift.startswith("-") else _duration("shift", shift)
    if at := text(visit, "at"):
        given["at"] = _moment(at)
    if spread := text(visit, "spread"):
        given["spread"] = _duration("spread", spread)
    return _show(visit, (await ask(visit, "operation", do="plan", **given))["plan"])


async def find(visit: Visit) -> web.StreamResponse:
    """Search all jobs for ids that begin with a prefix; the page of the search shows the jobs as they are found."""
    return _show(visit, (await ask(visit, "find", prefix=text(visit, "prefix")))["operation"])


async def start(visit: Visit) -> web.StreamResponse:
    """Start a plan, with the number of jobs that the person expects."""
    expect = _whole("expect", text(visit, "expect").replace(",", ""), 0, 10**12)
    rate = _whole("rate", text(visit, "rate"), 1, 20_000)
    await ask(visit, "operation", do="start", plan=text(visit, "operation"), expect=expect, rate=rate)
    return done(visit, "started")


async def pause_operation(visit: Visit) -> web.StreamResponse:
    """Pause an operation."""
    await ask(visit, "operation", do="pause", operation=text(visit, "operation"))
    return done(visit, "paused")


async def resume_operation(visit: Visit) -> web.StreamResponse:
    """Resume an operation."""
    await ask(visit, "operation", do="resume", operation=text(visit, "operation"))
    return done(visit, "resumed")


async def cancel_operation(visit: Visit) -> web.StreamResponse:
    """Cancel an operation; the changes it has made stay."""
    await ask(visit, "operation", do="cancel", operation=text(visit, "operation"))
    return done(visit, "cancelled")


async def unschedule(visit: Visit) -> web.StreamResponse:
    """Remove schedules; the jobs that they have added stay."""
    return await _each(visit, "name", "removed", lambda name: ask(visit, "unschedule", name=name))


async def revoke(visit: Visit) -> web.StreamResponse:
    """Revoke a token now."""
    await ask(visit, "token", action="revoke", id=text(visit, "id"))
    return done(visit, f"token {text(visit, 'id')} revoked")


async def rotate(visit: Visit) -> web.StreamResponse:
    """Replace the secret of a token. The new token is shown only in this response."""
    keep = text(visit, "keep")
    answer = await ask(
        visit,
        "token",
        action="rotate",
        id=text(visit, "id"),
        **({"keep": _duration("keep", keep)} if keep else {}),
    )
    return visit.page("rotated", "New token", token=answer, refresh=False)


ACTIONS: dict[str, Callable[[Visit], Awaitable[web.StreamResponse]]] = {
    "do/pause": pause,
    "do/resume": resume,
    "do/purge": purge,
    "do/kick-topic": kick_topic,
    "do/add": add,
    "do/run": run,
    "do/kick": kick,
    "do/delete": delete,
    "do/release": release,
    "do/bury": bury,
    "do/reschedule": reschedule,
    "do/prioritise": prioritise,
    "do/edit": edit,
    "do/plan": plan,
    "do/find": find,
    "do/start": start,
    "do/pause-operation": pause_operation,
    "do/resume-operation": resume_operation,
    "do/cancel-operation": cancel_operation,
    "do/unschedule": unschedule,
    "do/revoke": revoke,
    "do/rotate": rotate,
}
"""Every POST by its path, except signing in and out."""


async def ask(visit: Visit, command: str, **fields: Any) -> dict[str, Any]:
    """Send a command; returns the fields of its answer. Raises Refusal, Unreachable."""
    try:
        return (await visit.person.client.ask(command, **fields)).fields
    finally:
        visit.place.questions.stale()


def done(visit: Visit, sentence: str, kind: str = "done") -> web.StreamResponse:
    """Redirect to the page where the action began, with a note."""
    name = visit.place.notes.leave(Note(sentence, kind))
    back = visit.place.links.own(text(visit, "back", 4000))
    raise web.HTTPSeeOther(f"{back}{'&' if '?' in back else '?'}note={name}")


def _show(visit: Visit, operation: str) -> web.StreamResponse:
    """Redirect to the page of an operation."""
    raise web.HTTPSeeOther(visit.place.links.to("operation", id=operation))


async def _each(
    visit: Visit, field: str, verb: str, act: Callable[[str], Awaitable[dict[str, Any]]]
) -> web.StreamResponse:
    """Run `act` for each ticked item. If a single item is ticked, its refusal is raised; if several are ticked, the
    note counts the refusals by code."""
    assert visit.form is not None
    ticked = [str(value) for value in visit.form.getall(field, [])]  # type: ignore[attr-defined]  # a MultiDict
    if not ticked or len(ticked) > _MOST_TICKED:
        raise BadQuery(field, f"ticked: one at least, and at most {_MOST_TICKED}")
    if len(ticked) == 1:
        await act(ticked[0])
        return done(visit, f"{ticked[0]} {verb}")
    refused: Counter[str] = Counter()
    turns = asyncio.Semaphore(_AT_ONCE)

    async def act_in_turn(name: str) -> None:
        async with turns:
            try:
                await act(name)
            except Refusal as refusal:
                refused[str(refusal.answer.fields.get("code"))] += 1
            except Unreachable:
                refused["no answer"] += 1

    await asyncio.gather(*map(act_in_turn, ticked))
    if refused.total() == refused["FORBIDDEN"] == len(ticked):
        await act(ticked[0])  # raises the refusal, which says why
    why = ", ".join(f"{count} {code}" for code, count in refused.items())
    sentence = f"{len(ticked) - refused.total()} {verb}" + (f", {refused.total()} not: {why}" if why else "")
    return done(visit, sentence, "failed" if refused else "done")


def text(visit: Visit, name: str, longest: int = 255) -> str:
    """A field of the form without surrounding blanks, or empty if the form lacks it. Raises BadQuery."""
    assert visit.form is not None
    value = str(visit.form.get(name, "")).strip()
    if len(value) > longest:
        raise BadQuery(name, f"at most {longest} characters")
    return value


def _duration(name: str, typed: str) -> float | int:
    try:
        return times.duration(typed)
    except ValueError:
        raise BadQuery(name, times.DURATIONS) from None


def _moment(typed: str) -> float | int | str:
    """A time in a form that the service reads; the service refuses text that is not a time."""
    try:
        return times.number(typed)
    except ValueError:
        return typed


def _whole(name: str, typed: str, least: int, most: int) -> int:
    number = int(typed) if typed.isdecimal() and len(typed) <= len(str(most)) else -1
    if not least <= number <= most:
        raise BadQuery(name, f"an integer from {least} to {most}")
    return number


def _json(name: str, typed: str) -> msgspec.Raw:
    """A body, byte for byte as it was typed."""
    try:
        return msgspec.json.decode(typed.encode("utf-8", "surrogatepass"), type=msgspec.Raw).copy()
    except (msgspec.DecodeError, RecursionError) as error:
        raise BadQuery(name, f"JSON ({error})") from None
