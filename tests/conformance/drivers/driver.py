"""The driver of the sync Python client, and of a worker with sync handlers."""

from __future__ import annotations

import logging
import sys
import time

from conversation import Conversation, end, failure, lost, options_of, say, started, work
from jobqueue_client import Client, Job


def client(url: str, options: str) -> None:
    """Make the calls read from standard input."""
    conversation = Conversation()
    try:
        jobs = Client(**options_of(url, options))
    except ValueError as error:
        say(failure(error))
        return
    with jobs:
        for line in sys.stdin:
            call = conversation.call(line)
            try:
                conversation.ok(getattr(jobs, call.method)(*call.positional, **call.named))
            except Exception as error:
                say(failure(error))


def handle(job: Job) -> None:
    """Do what the body says."""
    started(job)
    if job.body["do"] == "sleep":
        time.sleep(job.body["seconds"])
    elif job.body["do"] == "watch":
        while job.lost is None:
            time.sleep(0.02)
        lost(job)
    end(job)


if __name__ == "__main__":
    logging.basicConfig(level=logging.DEBUG, stream=sys.stderr)
    if sys.argv[1] == "client":
        client(*sys.argv[2:])
    else:
        work(handle, *sys.argv[2:])
