"""The way to a broker: whether it is up, what is in flight on it, and how it comes back.

A topic whose destination is wrong is paused and tried again, while the other topics of its sink go on.
"""

from __future__ import annotations

import asyncio
import itertools
import time
from collections.abc import Callable, Set
from typing import NamedTuple

import structlog

from jobqueue.sinks import Common, Down, Message, Refused, Sink, WrongDestination
from jobqueue.sinks.pump.file import kind_of
from jobqueue.sinks.pump.notices import Figures, Notices

log = structlog.get_logger()

_FIRST_S, _LONGEST_S = 1.0, 60.0
_GONE = "the connection is gone"


class _InFlight(NamedTuple):
    """A message without a confirmation."""

    topic: str
    deadline: asyncio.Timeout


class Way:
    """The way of one sink. `changed`: called when the broker begins or ceases to accept messages; `suspected`: called
    with the topics of messages that may have ended a connection, and with the reason for its end."""

    def __init__(
        self,
        name: str,
        settings: Common,
        figures: Figures,
        changed: Callable[[bool], None],
        suspected: Callable[[Set[str], str], None],
        notices: Notices,
    ) -> None:
        self._name, self._figures, self._notices = name, figures, notices
        self._changed, self._suspected = changed, suspected
        self._is_shared = settings.is_by_topic and len(settings.topics) > 1
        self._timeout_s, self._confirm_s = settings.timeout_s, settings.confirm_s
        self._sink: Sink | None = None
        self._is_up = False
        self._blocked = ""
        self._reason = ""
        self._told: str | None = ""
        """Why the way is down, as it was last logged, or None if it is up."""
        self._numbers = itertools.count(1)
        self._last_confirmed: dict[str, int] = {}
        """The number of the last message of each topic that was confirmed."""
        self._in_flight: dict[int, _InFlight] = {}
        self._is_again = False
        """Whether this connection was made immediately after the previous one, and nothing has been confirmed over it
        yet."""
        self._is_closed = False
        """Whether the last connection ended by itself, rather than because a confirmation took too long."""
        self._suspects: set[str] = set()
        """The topics of the messages that were in flight when the last connection ended."""
        self._broken = asyncio.Event()
        self._again = asyncio.Event()
        self._pause_s = 0.0

    @property
    def takes(self) -> bool:
        """Whether the broker accepts messages, as far as is known."""
        return self._is_up and not self._blocked

    async def run(self, sink: Sink) -> None:
        """Keep the way up until cancelled."""
        self._sink = sink
        pause_s = _FIRST_S
        try:
            while True:
                lived_s = await self._one_connection(sink)
                has_lasted = lived_s > _FIRST_S
                self._is_again = has_lasted and self._may_go_on()
                if not self._is_again:
                    self._log_down()
                if has_lasted:
                    pause_s = _FIRST_S
                elif lived_s and self._is_shared:
                    self._suspected(self._suspects, self._reason)
                await sink.close()
                if not self._is_again:
                    await self._wait(max(pause_s, self._pause_s))
                    pause_s = min(2 * pause_s, _LONGEST_S)
                self._figures.reconnects.labels(self._name).inc()
        finally:
            self._figures.up.labels(self._name).set(0)
            await sink.close()

    def _may_go_on(self) -> bool:
        """Whether a new connection is likely to help: the last one ended by itself, perhaps only because it was
        idle."""
        is_in_vain = self._is_again and bool(self._suspects)
        return self._is_closed and not self._pause_s and not is_in_vain

    async def _one_connection(self, sink: Sink) -> float:
        """Connect, and wait until the way is down; returns for how many seconds it was up."""
        self._broken.clear()
        try:
            async with asyncio.timeout(self._timeout_s):
                await sink.connect()
        except (Down, TimeoutError) as error:
            self._note_down(error if isinstance(error, Down) else Down(f"no connection in {self._timeout_s:g} s"))
        except Exception as error:
            log.exception("sink.broke", sink=self._name)
            self._note_down(Down(f"a defect of the sink: {type(error).__name__}"))
        else:
            self._note_up()
            up_at = time.monotonic()
            await self._broken.wait()
            return time.monotonic() - up_at
        return 0.0

    def try_again(self) -> None:
        """Do not wait for the next attempt."""
        self._again.set()

    def stop(self) -> None:
        """Stop waiting for confirmations that may take any time: their jobs are returned."""
        if self._confirm_s is None:
            self.lost(Down("it stops"))

    async def send(self, message: Message) -> None:
        """Send one message. Raises Poison, Refused, WrongDestination, Down."""
        if not self._is_up:
            raise Down(self._reason)
        assert self._sink
        number = next(self._numbers)
        try:
            await self._send_in_time(self._sink, number, message)
        except TimeoutError:
            raise self._unconfirmed(number, message.topic) from None
        except Down as down:
            self._lose(down, {message.topic})
            raise
        self._is_again = False
        self._last_confirmed[message.topic] = max(self._last_confirmed.get(message.topic, 0), number)

    async def _send_in_time(self, sink: Sink, number: int, message: Message) -> None:
        try:
            async with asyncio.timeout(self._confirm_s) as deadline:
                self._in_flight[number] = _InFlight(message.topic, deadline)
                await sink.send(message)
        finally:
            del self._in_flight[number]

    def lost(self, down: Down) -> None:
        """The way is down: messages in flight will not be confirmed, and their jobs are returned."""
        self._lose(down, set())

    def _lose(self, down: Down, topics: set[str], *, is_closed: bool = True) -> None:
        """The way is down. `topics`: the topics of messages that were in flight, but are no longer in `_in_flight`."""
        if not self._is_up:
            return
        self._note_down(down)
        self._is_closed = is_closed
        self._suspects = topics | {each.topic for each in self._in_flight.values()}
        now = asyncio.get_running_loop().time()
        for each in self._in_flight.values():
            if not each.deadline.expired():
                each.deadline.reschedule(now)
        self._broken.set()

    def blocked(self, reason: str) -> None:
        """The broker accepts no messages for now; if `reason` is empty, it accepts them again. Messages in flight may
        still be confirmed."""
        if reason and not self._blocked:
            log.warning("sink.blocked", sink=self._name, reason=reason)
        self._blocked = reason
        self._notices.down(reason)
        self._tell()

    def _unconfirmed(self, number: int, topic: str) -> Refused | WrongDestination | Down:
        if not self._is_up:
            return Down(self._reason)
        why = f"no confirmation in {self._confirm_s or self._timeout_s:g} s"
        if self._last_confirmed.get(topic, 0) > number:  # the broker works, but does not confirm this one
            return Refused(why)
        if any(last > number for last in self._last_confirmed.values()):
            return WrongDestination(why)
        down = Down(why)
        self._lose(down, {topic}, is_closed=False)
        return down

    def _note_up(self) -> None:
        self._is_up, self._blocked = True, ""
        if self._told is None:
            log.info("sink.reconnected", sink=self._name, reason=self._reason)
        else:
            log.info("sink.up", sink=self._name)
        self._told = None
        self._notices.down("")
        self._tell()

    def _note_down(self, down: Down) -> None:
        self._is_up, self._pause_s, self._reason = False, down.for_s, str(down) or _GONE
        self._tell()

    def _log_down(self) -> None:
        if self._reason != self._told:
            log.warning("sink.down", sink=self._name, reason=self._reason)
        self._told = self._reason
        self._notices.down(self._reason)

    def _tell(self) -> None:
        self._figures.up.labels(self._name).set(self.takes)
        self._changed(self.takes)

    async def _wait(self, seconds: float) -> None:
        self._again.clear()
        try:
            async with asyncio.timeout(seconds):
                await self._again.wait()
        except TimeoutError:
            pass


