"""The fixtures for pytest. In conftest.py: `pytest_plugins = ["jobqueue_client.testing.fixtures"]`."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator

import pytest

from jobqueue_client.testing.queue import Queue
from jobqueue_client.testing.service import Service

__all__ = ["jobqueue_url", "queue"]


@pytest.fixture(scope="session")
def jobqueue_url() -> Iterator[str]:
    """The address of a test service: from JOBQUEUE_TEST_URL, or of a service that runs as long as the tests."""
    given = os.environ.get("JOBQUEUE_TEST_URL")
    if given:
        yield given
        return
    with Service() as service:
        yield service.url


@pytest.fixture
def queue(jobqueue_url: str) -> Iterator[Queue]:
    """An empty queue, whose clock is stopped at the real time."""
    with contextlib.closing(Queue(jobqueue_url)) as queue:
        yield queue
