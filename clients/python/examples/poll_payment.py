"""Ask a payment provider whether a payment arrived, in growing pauses, until it did or it is no use any more.

The job's back-off is the ladder of pauses; its tries say how often to ask. With `make run` in another terminal:

    python poll_payment.py
"""

import asyncio
import os
import secrets

from jobqueue_client import AsyncClient, Bury, Job, Retry, Worker

URL = os.environ.get("JOBQUEUE_URL", "http://localhost:8000")

# In real life: [15, 15, 30, 180, 600, 1200, 1800, 3600] seconds, and as many tries as you like; the last step repeats.
LADDER = [0.5, 0.5, 1, 1]
TRIES = 5

# What makes the ids of this run's jobs unique; real payments have numbers of their own.
RUN = secrets.token_hex(4)

worker = Worker(URL)


def job_id(payment: int) -> str:
    """The id of a payment's job."""
    return f"payment-poll:{RUN}:{payment}"


async def provider_says_paid(payment: int, ask: int) -> bool:
    """A pretended provider: payment 7 arrives before it is asked for the third time, payment 8 never does."""
    await asyncio.sleep(0.01)
    return payment == 7 and ask >= 3


@worker.job("payment-poll")
async def poll(job: Job) -> None:
    """Ask once. How the handler ends says what becomes of the job."""
    payment = job.body["payment"]
    if await provider_says_paid(payment, ask=job.attempt):
        print(f"payment {payment} paid after {job.attempt} asks")
        return  # the job is finished
    if job.last_try:
        print(f"payment {payment} given up after {job.attempt} asks")
        raise Bury(f"not paid after {job.attempt} asks")  # kept as a dead letter, for people to look at
    raise Retry()  # not yet: ask again after the next step of the ladder


async def stop_at_the_end(client: AsyncClient) -> None:
    """Only an example ends: stop the worker when both jobs have ended, and take away the dead one."""
    states = ["", ""]
    while states != ["finished", "dead"]:
        await asyncio.sleep(0.2)
        states = [(await client.get(job_id(payment)))["state"] for payment in (7, 8)]
    worker.stop()
    await client.delete(job_id(8))


async def main() -> None:
    """Begin to wait for two payments, and work."""
    async with AsyncClient(URL) as client:
        for payment in (7, 8):
            await client.add("payment-poll", {"payment": payment}, id=job_id(payment), backoff=LADDER, tries=TRIES)
        await asyncio.gather(worker.serve(), stop_at_the_end(client))


if __name__ == "__main__":
    asyncio.run(main())
