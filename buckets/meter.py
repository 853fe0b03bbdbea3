"""The meter: what the machine tells of its work, to whom wants to measure it.

These methods do nothing, so the machine needs no library of metrics; a program that wants figures hands in a meter of
its own. They are called in the middle of the work: one that takes long makes the queue slow, one that raises breaks it.
"""

from __future__ import annotations

from collections.abc import Sequence


class Meter:
    """Takes no notice."""

    def called(self, name: str, seconds: float, error: str | None) -> None:
        """Redis was asked: by which script or plain command (in lower case), how long the answer took, its waits and
        repetitions included, and the code of the error, if it was one. A refusal (there is no such job) is none."""

    def wrote(self, commands: int) -> None:
        """So many commands left for Redis in one write."""

    def paged(self, entries: int) -> None:
        """A timer has dealt with a page of so many entries; 0 when nothing was due."""

    def promoted(self, topic: str, late_us: int, jobs: int) -> None:
        """A timer made jobs ready so many us after they were due, by Redis's clock: a delay was over, or a lease."""

    def delivered(self, topic: str, late_us: Sequence[int]) -> None:
        """Jobs were handed out for the first time, each so many us after it was due."""

    def locked(self, taken: bool) -> None:
        """The lock of a bucket's timer is this process's now, or is not any more."""

    def signed(self, instances: int) -> None:
        """So many instances are on the roll now, this one among them."""

    def compared(self, ahead_s: float) -> None:
        """Redis's clock is so many seconds ahead of this host's; below 0: behind."""

    def jumped(self, ahead_s: float) -> None:
        """Redis's clock has jumped by so many seconds; below 0: back."""

    def barrier_passed(self, seconds: float) -> None:
        """It took so long to learn how durable some changes are, with WAIT or what is like it."""

    def secured(self, asked: str, reached: str, changes: int) -> None:
        """So many changes were to be this durable, and reached that."""
