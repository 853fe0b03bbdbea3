"""One run of a worker: its parts, what keeps them going, and how they stop."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Mapping
from dataclasses import dataclass

from jobqueue_client.async_client import AsyncClient
from jobqueue_client.crew import Crew
from jobqueue_client.ends import Ends
from jobqueue_client.events import Events
from jobqueue_client.leases import Leases
from jobqueue_client.options import check_seconds
from jobqueue_client.outbox import Outbox
from jobqueue_client.polling import Polling
from jobqueue_client.reach import Reach
from jobqueue_client.threads import Handler

_HEED_S = 1.0  # for handlers that look whether they are to stop
_FLUSH_S = 3.0  # for the last ends, and for what is released


@dataclass(frozen=True)
class Settings:
    """The options of a worker, but for its client's. ValueError where one cannot be."""

    name: str
    concurrency: int
    poll_s: float
    grace_s: float
    heartbeat_s: float
    keep_alive_s: float

    def __post_init__(self) -> None:
        if not isinstance(self.name, str) or not 1 <= len(self.name) <= 128:
            raise ValueError(f"name must be a text of 1 to 128 characters, not {self.name!r}")
        if not isinstance(self.concurrency, int) or self.concurrency < 1:
            raise ValueError(f"concurrency must be a whole number of 1 or more, not {self.concurrency!r}")
        check_seconds("poll_s", self.poll_s, 0.001, 60)
        check_seconds("grace_s", self.grace_s, 0)
        check_seconds("heartbeat_s", self.heartbeat_s, 0)
        check_seconds("keep_alive_s", self.keep_alive_s, 0)


class Shift:
    """Works from `work` until it is told to stop."""

    def __init__(
        self, client: AsyncClient, settings: Settings, handlers: Mapping[str, Handler], events: Events
    ) -> None:
        self._settings = settings
        self._events = events
        reach = Reach(events)
        ends = Ends()
        self._leases = Leases(client, reach, settings.keep_alive_s)
        self._crew = Crew(handlers, settings.concurrency, ends, self._leases, events)
        self._polling = Polling(client, self._crew, reach, handlers, settings.name, settings.poll_s)
        self._outbox = Outbox(client, ends, self._polling, reach)

    async def work(self, stop: asyncio.Event, hurry: asyncio.Event) -> bool:
        """Take and do jobs until `stop`; `hurry` ends the grace. Whether all had finished. Raises Refused."""
        self._events.tell("worker.started", worker=self._settings.name)
        polls = asyncio.create_task(self._polling.run())
        loops = [asyncio.create_task(loop) for loop in (self._outbox.run(), self._leases.run(), self._heartbeats())]
        try:
            await _first(stop.wait(), polls)
            self._events.tell("worker.stopping", worker=self._settings.name)
            clean = await self._wind_down(hurry)
            if polls.done():
                polls.result()
            return clean
        except asyncio.CancelledError:
            await self._polling.stop()  # not only cancelled: what the poll brings would stay reserved
            await self._hand_over()
            raise
        finally:
            for loop in (polls, *loops):
                loop.cancel()
            self._crew.close()
            self._events.tell("worker.stopped", worker=self._settings.name)

    async def _wind_down(self, hurry: asyncio.Event) -> bool:
        end = asyncio.get_running_loop().time() + self._settings.grace_s
        await self._polling.stop()
        left_s = end - asyncio.get_running_loop().time()
        await _first(self._crew.idle(), hurry.wait(), within_s=max(0, left_s))
        return await self._hand_over()

    async def _hand_over(self) -> bool:
        """Release what still runs. Whether nothing did, and every end was answered."""
        finished = not self._crew.running
        self._crew.release_all()
        await _first(self._crew.idle(), within_s=_HEED_S if not finished else 0)
        self._crew.abandon()
        return await _first(self._crew.idle(), within_s=_FLUSH_S) and finished

    async def _heartbeats(self) -> None:
        while self._settings.heartbeat_s:
            await asyncio.sleep(self._settings.heartbeat_s)
            self._events.tell_counts(worker=self._settings.name, running=self._crew.running)


async def _first(*waits: Awaitable[object], within_s: float | None = None) -> bool:
    """Wait for the first of these; those that are no tasks are cancelled then. False: none came in time."""
    tasks = {asyncio.ensure_future(wait) for wait in waits}
    try:
        done, _ = await asyncio.wait(tasks, timeout=within_s, return_when=asyncio.FIRST_COMPLETED)
        return bool(done)
    finally:
        for task in tasks.difference(waits):
            task.cancel()
