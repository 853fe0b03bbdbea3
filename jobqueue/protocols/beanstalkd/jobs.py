"""The commands on jobs: those that put, kick and peek, and those of a connection that reserves and holds jobs."""

from __future__ import annotations

import asyncio
import functools
import math
from collections.abc import Sequence
from functools import partial
from typing import Any

from msgspec import Raw

from buckets import Ask, Job, State, ask_for
from buckets.errors import JobQueueError
from jobqueue.commands.answers import Answer, success
from jobqueue.commands.plain import Handed
from jobqueue.commands.table import ROOM
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


def begin_puts(connection: Connection, run: Run) -> bool:
    """Begin to put jobs into the used tube. Returns False if they must take the complete path."""
    puts = run[1]
    if connection.refuses_jobs:
        return False
    jobs = _new_jobs(connection, puts)
    if jobs is None:
        return False
    took = connection.taking(partial(_put, connection, puts))
    if not connection.desk.plain.add_numbered(jobs, took):
        return False
    _count_producer(connection)
    return True


def _new_jobs(connection: Connection, puts: Sequence[Put]) -> list[New] | None:
    """The jobs of puts, or None if one of the puts is not plain."""
    desk, topic = connection.desk, connection.used
    shape_of, levels = desk.plain.shape, desk.options.levels
    most_bytes = desk.dialect.tools.settings.max_body_bytes
    jobs: list[New] = []
    for priority, delay, ttr, data in puts:
        try:
            body, headers = stored_bytes(data, most_bytes)
        except TooLarge:
            return None
        shape = shape_of(_command, levels, topic, priority, delay, ttr)
        if shape is None or headers:
            return None
        jobs.append((shape, delay * 1000, body))
    return jobs


def _put(connection: Connection, puts: Sequence[Put], outcomes: list[Any] | None) -> None:
    if outcomes is None or None in outcomes:
        connection.complete(partial(_put_rest, connection, puts, outcomes or [None] * len(puts)))
    else:
        connection.answered(b"".join(map(_put_answer, outcomes)))


async def _put_rest(connection: Connection, puts: Sequence[Put], outcomes: list[int | JobQueueError | None]) -> None:
    """Put the jobs that have no outcome yet, and answer all puts."""
    left = [put for put, outcome in zip(puts, outcomes, strict=True) if outcome is None]
    others = iter(await _put_all(connection, left))
    connection.write(b"".join([next(others) if outcome is None else _put_answer(outcome) for outcome in outcomes]))


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


def _put_answer(outcome: int | JobQueueError) -> bytes:
    return parser.of_error(outcome.code) if isinstance(outcome, JobQueueError) else b"INSERTED %d\r\n" % outcome


def _inserted(answer: Answer) -> bytes:
    return b"INSERTED %d\r\n" % answer["number"] if answer["success"] else parser.of_failure(answer)


def _add(connection: Connection, priority: int, delay: int, ttr: int, data: bytes) -> inner.Add | None:
    """The add for a put, or None if its body would be too long."""
    try:
        body, headers = stored_bytes(data, connection.desk.dialect.tools.settings.max_body_bytes)
    except TooLarge:
        return None
    command = _command(connection.desk.options.levels, connection.used, priority, delay, ttr)
    command.body, command.delay, command.headers = Raw(body), delay, headers or None
    return command


