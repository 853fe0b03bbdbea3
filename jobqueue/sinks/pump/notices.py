"""Notices to the service: why a sink takes no jobs, or none of some topics, for those who ask `workers` and `check`."""

from __future__ import annotations

import asyncio
import contextlib
from typing import Any

from jobqueue_client import AsyncClient, JobQueueError
from jobqueue_client.access.options import AccessFields

from jobqueue.schema.fields import LONGEST_NAME
from jobqueue.sinks import Common

_AGAIN_S = 30.0  # the service forgets a worker after 90 s


class Notices:
    """Of one sink."""

    def __init__(self, name: str, settings: Common, url: str, access: AccessFields) -> None:
        self._name, self._topics, self._url, self._access = name, settings.topics, url, access
        self._down = ""
        self._paused: dict[str, str] = {}
        self._changed = asyncio.Event()

    def down(self, reason: str) -> None:
        """The broker takes no messages; empty: it does."""
        if reason != self._down:
            self._down = reason
            self._changed.set()

    def paused(self, topic: str, reason: str) -> None:
        """A topic is paused; empty: it is not."""
        if reason != self._paused.get(topic, ""):
            self._paused[topic] = reason
            self._changed.set()

    async def run(self) -> None:
        """Tell the service until cancelled."""
        is_told = False
        async with AsyncClient(self._url, retry_for_s=0, **self._access) as client:
            while True:
                self._changed.clear()
                notices = self._notices()
                with contextlib.suppress(JobQueueError):  # it is away, which the worker tells, or does not know them
                    if is_told:
                        await client.leave(self._worker)
                    if notices:
                        await client.batch(notices)
                    is_told = bool(notices)
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(_AGAIN_S if notices else None):
                        await self._changed.wait()

    @property
    def _worker(self) -> str:
        return f"sink-{self._name}"

    def _notices(self) -> list[dict[str, Any]]:
        if self._down:
            return [self._notice(list(self._topics), self._down)]
        return [self._notice([topic], reason) for topic, reason in self._paused.items() if reason]

    def _notice(self, topics: list[str], reason: str) -> dict[str, Any]:
        blocked = f"sink {self._name}: {reason}"[:LONGEST_NAME]
        return {"command": "pop", "topics": topics, "count": 1, "worker": self._worker, "blocked": blocked}
