"""The meter: hooks through which the engine reports its work to a program that measures it.

These hooks do nothing, so the engine needs no metrics library; a program that wants metrics passes in a subclass. Hooks
are called in the middle of the work: a slow hook slows the queue down, and a hook that raises breaks it.
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
        """Jobs were created, in any way, including those that replaced others."""

    def finished(self, topic: str, jobs: int) -> None:
        """Jobs were finished. A job that is delivered at most once is finished when it is delivered."""

    def died(self, topic: str, cause: str) -> None:
        """A job became a dead letter. `cause`: tries, ttl or buried."""

    def occurred(self, topic: str, outcome: str) -> None:
        """The time of an occurrence of a schedule has come. `outcome`: made, skipped, blocked, or waiting (for room),
        which is reported at each attempt."""

    def limited(self, topic: str, limit: str) -> None:
        """A pop left ready jobs in a topic that has reached a limit. `limit`: rate or concurrency."""

    def locked(self, taken: bool) -> None:
        """This process took the lock of a bucket's timer, or no longer has it."""

    def signed(self, instances: int, timers: int) -> None:
        """The list of members has changed: the number of live instances, including this one, and of the timers that
        they share, one per bucket."""

    def compared(self, ahead_s: float) -> None:
        """Redis's clock is ahead of this host's by `ahead_s` seconds (below 0 if it is behind)."""

    def jumped(self, ahead_s: float) -> None:
        """Redis's clock jumped ahead by `ahead_s` seconds (below 0 if it jumped back)."""

    def barrier_passed(self, seconds: float) -> None:
        """How long it took to learn how durable some changes are, with WAIT or WAITAOF."""

    def secured(self, asked: str, reached: str, changes: int) -> None:
        """Changes that asked for the durability `asked` reached the durability `reached`."""
