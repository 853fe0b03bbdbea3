"""The driver of the asyncio Python client, and of a worker with `async def` handlers."""

from __future__ import annotations

import asyncio
import logging
import sys

from conversation import Conversation, end, failure, lost, options_of, say, started, work
from jobqueue_client import AsyncClient, Job


async def client(url: str, options: str) -> None:
    """Make the calls read from standard input."""
    conversation = Conversation()
    try:
        jobs = AsyncClient(**options_of(url, options))
    except ValueError as error:
        say(failure(error))
        return
    async with jobs:
        while line := await asyncio.to_thread(sys.stdin.readline):
            call = conversation.call(line)
            try:
                conversation.ok(await getattr(jobs, call.method)(*call.positional, **call.named))
            except Exception as error:
                say(failure(error))


async def handle(job: Job) -> None:
    """Do what the body says."""
    started(job)
    if job.body["do"] == "sleep":
        await asyncio.sleep(job.body["seconds"])
    elif job.body["do"] == "watch":
        while job.lost is None:  # noqa: ASYNC110  # as a user's handler does
            await asyncio.sleep(0.02)
        lost(job)
    end(job)


if __name__ == "__main__":
    logging.basicConfig(level=logging.DEBUG, stream=sys.stderr)
    if sys.argv[1] == "client":
        asyncio.run(client(*sys.argv[2:]))
    else:
        work(handle, *sys.argv[2:])
