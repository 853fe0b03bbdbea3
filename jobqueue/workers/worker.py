"""A worker: one of the processes that answer on a port, run as `python -m jobqueue.workers.worker N SUPERVISOR [UNIX]`.

N is its number, SUPERVISOR the process id of the supervisor that started it, UNIX the file descriptor of the service's
Unix socket. It obeys that supervisor alone: settings arrive on its standard input, SIGTERM stops it, and it ignores the
signals that a terminal sends to everybody. On its standard output it reports in one line that it listens, or why it
cannot, and then answers each message.

It never outlives its supervisor, however the supervisor ended. The kernel kills it (PR_SET_PDEATHSIG), which also ends
a worker that hangs or was stopped with SIGSTOP; and it exits when its standard input ends.
"""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import sys
from functools import partial

import structlog

from buckets.errors import JobQueueError
from jobqueue import logs
from jobqueue.app import Service
from jobqueue.errors import SettingsError
from jobqueue.loops import Loop, running
from jobqueue.metrics.shared import share_as, worker_name
from jobqueue.process import loop_factory, refusal, run
from jobqueue.settings import Loaded
from jobqueue.workers.messages import Inbox, obey, report

log = structlog.get_logger()


def main() -> None:
    number, supervisor, *shared = map(int, sys.argv[1:])
    obey(supervisor)
    with asyncio.Runner(loop_factory=loop_factory()) as runner:
        sys.exit(runner.run(_serve(number, *(socket.socket(fileno=each) for each in shared))))


async def _serve(number: int, unix: socket.socket | None = None) -> int:
    """Serve until SIGTERM, and return the exit code."""
    loop = asyncio.get_running_loop()
    stop = asyncio.Event()
    loop.add_signal_handler(signal.SIGTERM, stop.set)
    _, inbox = await loop.connect_read_pipe(lambda: Inbox(orphaned=lambda: os._exit(1)), sys.stdin)
    loaded = await inbox.message()
    assert isinstance(loaded, Loaded), "the first message says how to start"
    settings = loaded.settings
    logs.set_up(settings.log_level, settings.log_format, number)
    share_as(worker_name(os.getppid(), number))
    service = Service(settings, number, unix)
    service.sources = loaded.sources
    listens = asyncio.Event()
    try:
        async with running(Loop("messages", partial(_obey, inbox, service, listens))):
            await run(service, stop, listens.set)
    except (JobQueueError, OSError) as error:
        report(refusal(error, settings))
        return 1
    return 0


async def _obey(inbox: Inbox, service: Service, listens: asyncio.Event) -> None:
    await listens.wait()
    while True:
        report("")
        message = await inbox.message()
        if message == "refuse jobs":
            service.refuse_jobs()
        elif message:
            try:
                service.reload(message)
            except SettingsError as error:  # the supervisor, which is still starting, will refuse them, too
                log.error("settings.refused", error=str(error))


if __name__ == "__main__":
    main()
