"""The meter: hooks through which the engine reports its work to whoever measures it.

Here they do nothing, so the engine needs no metrics library; a program that wants figures passes in a subclass. They
are called in the middle of the work: a slow one slows the queue down, and one that raises breaks it.
"""

from __future__ import annotations

from collections.abc import Sequence


class Meter:
    """Ignores all reports."""

    def called(self, name: str, seconds: float, error: str | None) -> None:
        """Redis was called. `name`: the script or plain command, in lower case; `seconds`: until the answer, waits and
        retries included; `error`: the code of an error. A refusal, such as "no such job", is not an error."""

    def wrote(self, commands: int) -> None:
        """A write sent this many commands to Redis."""

    def paged(self, entries: int) -> None:
        """A timer processed a page of this many entries; 0 when nothing was due."""

    def promoted(self, topic: str, late_us: int, jobs: int) -> None:
        """A timer made jobs ready, `late_us` after they were due by Redis's clock: their delay or lease had ended."""

    def delivered(self, topic: str, late_us: Sequence[int]) -> None:
        """Jobs were handed out for the first time; `late_us`: for each, how long after it was due."""

    def redelivered(self, topic: str, jobs: int) -> None:
        """Jobs were handed out that had been handed out before."""

    def added(self, topic: str, jobs: int) -> None:
        """Jobs were created, by whatever adds some; those that replaced others too."""

    def finished(self, topic: str, jobs: int) -> None:
        """Jobs were finished. One that is delivered at most once is finished with its delivery."""

    def died(self, topic: str, cause: str) -> None:
        """A job became a dead letter. `cause`: tries, ttl or buried."""

    def occurred(self, topic: str, outcome: str) -> None:
        """The time of an occurrence of a schedule has come. `outcome`: made, skipped, blocked, or waiting for room; the
        last one each time that it was tried."""

    def limited(self, topic: str, limit: str) -> None:
        """A pop left ready jobs of a topic that has reached its limit, `rate` or `concurrency`."""

    def locked(self, taken: bool) -> None:
        """This process took the lock of a bucket's timer, or no longer has it."""

    def signed(self, instances: int, timers: int) -> None:
        """The list of members has changed: the number of live instances, including this one, and of the timers that
        they share, one a bucket."""

    def compared(self, ahead_s: float) -> None:
        """Redis's clock is ahead of this host's by `ahead_s` seconds (below 0: behind)."""

    def jumped(self, ahead_s: float) -> None:
        """Redis's clock jumped ahead by `ahead_s` seconds (below 0: back)."""

    def barrier_passed(self, seconds: float) -> None:
        """How long it took to learn how durable some changes are, with WAIT or WAITAOF."""

    def secured(self, asked: str, reached: str, changes: int) -> None:
        """Changes that were to be as durable as `asked` became as durable as `reached`."""
