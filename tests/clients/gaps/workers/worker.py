"""A worker that writes a line for each job that it receives: its id, attempt and the time of CLOCK_MONOTONIC.

    worker.py '["http://…", "http://…"]' TOPIC

The programs beside this one do the same in the other languages.
"""

import json
import sys
import time

from jobqueue_client import Job, Worker

urls, topic = json.loads(sys.argv[1]), sys.argv[2]
worker = Worker(urls=urls, concurrency=4)


@worker.job(topic)
async def handle(job: Job) -> None:
    """Write the line."""
    line = {"id": job.id, "attempt": job.attempt, "at": time.monotonic()}
    sys.stdout.write(json.dumps(line) + "\n")
    sys.stdout.flush()


worker.run()
