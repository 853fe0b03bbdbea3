"""The native commands. Each reads its parameters, makes one call to the engine and names the parts of the answer; its
docstring is its entry in the reference.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

from buckets import Added, Job, Popped, Sent
from buckets.errors import JobQueueError, Limited, WrongState
from buckets.pages import chunks
from jobqueue.commands import operations, tokens
from jobqueue.commands.actions import is_shown
from jobqueue.commands.answers import (
    Answer,
    described,
    died,
    failure,
    handed_out,
    held_back,
    in_seconds,
    instance,
    kept,
    kept_copy,
    listed,
    logged,
    outlook,
    past,
    paused,
    polling,
    scheduled,
    settings_in_force,
    success,
    unknown,
    why_empty,
)
from jobqueue.commands.table import Handover, many, one
from jobqueue.engine.engine import Engine
from jobqueue.engine.new_jobs import Copy
from jobqueue.schema import params

_DESCRIBED = 25  # jobs described before other tasks get their turn: half a millisecond


def _durable(command: params.Add | params.Schedule | params.Finish | params.Delete | params.Update) -> Answer:
    """The durability that the change reached, if the engine noted it in the command for the answer."""
    return {"durability": command.durability} if command.durability else {}


@many
async def add(engine: Engine, commands: Sequence[params.Add], handover: Handover) -> list[Answer]:
    """Keep a job until it is due. Repeating it with the same `id` finds the existing job, for as long as that is alive
    or remembered. An add to a virtual topic becomes one job in each of its topics, all or none, with ids
    `<id>@<topic>`. All other commands know only those topics and ids: a pop of the virtual topic finds nothing."""

    results = await engine.add(commands, within=handover.within)
    return [
        kept(command.id, result) if isinstance(result, Added) and not command.durability else added(command, result)
        for command, result in zip(commands, results, strict=True)
    ]


def added(command: params.Add, result: Added | list[Copy] | JobQueueError) -> Answer:
    """The answer to an add of one job, or of a copy in each topic of a virtual topic."""
    if isinstance(result, JobQueueError):
        return failure(result, command.id)
    if isinstance(result, Added):
        return kept(command.id, result) | _durable(command)
    copies = [kept_copy(*copy) for copy in result]
    return success(id=command.id, topic=command.topic, jobs=copies, **_durable(command))


@one
async def schedule(engine: Engine, command: params.Schedule, handover: Handover) -> Answer:
    """Add a job again and again, at an interval or by a calendar. Each time an ordinary job is made, an
    occurrence with the id `<name>@<unix ms>`, whatever became of the ones before. A program may define its schedules
    whenever it starts: the same definition again is `existing` and changes nothing. Another one is `replaced`, and its
    times count from now. An option that is not given follows the policies of the topic when the occurrence is made.
    An occurrence of a virtual topic becomes a job in each of its topics, with ids `<name>@<unix ms>@<topic>`. See
    `docs/recurring.md`."""
    result, next_ms = await engine.scheduling.schedule(command, handover.within)
    return success(name=command.name, result=result, next=in_seconds(next_ms or None), **_durable(command))


@one
async def unschedule(engine: Engine, command: params.Unschedule, handover: Handover) -> Answer:
    """Remove a schedule. The occurrences that it has made stay; delete those that must not run."""
    return success(name=command.name, live=await engine.scheduling.unschedule(command.name, handover.within))


@one
async def schedules(engine: Engine, command: params.Schedules, handover: Handover) -> Answer:
    """List schedules with their next five times, in no particular order. Continue with `cursor` until it is null; a
    page before the last may be empty. With `body` false, or a token without the right `bodies`, `value` is left
    out."""
    views, cursor = await engine.scheduling.page(command, handover.within)
    with_body = _shows_bodies(command, handover)
    return success(schedules=[scheduled(view, with_body=with_body) for view in views], cursor=cursor)


@many
async def finish(
    engine: Engine, commands: Sequence[params.Finish], handover: Handover, sent: Sent | None = None
) -> list[Answer]:
    """The job is done. With `lease`, only its newest delivery can finish it; without, a late worker's finish counts
    too. A job that was never delivered is NOT_RESERVED: cancel it with delete. Repeating it succeeds for as long as the
    job is remembered."""
    results = await engine.finish(commands, sent, within=handover.within)
    return [
        {"success": True, "id": command.id, "state": result}
        if isinstance(result, str) and not command.durability
        else finished(command, result)
        for command, result in zip(commands, results, strict=True)
    ]


def finished(command: params.Finish, result: str | JobQueueError) -> Answer:
    """The answer to a finish."""
    if isinstance(result, JobQueueError):
        return failure(result, command.id)
    return success(id=command.id, state=result, **_durable(command))


_WRONG_STATE = {  # by the name of the struct, which is the same for the commands of dialects
    "Delete": "the job is {state}",
    "Kick": "only a dead job can be kicked; this one is {state}",
    "Run": "only a delayed job can be run; this one is {state}",
    "Pop": "only a delayed, ready or dead job can be taken; this one is {state}",
    "Update": "only a delayed or ready job can be updated; this one is {state}",
}


def failed(error: Exception, command: Any) -> Answer:
    """The answer to a command that failed. For a wrong state, it has the sentence of this command: the engine knows
    only the state."""
    answer = failure(error, getattr(command, "id", None))
    sentence = _WRONG_STATE.get(type(command).__name__)
    if isinstance(error, WrongState) and error.state and sentence:
        answer["error"] = sentence.format(state=error.state)
    return answer


@many
async def delete(engine: Engine, commands: Sequence[params.Delete], handover: Handover) -> list[Answer]:
    """Cancel a job in any live state, whether a worker has it or not. A finished job is WRONG_STATE. Repeating it
    succeeds for as long as the deleted job is remembered; then `was` is deleted, whoever deleted it first: it does not
    say that somebody else did."""
    results = await engine.delete(commands, within=handover.within)
    return [deleted(command, result) for command, result in zip(commands, results, strict=True)]


def deleted(command: params.Delete, was: str | JobQueueError) -> Answer:
    """The answer to a delete."""
    if isinstance(was, JobQueueError):
        return failed(was, command)
    return success(id=command.id, state="deleted", was=was, **_durable(command))


@one
async def pop(engine: Engine, command: params.Pop, handover: Handover) -> Answer:
    """Reserve the next ready job of `topic`, or of the first of `topics` that has one, for its time to run. With
    `count`, up to that many. If the client hangs up while its pop is waiting, no job is reserved and no try is used
    up. An answer without a job says so if a topic is paused or has reached a limit, or if none of them exists. With
    `id`, reserve that job, even if it is not due yet or dead, or its topic is paused; a job in another state is
    RESERVED or WRONG_STATE, and a topic that has reached a limit gives none. With `blocked`, reserve nothing: `workers`
    lists the worker with this reason, for 90 s or until it leaves."""
    handover.check(command)
    if command.id is not None:
        return await _taken(engine, command, handover)
    found = await engine.pop(command, handover.room, owner=handover.grant.owner)
    handover.hand_out(found.jobs)
    return await popped(engine, command, found)


async def popped(engine: Engine, command: params.Pop, found: Popped) -> Answer:
    """The answer to a pop. If the pop found nothing, the answer says why, if there may be a reason."""
    if found.jobs and command.count is None:
        return success(**handed_out(found.jobs[0]))
    why = {} if found.jobs or not found.ask_why else why_empty(await engine.why_empty(command), found.limited)
    if command.count is not None:
        return success(jobs=[handed_out(job) for job in found.jobs], **why)
    return success(id=None, value=None, **why)


async def _taken(engine: Engine, command: params.Pop, handover: Handover) -> Answer:
    try:
        job = await engine.take(command, handover.within)
    except Limited as error:
        return success(id=None, value=None, **held_back(error.limit, error.opens_us))
    handover.hand_out([job])
    return success(**handed_out(job))


@one
async def touch(engine: Engine, command: params.Touch, handover: Handover) -> Answer:
    """Restart the lease of a reserved job: it runs from now, for `ttr` or as long as before."""
    return success(id=command.id, state="reserved", until=in_seconds(await engine.touch(command, handover.within)))


@one
async def release(engine: Engine, command: params.Release, handover: Handover) -> Answer:
    """Give a reserved job back. It is due after `delay` or, without one, after the next step of its back-off or of the
    default one; due at once, it goes to the back of its ready list. It is dead when its tries are used up; with
    `attempt` false, this delivery does not count as a try."""
    moved = await engine.release(command, handover.within)
    return success(id=command.id, state=moved.state, due=in_seconds(moved.due))


@one
async def bury(engine: Engine, command: params.Bury, handover: Handover) -> Answer:
    """Move a reserved job to the dead letters now, where it stays until it is kicked or deleted."""
    return success(id=command.id, state=await engine.bury(command, handover.within))


@one
async def leave(engine: Engine, command: params.Leave, handover: Handover) -> Answer:
    """End the waiting pops of this worker, in every instance: each looks once more and answers with what it finds, or
    empty. For a worker that is about to stop: if it hung up just as an answer was being written, the job would stay
    reserved until the end of its TTR. Later pops wait as usual. A worker without waiting pops is not an error."""
    await engine.leave(command.worker, None if handover.grant.may("operate") else handover.grant.owner)
    return success(worker=command.worker)


@one
async def kick(engine: Engine, command: params.Kick, handover: Handover) -> Answer:
    """Make dead letters ready again, due now, with their tries and back-off reset: the job `id`, or up to `count` jobs
    of a `topic`."""
    if command.topic is not None:
        return success(topic=command.topic, count=await engine.kick_topic(command.topic, command.count or 1))
    assert command.id is not None  # either `topic` or `id` is given
    return success(id=command.id, state=await engine.kick(command.id, handover.within), count=1)


@one
async def run(engine: Engine, command: params.Run, handover: Handover) -> Answer:
    """Make a delayed job due now. A ready job is TOO_LATE, a reserved one RESERVED, any other WRONG_STATE."""
    return success(id=command.id, state="ready", due=in_seconds(await engine.run(command.id, handover.within)))


@one
async def update(engine: Engine, command: params.Update, handover: Handover) -> Answer:
    """Change a delayed or ready job: at least one field, and those that are not given stay as they are. A new time for
    a ready job is TOO_LATE: it has already fired. A ready job keeps its place unless its priority changes. A reserved
    job is RESERVED, any other WRONG_STATE, and nothing changes. When Redis is full, only an update with a body needs
    room."""
    moved = await engine.update(command, handover.within)
    return success(id=command.id, state=moved.state, due=in_seconds(moved.due), **_durable(command))


@one
async def get(engine: Engine, command: params.Get, handover: Handover) -> Answer:
    """Everything about a job: body, times, counts, options. Of an ended job, what is remembered, mostly without its
    body. With `body` false, or a token without the right `bodies`, `value` is left out."""
    handover.check(command)
    job, paused_until = await engine.get(command.id, handover.within)
    handover.take([job])
    return success(**described(job, with_body=_shows_bodies(command, handover)), **paused(paused_until))


def _shows_bodies(command: params.Get | params.Peek | params.Schedules, handover: Handover) -> bool:
    return handover.grant.sees_bodies if command.body is None else command.body


@one
async def explain(engine: Engine, command: params.Explain, handover: Handover) -> Answer:
    """Why a job is where it is: one sentence from facts alone, the facts, and with a journal (`docs/journal.md`) what
    happened to it, each step with its lateness and its cause. Without a journal, it says what the record alone knows,
    and `notes` say so. A journal that does not answer within 2 s is left out, and `notes` say that. No bodies."""
    return await engine.explain(command, handover.within)


@one
async def stats(engine: Engine, command: params.Stats, handover: Handover) -> Answer:
    """The figures of a topic, or of all topics. The counts by state and the all-time totals are exact."""
    figures, status = await engine.stats(command.topic, handover.within)
    newest = await engine.newest_dead(command.topic) if command.topic and figures.counts["dead"] else None
    answer = success(
        **({"newest_dead": died(newest)} if newest else {}),
        topic=command.topic,
        counts=figures.counts,
        **({"blocked": figures.blocked} if figures.blocked else {}),
        totals=figures.totals,
        oldest_ready=in_seconds(figures.oldest_ready_ms),
        due=figures.due,
        shards=engine.shards,
    )
    if command.topic and status:
        answer |= unknown(status.known) | paused(status.paused.get(command.topic))
    return answer


@one
async def forecast(engine: Engine, command: params.Forecast, handover: Handover) -> Answer:
    """How many delayed jobs fall due when, exact to the minute, or to the hour for a job that was added more than a day
    ahead; and what schedules are going to add, by itself, without their jitter. Jobs that fell due and were not moved
    yet are in bins that have begun. Leases, and ready jobs with a ttl, are not in it. An answer may be 5 s old, or
    20 times as old as it took to make, where that is more, as for all of a thousand topics."""
    return await outlook(command.topic, await engine.forecasting.forecast(command, handover.within))


@one
async def figures(engine: Engine, command: params.Past, handover: Handover) -> Answer:
    """What happened in each minute, over all instances: rates, and how late jobs were. Each instance adds what it
    counted every 10 s, so the newest minute is not complete, and an instance that is killed takes up to 10 s of figures
    with it. Those of all topics are kept for `history_hours`, those of a topic for 2 hours, and of the first
    `metrics_topics` topics only. A token that does not reach all topics has to name one. While Redis is full, figures
    are dropped. Exact totals are in `stats`."""
    return await past(command.topic, await engine.read_past(command, handover.within))


@one
async def peek(engine: Engine, command: params.Peek, handover: Handover) -> Answer:
    """Look at the jobs of a topic without reserving them: delayed and reserved jobs in the order of their times, dead
    ones in the order in which they died, ready ones in the order in which pops get them, and last those that wait for
    others of their `key`. A page with a `cursor` may be short or empty. With `body` false, or a token without the right
    `bodies`, `value` is left out."""
    handover.check(command)
    page, cursor, known = await engine.peek(command, handover.room)
    handover.take(page.jobs)
    jobs = await _described(page.jobs, with_body=_shows_bodies(command, handover))
    return success(topic=command.topic, jobs=jobs, cursor=cursor, **unknown(known))


@one
async def find(engine: Engine, command: params.Find, handover: Handover) -> Answer:
    """Search a topic for jobs whose ids begin with a prefix, in the order of `peek`, without their bodies. A request
    looks at 4,000 entries of indexes at most, which jobs of other topics share: a page with a `cursor` may be short or
    empty, and `looked` says how far the search has come. A job whose whole id is known is found by `get` at once.
    Without a topic the search is an [operation](#operation), for which a token needs the right `operate`, too:
    `operation` with get lists the ids that it has found."""
    if command.topic is None:
        operations.check_may_operate(handover.grant)
        begun = await engine.operating.find(command.prefix, command.state, handover.within)
        return success(operation=begun.id)
    page, cursor, known = await engine.find(command, handover.room)
    handover.take(page.jobs)
    jobs = await _described(page.jobs, with_body=False)
    return success(topic=command.topic, jobs=jobs, looked=page.looked, cursor=cursor, **unknown(known))


async def _described(jobs: Sequence[Job], *, with_body: bool) -> list[Answer]:
    """Describe jobs for a list. A thousand take 20 ms, during which other requests are answered, too."""
    found: list[Answer] = []
    for some in chunks(jobs, _DESCRIBED):
        found += [described(job, with_body=with_body) for job in some]
        await asyncio.sleep(0)
    return found


@one
async def topics(engine: Engine, command: params.Topics, handover: Handover) -> Answer:
    """The topics with their counts, how long the oldest ready job has waited, how many workers poll, and pauses; in no
    particular order. A worker that ended without hanging up counts for up to 90 s: `workers` says when each was last
    seen. A page with a `cursor` may be empty."""
    found, cursor = await engine.topics(command, handover.within)
    return success(topics=[listed(*view) for view in found], cursor=cursor)


@one
async def workers(engine: Engine, command: params.Workers, handover: Handover) -> Answer:
    """Who polls which topics, and through which instance: the workers with a waiting pop, a pop in the last 90 s, or
    jobs in hand. Each instance knows its own workers and reports them every two seconds, up to 300 of them and sums of
    the rest. A worker that leaves, or hangs up while its pop waits, disappears at once, or when it has no more jobs in
    hand."""
    return success(**polling(await engine.workers(command.topic, handover.grant.reaches if handover.within else None)))


@one
async def instances(engine: Engine, command: params.Instances, handover: Handover) -> Answer:
    """The processes of the service that are alive: where each runs, in which version, since when, and the timers that
    it holds. One that was killed disappears within half a second, and others take its timers. An instance that has just
    started, or is of a version without this command, has little more than `signed`. Waiting pops are known as of the
    last two seconds."""
    found = await engine.instances(handover.grant.reaches if handover.within else None)
    return success(instances=[instance(each) for each in found], shards=engine.shards, buckets=engine.buckets)


@one
async def health(engine: Engine, command: params.Health, handover: Handover) -> Answer:
    """What `jobqueue check` finds, seen from inside of the running service: whether Redis can carry the queue and keeps
    its data, clocks, settings, access, instances, and the jobs and schedules that wait, with what to do about it. An
    answer may be 5 s old. At most 2,000 topics are looked at."""
    return success(**await engine.examine(handover.within))


@one
async def pause(engine: Engine, command: params.Pause, handover: Handover) -> Answer:
    """Make the pops of a topic find nothing. Its due jobs still become ready, and reserved jobs can be finished. A
    pause of a topic that does not exist yet holds for the jobs to come."""
    until, known = await engine.pause(command)
    return success(topic=command.topic, until=in_seconds(until or None), **unknown(known))


@one
async def resume(engine: Engine, command: params.Resume, handover: Handover) -> Answer:
    """End the pause of a topic."""
    was_paused, known = await engine.resume(command.topic)
    return success(topic=command.topic, was_paused=was_paused, **unknown(known))


@one
async def purge(engine: Engine, command: params.Purge, handover: Handover) -> Answer:
    """Delete the jobs of a topic that existed when the purge began. A request works for about a second; an answer with
    a `cursor` means that more are left. The purge stops when its client hangs up; what was deleted stays deleted."""
    count, cursor, known = await engine.purge(command)
    return success(topic=command.topic, count=count, cursor=cursor, **unknown(known))


@one
async def operation(engine: Engine, command: params.Operation, handover: Handover) -> Answer:
    """Change all jobs that match a filter: plan it, which counts them and changes none, then start it by the id of
    the plan, with the number of jobs that it is expected to change. It runs in the background, at a bounded rate, goes
    on in another instance if its own dies, and can be paused and cancelled. Only jobs that matched and were there when
    it was planned are changed, each once; there is no undo. One operation of a kind runs at a time; the others wait. A
    token needs the right to do to one job what the operation does to many: kick, delete, run, update (for a
    reschedule) or find. A plan that is still `planning` when it is answered is looked at with get."""
    return await operations.carry_out(engine.operating, command, handover)


@one
async def actions(engine: Engine, command: params.Actions, handover: Handover) -> Answer:
    """What people and operators did, the newest first: kick, run, purge, pause, resume, changes of tokens and of
    settings; where `X-Jobqueue-Actor` names a person, also delete, update, bury, release, schedule and
    unschedule."""
    found, cursor = await engine.page_of_actions(command, lambda begun: is_shown(begun, handover.grant))
    return success(actions=[logged(action) for action in found], cursor=cursor)


@one
async def settings(engine: Engine, command: params.Settings, handover: Handover) -> Answer:
    """The settings in force in the process that answers, reloaded ones too, and where each came from; what holds for
    topics with settings of their own; and the virtual topics. A secret is `set` or `not set`."""
    assert engine.settings, "only a service has settings"
    return success(**settings_in_force(engine.settings(), handover.grant.reaches))


@one
async def token(engine: Engine, command: params.Token, handover: Handover) -> Answer:
    """Create, list, show, revoke and rotate tokens, or test what one may do. Nobody gives a right, a topic or a limit
    that their own token lacks. The token itself is in the answer to create and rotate, and nowhere else. A service
    without tokens answers FORBIDDEN: there, `jobqueue token` creates them in Redis."""
    return await tokens.carry_out(engine.issuing, command, handover.grant)


@one
async def whoami(engine: Engine, command: params.Whoami, handover: Handover) -> Answer:
    """What the token of this request may do, and until when. Every token may ask."""
    return tokens.bearer(handover.grant)


@one
async def clock(engine: Engine, command: params.Clock, handover: Handover) -> Answer:
    """Let time pass on a test service. With the answer, all that fell due meanwhile is ready."""
    return success(now=in_seconds(await engine.advance(command)))


@one
async def reset(engine: Engine, command: params.Reset, handover: Handover) -> Answer:
    """Forget all jobs and topics of a test service, and set its clock to the host's time."""
    return success(now=in_seconds(await engine.reset()))
