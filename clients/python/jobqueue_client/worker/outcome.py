"""Outcomes: how a handler ends its job, by returning or by raising Retry, Bury, Lost or any other exception."""

from __future__ import annotations

from typing import Any, NamedTuple

from jobqueue_client import commands
from jobqueue_client.fields import Seconds, seconds
from jobqueue_client.job import Job, Lost

_TEN_YEARS_S = 315_360_000
_REASON_CHARACTERS = 1000


class Retry(Exception):
    """Deliver the job again `after` this many seconds; by default after the next step of its back-off.

    With `attempt` False, this delivery does not count as a try ("ask again later" is not a failure). On the last try,
    the job becomes a dead letter instead. Raises ValueError for an `after` below 0 or above ten years.
    """

    def __init__(self, after: Seconds | None = None, attempt: bool = True, reason: str | None = None) -> None:
        super().__init__(reason or "")
        self.after = None if after is None else seconds(after)
        if self.after is not None and not 0 <= self.after <= _TEN_YEARS_S:
            raise ValueError(f"after must be a number of seconds from 0 to {_TEN_YEARS_S}, not {after!r}")
        self.attempt = attempt
        self.reason = reason


class Bury(Exception):
    """No retry can help: make the job a dead letter, until it is kicked or deleted."""

    def __init__(self, reason: str | None = None) -> None:
        super().__init__(reason or "")
        self.reason = reason


class Outcome(NamedTuple):
    """The event to report, the command to send or None, and the reason for both."""

    event: str
    command: dict[str, Any] | None
    reason: str | None


def outcome(job: Job, error: BaseException | None) -> Outcome:
    """The outcome of a handler that raised `error`, or returned if `error` is None."""
    if isinstance(error, Lost):
        return Outcome("job.lost", None, error.reason)
    if job.lost in ("deleted", "stopping"):  # the job is gone, or released already
        return Outcome("job.lost", None, job.lost)
    if error is None:
        return Outcome("job.finished", _unless_finished(job, commands.finish(job)), None)
    if isinstance(error, Bury):
        reason = None if error.reason is None else _short(str(error.reason))
        return Outcome("job.buried", _unless_finished(job, commands.bury(job, reason=reason)), reason)
    return _released(job, error)


def _released(job: Job, error: BaseException) -> Outcome:
    if not isinstance(error, Retry):
        reason = _short(_text(error))
        return Outcome("job.failed", _unless_finished(job, commands.release(job, reason=reason)), reason)
    given = _tries_ran_out(job, error) if error.reason is None else _short(str(error.reason))
    command = commands.release(job, delay=error.after, attempt=None if error.attempt else False, reason=given)
    return Outcome("job.retried", _unless_finished(job, command), given)


def _tries_ran_out(job: Job, error: Retry) -> str | None:
    """The reason if the job dies because its handler asks for a retry on the last try, otherwise None."""
    return f"the tries ran out: {job.attempt} of {job.tries}" if error.attempt and job.ttr and job.last_try else None


def _unless_finished(job: Job, command: commands.Command[Any]) -> dict[str, Any] | None:
    """The command to send, or None for a job with TTR 0, which its pop has already finished."""
    return command.fields if job.ttr else None


def _text(error: BaseException) -> str:
    name = type(error).__name__
    try:
        text = str(error)
    except Exception:  # a broken __str__ must not hide that the job failed
        return name
    return f"{name}: {text}" if text else name


def _short(text: str) -> str:
    """The part of a reason that the service keeps; `?` replaces a lone surrogate, which JSON cannot carry."""
    return text[:_REASON_CHARACTERS].encode("utf-8", "replace").decode()
