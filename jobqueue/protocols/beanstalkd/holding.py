"""The commands of a connection that reserves and holds jobs, and what becomes of these when it closes."""

from __future__ import annotations

import math
from functools import partial

from buckets import Job
from jobqueue.commands.answers import Answer, success
from jobqueue.protocols.beanstalkd import priorities, replies
from jobqueue.protocols.beanstalkd.connection import Connection, Held, Run
from jobqueue.schema import inner, params
from jobqueue.wires.parameters import given_bytes

_DONE = success()
_MARGIN_S = 1.0  # before the end of a lease; then a client must see to that job


def begin_reserves(connection: Connection, run: Run) -> bool:
    """The next ready jobs of the watched tubes, however long that takes, or within so many seconds."""
    if connection.is_draining or connection.has_ended:
        connection.close()
    else:
        _count_worker(connection)
        _reserve(connection, run, len(run[1]))
    return True


def _reserve(connection: Connection, run: Run, most: int) -> None:
    """Reserve for the first commands of a run, `most` at most: for those that wait, or for those that do not."""
    soon_s = _soon_s(connection) if connection.held else math.inf
    waits = [min(_wait_s(arguments), soon_s) for arguments in run[1][:most]]
    waits_at_all = waits[0] > 0
    times = next((at for at, wait in enumerate(waits) if (wait > 0) is not waits_at_all), most)
    command = _pop(connection, waits[0])
    connection.is_waiting = True
    took = connection.taking(partial(_popped, connection, run, soon_s))
    connection.pop = connection.desk.plain.pop(command, times, connection, took)


def _pop(connection: Connection, wait_s: float) -> inner.Pop:
    watched = list(connection.watched)
    return inner.Pop(topics=watched, wait=wait_s, by_priority=len(watched) > 1, numbered="jobs")


def _soon_s(connection: Connection) -> float:
    """In how many seconds a client must see to a job that it holds."""
    ends = connection.earliest_end()
    return math.inf if ends is None else max(ends - _MARGIN_S - connection.now, 0.0)


def _popped(connection: Connection, run: Run, soon_s: float, answers: list[Answer]) -> None:
    connection.is_waiting = False
    connection.pop = None
    if not answers:  # the first of several waits alone
        _reserve(connection, run, 1)
        return
    jobs = [job for answer in answers if answer["success"] for job in answer["jobs"]]
    try:
        if jobs:
            connection.check_client()
    except ConnectionError:
        connection.desk.dialect.tools.give_back(jobs)
        return
    name, commands = run
    if len(answers) < len(commands):
        connection.leave((name, commands[len(answers) :]))
    answered = zip(answers, commands, strict=False)
    connection.answered(b"".join([_of_reserve(connection, *each, soon_s) for each in answered]))


async def _handed_out(connection: Connection, command: inner.Pop | inner.Take) -> Answer:
    """The answer to a command that hands out a job, unless the client is gone: then the job goes back."""
    _count_worker(connection)
    reserved: list[Job] = []
    dialect = connection.desk.dialect
    try:
        answer = await dialect.ask(command, reserved)
        if reserved:
            connection.check_client()
    except BaseException:
        dialect.tools.give_back(reserved)
        raise
    return answer


async def reserve(connection: Connection, *timeout_s: int) -> bytes:
    """The next job of the watched tubes."""
    soon_s = _soon_s(connection) if connection.held else math.inf
    connection.is_waiting = True
    try:
        answer = await _handed_out(connection, _pop(connection, min(_wait_s(timeout_s), soon_s)))
    finally:
        connection.is_waiting = False
    return _of_reserve(connection, answer, timeout_s, soon_s)


async def reserve_job(connection: Connection, number: int) -> bytes:
    """One job by its number: a ready, delayed or buried one."""
    answer = await _handed_out(connection, inner.Take(id=number, within=connection.desk.names.within))
    if not answer["success"]:
        return replies.of_failure(answer)
    return _reserved(connection, number, answer["job"]) if answer["job"] else replies.NOT_FOUND


def _count_worker(connection: Connection) -> None:
    if not connection.has_reserved:
        connection.has_reserved = True
        connection.desk.workers += 1


def _wait_s(arguments: tuple[int, ...]) -> float:
    return arguments[0] if arguments else math.inf


