"""Ask a payment provider at growing intervals whether a payment has arrived, until it has or it is time to give up.

The job's back-off is the list of pauses; its tries limit how often to ask. With `make run` in another terminal:

    python poll_payment.py
"""

import asyncio
import os
import secrets

from jobqueue_client import AsyncClient, Bury, Job, Retry, Worker

URL = os.environ.get("JOBQUEUE_URL", "http://localhost:8000")

# In real life: [15, 15, 30, 180, 600, 1200, 1800, 3600] seconds, and as many tries as you like; the last step repeats.
PAUSES_S = [0.5, 0.5, 1, 1]
TRIES = 5

# Makes the ids of this run's jobs unique; real payments have unique numbers.
RUN = secrets.token_hex(4)

worker = Worker(URL)


def job_id(payment: int) -> str:
    """The id of a payment's job."""
    return f"payment-poll:{RUN}:{payment}"


async def provider_says_paid(payment: int, ask: int) -> bool:
    """A mock provider: payment 7 has arrived when it is asked for the third time, payment 8 never arrives."""
    await asyncio.sleep(0.01)
    return payment == 7 and ask >= 3


@worker.job("payment-poll")
async def poll(job: Job) -> None:
    """Ask once. How the handler ends decides what happens to the job."""
    payment = job.body["payment"]
    if await provider_says_paid(payment, ask=job.attempt):
        print(f"payment {payment} paid after {job.attempt} asks")
        return  # the job is finished
    if job.last_try:
        print(f"payment {payment} given up after {job.attempt} asks")
        raise Bury(f"not paid after {job.attempt} asks")  # kept as a dead letter, for people to inspect
    raise Retry()  # not yet: ask again after the next pause


async def stop_at_the_end(client: AsyncClient) -> None:
    """For the example only: stop the worker once both jobs have ended, and delete the dead one."""
    states = ["", ""]
    while states != ["finished", "dead"]:
        await asyncio.sleep(0.2)
        states = [(await client.get(job_id(payment)))["state"] for payment in (7, 8)]
    worker.stop()
    await client.delete(job_id(8))


async def main() -> None:
    """Add jobs for two payments, and work."""
    async with AsyncClient(URL) as client:
        for payment in (7, 8):
            await client.add("payment-poll", {"payment": payment}, id=job_id(payment), backoff=PAUSES_S, tries=TRIES)
        await asyncio.gather(worker.serve(), stop_at_the_end(client))


if __name__ == "__main__":
    asyncio.run(main())
