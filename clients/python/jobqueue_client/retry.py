"""Retries: which failures are temporary, which commands are safe to repeat, and the pauses between attempts."""

from __future__ import annotations

import random
import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from jobqueue_client.answers import Answer
from jobqueue_client.errors import (
    AlreadyExists,
    Internal,
    JobQueueError,
    NoRoom,
    Refused,
    ShuttingDown,
    TooFast,
    TopicFull,
    Unauthorized,
    Unavailable,
    Unreachable,
)
from jobqueue_client.http import Request
from jobqueue_client.options import Address, Route

_NOT_EXECUTED = (TopicFull, TooFast, NoRoom, ShuttingDown)
"""Temporary refusals of a command that was not executed; after UNAVAILABLE, it may have been executed."""
_LONGEST_PAUSE_S = 2.0
_SAFE = {
    "finish",
    "delete",
    "schedule",
    "unschedule",
    "schedules",
    "get",
    "explain",
    "stats",
    "forecast",
    "find",
    "figures",
    "peek",
    "topics",
    "workers",
    "instances",
    "health",
    "pause",
    "resume",
    "leave",
    "whoami",
    "actions",
    "settings",
}
_SAFE_OPERATIONS = {"plan", "get", "list"}  # a second plan is forgotten when nobody starts it
_SAFE_WITH_LEASE = {"touch", "release", "bury"}


def is_safe(command: Mapping[str, Any]) -> bool:
    """Whether executing a command twice does no harm."""
    name = command.get("command")
    if name == "add":
        keeps = command.get("if_exists") in (None, "keep")
        return command.get("id") is not None and keeps and command.get("retention") != 0
    if name == "operation":
        return command.get("do") in _SAFE_OPERATIONS
    return name in _SAFE or (name in _SAFE_WITH_LEASE and command.get("lease") is not None)


def may_repeat(error: JobQueueError, *, safe: bool) -> bool:
    """Whether the failure is temporary and a retry does no harm; `safe`: the commands may be executed twice."""
    if isinstance(error, Unreachable):
        return error.for_now and (safe or not error.maybe_done)
    return isinstance(error, _NOT_EXECUTED) or (safe and isinstance(error, Unavailable))


def is_gone(error: JobQueueError) -> bool:
    """Whether to leave out the address for a while: its service is down or shutting down, or a proxy says so."""
    return isinstance(error, ShuttingDown) or (isinstance(error, Unreachable) and error.for_now)


def is_final(error: JobQueueError) -> bool:
    """Whether no retry can ever help: the service refused the command for a permanent reason.

    A refused token is not final: it may be replaced, and a worker waits for that (`worker.report.PATIENCE_S`).
    """
    if not isinstance(error, Refused) or isinstance(error, Unauthorized) or may_repeat(error, safe=True):
        return False
    return error.status < 500 and not isinstance(error, Internal)  # in a batch, the status of Internal is 200


def found_dead(command: Mapping[str, Any], result: object) -> Answer | None:
    """The answer to a repeated add that found its job dead, because an earlier attempt may have created the job; None
    for any other result."""
    if command.get("command") == "add" and isinstance(result, AlreadyExists) and result.state == "dead":
        return {"success": True, "id": command["id"], "state": "dead", "result": "existing"}
    return None


def pause_s(retry: int, at_least_s: float | None = None) -> float:
    """The pause before the n-th retry, in seconds: random, so that many clients do not return at once.

    `at_least_s`: the pause that the service asked all clients for; the random time is added to it.
    """
    longest = min(_LONGEST_PAUSE_S, 0.05 * 2 ** min(retry, 10))
    return (at_least_s or 0) + random.uniform(0, longest)


def longest_s(results: Iterable[object]) -> float:
    """The longest `retry_after` among the errors in a batch's results, in seconds; 0 if there is none."""
    return max((result.retry_after or 0 for result in results if isinstance(result, JobQueueError)), default=0)


class Retries:
    """The requests of one call: to each address in turn, and retries for `for_s` seconds after the first failure."""

    def __init__(self, for_s: float, route: Route) -> None:
        self._for_s = for_s
        self._route = route
        self._count = 0
        self._end: float | None = None
        self.maybe_done = False
        """Whether an earlier attempt may have been executed."""
        self._address: Address
        self._begun = 0.0

    def request(self, data: bytes, wait_s: float) -> Request:
        """The next request."""
        self._address = self._route.next()
        self._begun = time.monotonic()
        return Request(self._address.url, data, wait_s)

    def answered(self) -> None:
        """Note that the request was answered, even if with a refusal."""
        self._address.answered(self._begun)
        self._route.answered()

    def pause_after(self, error: JobQueueError, *, safe: bool) -> float | None:
        """Seconds to wait before the request is repeated, or None if it must not be repeated."""
        self._note(error)
        if self._end is None:
            self._end = time.monotonic() + self._for_s
        if not may_repeat(error, safe=safe):
            return None
        return 0 if is_gone(error) and self._route.goes_on else self.pause(error.retry_after)

    def pause_after_members(self, errors: Sequence[object]) -> float | None:
        """As `pause_after`, for a batch that was answered. `errors`: the errors of the members to repeat, if any."""
        gone = [error for error in errors if isinstance(error, ShuttingDown)]
        is_away = any(isinstance(error, Unavailable) for error in errors)
        self.maybe_done = self.maybe_done or is_away
        if gone:
            self._address.failed(self._begun)
        elif not is_away:
            self.answered()
        if not errors:
            return None
        return 0 if len(gone) == len(errors) and self._route.goes_on else self.pause(longest_s(errors))

    def pause(self, at_least_s: float | None) -> float | None:
        """Seconds to wait before the next retry, or None if the retry would be too late."""
        now = time.monotonic()
        self._end = now + self._for_s if self._end is None else self._end
        self._count += 1
        pause = pause_s(self._count, at_least_s)
        return pause if now + pause < self._end else None

    def _note(self, error: JobQueueError) -> None:
        if is_gone(error):
            self._address.failed(self._begun)
        elif not isinstance(error, Unavailable):  # after Unavailable, the next request goes to the next address
            self.answered()
        if isinstance(error, Unreachable):  # an earlier attempt may have been executed, too
            error.maybe_done = self.maybe_done = self.maybe_done or error.maybe_done
        self.maybe_done = self.maybe_done or isinstance(error, Unavailable)
