"""Pauses of topics: one whose destination is wrong waits, and is tried again, while the others of its sink go on."""

from __future__ import annotations

import asyncio

import structlog

from jobqueue.sinks import Common, Down, Message, WrongDestination
from jobqueue.sinks.pump.figures import Figures
from jobqueue.sinks.pump.file import kind_of
from jobqueue.sinks.pump.notices import Notices

log = structlog.get_logger()

_FIRST_S, _LONGEST_S = 1.0, 60.0


class Pauses:
    """Which topics of a sink are paused, and how long each waits for its next trial."""

    def __init__(self, name: str, figures: Figures, notices: Notices) -> None:
        self._name, self._figures, self._notices = name, figures, notices
        self._pause_s: dict[str, float] = {}

    def __contains__(self, topic: str) -> bool:
        return topic in self._pause_s

    def failed(self, topic: str, reason: str) -> float:
        """A message of a topic was not taken; returns the seconds until the next trial."""
        if topic not in self:
            log.warning("sink.paused", sink=self._name, topic=topic, reason=reason)
            self._notices.paused(topic, reason)
        pause_s = self._pause_s[topic] = min(2 * self._pause_s.get(topic, _FIRST_S / 2), _LONGEST_S)
        self._show()
        return pause_s

    def works(self, topic: str) -> None:
        """The destination of a topic has judged a message."""
        if self._pause_s.pop(topic, None) is not None:
            log.info("sink.resumed", sink=self._name, topic=topic)
            self._notices.paused(topic, "")
            self._show()

    def _show(self) -> None:
        self._figures.topics_paused.labels(self._name).set(len(self._pause_s))


class Trial:
    """Sends a message of a paused topic over a connection of its own: some brokers end the connection of a message that
    they do not take, and others hold it up."""

    def __init__(self, settings: Common) -> None:
        self._settings = settings
        self._down: Down | None = None
        self._deadline: asyncio.Timeout | None = None

    async def send(self, message: Message) -> None:
        """Connect, and send. Raises Poison, Refused, WrongDestination, Down."""
        settings, self._down = self._settings, None
        sink = kind_of(settings).Sink(settings, self)
        try:
            async with asyncio.timeout(settings.timeout_s):
                await sink.connect()
            async with asyncio.timeout(settings.confirm_s) as self._deadline:
                await sink.send(message)
        except TimeoutError:
            raise self._down or WrongDestination(f"no confirmation in {settings.timeout_s:g} s") from None
        finally:
            self._deadline = None
            await sink.close()

    def stop(self) -> None:
        """Do not wait for a confirmation."""
        self.lost(Down("it stops"))

    def lost(self, down: Down) -> None:
        """The connection is gone."""
        self._down = down
        if self._deadline is not None and not self._deadline.expired():
            self._deadline.reschedule(asyncio.get_running_loop().time())

    def blocked(self, reason: str) -> None:
        """The broker takes nothing for now, or does again: the confirmation comes in time, or not."""
