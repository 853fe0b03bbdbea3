"""The driver of the asyncio Python client, and of a worker with `async def` handlers."""

from __future__ import annotations

import asyncio
import logging
import sys
from collections.abc import Awaitable, Callable
from typing import Any

from conversation import Conversation, around, end, failure, lost, made, options_of, say, started, work
from jobqueue_client import AsyncClient, Bury, Job


async def client(url: str, options: str) -> None:
    """Make the calls read from standard input."""
    conversation = Conversation()
    jobs = AsyncClient(**options_of(url, options))
    while line := await asyncio.to_thread(sys.stdin.readline):
        call = conversation.call(line)
        try:
            if call.method == "new":
                one = made(AsyncClient, **call.named)
                if isinstance(one, AsyncClient):
                    await jobs.close()
                    jobs = one
                say({"ok": None})
            else:
                conversation.ok(await getattr(jobs, call.method)(*call.positional, **call.named))
        except Exception as error:
            say(failure(error))
    await jobs.close()


async def handle(job: Job) -> str:
    """Do what the body says."""
    started(job)
    if job.body["do"] == "sleep":
        await asyncio.sleep(job.body["seconds"])
    elif job.body["do"] == "watch":
        while job.lost is None:  # noqa: ASYNC110  # as a user's handler does
            await asyncio.sleep(0.02)
        lost(job)
    return end(job)


async def outer(job: Job, call_next: Callable[[Job], Awaitable[Any]]) -> None:
    """Write what it is around."""
    around(job, "outer")
    around(job, f"outer after {await call_next(job)}")


async def inner(job: Job, call_next: Callable[[Job], Awaitable[Any]]) -> Any:
    """Turn an error of the handler into another end, and bury what it is to bury."""
    around(job, "inner")
    if job.body.get("inner") == "buries":
        raise Bury("not this one")
    try:
        return await call_next(job)
    except RuntimeError as error:
        raise Bury(f"inner: {error}") from error


if __name__ == "__main__":
    logging.basicConfig(level=logging.DEBUG, stream=sys.stderr)
    if sys.argv[1] == "client":
        asyncio.run(client(*sys.argv[2:]))
    else:
        work(handle, (outer, inner), *sys.argv[2:])
