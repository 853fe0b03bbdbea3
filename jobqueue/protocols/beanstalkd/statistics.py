"""The statistics, with the keys of beanstalkd in beanstalkd's order; and the commands that choose, pause and list
tubes.
"""

from __future__ import annotations

import functools
import math
import os
import platform
import resource
import secrets
import time
from collections.abc import Iterable
from typing import Any

from buckets import Job, State, Tag
from jobqueue import __version__
from jobqueue.engine.numbered import id_of
from jobqueue.protocols.beanstalkd import parser
from jobqueue.protocols.beanstalkd.connection import Connection, Desk
from jobqueue.protocols.beanstalkd.parser import DEFAULT, MOST_WATCHED
from jobqueue.schema import inner, params
from jobqueue.schema.fields import TEN_YEARS_S

_STATES = {State.READY: "ready", State.DELAYED: "delayed", State.RESERVED: "reserved", State.DEAD: "buried"}
_COUNTED = (
    *("put", "peek", "peek-ready", "peek-delayed", "peek-buried", "reserve", "reserve-with-timeout", "delete"),
    *("release", "use", "watch", "ignore", "bury", "kick", "touch", "stats", "stats-job", "stats-tube", "list-tubes"),
    *("list-tube-used", "list-tubes-watched", "pause-tube"),
)
# The inaccuracy of our estimate of Redis's clock; without it, a pause of 60 s had 61 s left, and a lease its whole ttr.
_INEXACT_S = 0.1
_BEGUN = time.monotonic()
_ID = secrets.token_hex(8)


async def stats_job(connection: Connection, number: int) -> bytes:
    """The figures of a job."""
    answer = await connection.ask_by_number(inner.Get(id=id_of(number), body=False))
    if not answer["success"]:
        return parser.of_failure(answer)
    job = answer["job"]
    return _document(_of_job(connection.desk, number, job)) if job.state in _STATES else parser.NOT_FOUND


def _of_job(desk: Desk, number: int, job: Job) -> dict[str, Any]:
    now_ms = desk.dialect.tools.redis_s() * 1000
    priority, delay = parser.read(desk.options.levels, job.priority, job.optional.get(Tag.NOTE, b""))
    is_timed = job.state in (State.DELAYED, State.RESERVED)
    return {
        "id": number,
        "tube": _quoted(desk.names.tube(job.topic)),
        "state": _STATES[job.state],
        "pri": priority,
        "age": max(int((now_ms - job.created) / 1000), 0),
        "delay": delay,
        "ttr": job.own_ttr // 1000,
        "time-left": max(int((job.next - now_ms) / 1000 - _INEXACT_S), 0) if is_timed else 0,
        "file": 0,
        "reserves": job.deliveries,
        "timeouts": 0,
        "releases": 0,
        "buries": 0,
        "kicks": 0,
    }


async def stats_tube(connection: Connection, tube: str) -> bytes:
    """The figures of a tube."""
    desk = connection.desk
    topic = desk.names.topic(tube)
    if topic is None:
        return parser.BAD_FORMAT
    answer = await desk.dialect.ask(inner.Stats(topic=topic))
    if not answer["success"]:
        return parser.of_failure(answer)
    if not (answer["known"] or topic in desk.tubes or tube == DEFAULT):
        return parser.NOT_FOUND
    tubes, pause_s = desk.tubes, _pause_s(answer["paused_until"], desk.dialect.tools.redis_s())
    return _document(
        {
            "name": _quoted(tube),
            **_jobs(answer["figures"].counts),
            "total-jobs": _total(answer["figures"].totals),
            "current-using": tubes.using[topic],
            "current-watching": tubes.watching[topic],
            "current-waiting": desk.waiting()[topic],
            "cmd-delete": tubes.deletes[topic],
            "cmd-pause-tube": tubes.pauses[topic],
            "pause": pause_s,
            "pause-time-left": pause_s,
        }
    )


def _pause_s(until_ms: int | None, now_s: float) -> int:
    """The seconds left of a pause; ten years for a pause without an end."""
    if until_ms is None:
        return 0
    return max(math.ceil(until_ms / 1000 - now_s - _INEXACT_S), 0) if until_ms else TEN_YEARS_S


async def stats(connection: Connection) -> bytes:
    """The figures of all tubes, and of this process."""
    desk = connection.desk
    answer = await desk.dialect.ask(inner.Stats(prefix=desk.names.prefix))
    topics = await desk.dialect.ask(inner.Names(prefix=desk.names.prefix))
    if not (answer["success"] and topics["success"]):
        return parser.of_failure(answer if topics["success"] else topics)
    names = {*topics["names"], *desk.tubes}
    figures = answer["figures"]
    return _document(
        {
            **_jobs(figures.counts),
            **{f"cmd-{command}": desk.counts[command] for command in _COUNTED},
            "job-timeouts": figures.totals.get("redelivered", 0),
            "total-jobs": _total(figures.totals),
            "max-job-size": desk.options.max_job_bytes,
            "current-tubes": len(names | {desk.names.topic(DEFAULT)}),
            **_of_connections(desk),
            **_of_process(),
            **dict.fromkeys(_BINLOG, 0),
            "draining": "true" if connection.refuses_jobs else "false",
            **_of_host(),
        }
    )


