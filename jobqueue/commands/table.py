"""The tables of commands by their structs, and what a command receives besides its parameters."""

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
"""Commands that handle consecutive commands of a request together, by their structs."""
ONE: dict[type[Any], One] = {}
"""Commands that are carried out one by one, by their structs."""

ROOM = 8 << 20  # bytes of jobs that the answers to one request may hold; one job always fits
_FIELDS = 400  # bytes of a job in an answer without its body and headers, which are part of `Job.raw`


class Handover:
    """What the answers to a request may hand to its client: the jobs reserved for the client, how many more bytes of
    jobs the answers may hold, and what the client's token allows."""

    __slots__ = ("asked_within", "by_number", "grant", "reserved", "room", "within")

    def __init__(self, reserved: list[Job], grant: Grant, within: str = "", *, by_number: bool = False) -> None:
        """`within`, `by_number`: see `Commands.answer`."""
        self.reserved = reserved
        self.grant = grant
        self.room = ROOM
        self.within = both(within, grant.within)
        """The condition on topics that the request may reach, as scripts read it; an empty string allows all topics."""
        self.asked_within = within
        self.by_number = by_number

    def hand_out(self, jobs: Sequence[Job]) -> None:
        """Note jobs that were reserved, and count their bytes."""
        self.reserved.extend(jobs)
        self.take(jobs)

    def take(self, jobs: Sequence[Job]) -> None:
        """Count the bytes of jobs, their other fields included: a million small jobs add up, too."""
        self.room -= sum([_FIELDS + len(job.raw) for job in jobs])

    def check(self, command: Any) -> None:
        """Raises TooLarge if the answers have no room left for jobs, or the reason why the token's pop may not wait
        now."""
        if not self.grant.everything:
            self.grant.check_wait(command)
        if self.room <= 0:
            raise TooLarge(f"the answers to this request already hold {ROOM} bytes of jobs; ask again for more")


def many(command: AnyMany) -> AnyMany:
    """Register a function as the command of its name. It handles consecutive commands together."""
    MANY[params.BY_NAME[command.__name__]] = command
    return command


def one(command: AnyOne) -> AnyOne:
    """Register a function as the command of its name. It handles one command at a time."""
    ONE[(params.BY_NAME | params.OF_TESTS)[command.__name__]] = command
    return command


def many_inner(command: AnyMany) -> AnyMany:
    """Like `many`, for a command that only dialects can send."""
    MANY[inner.BY_NAME[command.__name__]] = command
    return command


def one_inner(command: AnyOne) -> AnyOne:
    """Like `one`, for a command that only dialects can send."""
    ONE[inner.BY_NAME[command.__name__]] = command
    return command
