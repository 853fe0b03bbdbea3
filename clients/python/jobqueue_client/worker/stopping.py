"""Stopping: whether the worker is to stop, and why."""

from __future__ import annotations

import asyncio
from typing import Literal

StopReason = Literal["signal", "stop", "max_jobs", "max_time", "memory"]


class Stopping:
    """For one run of a worker; used in its event loop only."""

    def __init__(self) -> None:
        self.reason: StopReason | None = None
        self.asked = asyncio.Event()
        self.hurry = asyncio.Event()
        """Set to end the grace period."""

    def ask(self, reason: StopReason) -> None:
        """The worker is to stop; the first reason stays."""
        if self.reason is None:
            self.reason = reason
            self.asked.set()