_BINLOG = (
    *("binlog-oldest-index", "binlog-current-index", "binlog-records-migrated", "binlog-records-written"),
    "binlog-max-size",
)


def _of_connections(desk: Desk) -> dict[str, Any]:
    return {
        "current-connections": len(desk.streams.open),
        "current-producers": desk.producers,
        "current-workers": desk.workers,
        "current-waiting": desk.waiting()[""],
        "total-connections": desk.streams.total,
    }


def _of_process() -> dict[str, Any]:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return {
        "pid": os.getpid(),
        "version": _quoted(__version__),
        "rusage-utime": f"{used.ru_utime:.6f}",
        "rusage-stime": f"{used.ru_stime:.6f}",
        "uptime": int(time.monotonic() - _BEGUN),
    }


@functools.cache
def _of_host() -> dict[str, Any]:
    host = platform.uname()
    return {
        "id": _ID,
        "hostname": _quoted(host.node),
        "os": _quoted(host.version),
        "platform": _quoted(host.machine),
    }


def _jobs(counts: dict[str, int]) -> dict[str, int]:
    return {
        "current-jobs-urgent": 0,
        "current-jobs-ready": counts["ready"],
        "current-jobs-reserved": counts["reserved"],
        "current-jobs-delayed": counts["delayed"],
        "current-jobs-buried": counts["dead"],
    }


def _total(totals: Any) -> int:
    return int(totals.get("created", 0) + totals.get("replaced", 0))


def _quoted(text: str) -> str:
    return f'"{text}"'


def _document(values: dict[str, Any]) -> bytes:
    return parser.document("".join(f"{key}: {value}\n" for key, value in values.items()))


async def use(connection: Connection, tube: str) -> bytes:
    """Put jobs into another tube from now on."""
    topic = connection.desk.names.topic(tube)
    if topic is None:
        return parser.BAD_FORMAT
    tubes = connection.desk.tubes
    used, connection.used = connection.used, tubes.use(topic)
    tubes.unuse(used)
    return b"USING %b\r\n" % tube.encode()


async def list_tube_used(connection: Connection) -> bytes:
    """The tube that the connection uses."""
    return b"USING %b\r\n" % connection.desk.names.tube(connection.used).encode()


async def watch(connection: Connection, tube: str) -> bytes:
    """Reserve jobs from this tube, too."""
    topic = connection.desk.names.topic(tube)
    if topic is None:
        return parser.BAD_FORMAT
    if topic not in connection.watched:
        if len(connection.watched) >= MOST_WATCHED:
            return parser.OUT_OF_MEMORY
        connection.watched += (connection.desk.tubes.watch(topic),)
    return _watching(connection)


async def ignore(connection: Connection, tube: str) -> bytes:
    """Reserve no more jobs from this tube, unless it is the only one that the connection watches."""
    topic = connection.desk.names.topic(tube)
    if topic in connection.watched:
        if len(connection.watched) == 1:
            return parser.NOT_IGNORED
        connection.watched = tuple(each for each in connection.watched if each != topic)
        connection.desk.tubes.ignore(topic)
    return _watching(connection)


def _watching(connection: Connection) -> bytes:
    return b"WATCHING %d\r\n" % len(connection.watched)


async def pause_tube(connection: Connection, tube: str, seconds: int) -> bytes:
    """Hand out no jobs of a tube for `seconds`; 0 ends its pause."""
    desk = connection.desk
    topic = desk.names.topic(tube)
    if topic is None:
        return parser.BAD_FORMAT
    if topic not in desk.tubes:
        known = await desk.dialect.ask(inner.Stats(topic=topic))
        if not (known["success"] and known["known"]):
            return parser.NOT_FOUND if known["success"] else parser.of_failure(known)
    pause = params.Pause(topic=topic, seconds=seconds) if seconds else params.Resume(topic=topic)
    answer = await desk.dialect.ask(pause)
    if not answer["success"]:
        return parser.of_failure(answer)
    desk.tubes.count(desk.tubes.pauses, topic)
    return parser.PAUSED


async def list_tubes(connection: Connection) -> bytes:
    """All tubes."""
    desk = connection.desk
    answer = await desk.dialect.ask(inner.Names(prefix=desk.names.prefix))
    if not answer["success"]:
        return parser.of_failure(answer)
    return _listed({desk.names.tube(topic) for topic in {*answer["names"], *desk.tubes}})


async def list_tubes_watched(connection: Connection) -> bytes:
    """The tubes that the connection watches."""
    return _listed(map(connection.desk.names.tube, connection.watched), default=False)


def _listed(tubes: Iterable[str], *, default: bool = True) -> bytes:
    """A list of tubes. `default`: True to sort the tubes and to put `default` first, which always exists."""
    ordered = [DEFAULT, *sorted(set(tubes) - {DEFAULT})] if default else tubes
    return parser.document("".join(f"- {tube}\n" for tube in ordered))
