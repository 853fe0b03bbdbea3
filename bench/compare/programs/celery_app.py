"""The Celery application of the bench: producers import it, and `celery --app celery_app worker` runs it.

BENCH_SOCKET is the Redis. The task appends its number and the time to the file BENCH_OUT, because there may be several
worker processes.
"""

from __future__ import annotations

import os
import struct
import time
from functools import cache
from pathlib import Path
from typing import Any

from asked import number_of  # type: ignore[import-not-found, unused-ignore]  # beside it
from celery import Celery, signals  # type: ignore[import-not-found, unused-ignore]  # of the environment of Celery

RECORD = struct.Struct("<qd")  # number of the job; milliseconds since the epoch
_DAYS_S = 7 * 86_400

app = Celery("bench", broker=f"redis+socket://{os.environ['BENCH_SOCKET']}")
app.conf.update(
    task_ignore_result=True,
    worker_prefetch_multiplier=128,
    worker_disable_rate_limits=True,
    worker_enable_remote_control=False,
    broker_connection_retry_on_startup=True,
    broker_pool_limit=64,
    # Longer than any delay: after this time, a task that waits in a worker is handed to another one.
    broker_transport_options={"visibility_timeout": _DAYS_S},
)


@cache
def _out() -> int:
    return os.open(Path(os.environ["BENCH_OUT"]), os.O_WRONLY | os.O_APPEND)


@app.task(name="job", bind=True)  # type: ignore[untyped-decorator, unused-ignore]
def job(self: Any, body: str) -> None:
    os.write(_out(), RECORD.pack(number_of(self.request.id), time.time() * 1000))


@signals.worker_ready.connect  # type: ignore[untyped-decorator, unused-ignore]
def tell(**_: Any) -> None:
    os.write(1, b"ready\n")
