"""A worker that writes a line for each job that it receives: its id, attempt, due time, lease and the time of
CLOCK_MONOTONIC.

    worker.py '["http://…", "http://…"]' TOPIC [CA_FILE]

The programs beside this one do the same in the other languages.
"""

import json
import sys
import time

from jobqueue_client import Job, Worker

urls, topic, ca_file = json.loads(sys.argv[1]), sys.argv[2], next(iter(sys.argv[3:]), None)
worker = Worker(urls=urls, concurrency=4, ca_file=ca_file)


@worker.job(topic)
async def handle(job: Job) -> None:
    """Write the line."""
    line = {"id": job.id, "attempt": job.attempt, "due": job.due, "lease": job.lease, "at": time.monotonic()}
    sys.stdout.write(json.dumps(line) + "\n")
    sys.stdout.flush()


worker.run()
