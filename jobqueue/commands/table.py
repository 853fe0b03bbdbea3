"""The tables of commands by their structs, and what a command is given besides its parameters."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any, TypeVar

from buckets import Job
from buckets.topics.within import both
from jobqueue.access.grants import Grant
from jobqueue.commands.answers import Answer
from jobqueue.engine.engine import Engine
from jobqueue.errors import TooLarge
from jobqueue.schema import inner, params

Many = Callable[[Engine, Sequence[Any], "Handover"], Awaitable[list[Answer]]]
One = Callable[[Engine, Any, "Handover"], Awaitable[Answer]]
AnyMany = TypeVar("AnyMany", bound=Many)
AnyOne = TypeVar("AnyOne", bound=One)

MANY: dict[type[Any], Many] = {}
"""Commands that take consecutive ones of a request together, by their structs."""
ONE: dict[type[Any], One] = {}
"""Commands that are carried out one by one, by their structs."""

ROOM = 8 << 20  # bytes of jobs that the answers to one request may hold; one job always fits
_FIELDS = 400  # bytes of a job in an answer besides its body and headers, which its record holds


class Handover:
    """What the answers to a request hand to its client: the jobs reserved for it, how many more bytes of jobs they may
    hold, and what its token lets it reach."""

    __slots__ = ("asked_within", "by_number", "grant", "reserved", "room", "within")

    def __init__(self, reserved: list[Job], grant: Grant, within: str = "", *, by_number: bool = False) -> None:
        """`within`, `by_number`: see `Commands.answer`."""
        self.reserved = reserved
        self.grant = grant
        self.room = ROOM
        self.within = both(within, grant.within)
        """The topics within which jobs are reached, as scripts take them; empty: all."""
        self.asked_within = within
        self.by_number = by_number

    def hand_out(self, jobs: Sequence[Job]) -> None:
        """Note jobs that were reserved, and count their bytes."""
        self.reserved.extend(jobs)
        self.take(jobs)

    def take(self, jobs: Sequence[Job]) -> None:
        """Count the bytes of jobs; a million small ones add up, too."""
        self.room -= sum([_FIELDS + len(job.raw) for job in jobs])

    def check(self, command: Any) -> None:
        """Raises TooLarge when no room is left for what a pop takes, and the reason why its token may not wait now."""
        if not self.grant.everything:
            self.grant.check_wait(command)
        if self.room <= 0:
            raise TooLarge(f"the answers to this request already hold {ROOM} bytes of jobs; ask again for more")


def many(command: AnyMany) -> AnyMany:
    """Make a function the command of its name. It takes consecutive ones together."""
    MANY[params.BY_NAME[command.__name__]] = command
    return command


def one(command: AnyOne) -> AnyOne:
    """Make a function the command of its name. It takes one at a time."""
    ONE[(params.BY_NAME | params.OF_TESTS)[command.__name__]] = command
    return command


def many_inner(command: AnyMany) -> AnyMany:
    """As `many`, for a command that dialects give."""
    MANY[inner.BY_NAME[command.__name__]] = command
    return command


def one_inner(command: AnyOne) -> AnyOne:
    """As `one`, for a command that dialects give."""
    ONE[inner.BY_NAME[command.__name__]] = command
    return command
