"""One scrape of live programs for all tests of a process."""

from __future__ import annotations

import asyncio

import pytest

from tests.deploy.prometheus.live import Live, live


@pytest.fixture(scope="session")
def live_metrics() -> Live:
    """The metrics of a real service and a real redis_exporter."""
    return asyncio.run(live())
