"""Close orders that are not paid in time.

Every order that is placed gets a time-out: a job that is due when the order should have been paid. Payment deletes the
job; a worker closes the orders whose jobs become due. With `make run` in another terminal:

    python close_unpaid_orders.py        # a time-out of 2 s, so that you see it end
    python close_unpaid_orders.py 1800   # half an hour, as in real life
"""

import os
import secrets
import sys
import threading
import time

from jobqueue_client import Client, Job, NotFound, Worker, WrongState

URL = os.environ.get("JOBQUEUE_URL", "http://localhost:8000")
TIME_OUT_S = float(sys.argv[1]) if len(sys.argv) > 1 else 2.0

# Real orders have unique numbers. Here they are 1001 to 1003 in every run, so a word of the run makes the ids unique.
RUN = secrets.token_hex(4)

worker = Worker(URL)


def job_id(order: int) -> str:
    """The id of an order's job. It follows from the order, so nothing has to store it."""
    return f"example-close-order:{RUN}:{order}"


def place(client: Client, order: int) -> None:
    """An order was placed: its customer has TIME_OUT_S seconds to pay."""
    # If the answer is lost, the client sends this again. The id makes that harmless: the service finds the job.
    client.add("example-close-order", {"order": order}, TIME_OUT_S, id=job_id(order))


def pay(client: Client, order: int) -> None:
    """An order was paid: it need not be closed."""
    try:
        client.delete(job_id(order))
    except (NotFound, WrongState):  # the worker was faster
        print(f"order {order} paid too late: it is closed")
    else:
        print(f"order {order} paid: its time-out is cancelled")


@worker.job("example-close-order")
def close(job: Job) -> None:
    """An order's time is over. Returning finishes the job; after an error, it is tried again later."""
    # A job can be delivered twice, for instance if a worker dies while it runs. Closing twice must do no harm.
    print(f"order {job.body['order']} closed: not paid in time")


def stop_at_the_end(client: Client) -> None:
    """For the example only: stop the worker once both orders are closed, by whichever worker."""
    while any(client.get(job_id(order))["state"] != "finished" for order in (1001, 1003)):
        time.sleep(0.2)
    worker.stop()


if __name__ == "__main__":
    with Client(URL) as client:
        for order in (1001, 1002, 1003):
            place(client, order)
        pay(client, 1002)
        threading.Thread(target=stop_at_the_end, args=[client], daemon=True).start()
        worker.run()  # until it is stopped; in real life by SIGTERM