def _of_reserve(connection: Connection, answer: Answer, arguments: tuple[int, ...], soon_s: float) -> bytes:
    if not answer["success"]:
        return replies.of_failure(answer)
    if answer["jobs"]:
        return _reserved(connection, answer["numbers"][0], answer["jobs"][0])
    return replies.DEADLINE_SOON if soon_s <= _wait_s(arguments) else replies.TIMED_OUT


def _reserved(connection: Connection, number: int, job: Job) -> bytes:
    connection.held[number] = Held(job, connection.now)
    return replies.job(b"RESERVED", number, given_bytes(job))


def begin_deletes(connection: Connection, run: Run) -> bool:
    """Jobs that it holds are finished."""
    name, commands = run
    ends: dict[int, tuple[str, int]] = {}
    for (number,) in commands:
        held = connection.holds(number)
        if held is None or held.is_gone or number in ends:
            break
        ends[number] = held.id, held.lease
    some: Run = name, commands[: len(ends)]
    if not ends or not connection.desk.plain.finish(
        [*ends.values()], connection.taking(partial(_finished, connection, some))
    ):
        return False
    if len(ends) < len(commands):
        connection.leave((name, commands[len(ends) :]))
    return True


def _finished(connection: Connection, run: Run, answers: list[Answer | None] | None) -> None:
    if not connection.is_connected:
        return
    if answers is None:
        connection.complete(partial(connection.answer, run))
        return
    numbers = [number for (number,) in run[1]]
    connection.answered(b"".join(map(partial(_deleted, connection), numbers, answers)))


def _deleted(connection: Connection, number: int, answer: Answer) -> bytes:
    """Its reply to a job that it held."""
    if not answer["success"]:
        return _refused(connection, number, answer)
    tubes = connection.desk.tubes
    tubes.count(tubes.deletes, connection.held.pop(number).topic)
    return replies.DELETED


async def delete(connection: Connection, number: int) -> bytes:
    """A job that it holds is finished. Another one is deleted, unless somebody has reserved it."""
    desk = connection.desk
    held = connection.holds(number)
    if held is None:
        delete = inner.Delete(id=number, within=desk.names.within, spares=("reserved",))
        answer = await desk.dialect.ask(delete)
        return replies.DELETED if answer["success"] else replies.of_failure(answer)
    answer = _DONE if held.is_gone else await desk.dialect.ask(params.Finish(id=held.id, lease=held.lease))
    return _deleted(connection, number, answer)


async def release(connection: Connection, number: int, priority: int, delay: int) -> bytes:
    """A job that it holds goes back, with another priority, now or later."""
    held = connection.holds(number)
    if held is None or held.is_gone:
        return replies.NOT_FOUND
    level = priorities.level(connection.desk.options.levels, priority)
    release = inner.Release(
        id=held.id,
        lease=held.lease,
        delay=delay,
        note=held.new_note(connection.desk, level, priority, delay),
        priority=level,
    )
    answer = await connection.desk.dialect.ask(release)
    if not answer["success"]:
        return _refused(connection, number, answer)
    del connection.held[number]
    return replies.BURIED if answer["state"] == "dead" else replies.RELEASED


async def bury(connection: Connection, number: int, priority: int) -> bytes:
    """A job that it holds is put aside until it is kicked."""
    held = connection.holds(number)
    if held is None or held.is_gone:
        return replies.NOT_FOUND
    note = held.new_note(connection.desk, held.level, priority)
    answer = await connection.desk.dialect.ask(inner.Bury(id=held.id, lease=held.lease, note=note))
    if not answer["success"]:
        return _refused(connection, number, answer)
    del connection.held[number]
    return replies.BURIED


async def touch(connection: Connection, number: int) -> bytes:
    """The lease of a job that it holds begins again."""
    held = connection.holds(number)
    if held is None or held.is_gone:
        return replies.NOT_FOUND
    begun = connection.now
    answer = await connection.desk.dialect.ask(inner.Touch(id=held.id, lease=held.lease))
    if not answer["success"]:
        return _refused(connection, number, answer)
    held.ends = begun + held.ttr_s
    return replies.TOUCHED


def _refused(connection: Connection, number: int, answer: Answer) -> bytes:
    """Nothing was done. A job that was found to be no longer its own is no longer held."""
    reply = replies.of_failure(answer)
    if reply is replies.NOT_FOUND:
        del connection.held[number]
    return reply
