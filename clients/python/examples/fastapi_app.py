"""A FastAPI application that adds jobs, and works them off in the same process. Starlette takes the same lifespan.

    pip install fastapi uvicorn
    uvicorn fastapi_app:app

    curl -X POST localhost:8001/orders/1001     # with --port 8001; the order's time-out begins
    curl -X POST localhost:8001/orders/1001/paid

The worker starts with the application and stops with it: at a SIGTERM it takes no more jobs, and the running handlers
end first. If handlers compute much, run the worker as a process of its own instead.
"""

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from fastapi import FastAPI, HTTPException
from jobqueue_client import AsyncClient, Job, NotFound, Worker, WrongState

URL = os.environ.get("JOBQUEUE_URL", "http://localhost:8000")
TIME_OUT_S = float(os.environ.get("TIME_OUT_S", "1800"))

queue = AsyncClient(URL)
worker = Worker(URL)


@worker.job("example-close-order")
async def close(job: Job) -> None:
    """An order's time is over."""
    print(f"closing order {job.body['order']}", flush=True)
    await asyncio.sleep(1)  # the work
    print(f"order {job.body['order']} closed: not paid in time", flush=True)


@asynccontextmanager
async def lifespan(app: FastAPI) -> AsyncIterator[None]:
    """The worker runs for as long as the application does."""
    async with queue:
        working = asyncio.create_task(worker.serve())
        try:
            yield
        finally:
            worker.stop()
            await working  # until the running handlers have ended, for up to grace_s


app = FastAPI(lifespan=lifespan)


@app.post("/orders/{order}")
async def place(order: int) -> dict[str, float]:
    """An order was placed: its customer has TIME_OUT_S seconds to pay."""
    added = await queue.add("example-close-order", {"order": order}, TIME_OUT_S, id=f"example-close-order:{order}")
    return {"pay_before": added["due"]}


@app.post("/orders/{order}/paid")
async def pay(order: int) -> dict[str, str]:
    """An order was paid: it need not be closed."""
    try:
        await queue.delete(f"example-close-order:{order}")
    except (NotFound, WrongState):  # the worker was faster
        raise HTTPException(409, "paid too late: the order is closed") from None
    return {"state": "paid"}
