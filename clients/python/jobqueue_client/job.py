"""A job as a pop delivers it."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any, Literal, Self

_TRACEPARENT = re.compile(r"[0-9a-f]{2}-([0-9a-f]{32})-[0-9a-f]{16}-[0-9a-f]{2}(-.*)?")  # W3C Trace Context

LostReason = Literal["deleted", "stale", "expired", "stopping"]


class Lost(Exception):
    """The handler no longer owns its job; raised by `job.check()`. `reason` is the value of `job.lost`."""

    def __init__(self, reason: LostReason) -> None:
        super().__init__(f"the job is lost: {reason}")
        self.reason = reason


@dataclass(frozen=True, slots=True, eq=False)
class Job:
    """A delivery of a job, reserved for `ttr` seconds. Compares by identity."""

    id: str
    topic: str
    body: Any
    """The body as it was added, decoded."""
    lease: int
    """The number of this delivery; finish, touch, release and bury send it."""
    attempt: int
    """The number of deliveries that count, including this one: 1 for the first."""
    tries: int
    """The limit of `attempt`; 0 for no limit."""
    due: float
    """When it was due, in unix seconds."""
    ttr: float
    """Seconds until the job is delivered again; 0 if never, because the pop itself finished it."""
    headers: dict[str, str] | None = None
    ready: float | None = None
    """When it became ready again, in unix seconds; None at the first delivery: see `due`."""
    created: float | None = None
    """When it was added, in unix seconds: with its id, this identifies its life. None from an older service."""
    lost: LostReason | None = field(default=None, init=False)
    """Why a worker's handler no longer owns the job; None while it does, and always None without a Worker."""

    @classmethod
    def read(cls, answer: dict[str, Any]) -> Self:
        """The job in a pop's answer. Raises KeyError or TypeError if the answer has no job."""
        if not all(isinstance(answer[name], int | float) for name in ("lease", "attempt", "tries", "due", "ttr")):
            raise TypeError("a job lacks its numbers")
        return cls(
            id=answer["id"],
            topic=answer["topic"],
            body=answer["value"],
            lease=answer["lease"],
            attempt=answer["attempt"],
            tries=answer["tries"],
            due=answer["due"],
            ttr=answer["ttr"],
            headers=answer["headers"],
            ready=answer.get("ready"),
            created=answer.get("created"),
        )

    @property
    def last_try(self) -> bool:
        """Whether this is the last delivery."""
        return self.ttr == 0 or 0 < self.tries <= self.attempt

    @property
    def trace_id(self) -> str | None:
        """The trace in which the job was added, as 32 hex digits, from its header `traceparent`; None without one."""
        found = _TRACEPARENT.fullmatch((self.headers or {}).get("traceparent", ""))
        return found[1] if found else None

    def check(self) -> None:
        """Raise Lost if the job is lost. May be called from any thread."""
        if self.lost is not None:
            raise Lost(self.lost)

    def lose(self, reason: LostReason) -> None:
        """Mark the job as lost, for the worker. The first reason is kept."""
        if self.lost is None:
            object.__setattr__(self, "lost", reason)
