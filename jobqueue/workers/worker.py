"""A worker: one of the processes that answer on a port. `python -m jobqueue.workers.worker N`, started by a supervisor.

It obeys its supervisor alone: orders come through its standard input, the order to stop is SIGTERM, and what a terminal
sends to everybody is nothing to it. It says on its standard output, in one line, that it listens or why it cannot.

It ends at once when its supervisor is gone, which the end of its standard input shows on every system, whenever in the
life of either that is, and whatever ended the supervisor. (Linux's PR_SET_PDEATHSIG would do the same, and would leave
the folder of metrics behind. Only a worker that somebody stopped with SIGSTOP ends later, when it goes on.)
"""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import signal
import sys
from functools import partial

from buckets.errors import JobQueueError
from jobqueue import logs
from jobqueue.app import Service
from jobqueue.loops import Loop, running
from jobqueue.metrics.shared import share_as, worker_name
from jobqueue.process import loop_factory, refusal, run
from jobqueue.workers.messages import Orders


def main() -> None:
    for number in (signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    with asyncio.Runner(loop_factory=loop_factory()) as runner:
        sys.exit(runner.run(_work(int(sys.argv[1]))))


async def _work(number: int) -> int:
    """Serve until told to stop; the exit code."""
    scratch = ""

    def orphaned() -> None:
        if scratch:
            shutil.rmtree(scratch, ignore_errors=True)
        os._exit(1)

    loop = asyncio.get_running_loop()
    stop = asyncio.Event()
    loop.add_signal_handler(signal.SIGTERM, stop.set)
    _, orders = await loop.connect_read_pipe(lambda: Orders(orphaned), sys.stdin)
    beginning = await orders.beginning()
    scratch, settings = beginning.scratch, beginning.settings
    logs.set_up(settings.log_level, settings.log_format, number)
    share_as(worker_name(os.getppid(), number))
    service = Service(settings, number)
    listens = asyncio.Event()
    try:
        async with running(Loop("messages", partial(_obey, orders, service, listens))):
            await run(service, stop, listens.set)
    except (JobQueueError, OSError) as error:
        _say(refusal(error, settings))
        return 1
    return 0


def _say(refusal: str) -> None:
    print(json.dumps(refusal), flush=True)


async def _obey(orders: Orders, service: Service, listens: asyncio.Event) -> None:
    await listens.wait()
    _say("")
    while True:
        service.reload(await orders.settings())


if __name__ == "__main__":
    main()
