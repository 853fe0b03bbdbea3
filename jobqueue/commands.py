"""The commands: a table of them, and `answer`, which never raises.

A command reads its parameters, makes one call of the engine and names the parts of the reply; its docstring is its
entry in the reference. Commands of one kind that stand together in a request go to the engine together.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from itertools import groupby
from typing import Any

import orjson
import structlog

from buckets import Cause, Job, State, Tag
from buckets.errors import JobQueueError, Refused, TryLater
from jobqueue import params
from jobqueue.engine import Engine
from jobqueue.errors import BadRequest

log = structlog.get_logger()

Answer = dict[str, Any]
Handler = Callable[[Engine, list[Any], list[Job]], Awaitable[list[Answer]]]


def failure(error: Exception, job_id: str | None = None) -> Answer:
    """The answer that an error becomes. An exception that is not ours is logged and told as INTERNAL."""
    if not isinstance(error, JobQueueError) or error.code == "INTERNAL":
        log.error("command.failed", exc_info=error)
        return {"success": False, "id": job_id, "error": "something went wrong here; it was logged", "code": "INTERNAL"}
    answer: Answer = {"success": False, "id": job_id, "error": error.message, "code": error.code}
    if isinstance(error, BadRequest):
        answer["id"] = job_id or error.job_id
        if error.field:
            answer["field"] = error.field
    if isinstance(error, Refused) and error.state:
        answer["state"] = error.state
    if isinstance(error, TryLater):
        answer["retry_after"] = error.retry_after
    return answer


def _body(job: Job) -> orjson.Fragment | None:
    """A job's body as it travelled; a tombstone has none."""
    return orjson.Fragment(job.body) if job.body else None


def _json(raw: bytes | None) -> orjson.Fragment | None:
    return orjson.Fragment(raw) if raw else None


def _popped(job: Job) -> Answer:
    return {
        "id": job.id,
        "value": _body(job),
        "state": job.state.word,
        "topic": job.topic,
        "lease": job.lease,
        "attempt": job.attempts,
        "tries": job.tries,
        "due": job.due / 1000,
        "ttr": job.ttr / 1000 if job.state is State.RESERVED else 0,
        "headers": _json(job.optional.get(Tag.HEADERS)),
    }


async def _add(engine: Engine, commands: list[params.Add], reserved: list[Job]) -> list[Answer]:
    """Keep a job until it is due."""
    return [
        failure(result, job_id)
        if isinstance(result, JobQueueError)
        else _durable(
            {
                "success": True,
                "id": job_id,
                "state": result.state,
                "due": result.due / 1000,
                "result": result.result,
            },
            command,
        )
        for command, (job_id, result) in zip(commands, await engine.add(commands), strict=True)
    ]


def _durable(answer: Answer, command: params.Add | params.Finish | params.Delete) -> Answer:
    """Say how safe the change is, to who asked for it."""
    if command.durability:
        answer["durability"] = "local"
    return answer


async def _pop(engine: Engine, commands: list[params.Pop], reserved: list[Job]) -> list[Answer]:
    """Reserve the next ready job, or up to `count` of them."""
    answers = []
    for command in commands:
        popped = await engine.pop(command)
        reserved.extend(popped.jobs)
        if command.count is not None:
            answers.append({"success": True, "jobs": [_popped(job) for job in popped.jobs]})
        elif popped.jobs:
            answers.append({"success": True, **_popped(popped.jobs[0])})
        else:
            answers.append({"success": True, "id": None, "value": None})
    return answers


def _states(commands: Sequence[params.Finish | params.Delete], results: Sequence[str | JobQueueError]) -> list[Answer]:
    return [
        failure(result, command.id)
        if isinstance(result, JobQueueError)
        else _durable({"success": True, "id": command.id, "state": result}, command)
        for command, result in zip(commands, results, strict=True)
    ]


async def _finish(engine: Engine, commands: list[params.Finish], reserved: list[Job]) -> list[Answer]:
    """The job is done."""
    return _states(commands, await engine.finish(commands))


async def _delete(engine: Engine, commands: list[params.Delete], reserved: list[Job]) -> list[Answer]:
    """Cancel a job in any live state; `state` is what it was."""
    return _states(commands, await engine.delete(commands))


def _seconds(ms: int | None) -> float | None:
    return None if ms is None else ms / 1000


def _described(job: Job) -> Answer:
    """All of a job, times in unix seconds and spans in seconds."""
    answer: Answer = {
        "id": job.id,
        "state": job.state.word,
        "topic": job.topic,
        "value": _body(job),
        "created": job.created / 1000,
        "due": job.due / 1000,
        "priority": job.priority,
        "ttr": job.own_ttr / 1000,
        "ttl": _seconds(job.ttl),
        "retention": job.retention / 1000,
        "tries": job.tries,
        "attempt": job.attempts,
        "deliveries": job.deliveries,
        "backoff": [delay / 1000 for delay in job.backoff],
        "headers": _json(job.optional.get(Tag.HEADERS)),
        "tags": _json(job.optional.get(Tag.TAGS)),
    }
    if job.deliveries:
        answer["lease"] = job.lease
        answer["worker"] = job.text(Tag.WORKER)
    if job.cause is not Cause.NONE:
        answer["cause"] = job.cause.name.lower()
    # What `next` means depends on the state: until when it waits or is remembered, or since when it is so.
    until = {State.READY: "ready_since", State.DEAD: "dead_since", State.RESERVED: "reserved_until"}
    answer[until.get(job.state, "until")] = job.next / 1000
    return answer


async def _get(engine: Engine, commands: list[params.Get], reserved: list[Job]) -> list[Answer]:
    """Look a job up, its state, counts and times; a tombstone too, as long as it stays."""
    answers = []
    for command in commands:
        try:
            answers.append({"success": True, **_described(await engine.get(command.id))})
        except JobQueueError as error:
            answers.append(failure(error, command.id))
    return answers


async def _stats(engine: Engine, commands: list[params.Stats], reserved: list[Job]) -> list[Answer]:
    """The figures of a topic, or of all: counts by state, totals ever, the age of the oldest ready job, and pending
    jobs by the range of their due time."""
    answers = []
    for command in commands:
        figures = await engine.stats(command.topic)
        answers.append(
            {
                "success": True,
                "topic": command.topic,
                "counts": figures.counts,
                "totals": figures.totals,
                "oldest_ready": _seconds(figures.oldest_ready_ms),
                "due": figures.due,
            }
        )
    return answers


COMMANDS: dict[type[Any], Handler] = {
    params.Add: _add,
    params.Pop: _pop,
    params.Finish: _finish,
    params.Delete: _delete,
    params.Get: _get,
    params.Stats: _stats,
}


async def _run(engine: Engine, kind: type[Any], commands: list[Any], reserved: list[Job]) -> list[Answer]:
    if issubclass(kind, BadRequest):
        return [failure(error) for error in commands]
    try:
        return await COMMANDS[kind](engine, commands, reserved)
    except Exception as error:
        return [failure(error, getattr(command, "id", None)) for command in commands]


async def answer(engine: Engine, commands: Sequence[params.Command | BadRequest], reserved: list[Job]) -> list[Answer]:
    """Carry out commands one after the other; an answer for each, in their order.

    What is wrong with a command stands in its place and is told there. `reserved` is filled with the jobs that the
    answers hand out, so that the caller can give them back when the answers reach nobody.
    """
    answers: list[Answer] = []
    for kind, run in groupby(commands, type):
        answers.extend(await _run(engine, kind, list(run), reserved))
    return answers
