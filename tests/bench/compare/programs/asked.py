"""The loop of a program that the bench asks: a line of JSON in, a line of JSON out, on stdin and stdout.

It runs in the environment of the system that it is for, so it uses nothing but the standard library.
"""

from __future__ import annotations

import json
import math
import sys
import time
from collections.abc import Callable
from typing import Any

BODY = "x" * 98  # with its quotes, as JSON, 100 bytes


def serve(works: dict[str, Callable[..., dict[str, Any]]]) -> None:
    """Answer each line until there are no more: it names a work, its other values are the keywords."""
    for line in sys.stdin:
        options = json.loads(line)
        print(json.dumps(works[options.pop("work")](**options)), flush=True)


def job_id(number: int) -> str:
    """20 characters."""
    return f"job:{number:016d}"


def number_of(job: str) -> int:
    return int(job[4:])


def due_of(number: int, origin: int, due: float | None, step: float, delay: float | None) -> float | None:
    """Milliseconds since the epoch: `delay` from now on, or `step` after the one before. None: at once."""
    if delay is not None:
        return time.time() * 1000 + delay
    return None if due is None else math.ceil(due + (number - origin) * step)
