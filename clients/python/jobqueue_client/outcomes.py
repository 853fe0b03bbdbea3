"""How a handler ends its job: by returning, or with one of these errors, or any other."""

from __future__ import annotations

from typing import Any, NamedTuple

from jobqueue_client import commands
from jobqueue_client.job import Job, Lost
from jobqueue_client.times import Seconds, seconds

_TEN_YEARS_S = 315_360_000
_REASON_CHARACTERS = 1000


class Retry(Exception):
    """Hand the job out again, `after` so many seconds; by default by its back-off.

    `attempt` False: this delivery was no try ("ask again later", which is no failure). ValueError for an `after` that
    is below 0 or beyond ten years.
    """

    def __init__(self, after: Seconds | None = None, attempt: bool = True, reason: str | None = None) -> None:
        super().__init__(reason or "")
        self.after = None if after is None else seconds(after)
        if self.after is not None and not 0 <= self.after <= _TEN_YEARS_S:
            raise ValueError(f"after must be a number of seconds from 0 to {_TEN_YEARS_S}, not {after!r}")
        self.attempt = attempt
        self.reason = reason


class Bury(Exception):
    """No repetition can help: the job is dead until someone kicks or deletes it."""

    def __init__(self, reason: str | None = None) -> None:
        super().__init__(reason or "")
        self.reason = reason


class Outcome(NamedTuple):
    """What became of a job: the event that tells it, what is sent (None: nothing), and why."""

    event: str
    command: dict[str, Any] | None
    reason: str | None


def outcome(job: Job, error: BaseException | None) -> Outcome:
    """What a handler's end means; `error`: what it raised."""
    if isinstance(error, Lost):
        return Outcome("job.lost", None, error.reason)
    if job.lost in ("deleted", "stopping"):  # there is no job any more, or it is released already
        return Outcome("job.lost", None, job.lost)
    if error is None:
        return Outcome("job.finished", _unless_gone(job, commands.finish(job)), None)
    if isinstance(error, Bury):
        reason = None if error.reason is None else _short(str(error.reason))
        return Outcome("job.buried", _unless_gone(job, commands.bury(job, reason=reason)), reason)
    return _released(job, error)


def _released(job: Job, error: BaseException) -> Outcome:
    if not isinstance(error, Retry):
        reason = _short(_words(error))
        return Outcome("job.failed", _unless_gone(job, commands.release(job, reason=reason)), reason)
    given = None if error.reason is None else _short(str(error.reason))
    command = commands.release(job, delay=error.after, attempt=None if error.attempt else False, reason=given)
    return Outcome("job.retried", _unless_gone(job, command), given)


def _unless_gone(job: Job, command: commands.Command[Any]) -> dict[str, Any] | None:
    return command.fields if job.ttr else None


def _words(error: BaseException) -> str:
    name = type(error).__name__
    try:
        text = str(error)
    except Exception:  # a broken __str__ must not hide that the job failed
        return name
    return f"{name}: {text}" if text else name


def _short(text: str) -> str:
    """So much of a reason as the service keeps; a lone surrogate, which JSON cannot carry, as `?`."""
    return text[:_REASON_CHARACTERS].encode("utf-8", "replace").decode()
