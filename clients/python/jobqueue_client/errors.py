"""The errors of the clients. All are a JobQueueError, and each error code of the protocol has a class."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


class JobQueueError(Exception):
    """Any error of this package, except for invalid arguments (ValueError, TypeError)."""

    retry_after: float | None = None
    """Seconds before which a retry is pointless, as reported by the service or a proxy."""


class Unreachable(JobQueueError):
    """No answer from a job queue: no connection, a time-out, a broken connection, or a proxy's error page."""

    def __init__(
        self, message: str, *, maybe_done: bool, for_now: bool = True, retry_after: float | None = None
    ) -> None:
        super().__init__(message)
        self.maybe_done = maybe_done
        """Whether the service may have executed the command nevertheless."""
        self.for_now = for_now
        """Whether a retry may help; False for a reply that is not a job queue's, except a proxy's 502, 503 or 504."""
        self.retry_after = retry_after

    def name(self, command: Mapping[str, Any]) -> None:
        """Put the command that was not answered at the start of the message."""
        self.args = (f"{_subject(command)}{self}",)


class Refused(JobQueueError):
    """The service refused the command. An error code that this version does not know raises this class itself."""

    code = ""

    def __init__(
        self,
        answer: dict[str, Any],
        status: int,
        retry_after: float | None = None,
        command: Mapping[str, Any] | None = None,
    ) -> None:
        self.code = str(answer.get("code", self.code))
        super().__init__(_words(answer, self.code, command or {}))
        self.answer = answer
        """The whole answer."""
        self.status = status
        """The HTTP status of the answer; 200 for a member of a batch."""
        self.state: str | None = answer.get("state")
        """The job's state, if that is why the command was refused."""
        self.field: str | None = answer.get("field")
        """The invalid field, if there is one."""
        seconds = answer.get("retry_after")
        self.retry_after = seconds if isinstance(seconds, int | float) else retry_after


class BadJson(Refused):
    """The request is not JSON."""

    code = "BAD_JSON"


class BadField(Refused):
    """A field has an invalid value."""

    code = "BAD_FIELD"


class UnknownField(Refused):
    """The command has no such field."""

    code = "UNKNOWN_FIELD"


class UnknownCommand(Refused):
    """There is no such command."""

    code = "UNKNOWN_COMMAND"


class TooMany(Refused):
    """The batch has too many commands, or none."""

    code = "TOO_MANY"


class BadHttp(Refused):
    """The request is not HTTP that the service accepts."""

    code = "BAD_HTTP"


class TooLarge(Refused):
    """The request, a body or the answer is too large."""

    code = "TOO_LARGE"


class Unauthorized(Refused):
    """The request has no token, or its token is unknown, expired or revoked. Nothing was done."""

    code = "UNAUTHORIZED"


class Forbidden(Refused):
    """The token does not allow this."""

    code = "FORBIDDEN"

    def __init__(
        self,
        answer: dict[str, Any],
        status: int,
        retry_after: float | None = None,
        command: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__(answer, status, retry_after, command)
        self.right: str | None = answer.get("right")
        """The right that the token lacks, if that is the reason."""
        self.topic: str | None = answer.get("topic")
        """The topic that the token may not access, if that is the reason."""


class NotFound(Refused):
    """There is no such job, schedule or token."""

    code = "NOT_FOUND"


class NoSuchPath(Refused):
    """The service has no such path: the URL is wrong."""

    code = "NO_SUCH_PATH"


class Misdirected(Refused):
    """The service does not accept the host name in the URL; its setting `allowed_hosts` adds names."""

    code = "MISDIRECTED"


class MethodNotAllowed(Refused):
    """The path does not allow this HTTP method: the URL is wrong."""

    code = "METHOD_NOT_ALLOWED"


class AlreadyExists(Refused):
    """A job with this id already exists."""

    code = "ALREADY_EXISTS"


class Reserved(Refused):
    """A worker has the job now."""

    code = "RESERVED"


class NotReserved(Refused):
    """No worker has the job."""

    code = "NOT_RESERVED"


class StaleLease(Refused):
    """The lease is outdated: the job has been delivered again since."""

    code = "STALE_LEASE"


class TooLate(Refused):
    """The job has already fired."""

    code = "TOO_LATE"


class WrongState(Refused):
    """The job's state does not allow this command."""

    code = "WRONG_STATE"


class TopicFull(Refused):
    """The topic has reached its limit of pending jobs."""

    code = "TOPIC_FULL"


class TooFast(Refused):
    """The token's rate is exceeded. Nothing was done."""

    code = "TOO_FAST"


class NoRoom(Refused):
    """Redis is full: the service accepts no job until others are finished."""

    code = "NO_ROOM"


class Unavailable(Refused):
    """Redis did not answer in time; the command may have been executed nevertheless."""

    code = "UNAVAILABLE"


class ShuttingDown(Refused):
    """This instance is shutting down; retry, and another one will answer."""

    code = "SHUTTING_DOWN"


class Internal(Refused):
    """Something went wrong in the service."""

    code = "INTERNAL"


_BY_CODE = {kind.code: kind for kind in Refused.__subclasses__()}


def refusal(
    answer: dict[str, Any],
    status: int,
    retry_after: float | None = None,
    command: Mapping[str, Any] | None = None,
) -> Refused:
    """The error for an answer that refuses a command. `command`: the refused command, or None for a whole batch."""
    return _BY_CODE.get(str(answer.get("code")), Refused)(answer, status, retry_after, command)


def _words(answer: dict[str, Any], code: str, command: Mapping[str, Any]) -> str:
    """The command and its subject, the service's sentence, and the job's state if the sentence lacks it."""
    said = str(answer.get("error", code))
    state = answer.get("state")
    of_state = f" (the job is {state})" if state and str(state) not in said else ""
    return f"{_subject(command)}{said}{of_state}"


def _subject(command: Mapping[str, Any]) -> str:
    """A prefix such as `delete ord-7: `; empty for a batch, or a command without a job, schedule or topic."""
    topics = command.get("topics")
    listed = ", ".join(map(str, topics)) if isinstance(topics, list) else ""
    about = command.get("id") or command.get("name") or command.get("topic") or listed
    return f"{command['command']} {about}: " if about and "command" in command else ""
