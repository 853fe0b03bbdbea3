"""The commands on jobs: those that put, kick and peek, and those of a connection that reserves and holds jobs."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Sequence
from functools import partial
from typing import NamedTuple, cast

from msgspec import Raw

from buckets import Job, State
from jobqueue.commands.answers import Answer, success
from jobqueue.engine.by_callback import New
from jobqueue.engine.numbered import id_of
from jobqueue.errors import TooLarge
from jobqueue.protocols.beanstalkd import parser
from jobqueue.protocols.beanstalkd.connection import Connection, Held, Run
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
    """Begin to put jobs into the used tube. Returns False if they must take the complete path."""
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
    """The job of a put, or None if the put is not plain."""
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
    """Put the jobs that have no answer yet, and answer all puts."""
    left = [put for put, answer in zip(puts, answers, strict=True) if answer is None]
    others = iter(await _put_all(connection, left))
    connection.write(b"".join([next(others) if answer is None else _inserted(answer) for answer in answers]))


async def put(connection: Connection, puts: Sequence[Put]) -> bytes:
    """Put jobs into the used tube."""
    _count_producer(connection)
    return b"".join(await _put_all(connection, puts))


async def _put_all(connection: Connection, puts: Sequence[Put]) -> list[bytes]:
    if connection.refuses_jobs:
        return [parser.DRAINING] * len(puts)
    adds = [_add(connection, *each) for each in puts]
    commands = [add for add in adds if add is not None]
    answers = iter(await connection.desk.dialect.tools.commands.answer(commands, []) if commands else ())
    return [parser.JOB_TOO_BIG if add is None else _inserted(next(answers)) for add in adds]


def _count_producer(connection: Connection) -> None:
    if not connection.has_put:
        connection.has_put = True
        connection.desk.producers += 1


def _inserted(answer: Answer) -> bytes:
    return b"INSERTED %d\r\n" % answer["number"] if answer["success"] else parser.of_failure(answer)


def _add(connection: Connection, priority: int, delay: int, ttr: int, data: bytes) -> inner.Add | None:
    """The add for a put, or None if its body would be too long."""
    read = _read(connection, priority, delay, data)
    if read is None:
        return None
    command = _command(connection.used, read.level, ttr, read.note)
    command.body, command.delay, command.headers = Raw(read.body), delay, read.headers or None
    return command


def _read(connection: Connection, priority: int, delay: int, data: bytes) -> _Stored | None:
    """What is stored for a put, or None if its body would be too long."""
    desk = connection.desk
    try:
        body, headers = stored_bytes(data, desk.dialect.tools.settings.max_body_bytes)
    except TooLarge:
        return None
    level = parser.level(desk.options.levels, priority)
    return _Stored(body, headers, level, parser.written(desk.options.levels, level, priority, delay))


def _command(topic: str, level: int, ttr: int, note: bytes) -> inner.Add:
    """The add for a put, without its delay and body."""
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
    """Make buried jobs of the used tube ready or, if there are none, delayed ones."""
    kicked = 0
    while kicked < bound:
        most = min(bound - kicked, _PAGE)
        answer = await connection.desk.dialect.ask(params.Kick(topic=connection.used, count=most))
        if not answer["success"]:
            return parser.of_failure(answer)
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
            return parser.of_failure(peeked)
        answers = await asyncio.gather(*(ask(params.Run(id=job.id), within=within) for job in peeked["jobs"]))
        run = sum(answer["success"] for answer in answers)
        count += run
        if not run:
            break
    return b"KICKED %d\r\n" % count


async def kick_job(connection: Connection, number: int) -> bytes:
    """Make a buried or delayed job ready."""
    job_id = id_of(number)
    answer = await connection.ask_by_number(params.Kick(id=job_id))
    if answer.get("code") == "WRONG_STATE":
        answer = await connection.ask_by_number(params.Run(id=job_id))
    return parser.KICKED_ONE if answer["success"] else parser.of_failure(answer)


async def peek(connection: Connection, number: int) -> bytes:
    """Show a job that has not ended."""
    answer = await connection.ask_by_number(inner.Get(id=id_of(number)))
    if not answer["success"]:
        return parser.of_failure(answer)
    job = answer["job"]
    return parser.NOT_FOUND if job.state in _ENDED else parser.job(b"FOUND", number, given_bytes(job))


async def peek_ready(connection: Connection) -> bytes:
    """Show the job of the used tube that would be reserved next."""
    return await _peek(connection, inner.Peek(topic=connection.used, state="ready", numbered="jobs"))


async def peek_delayed(connection: Connection) -> bytes:
    """Show the delayed job of the used tube that is due next."""
    return await _peek(connection, inner.Peek(topic=connection.used, state="delayed", numbered="jobs"))


async def peek_buried(connection: Connection) -> bytes:
    """Show the buried job of the used tube that would be kicked next."""
    return await _peek(connection, inner.Peek(topic=connection.used, state="dead", numbered="jobs"))


async def _peek(connection: Connection, look: inner.Peek) -> bytes:
    answer = await connection.desk.dialect.ask(look)
    if not answer["success"]:
        return parser.of_failure(answer)
    if not answer["jobs"]:
        return parser.NOT_FOUND
    return parser.job(b"FOUND", answer["numbers"][0], given_bytes(answer["jobs"][0]))


_DONE = success()
_MARGIN_S = 1.0  # before the end of a lease, a reserve is answered with DEADLINE_SOON


def begin_reserves(connection: Connection, run: Run) -> bool:
    """Begin to reserve the next ready jobs of the watched tubes, without a limit of time or within the given
    seconds."""
    if connection.is_draining or connection.has_ended:
        connection.close()
    else:
        _count_worker(connection)
        _reserve(connection, run, len(run[1]))
    return True


def _reserve(connection: Connection, run: Run, most: int) -> None:
    """Reserve for the first commands of a run, up to `most`, as far as all of them wait or none of them waits."""
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
    """In how many seconds the client must be answered DEADLINE_SOON; infinite if it holds no job with a lease."""
    ends = connection.earliest_end()
    return math.inf if ends is None else max(ends - _MARGIN_S - connection.now, 0.0)


def _popped(connection: Connection, run: Run, soon_s: float, answers: list[Answer]) -> None:
    connection.is_waiting = False
    connection.pop = None
    if not answers:  # several would have to wait: now the first one waits alone
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


async def _handed_out(connection: Connection, command: inner.Pop) -> Answer:
    """The answer to a command that hands out a job. If the client is gone, the job is returned."""
    _count_worker(connection)
    reserved: list[Job] = []
    dialect = connection.desk.dialect
    try:
        ask = dialect.ask if command.id is None else connection.ask_by_number
        answer = await ask(command, reserved)
        if reserved:
            connection.check_client()
    except BaseException:
        dialect.tools.give_back(reserved)
        raise
    return answer


async def reserve(connection: Connection, *timeout_s: int) -> bytes:
    """Reserve the next job of the watched tubes."""
    soon_s = _soon_s(connection) if connection.held else math.inf
    connection.is_waiting = True
    try:
        answer = await _handed_out(connection, _pop(connection, min(_wait_s(timeout_s), soon_s)))
    finally:
        connection.is_waiting = False
    return _of_reserve(connection, answer, timeout_s, soon_s)


async def reserve_job(connection: Connection, number: int) -> bytes:
    """Reserve one ready, delayed or buried job by its number."""
    answer = await _handed_out(connection, inner.Pop(id=id_of(number)))
    if not answer["success"]:
        return parser.of_failure(answer)
    return _reserved(connection, number, *answer["jobs"]) if answer["jobs"] else parser.NOT_FOUND


def _count_worker(connection: Connection) -> None:
    if not connection.has_reserved:
        connection.has_reserved = True
        connection.desk.workers += 1


def _wait_s(arguments: tuple[int, ...]) -> float:
    return arguments[0] if arguments else math.inf


def _of_reserve(connection: Connection, answer: Answer, arguments: tuple[int, ...], soon_s: float) -> bytes:
    if not answer["success"]:
        return parser.of_failure(answer)
    if answer["jobs"]:
        return _reserved(connection, answer["numbers"][0], answer["jobs"][0])
    return parser.DEADLINE_SOON if soon_s <= _wait_s(arguments) else parser.TIMED_OUT


def _reserved(connection: Connection, number: int, job: Job) -> bytes:
    connection.held[number] = Held(job, connection.now)
    return parser.job(b"RESERVED", number, given_bytes(job))


def begin_deletes(connection: Connection, run: Run) -> bool:
    """Begin to finish jobs that the connection holds. Returns False if the deletes must take the complete path."""
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
    """The reply to a delete of a held job."""
    if not answer["success"]:
        return _refused(connection, number, answer)
    tubes = connection.desk.tubes
    tubes.count(tubes.deletes, connection.held.pop(number).topic)
    return parser.DELETED


async def delete(connection: Connection, number: int) -> bytes:
    """Finish a job that the connection holds. Delete any other job, unless another client has reserved it."""
    held = connection.holds(number)
    if held is None:
        answer = await connection.ask_by_number(inner.Delete(id=id_of(number), spares=("reserved",)))
        return parser.DELETED if answer["success"] else parser.of_failure(answer)
    finish = params.Finish(id=held.id, lease=held.lease)
    answer = _DONE if held.is_gone else await connection.desk.dialect.ask(finish)
    return _deleted(connection, number, answer)


async def release(connection: Connection, number: int, priority: int, delay: int) -> bytes:
    """Release a held job with another priority, now or after a delay."""
    held = connection.holds(number)
    if held is None or held.is_gone:
        return parser.NOT_FOUND
    level = parser.level(connection.desk.options.levels, priority)
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
    return parser.BURIED if answer["state"] == "dead" else parser.RELEASED


async def bury(connection: Connection, number: int, priority: int) -> bytes:
    """Put a held job aside until it is kicked."""
    held = connection.holds(number)
    if held is None or held.is_gone:
        return parser.NOT_FOUND
    note = held.new_note(connection.desk, held.level, priority)
    answer = await connection.desk.dialect.ask(inner.Bury(id=held.id, lease=held.lease, note=note))
    if not answer["success"]:
        return _refused(connection, number, answer)
    del connection.held[number]
    return parser.BURIED


async def touch(connection: Connection, number: int) -> bytes:
    """Restart the lease of a held job."""
    held = connection.holds(number)
    if held is None or held.is_gone:
        return parser.NOT_FOUND
    begun = connection.now
    answer = await connection.desk.dialect.ask(params.Touch(id=held.id, lease=held.lease))
    if not answer["success"]:
        return _refused(connection, number, answer)
    held.ends = begun + held.ttr_s
    return parser.TOUCHED


def _refused(connection: Connection, number: int, answer: Answer) -> bytes:
    """The reply when nothing was done. If the job turned out to be no longer the connection's own, forget it."""
    reply = parser.of_failure(answer)
    if reply is parser.NOT_FOUND:
        del connection.held[number]
    return reply
