"""The process that writes the journal beside the workers of a service, run as `python -m jobqueue.workers.journal NAME
SUPERVISOR`. It obeys its supervisor as a worker does (jobqueue/workers/worker.py); so nothing that it does holds up a
request. At its start it switches events on.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys

from buckets.errors import JobQueueError
from buckets.events.switch import read_events, switch_on
from buckets.namespace import Switch
from buckets.shards import Shards
from jobqueue import logs
from jobqueue.journal.keeping import Periods
from jobqueue.journal.reading.draining import drain
from jobqueue.journal.reading.figures import Figures
from jobqueue.journal.reading.options import KEEP_MS, Options
from jobqueue.journal.store import Away
from jobqueue.journal.url import Refused, address
from jobqueue.metrics.shared import share_as, worker_name
from jobqueue.process import loop_factory
from jobqueue.redis_server.fitness import redis_at
from jobqueue.settings import Settings
from jobqueue.workers.messages import Inbox
from jobqueue.workers.worker import obey, report
