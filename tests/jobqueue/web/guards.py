"""The guard of a server that a test makes by itself; it has the name `t`."""

from __future__ import annotations

from jobqueue.access.browsers import Browsers
from jobqueue.logs import Sparing
from jobqueue.metrics.process import Metrics
from jobqueue.web.answering import Guard


def guard() -> Guard:
    return Guard(Browsers(hosts=["t"]), Metrics(), Sparing("access.refused"))
