"""The driver of the synchronous Python client, and of a worker with plain handlers."""

from __future__ import annotations

import json
import logging
import sys
import time

from conversation import Conversation, end, event, failure, lost, say, started, worker_options
from jobqueue_client import Client, Job, Worker


def client(url: str, options: str) -> None:
    """Do the calls of standard input."""
    conversation = Conversation()
    with Client(url, **json.loads(options)) as jobs:
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


def worker(url: str, options: str) -> None:
    """Work until a signal comes."""
    topics, rest = worker_options(options)
    works = Worker(url, on_event=event, **rest)
    for topic in topics:
        works.job(topic)(handle)
    clean = works.run()
    say({"clean": clean})
    sys.exit(not clean)


if __name__ == "__main__":
    logging.basicConfig(level=logging.DEBUG, stream=sys.stderr)
    {"client": client, "worker": worker}[sys.argv[1]](*sys.argv[2:])
