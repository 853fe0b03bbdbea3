"""The errors of the engine, sorted by what the caller can do about them.

Each class has a `code`, the word that scripts reply with and that clients receive. The docstring of a class is the
message that people read.
"""

from __future__ import annotations

from typing import Any

from buckets.job import State

_ANEW = "add it with if_exists renew or replace"
_OVER = {
    State.DEAD.word: f"the job with this id is dead; kick it, or {_ANEW}",
    State.DELETED.word: f"the job with this id was deleted and is still remembered; {_ANEW}",
}


class JobQueueError(Exception):
    """Something went wrong in the queue."""

    code = "INTERNAL"
    job_id: str | None = None
    """The job named by the refused command, if the error takes the place of that command."""
    refused: type[Any] | None = None
    """The struct type of the refused command, if the command was a struct."""

    def __init__(self, message: str = "", *, state: str | None = None) -> None:
        self.message = message or (type(self).__doc__ or "").strip().rstrip(".")
        self.state = state
        super().__init__(self.message)


class Refused(JobQueueError):
    """The state of the job does not allow this."""


class NotFound(Refused):
    """no such job."""

    code = "NOT_FOUND"


class AlreadyExists(Refused):
    """a job with this id already exists."""

    code = "ALREADY_EXISTS"


class Reserved(Refused):
    """the job is reserved by a worker."""

    code = "RESERVED"


class NotReserved(Refused):
    """the job is not reserved."""

    code = "NOT_RESERVED"


class StaleLease(Refused):
    """the lease is stale: the job has been handed out again since."""

    code = "STALE_LEASE"


class TooLate(Refused):
    """the job has already fired."""

    code = "TOO_LATE"


class WrongState(Refused):
    """the state of the job does not allow this."""

    code = "WRONG_STATE"


class NoBody(Refused):
    """body is missing, and there is no job whose body could stay."""

    code = "NO_BODY"


class TryLater(JobQueueError):
    """Nothing was done; the same call may succeed in `retry_after` seconds."""

    retry_after = 1


class TopicFull(TryLater):
    """the topic has reached its limit of pending jobs."""

    code = "TOPIC_FULL"


class NoRoom(TryLater):
    """Redis is full: no job can be added until some are finished."""

    code = "NO_ROOM"


class Unavailable(TryLater):
    """Redis did not answer in time."""

    code = "UNAVAILABLE"


class Unanswered(Unavailable):
    """Redis did not answer in time; it may or may not have done the work."""


class Limited(JobQueueError):
    """the topic has reached a limit, and hands out no more jobs for now."""

    code = "LIMITED"

    def __init__(self, limit: str, opens_us: int) -> None:
        """`limit`: rate, concurrency or per_key; `opens_us`: after how many us to look again."""
        super().__init__()
        self.limit = limit
        self.opens_us = opens_us


class NoMeta(JobQueueError):
    """The shard's `meta` is gone: Redis was emptied."""

    code = "NO_META"


class Unfit(JobQueueError):
    """This Redis cannot hold the queue; the message says why, and only an operator can help."""

    code = "UNFIT"


BY_WORD: dict[str, type[JobQueueError]] = {
    error.code: error
    for error in (
        *(NotFound, AlreadyExists, Reserved, NotReserved, StaleLease, TooLate, WrongState, NoBody),
        *(TopicFull, NoMeta),
    )
}


def from_reply(text: str) -> JobQueueError | None:
    """The error for a script's reply `WORD state`, `TOPIC_FULL topic` or `LIMITED limit us`, or None for any other
    word."""
    word, _, which = text.partition(" ")
    if word == Limited.code:
        limit, opens_us = which.split(" ")
        return Limited(limit, int(opens_us))
    error = BY_WORD.get(word)
    if error is None:
        return None
    if not which:
        return error()
    if error is AlreadyExists and which in _OVER:
        return error(_OVER[which], state=which)
    state = f" (it is {which})" if which != error.code.lower() else ""
    message = f"{error.__doc__ or ''}".rstrip(".") + state
    return error(message, state=which if issubclass(error, Refused) else None)