def _command(levels: tuple[int, ...], topic: str, priority: int, delay: int, ttr: int) -> inner.Add:
    """The add for a put, without its body; its delay is only in the note."""
    level = parser.level(levels, priority)
    return inner.Add(
        topic=topic,
        body=Raw(),
        ttr=min(max(ttr, 1), DAY_S),
        priority=level,
        tries=0,
        retention=0,
        note=parser.written(levels, level, priority, delay),
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
_RESERVES = {"reserve", "reserve-with-timeout"}
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
    commands = run[1]
    wait_s = min(_wait_s(commands[0]), soon_s)
    times = 1
    while times < most and (min(_wait_s(commands[times]), soon_s) > 0) is (wait_s > 0):
        times += 1
    connection.is_waiting = connection.deleting is None
    took = connection.taking(partial(_popped, connection, run, soon_s))
    connection.pop = connection.desk.plain.pop(_ask(connection.watched), times, wait_s, connection, took)


@functools.lru_cache(maxsize=1024)
def _ask(watched: tuple[str, ...]) -> Ask:
    return ask_for(watched, room=ROOM, by_priority=len(watched) > 1)


def _soon_s(connection: Connection) -> float:
    """In how many seconds the client must be answered DEADLINE_SOON; infinite if it holds no job with a lease."""
    ends = connection.earliest_end()
    return math.inf if ends is None else max(ends - _MARGIN_S - connection.now, 0.0)


def _popped(connection: Connection, run: Run, soon_s: float, handed: Handed | JobQueueError) -> None:
    connection.is_waiting = False
    connection.pop = None
    if connection.deleting is not None:
        connection.deleting.put_off(_jobs_of(handed))
        return
    if isinstance(handed, JobQueueError):
        _answer_reserves(connection, run, 1, parser.of_error(handed.code))
        return
    if not handed:  # several would have to wait: now the first one waits alone
        _reserve(connection, run, 1)
        return
    if handed[0] is not None:
        try:
            connection.check_client()
        except ConnectionError:
            connection.desk.dialect.tools.give_back(_jobs_of(handed))
            return
    answers = [
        _reserved(connection, each[1], each[0]) if each else _no_job(arguments, soon_s)
        for each, arguments in zip(handed, run[1], strict=False)
    ]
    _answer_reserves(connection, run, len(handed), b"".join(answers))


def _jobs_of(handed: Handed | JobQueueError) -> list[Job]:
    return [] if isinstance(handed, JobQueueError) else [each[0] for each in handed if each]


def _answer_reserves(connection: Connection, run: Run, answered: int, answers: bytes) -> None:
    name, commands = run
    if answered < len(commands):
        connection.leave((name, commands[answered:]))
    unwritten, connection.unwritten = connection.unwritten, b""
    connection.answered(unwritten + answers)


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
        watched = [*connection.watched]
        wait_s = min(_wait_s(timeout_s), soon_s)
        pop = inner.Pop(topics=watched, wait=wait_s, by_priority=len(watched) > 1, numbered="jobs")
        answer = await _handed_out(connection, pop)
    finally:
        connection.is_waiting = False
    if not answer["success"]:
        return parser.of_failure(answer)
    if not answer["jobs"]:
        return _no_job(timeout_s, soon_s)
    return _reserved(connection, answer["numbers"][0], answer["jobs"][0])


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


def _no_job(timeout_s: tuple[int, ...], soon_s: float) -> bytes:
    """The answer to a reserve that found no job."""
    return parser.DEADLINE_SOON if soon_s <= _wait_s(timeout_s) else parser.TIMED_OUT


def _reserved(connection: Connection, number: int, job: Job) -> bytes:
    connection.held[number] = Held(job, connection.now)
    return parser.job(b"RESERVED", number, given_bytes(job))


def begin_deletes(connection: Connection, run: Run) -> bool:
    """Begin to finish jobs that the connection holds, and the reserves that the client sent after the deletes. Returns
    False if the deletes must take the complete path."""
    name, commands = run
    held: dict[int, Held] = {}
    for (number,) in commands:
        each = connection.holds(number)
        if each is None or each.is_gone or number in held:
            break
        held[number] = each
    if not held:
        return False
    deleting = _Deleting(connection, (name, commands[: len(held)]), held)
    ends = [(each.id, each.lease) for each in held.values()]
    if not connection.desk.plain.finish(ends, connection.taking(deleting.took)):
        return False
    for number in held:
        del connection.held[number]
    if len(held) < len(commands):
        connection.leave((name, commands[len(held) :]))
    else:
        deleting.begin_reserves()
    return True


class _Deleting:
    """Deletes in flight, of jobs that the connection no longer holds unless a delete fails; and the reserves that the
    client sent after them, which go to Redis in the same turn."""

    __slots__ = ("_connection", "_held", "_reserves", "_run")

    def __init__(self, connection: Connection, run: Run, held: dict[int, Held]) -> None:
        self._connection = connection
        self._run = run
        self._held = held
        self._reserves: Run | None = None

    def begin_reserves(self) -> None:
        """Begin the reserves that follow, if there are any and their outcome cannot come before that of the deletes."""
        connection = self._connection
        following = connection.take()
        if following is None:
            return
        can_begin = connection.desk.plain.is_in_order and not (connection.is_draining or connection.has_ended)
        if following[0] not in _RESERVES or not can_begin:
            connection.leave(following)
            return
        self._reserves = following
        connection.deleting = self
        begin_reserves(connection, following)

    def took(self, outcomes: list[Any] | None) -> None:
        """Take the outcomes of the deletes."""
        connection = self._connection
        connection.deleting = None
        if not connection.is_connected:
            self._give_back(outcomes or [None] * len(self._held))
        elif outcomes is None:
            connection.held.update(self._held)
            self.put_off()
            connection.complete(partial(connection.answer, self._run))
        else:
            codes = [outcome.code if isinstance(outcome, JobQueueError) else None for outcome in outcomes]
            self._answer(b"".join(map(partial(_deleted, connection), self._held.items(), codes)))

    def _answer(self, answers: bytes) -> None:
        """Answer the deletes, together with the reserves if these have an outcome soon."""
        connection = self._connection
        holds_some = not self._held.keys().isdisjoint(connection.held)
        if connection.is_draining or connection.has_ended or holds_some:  # such a job bounds the waits of the reserves
            self.put_off()
        if self._reserves is None:
            connection.answered(answers)
        else:
            connection.is_waiting = True
            connection.unwritten = answers
            connection.desk.write_soon(connection)

    def put_off(self, jobs: Sequence[Job] = ()) -> None:
        """Let the reserves, if there are any, be begun after the deletes. `jobs`: those that were reserved for them."""
        connection = self._connection
        if self._reserves is None:
            return
        if connection.pop:
            connection.pop.cancel(is_gone=False)
            connection.pop = None
        connection.desk.dialect.tools.give_back(jobs)
        connection.leave(self._reserves)
        self._reserves = connection.deleting = None

    def _give_back(self, outcomes: Sequence[Any]) -> None:
        """The client is gone: return what is still reserved for it."""
        held = zip(self._held.values(), outcomes, strict=True)
        kept = [each for each, outcome in held if not isinstance(outcome, str)]
        self._connection.desk.give_back(kept, self._connection.grant)


def _deleted(connection: Connection, job: tuple[int, Held], code: str | None) -> bytes:
    """The reply to a delete of a job that the connection holds, or held. `code`: of the error, or None."""
    number, held = job
    if code is None:
        tubes = connection.desk.tubes
        tubes.count(tubes.deletes, held.topic)
    reply = parser.DELETED if code is None else parser.of_error(code)
    if reply is parser.DELETED or reply is parser.NOT_FOUND:
        connection.held.pop(number, None)
    else:
        connection.held[number] = held
    return reply


async def delete(connection: Connection, number: int) -> bytes:
    """Finish a job that the connection holds. Delete any other job, unless another client has reserved it."""
    held = connection.holds(number)
    if held is None:
        answer = await connection.ask_by_number(inner.Delete(id=id_of(number), spares=("reserved",)))
        return parser.DELETED if answer["success"] else parser.of_failure(answer)
    finish = params.Finish(id=held.id, lease=held.lease)
    answer = _DONE if held.is_gone else await connection.desk.dialect.ask(finish)
    return _deleted(connection, (number, held), None if answer["success"] else answer["code"])


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
