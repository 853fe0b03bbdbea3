"""The errors of the clients: all are a JobQueueError. Each code of the protocol has a class of its own."""

from __future__ import annotations

from typing import Any


class JobQueueError(Exception):
    """Any error of this package, but for wrong arguments (ValueError, TypeError)."""

    retry_after: float | None = None
    """Seconds in which a repetition makes no sense, as the service or a proxy said."""


class Unreachable(JobQueueError):
    """No answer of a job queue came: no connection, a time-out, a broken connection, a proxy's page."""

    def __init__(
        self, message: str, *, maybe_done: bool, for_now: bool = True, retry_after: float | None = None
    ) -> None:
        super().__init__(message)
        self.maybe_done = maybe_done
        """Whether the service may have done it all the same."""
        self.for_now = for_now
        """Whether a repetition may help: no for a page of something that is no job queue."""
        self.retry_after = retry_after


class Refused(JobQueueError):
    """The service said no. A code that this version does not know comes as this class itself."""

    code = ""

    def __init__(self, answer: dict[str, Any], status: int, retry_after: float | None = None) -> None:
        self.code = str(answer.get("code", self.code))
        super().__init__(str(answer.get("error", self.code)))
        self.answer = answer
        """All of the answer."""
        self.status = status
        """The HTTP status of the answer; 200 for a member of a batch."""
        self.state: str | None = answer.get("state")
        """The state that the job is in, with a code that says it is not in one for the command."""
        self.field: str | None = answer.get("field")
        """The field that is to blame."""
        told = answer.get("retry_after")
        self.retry_after = told if isinstance(told, int | float) else retry_after


class BadJson(Refused):
    """The request is not JSON."""

    code = "BAD_JSON"


class BadField(Refused):
    """A field has a value that is not allowed."""

    code = "BAD_FIELD"


class UnknownField(Refused):
    """A field that the command does not have."""

    code = "UNKNOWN_FIELD"


class UnknownCommand(Refused):
    """A command that there is not."""

    code = "UNKNOWN_COMMAND"


class TooMany(Refused):
    """More commands in one batch than are allowed, or none."""

    code = "TOO_MANY"


class BadHttp(Refused):
    """The request is not HTTP as the service takes it."""

    code = "BAD_HTTP"


class TooLarge(Refused):
    """The request, a body or the answer is larger than allowed."""

    code = "TOO_LARGE"


class Unauthorized(Refused):
    """The request shows no valid token."""

    code = "UNAUTHORIZED"


class Forbidden(Refused):
    """The token does not allow this."""

    code = "FORBIDDEN"


class NotFound(Refused):
    """No such job."""

    code = "NOT_FOUND"


class NoSuchPath(Refused):
    """The URL is that of a job queue, but its path is wrong."""

    code = "NO_SUCH_PATH"


class MethodNotAllowed(Refused):
    """The URL is that of a job queue, but its path is wrong."""

    code = "METHOD_NOT_ALLOWED"


class AlreadyExists(Refused):
    """A job with this id exists."""

    code = "ALREADY_EXISTS"


class Reserved(Refused):
    """The job is with a worker now."""

    code = "RESERVED"


class NotReserved(Refused):
    """The job is with no worker."""

    code = "NOT_RESERVED"


class StaleLease(Refused):
    """The lease is not the job's newest: it was handed out again since."""

    code = "STALE_LEASE"


class TooLate(Refused):
    """The job fired already."""

    code = "TOO_LATE"


class WrongState(Refused):
    """The job is not in a state for it."""

    code = "WRONG_STATE"


class TopicFull(Refused):
    """The topic has as many pending jobs as it may have."""

    code = "TOPIC_FULL"


class TooFast(Refused):
    """More requests than are allowed in a time."""

    code = "TOO_FAST"


class NoRoom(Refused):
    """Redis is full: no job can be taken in until some are finished."""

    code = "NO_ROOM"


class Unavailable(Refused):
    """Redis did not answer in time; perhaps it was done all the same."""

    code = "UNAVAILABLE"


class ShuttingDown(Refused):
    """This instance of the service stops; another one will answer."""

    code = "SHUTTING_DOWN"


class Internal(Refused):
    """Something went wrong in the service."""

    code = "INTERNAL"


_BY_CODE = {kind.code: kind for kind in Refused.__subclasses__()}


def refusal(answer: dict[str, Any], status: int, retry_after: float | None = None) -> Refused:
    """The error that a refusing answer means."""
    return _BY_CODE.get(str(answer.get("code")), Refused)(answer, status, retry_after)
