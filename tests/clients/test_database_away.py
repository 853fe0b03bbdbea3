"""A handler whose database is away for ten minutes loses no job; the clock is that of a test service."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from jobqueue_client import Job, Worker
from jobqueue_client.testing import Queue, Service

ORDERS = 50


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with Service() as service:
        yield service.url


def test_no_job_is_lost_while_the_database_of_its_handler_is_away_for_ten_minutes(url: str) -> None:
    queue = Queue(url)
    away = True
    tries = 0
    closed: set[int] = set()
    worker = Worker(url)

    @worker.job("close")
    def close(job: Job) -> None:
        nonlocal tries
        tries += 1
        if away:
            raise ConnectionError("the database is away")
        closed.add(job.body)

    for order in range(ORDERS):
        queue.client.add("close", order, id=f"order:{order}")
    for _ in range(60):
        queue.drain(worker, raise_errors=False)
        queue.advance(seconds=10)
    assert not closed and len(queue.waiting("close")) == ORDERS and not queue.dead("close")
    assert tries <= 7 * ORDERS  # after 1, 5, 15, 60, 300 s
    away = False
    queue.advance(minutes=15)
    queue.drain(worker)
    assert closed == set(range(ORDERS)) and not queue.waiting("close") and not queue.dead("close")
    queue.close()


def test_without_a_back_off_the_same_outage_costs_every_job(url: str) -> None:
    """The contrast that shows what the ladder is for: `backoff=[]` is "at once"."""
    queue = Queue(url)
    worker = Worker(url)

    @worker.job("at-once")
    def handle(job: Job) -> None:
        raise ConnectionError("the database is away")

    queue.client.add("at-once", 1, backoff=[])
    queue.drain(worker, raise_errors=False)
    assert len(queue.dead("at-once")) == 1
    queue.close()
