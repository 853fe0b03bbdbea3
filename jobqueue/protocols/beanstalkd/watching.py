"""The commands that choose tubes, pause them and list them."""

from __future__ import annotations

from collections.abc import Iterable

from jobqueue.protocols.beanstalkd import replies
from jobqueue.protocols.beanstalkd.connection import Connection
from jobqueue.protocols.beanstalkd.tubes import DEFAULT, MOST_WATCHED
from jobqueue.schema import inner, params


async def use(connection: Connection, tube: str) -> bytes:
    """Put jobs into another tube from now on."""
    topic = connection.desk.names.topic(tube)
    if topic is None:
        return replies.BAD_FORMAT
    tubes = connection.desk.tubes
    used, connection.used = connection.used, tubes.use(topic)
    tubes.unuse(used)
    return b"USING %b\r\n" % tube.encode()


async def list_tube_used(connection: Connection) -> bytes:
    """The tube that it uses."""
    return b"USING %b\r\n" % connection.desk.names.tube(connection.used).encode()


async def watch(connection: Connection, tube: str) -> bytes:
    """Reserve jobs from this tube, too."""
    topic = connection.desk.names.topic(tube)
    if topic is None:
        return replies.BAD_FORMAT
    if topic not in connection.watched:
        if len(connection.watched) >= MOST_WATCHED:
            return replies.OUT_OF_MEMORY
        connection.watched += (connection.desk.tubes.watch(topic),)
    return _watching(connection)


async def ignore(connection: Connection, tube: str) -> bytes:
    """Reserve no more jobs from this tube, unless it is the only one."""
    topic = connection.desk.names.topic(tube)
    if topic in connection.watched:
        if len(connection.watched) == 1:
            return replies.NOT_IGNORED
        connection.watched = tuple(each for each in connection.watched if each != topic)
        connection.desk.tubes.ignore(topic)
    return _watching(connection)


def _watching(connection: Connection) -> bytes:
    return b"WATCHING %d\r\n" % len(connection.watched)


async def pause_tube(connection: Connection, tube: str, seconds: int) -> bytes:
    """Hand out none of its jobs for so many seconds."""
    desk = connection.desk
    topic = desk.names.topic(tube)
    if topic is None:
        return replies.BAD_FORMAT
    if topic not in desk.tubes:
        known = await desk.dialect.ask(inner.Stats(topic=topic))
        if not (known["success"] and known["known"]):
            return replies.NOT_FOUND if known["success"] else replies.of_failure(known)
    pause = params.Pause(topic=topic, seconds=seconds) if seconds else params.Resume(topic=topic)
    answer = await desk.dialect.ask(pause)
    if not answer["success"]:
        return replies.of_failure(answer)
    desk.tubes.count(desk.tubes.pauses, topic)
    return replies.PAUSED


async def list_tubes(connection: Connection) -> bytes:
    """All tubes."""
    desk = connection.desk
    answer = await desk.dialect.ask(inner.Names(within=desk.names.prefix))
    if not answer["success"]:
        return replies.of_failure(answer)
    return _listed({desk.names.tube(topic) for topic in {*answer["names"], *desk.tubes}})


async def list_tubes_watched(connection: Connection) -> bytes:
    """Those that it watches."""
    return _listed(map(connection.desk.names.tube, connection.watched), default=False)


def _listed(tubes: Iterable[str], *, default: bool = True) -> bytes:
    """A list of tubes, in order; `default` exists always."""
    ordered = [DEFAULT, *sorted(set(tubes) - {DEFAULT})] if default else tubes
    return replies.document("".join(f"- {tube}\n" for tube in ordered))
