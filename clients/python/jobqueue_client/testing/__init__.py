"""A test kit: a queue in memory, whose clock stands still until a test advances it. docs/testing.md shows its use.

With pytest, `jobqueue_client.testing.fixtures` has the fixture `queue`; it is the only module that needs pytest.
"""

from jobqueue_client.testing.queue import Done, Queue, QueuedJob
from jobqueue_client.testing.service import Service

__all__ = ["Done", "Queue", "QueuedJob", "Service"]
