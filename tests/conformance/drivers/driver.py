"""The driver of the sync Python client, and of a worker with sync handlers."""

from __future__ import annotations

import logging
import sys
import time
from collections.abc import Callable
from typing import Any

from conversation import Conversation, around, end, failure, lost, made, options_of, say, started, work
from jobqueue_client import Bury, Client, Job


def client(url: str, options: str) -> None:
    """Make the calls read from standard input."""
    conversation = Conversation()
    jobs = Client(**options_of(url, options))
    for line in sys.stdin:
        call = conversation.call(line)
        try:
            if call.method == "new":
                one = made(Client, **call.named)
                if isinstance(one, Client):
                    jobs.close()
                    jobs = one
                say({"ok": None})
            else:
                conversation.ok(getattr(jobs, call.method)(*call.positional, **call.named))
        except Exception as error:
            say(failure(error))
    jobs.close()


def handle(job: Job) -> str:
    """Do what the body says."""
    started(job)
    if job.body["do"] == "sleep":
        time.sleep(job.body["seconds"])
    elif job.body["do"] == "watch":
        while job.lost is None:
            time.sleep(0.02)
        lost(job)
    return end(job)


def outer(job: Job, call_next: Callable[[Job], Any]) -> None:
    """Write what it is around."""
    around(job, "outer")
    around(job, f"outer after {call_next(job)}")


def inner(job: Job, call_next: Callable[[Job], Any]) -> Any:
    """Turn an error of the handler into another end, and bury what it is to bury."""
    around(job, "inner")
    if job.body.get("inner") == "buries":
        raise Bury("not this one")
    try:
        return call_next(job)
    except RuntimeError as error:
        raise Bury(f"inner: {error}") from error


if __name__ == "__main__":
    logging.basicConfig(level=logging.DEBUG, stream=sys.stderr)
    if sys.argv[1] == "client":
        client(*sys.argv[2:])
    else:
        work(handle, (outer, inner), *sys.argv[2:])
