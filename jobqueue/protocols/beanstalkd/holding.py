"""The commands of a connection that reserves and holds jobs, and what becomes of these when it closes."""

from __future__ import annotations

import math

from buckets import Job
from jobqueue.commands.answers import Answer
from jobqueue.protocols.beanstalkd import priorities, replies
from jobqueue.protocols.beanstalkd.connection import Connection, Held
from jobqueue.schema import inner, params
from jobqueue.wires.bodies import given_bytes

_MARGIN_S = 1.0  # before the end of a lease; then a client must see to that job


async def reserve(connection: Connection) -> bytes:
    """The next ready job of the watched tubes, however long that takes."""
    return await _reserve(connection, math.inf)


async def reserve_with_timeout(connection: Connection, seconds: int) -> bytes:
    """The same, for so many seconds."""
    return await _reserve(connection, seconds)


async def _reserve(connection: Connection, wait_s: float) -> bytes:
    if connection.is_draining:
        connection.close()
        return replies.NOTHING
    ends = connection.earliest_end() if connection.held else None
    soon_s = math.inf if ends is None else max(ends - _MARGIN_S - connection.now, 0.0)
    watched = list(connection.watched)
    wait = min(wait_s, soon_s)
    pop = inner.Pop(topics=watched, count=1, wait=wait, by_priority=len(watched) > 1, numbered="jobs")
    with connection.wait():
        answer = await _handed_out(connection, pop)
    if not answer["success"]:
        return replies.of_failure(answer)
    if answer["jobs"]:
        return _reserved(connection, answer["numbers"][0], answer["jobs"][0])
    return replies.DEADLINE_SOON if soon_s <= wait_s else replies.TIMED_OUT


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


async def reserve_job(connection: Connection, number: int) -> bytes:
    """One job by its number: a ready, delayed or buried one."""
    answer = await _handed_out(connection, inner.Take(id=number, within=connection.desk.names.within))
    if not answer["success"]:
        return replies.of_failure(answer)
    return _reserved(connection, number, answer["job"])


def _count_worker(connection: Connection) -> None:
    if not connection.has_reserved:
        connection.has_reserved = True
        connection.desk.workers += 1


def _reserved(connection: Connection, number: int, job: Job) -> bytes:
    connection.held[number] = Held(job, connection.now)
    return replies.job(b"RESERVED", number, given_bytes(job))


async def delete(connection: Connection, number: int) -> bytes:
    """A job that it holds is finished. Another one is deleted, unless somebody has reserved it."""
    desk = connection.desk
    held = connection.holds(number)
    if held is None:
        delete = inner.Delete(id=number, within=desk.names.within, spares=("reserved",))
        answer = await desk.dialect.ask(delete)
        return replies.DELETED if answer["success"] else replies.of_failure(answer)
    if not held.is_gone:
        answer = await desk.dialect.ask(params.Finish(id=held.id, lease=held.lease))
        if not answer["success"]:
            return _refused(connection, number, answer)
    del connection.held[number]
    desk.tubes.count(desk.tubes.deletes, held.topic)
    return replies.DELETED


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
