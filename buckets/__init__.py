"""The machine: a delay queue in Redis, for any asyncio program.

                add delay=0
        add  ──────────────────────►┐
         │                          ▼        pop
         └──► delayed ──(timer)──► ready ─────────► reserved ── finish ──► finished (tombstone)
                 ▲                  ▲ ▲                │ │
                 │                  │ └─── unpop ──────┘ └─ TTR over, or release, tries left: ready, or delayed by its
                 └──────────────────┼────────────────────     back-off
                                    │
                  kick ── dead ◄────┴── TTR over or release, no tries left; ttl over
        delete: from any live state to deleted (tombstone)     bury: reserved ─► dead     run: delayed ─► ready at once

Each arrow is one Lua script, so each happens whole or not at all. The pool's record is the only truth; buckets and
ready lists are indexes, and an entry that the record does not bear out is dropped.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from buckets.public import *  # noqa: F403 - exactly its __all__
else:

    def __getattr__(name: str) -> object:
        """A public name, loaded when it is first asked for: `buckets.errors`, all that the command line needs, does not
        load redis-py and the scripts (half the time of `jobqueue --help`)."""
        try:
            return getattr(import_module("buckets.public"), name)
        except AttributeError:
            raise AttributeError(f"module 'buckets' has no attribute {name!r}") from None
