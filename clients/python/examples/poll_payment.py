"""Ask a payment provider at growing intervals whether a payment has arrived, until it has or it is time to give up.

The job's back-off is the list of pauses; its tries limit how often to ask. With `make run` in another terminal:

    python poll_payment.py
"""

import asyncio
import os
import secrets

from jobqueue_client import AsyncClient, Job, Retry, Worker

URL = os.environ.get("JOBQUEUE_URL", "http://localhost:8000")

# In real life: [15, 15, 30, 180, 600, 1200, 1800, 3600] seconds, and as many tries as you like; the last step repeats.
PAUSES_S = [0.5, 0.5, 1, 1]
TRIES = 5

# Makes the ids of this run's jobs unique; real payments have unique numbers.
RUN = secrets.token_hex(4)


def give_up(job: Job, reason: str | None, error: BaseException | None) -> None:
    """The job's tries ran out: it is kept as a dead letter, for people to inspect."""
    print(f"payment {job.body['payment']} given up after {job.attempt} asks")


worker = Worker(URL, on_death=give_up)


def job_id(payment: int) -> str:
    """The id of a payment's job."""
    return f"example-poll-payment:{RUN}:{payment}"


async def provider_says_paid(payment: int, ask: int) -> bool:
    """A mock provider: payment 7 has arrived when it is asked for the third time, payment 8 never arrives."""
    await asyncio.sleep(0.01)
    return payment == 7 and ask >= 3


@worker.job("example-poll-payment")
async def poll(job: Job) -> None:
    """Ask once. How the handler ends decides what happens to the job."""
    payment = job.body["payment"]
    if await provider_says_paid(payment, ask=job.attempt):
        print(f"payment {payment} paid after {job.attempt} asks")
        return  # the job is finished
    raise Retry(reason="not paid yet")  # ask again after the next pause; after the last try, the job is dead


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
            await client.add(
                "example-poll-payment", {"payment": payment}, id=job_id(payment), backoff=PAUSES_S, tries=TRIES
            )
        await asyncio.gather(worker.serve(), stop_at_the_end(client))


if __name__ == "__main__":
    asyncio.run(main())
