"""docker compose --file FILE run --rm --no-deps smoke add      # then kill a master, and:
docker compose --file FILE run --rm --no-deps smoke pop

Adds jobs, and pops them after a master was killed; the exit code is 1 if one is missing. Without --no-deps, compose
would start the master again.
"""

from __future__ import annotations

import os
import sys
import time

from jobqueue_client import Client

TOPIC = "smoke"
JOBS = set(range(30))
DELAY_S = 1
PATIENCE_S = 60


def main() -> None:
    url, token = os.environ["JOBQUEUE_URL"], os.environ["JOBQUEUE_TOKEN_FILE"]
    client = Client(url, token_file=token, retry_for_s=PATIENCE_S)
    {"add": add, "pop": pop}[sys.argv[1]](client)


def add(client: Client) -> None:
    """All of them must reach a replica where the settings want that: others are lost with their master."""
    for job in JOBS:
        added = client.add(TOPIC, job, delay=DELAY_S)
        if added.get("durability") == "local":
            sys.exit(f"job {job} reached no replica")
    print(f"added {len(JOBS)} jobs")


def pop(client: Client) -> None:
    missing, end = set(JOBS), time.monotonic() + PATIENCE_S
    while missing and time.monotonic() < end:
        job = client.pop(TOPIC, wait=1)
        if job:
            client.finish(job.id, durability="local")  # a replica that became master has none to wait for
            missing.discard(job.body)
    if missing:
        sys.exit(f"missing: {sorted(missing)}")
    print(f"popped all {len(JOBS)} jobs")


if __name__ == "__main__":
    main()
