"""The process that writes the journal beside the workers of a service, so that writing delays no request.

It is run as `python -m jobqueue.workers.journal NAME SUPERVISOR`, and obeys its supervisor as a worker does
(jobqueue/workers/worker.py). At its start it switches events on in shards where they have never been on; events that
`journal off` switched off stay off.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from functools import partial

import structlog

from buckets.errors import JobQueueError
from buckets.events.switch import read_events, switch_on
from buckets.namespace import MANY_ENTRIES, Switch
from buckets.shards import Shards
from jobqueue import logs
from jobqueue.journal.reading.entries import KEPT, Options
from jobqueue.journal.reading.figures import Figures
from jobqueue.journal.reading.running import LEAST_TIMEOUT_S, drain
from jobqueue.journal.url import Refused
from jobqueue.loops import Loop, running
from jobqueue.metrics.shared import share_as, worker_name
from jobqueue.process import loop_factory
from jobqueue.redis_server.opening import redis_at
from jobqueue.settings import Loaded, Settings
from jobqueue.workers.messages import Inbox, obey, report

log = structlog.get_logger()


def main() -> None:
    name, supervisor = sys.argv[1], int(sys.argv[2])
    obey(supervisor)
    with asyncio.Runner(loop_factory=loop_factory()) as runner:
        sys.exit(runner.run(_write(name)))


async def _write(name: str) -> int:
    """Write the journal until SIGTERM, and return the exit code."""
    loop = asyncio.get_running_loop()
    stop = asyncio.Event()
    loop.add_signal_handler(signal.SIGTERM, stop.set)
    _, inbox = await loop.connect_read_pipe(lambda: Inbox(orphaned=lambda: os._exit(1)), sys.stdin)
    loaded = await inbox.message()
    assert isinstance(loaded, Loaded), "the first message says how to start"
    settings = loaded.settings
    logs.set_up(settings.log_level, settings.log_format, name)
    share_as(worker_name(os.getppid(), name))
    async with running(Loop("messages", partial(_answer, inbox))):
        try:
            return 0 if await _drain(settings, stop) else 1
        except (Refused, JobQueueError) as error:  # the service goes on without a journal
            log.error("journal.ended", reason=error.message if isinstance(error, JobQueueError) else str(error))
            return 1


async def _answer(inbox: Inbox) -> None:
    """Answer all messages, and ignore what they say: none of the settings that a running service reloads concerns the
    journal."""
    while True:
        report("")
        await inbox.message()


async def _drain(settings: Settings, stop: asyncio.Event) -> bool:
    redis = redis_at(settings.redis, settings.redis_timeout_s)
    try:
        wanted = settings.numbers(redis.is_cluster)
        shards = await Shards.open(redis, settings.namespace, shards=wanted[0], buckets=wanted[1])
        for shard in range(len(shards.keys)):
            events = await read_events(shards, shard)
            if not events.switch and not events.stream:  # `journal off` leaves the stream
                await switch_on(shards, shard, Switch(MANY_ENTRIES))
        timeout_s = max(LEAST_TIMEOUT_S, settings.redis_timeout_s)
        options = Options(source=settings.namespace)
        reading = partial(redis_at, settings.redis, timeout_s)
        return await drain(shards, settings.journal, options, Figures(), reading, stop, KEPT)
    finally:
        await redis.close()


if __name__ == "__main__":
    main()
