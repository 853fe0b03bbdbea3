"""The commands that put jobs, and those on jobs that nobody holds: kick and peek."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from functools import partial
from typing import NamedTuple, cast

from msgspec import Raw

from buckets import State
from jobqueue.commands.answers import Answer
from jobqueue.engine.by_callback import New
from jobqueue.errors import TooLarge
from jobqueue.protocols.beanstalkd import priorities, replies
from jobqueue.protocols.beanstalkd.connection import Connection, Run
from jobqueue.schema import inner, params
from jobqueue.schema.fields import DAY_S
from jobqueue.wires.parameters import given_bytes, stored_bytes

_PAGE = 1000
Put = tuple[int, int, int, bytes]
"""Priority, delay, ttr and data."""
_ENDED = (State.FINISHED, State.DELETED)


class _Stored(NamedTuple):
    """What a put stores besides its times."""

    body: bytes
    headers: dict[str, str]
    level: int
    note: bytes


def begin_puts(connection: Connection, run: Run) -> bool:
    """Jobs for the used tube."""
    puts = run[1]
    jobs = [_new(connection, *put) for put in puts]
    if connection.refuses_jobs or None in jobs:
        return False
    took = connection.taking(partial(_put, connection, puts))
    if not connection.desk.plain.add_numbered(cast(list[New], jobs), took):
        return False
    _count_producer(connection)
    return True


def _new(connection: Connection, priority: int, delay: int, ttr: int, data: bytes) -> New | None:
    """The job of a put; None for one that is not plain."""
    read = _read(connection, priority, delay, data)
    if read is None or read.headers:
        return None
    shape = connection.desk.plain.shape(_command, connection.used, read.level, ttr, read.note)
    return (shape, delay * 1000, read.body) if shape else None


def _put(connection: Connection, puts: Sequence[Put], answers: list[Answer | None] | None) -> None:
    if answers is None or None in answers:
        connection.complete(partial(_put_rest, connection, puts, answers or [None] * len(puts)))
    else:
        connection.answered(b"".join(map(_inserted, cast(list[Answer], answers))))


async def _put_rest(connection: Connection, puts: Sequence[Put], answers: list[Answer | None]) -> None:
    """Put those that have no answer yet, and answer them all."""
    left = [put for put, answer in zip(puts, answers, strict=True) if answer is None]
    others = iter(await _put_all(connection, left))
    connection.write(b"".join([next(others) if answer is None else _inserted(answer) for answer in answers]))


async def put(connection: Connection, puts: Sequence[Put]) -> bytes:
    """Jobs for the used tube."""
    _count_producer(connection)
    return b"".join(await _put_all(connection, puts))


async def _put_all(connection: Connection, puts: Sequence[Put]) -> list[bytes]:
    if connection.refuses_jobs:
        return [replies.DRAINING] * len(puts)
    adds = [_add(connection, *each) for each in puts]
    commands = [add for add in adds if add is not None]
    answers = iter(await connection.desk.dialect.tools.commands.answer(commands, []) if commands else ())
    return [replies.JOB_TOO_BIG if add is None else _inserted(next(answers)) for add in adds]


def _count_producer(connection: Connection) -> None:
    if not connection.has_put:
        connection.has_put = True
        connection.desk.producers += 1


def _inserted(answer: Answer) -> bytes:
    return b"INSERTED %d\r\n" % answer["number"] if answer["success"] else replies.of_failure(answer)


def _add(connection: Connection, priority: int, delay: int, ttr: int, data: bytes) -> inner.Add | None:
    """The add of a job; None where its body would be too long."""
    read = _read(connection, priority, delay, data)
    if read is None:
        return None
    command = _command(connection.used, read.level, ttr, read.note)
    command.body, command.delay, command.headers = Raw(read.body), delay, read.headers or None
    return command


def _read(connection: Connection, priority: int, delay: int, data: bytes) -> _Stored | None:
    """What is stored for a put; None where its body would be too long."""
    desk = connection.desk
    try:
        body, headers = stored_bytes(data, desk.dialect.tools.settings.max_body_bytes)
    except TooLarge:
        return None
    level = priorities.level(desk.options.levels, priority)
    return _Stored(body, headers, level, priorities.written(desk.options.levels, level, priority, delay))


def _command(topic: str, level: int, ttr: int, note: bytes) -> inner.Add:
    """The add of a job, without its delay and body."""
    return inner.Add(
        topic=topic,
        body=Raw(),
        ttr=min(max(ttr, 1), DAY_S),
        priority=level,
        tries=0,
        retention=0,
        note=note,
        numbered=True,
        if_exists="reject",
    )


async def kick(connection: Connection, bound: int) -> bytes:
    """Make buried jobs of the used tube ready; where there are none, delayed ones."""
    kicked = 0
    while kicked < bound:
        most = min(bound - kicked, _PAGE)
        answer = await connection.desk.dialect.ask(params.Kick(topic=connection.used, count=most))
        if not answer["success"]:
            return replies.of_failure(answer)
        kicked += answer["count"]
        if answer["count"] < most:
            break
    return b"KICKED %d\r\n" % kicked if kicked else await _run_delayed(connection, bound)


async def _run_delayed(connection: Connection, bound: int) -> bytes:
    """Make up to `bound` delayed jobs due now, the next ones first."""
    ask, within = connection.desk.dialect.ask, connection.desk.names.within
    count = 0
    while count < bound:
        peek = inner.Peek(topic=connection.used, state="delayed", count=min(bound - count, _PAGE), body=False)
        peeked = await ask(peek)
        if not peeked["success"]:
            return replies.of_failure(peeked)
        answers = await asyncio.gather(*(ask(inner.Run(id=job.id, within=within)) for job in peeked["jobs"]))
        run = sum(answer["success"] for answer in answers)
        count += run
        if not run:
            break
    return b"KICKED %d\r\n" % count


async def kick_job(connection: Connection, number: int) -> bytes:
    """Make a buried or delayed job ready."""
    ask, within = connection.desk.dialect.ask, connection.desk.names.within
    answer = await ask(inner.Kick(id=number, within=within))
    if answer.get("code") == "WRONG_STATE":
        answer = await ask(inner.Run(id=number, within=within))
    return replies.KICKED_ONE if answer["success"] else replies.of_failure(answer)


async def peek(connection: Connection, number: int) -> bytes:
    """A job in any state."""
    answer = await connection.desk.dialect.ask(inner.Get(id=number, within=connection.desk.names.within))
    if not answer["success"]:
        return replies.of_failure(answer)
    job = answer["job"]
    return replies.NOT_FOUND if job.state in _ENDED else replies.job(b"FOUND", number, given_bytes(job))


async def peek_ready(connection: Connection) -> bytes:
    """The job of the used tube that is reserved next."""
    return await _peek(connection, inner.Peek(topic=connection.used, state="ready", numbered="jobs"))


async def peek_delayed(connection: Connection) -> bytes:
    """The one that is due next."""
    return await _peek(connection, inner.Peek(topic=connection.used, state="delayed", numbered="jobs"))


async def peek_buried(connection: Connection) -> bytes:
    """The one that is kicked next."""
    return await _peek(connection, inner.Peek(topic=connection.used, state="dead", numbered="jobs"))


async def _peek(connection: Connection, look: inner.Peek) -> bytes:
    answer = await connection.desk.dialect.ask(look)
    if not answer["success"]:
        return replies.of_failure(answer)
    if not answer["jobs"]:
        return replies.NOT_FOUND
    return replies.job(b"FOUND", answer["numbers"][0], given_bytes(answer["jobs"][0]))
