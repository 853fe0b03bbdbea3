"""Close orders that are not paid in time.

Every order that is placed gets a time-out: a job that is due when the order should have been paid. Who pays in time
has the job deleted; a worker closes the others. With `make run` in another terminal:

    python close_unpaid_orders.py        # a time-out of 2 s, so that you see the end of it
    python close_unpaid_orders.py 1800   # half an hour, as in real life
"""

import os
import secrets
import sys
import threading
import time

from jobqueue_client import Client, Job, Worker

URL = os.environ.get("JOBQUEUE_URL", "http://localhost:8000")
TIME_OUT_S = float(sys.argv[1]) if len(sys.argv) > 1 else 2.0

# Real orders have numbers of their own; ours are 1001 to 1003 in each run, so the run makes their jobs' ids unique.
RUN = secrets.token_hex(4)

worker = Worker(URL)


def job_id(order: int) -> str:
    """The id of an order's job. Everyone who knows the order knows it, without having to keep it anywhere."""
    return f"order-close:{RUN}:{order}"


def place(client: Client, order: int) -> None:
    """An order was placed: from now on its customer has so many seconds to pay."""
    # Should the answer get lost, the client sends this again. The id makes that harmless: the service finds the job.
    client.add("order-close", {"order": order}, id=job_id(order), delay=TIME_OUT_S)


def pay(client: Client, order: int) -> None:
    """An order was paid: nobody needs to close it any more."""
    client.delete(job_id(order))
    print(f"order {order} paid: its time-out is cancelled")


@worker.job("order-close")
def close(job: Job) -> None:
    """An order's time is over. Returning ends the job; an error would have it handed out again."""
    # At least once: a job can come twice, as when a worker dies in its middle. So closing twice must do no harm.
    print(f"order {job.body['order']} closed: not paid in time")


def stop_at_the_end(client: Client) -> None:
    """Only an example ends: stop the worker when both orders are closed, by whichever worker there is."""
    while any(client.get(job_id(order))["state"] != "finished" for order in (1001, 1003)):
        time.sleep(0.2)
    worker.stop()


if __name__ == "__main__":
    with Client(URL) as client:
        for order in (1001, 1002, 1003):
            place(client, order)
        pay(client, 1002)
        threading.Thread(target=stop_at_the_end, args=[client], daemon=True).start()
        worker.run()  # until it is stopped; a real one by SIGTERM
