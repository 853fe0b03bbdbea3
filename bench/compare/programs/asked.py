"""The main loop of a program that the bench asks: a line of JSON in, a line of JSON out, on stdin and stdout.

It runs in the environment of its system, so it uses only the standard library.
"""

from __future__ import annotations

import json
import math
import sys
import time
from collections.abc import Callable
from typing import Any

BODY = "x" * 98  # 100 bytes as JSON, including its quotes


def serve(works: dict[str, Callable[..., dict[str, Any]]]) -> None:
    """Answer each line until the input ends. A line names a work; its other values are keyword arguments."""
    for line in sys.stdin:
        options = json.loads(line)
        print(json.dumps(works[options.pop("work")](**options)), flush=True)


def job_id(number: int) -> str:
    """An id of 20 characters."""
    return f"job:{number:016d}"


def number_of(job: str) -> int:
    return int(job[4:])


def due_of(number: int, origin: int, due: float | None, step: float, delay: float | None) -> float | None:
    """Due time in milliseconds since the epoch: `delay` from now, or `step` after the one before. None: due at once."""
    if delay is not None:
        return time.time() * 1000 + delay
    return None if due is None else math.ceil(due + (number - origin) * step)
