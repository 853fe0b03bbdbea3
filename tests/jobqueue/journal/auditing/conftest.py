"""The journals of explaining, for these tests too."""

from __future__ import annotations

from tests.jobqueue.journal.explaining.conftest import journal, lite  # noqa: F401 - fixtures
from tests.jobqueue.journal.reading.conftest import brisk  # noqa: F401