class Pauses:
    """Which topics of a sink are paused, and how long each waits for its next trial."""

    def __init__(self, name: str, figures: Figures, notices: Notices) -> None:
        self._name, self._figures, self._notices = name, figures, notices
        self._pause_s: dict[str, float] = {}

    def __contains__(self, topic: str) -> bool:
        return topic in self._pause_s

    def failed(self, topic: str, reason: str) -> float:
        """Note that a message of a topic was not accepted. Returns the seconds until the next trial."""
        if topic not in self:
            log.warning("sink.paused", sink=self._name, topic=topic, reason=reason)
            self._notices.paused(topic, reason)
        pause_s = self._pause_s[topic] = min(2 * self._pause_s.get(topic, _FIRST_S / 2), _LONGEST_S)
        self._show()
        return pause_s

    def works(self, topic: str) -> None:
        """Note that the destination of a topic has accepted or refused a message."""
        if self._pause_s.pop(topic, None) is not None:
            log.info("sink.resumed", sink=self._name, topic=topic)
            self._notices.paused(topic, "")
            self._show()

    def _show(self) -> None:
        self._figures.topics_paused.labels(self._name).set(len(self._pause_s))


class Trial:
    """Sends a message of a paused topic over a connection of its own: some brokers close the connection when they do
    not accept a message, and others block it."""

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
        """Stop waiting for a confirmation."""
        self.lost(Down("it stops"))

    def lost(self, down: Down) -> None:
        """The connection is gone."""
        self._down = down
        if self._deadline is not None and not self._deadline.expired():
            self._deadline.reschedule(asyncio.get_running_loop().time())

    def blocked(self, reason: str) -> None:
        """Does nothing: whether the broker is blocked or not, the confirmation comes in time, or it does not."""
