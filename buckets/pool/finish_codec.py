"""What finish.lua and finish_within.lua answer."""

from __future__ import annotations

from typing import Any

from buckets.job import STATE_WORDS
from buckets.meter import Meter
from buckets.redis.client import judge
from buckets.redis.link import ErrorReply


def read_finished(meter: Meter, reply: list[Any]) -> list[Any]:
    """The new state of each job, or its error. `meter` gets how many jobs of each topic were finished."""
    numbers = reply[0]
    for at in range(0, len(numbers), 2):
        meter.finished(numbers[at].decode("utf-8", "replace"), numbers[at + 1])
    return [
        STATE_WORDS[state] if type(state) is bytes else judge(state) if isinstance(state, ErrorReply) else state
        for state in reply[1:]
    ]
