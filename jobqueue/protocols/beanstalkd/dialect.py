"""The dialect of beanstalkd."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

from jobqueue.dialect_settings import Beanstalkd
from jobqueue.protocols import SocketDialect, Tools
from jobqueue.protocols.beanstalkd import jobs, parser, statistics
from jobqueue.protocols.beanstalkd.connection import Begin, Commands, Connection, Desk
from jobqueue.protocols.beanstalkd.parser import QUIT, REFUSED, STRANGE
from jobqueue.wires.stream import Streams


async def quit_(connection: Connection) -> bytes:
    """Close the connection."""
    connection.close()
    return parser.NOTHING


async def refused(connection: Connection, reply: bytes) -> bytes:
    """Answer a command that cannot be read."""
    return reply


async def strange(connection: Connection, reply: bytes) -> bytes:
    """Answer a first line that is not a command, and close the connection."""
    connection.write(reply)
    connection.close()
    return parser.NOTHING


COMMANDS: Commands = {
    "put": jobs.put,
    "use": statistics.use,
    "watch": statistics.watch,
    "ignore": statistics.ignore,
    "reserve": jobs.reserve,
    "reserve-with-timeout": jobs.reserve,
    "reserve-job": jobs.reserve_job,
    "delete": jobs.delete,
    "release": jobs.release,
    "bury": jobs.bury,
    "touch": jobs.touch,
    "kick": jobs.kick,
    "kick-job": jobs.kick_job,
    "peek": jobs.peek,
    "peek-ready": jobs.peek_ready,
    "peek-delayed": jobs.peek_delayed,
    "peek-buried": jobs.peek_buried,
    "pause-tube": statistics.pause_tube,
    "list-tubes": statistics.list_tubes,
    "list-tube-used": statistics.list_tube_used,
    "list-tubes-watched": statistics.list_tubes_watched,
    "stats": statistics.stats,
    "stats-job": statistics.stats_job,
    "stats-tube": statistics.stats_tube,
    QUIT: quit_,
    REFUSED: refused,
    STRANGE: strange,
}
BEGINS: Mapping[str, Begin] = {
    "put": jobs.begin_puts,
    "reserve": jobs.begin_reserves,
    "reserve-with-timeout": jobs.begin_reserves,
    "delete": jobs.begin_deletes,
}


class BeanstalkdDialect(SocketDialect[Beanstalkd]):
    """Serves connections with the protocol of beanstalkd."""

    def __init__(self, tools: Tools, options: Beanstalkd) -> None:
        super().__init__(tools, options)
        self._streams = Streams(tools.limits, lambda: self.options.allow)
        self._desk = Desk(self, self._streams, COMMANDS, BEGINS)

    def connection(self) -> asyncio.Protocol:
        """A new connection."""
        return Connection(self._desk)

    def drain(self) -> None:
        """The service begins to stop."""
        self._streams.drain()

    async def close(self, grace_s: float) -> None:
        """Wait until the connections are closed; close those left after `grace_s`."""
        await self._streams.close(grace_s)
        await self._desk.returned()
