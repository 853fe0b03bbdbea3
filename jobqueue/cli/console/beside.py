"""The process that serves the console beside the workers of a service, so that the console delays no request.

It is run as `python -m jobqueue.cli.console.beside NAME SUPERVISOR`, and obeys its supervisor as a worker does
(jobqueue/workers/worker.py).
"""

from __future__ import annotations

import asyncio
import os
import sys
from functools import partial

from jobqueue import logs
from jobqueue.cli.console.chosen import options_of
from jobqueue.console import site
from jobqueue.errors import SettingsError
from jobqueue.loops import Loop, running
from jobqueue.process import loop_factory
from jobqueue.settings import Loaded
from jobqueue.workers.console import service_url
from jobqueue.workers.messages import Inbox, obey, report


def main() -> None:
    name, supervisor = sys.argv[1], int(sys.argv[2])
    obey(supervisor)
    with asyncio.Runner(loop_factory=loop_factory()) as runner:
        sys.exit(runner.run(_serve(name)))


async def _serve(name: str) -> int:
    """Serve until SIGTERM, and return the exit code."""
    loop = asyncio.get_running_loop()
    _, inbox = await loop.connect_read_pipe(lambda: Inbox(orphaned=lambda: os._exit(1)), sys.stdin)
    loaded = await inbox.message()
    assert isinstance(loaded, Loaded), "the first message says how to start"
    settings = loaded.settings
    logs.set_up(settings.log_level, settings.log_format, name)
    listens = asyncio.Event()
    try:
        async with running(Loop("messages", partial(_answer, inbox, listens))):
            options = options_of(settings, service_url(settings), settings.console_port)
            await site.serve(options, listens.set, shares_port=True)
    except SettingsError as error:
        report(str(error))
        return 1
    except OSError as error:
        report(f"console_port {settings.console_port} cannot be opened: {error.strerror or error}")
        return 1
    return 0


async def _answer(inbox: Inbox, listens: asyncio.Event) -> None:
    """Answer all messages, and ignore what they say: none of the settings that a running service reloads concerns the
    console."""
    await listens.wait()
    while True:
        report("")
        await inbox.message()


if __name__ == "__main__":
    main()
