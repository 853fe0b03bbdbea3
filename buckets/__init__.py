"""The engine: a delay queue in Redis, for any asyncio program.

      add with a delay          add without one
             │                         │
             ▼       timer, run        ▼        pop
          delayed ──────────────────► ready ──────────────► reserved ── finish ──► finished
             ▲                         ▲ ▲                    │ │ │
             │                    kick │ └── retry, unpop ────┘ │ │
             └─────── retry after its back-off ─────────────────┘ │
                                       │                          │
                                     dead ◄──── last try, bury ───┘

    timer              to ready, or straight to reserved if a pop waits in the timer's process
    retry, last try    the job was released or its TTR is over, with tries left or without
    unpop              the pop did not reach its client: the try does not count
    take               a pop of one job by its id: from delayed, ready or dead to reserved
    ttl over           a delayed or ready job becomes dead
    delete             from any live state to deleted
    finished, deleted  a tombstone stays for a while, so that a repeated add is recognised

Each arrow is one Lua script, so it happens completely or not at all. All moves are in `MOVES` (job.py). The record of a
job in the pool is the only truth; buckets and ready lists are indexes, and an entry that does not match the record is
dropped.

Where to begin: `Pool` has a method for each move, `Topics` and `Walk` have the operations on many jobs, `Waiting` keeps
the pops that wait, and `Notifier` receives Redis's messages. `Members`, `Locks`, `Timer` and `Sweep` are the loops that
a service runs.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from buckets.public import *  # noqa: F403 - exactly its __all__
else:

    def __getattr__(name: str) -> object:
        """Load a public name on first use: the command line needs only `buckets.errors`, and loading redis-py and the
        scripts as well would double the time of `jobqueue --help`."""
        try:
            return getattr(import_module("buckets.public"), name)
        except AttributeError:
            raise AttributeError(f"module 'buckets' has no attribute {name!r}") from None
