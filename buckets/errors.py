"""The errors of the machine, sorted by what the caller can do about them.

A class has a `code`, the word that a script answers with and that the wire shows;
its docstring is the sentence that people read.
"""

from __future__ import annotations


class JobQueueError(Exception):
    """Something went wrong in the queue."""

    code = "INTERNAL"

    def __init__(self, message: str = "", *, state: str | None = None) -> None:
        self.message = message or (type(self).__doc__ or "").strip().rstrip(".")
        self.state = state
        super().__init__(self.message)


class Refused(JobQueueError):
    """The job is not in a state for it."""


class NotFound(Refused):
    """no such job."""

    code = "NOT_FOUND"


class AlreadyExists(Refused):
    """a job with this id exists."""

    code = "ALREADY_EXISTS"


class Reserved(Refused):
    """the job is with a worker now."""

    code = "RESERVED"


class NotReserved(Refused):
    """the job is with no worker."""

    code = "NOT_RESERVED"


class StaleLease(Refused):
    """the lease is not the job's newest: it was handed out again since."""

    code = "STALE_LEASE"


class TooLate(Refused):
    """the job fired already."""

    code = "TOO_LATE"


class WrongState(Refused):
    """the job is not in a state for it."""

    code = "WRONG_STATE"


class TryLater(JobQueueError):
    """Nothing was done; the same call may succeed in `retry_after` seconds."""

    retry_after = 1


class TopicFull(TryLater):
    """the topic has as many pending jobs as it may have."""

    code = "TOPIC_FULL"


class NoRoom(TryLater):
    """Redis is full: no job can be taken in until some are finished."""

    code = "NO_ROOM"


class Unavailable(TryLater):
    """Redis did not answer in time."""

    code = "UNAVAILABLE"


class Unanswered(Unavailable):
    """Redis did not answer in time; whether it did the work is not known."""


class NoMeta(JobQueueError):
    """The shard's `meta` is gone: Redis was emptied."""

    code = "NO_META"


class Unfit(JobQueueError):
    """This Redis cannot carry the queue; the message says why. Nothing but an operator helps."""

    code = "UNFIT"


BY_WORD: dict[str, type[JobQueueError]] = {
    error.code: error
    for error in (
        *(NotFound, AlreadyExists, Reserved, NotReserved, StaleLease, TooLate, WrongState),
        *(TopicFull, NoMeta),
    )
}


def from_reply(text: str) -> JobQueueError | None:
    """The error that a script's reply `WORD state` (or `TOPIC_FULL topic`) stands for; None when the word is not one of
    ours."""
    word, _, which = text.partition(" ")
    error = BY_WORD.get(word)
    if error is None:
        return None
    if not which:
        return error()
    message = f"{error.__doc__ or ''}".rstrip(".") + f" (it is {which})"
    return error(message, state=which if issubclass(error, Refused) else None)
