"""A job as a pop hands it out."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal, Self

LostReason = Literal["deleted", "stale", "expired", "stopping"]


class Lost(Exception):
    """The handler does not have its job any more; raised by `job.check()`. `reason`: as `job.lost`."""

    def __init__(self, reason: LostReason) -> None:
        super().__init__(f"the job is lost: {reason}")
        self.reason = reason


@dataclass(frozen=True, slots=True, eq=False)
class Job:
    """A delivery of a job, reserved for whoever popped it for `ttr` seconds. It equals only itself."""

    id: str
    topic: str
    body: Any
    """What the add gave, decoded."""
    lease: int
    """The number of this delivery; finish, touch, release and bury show it."""
    attempt: int
    """The deliveries that count, with this one: 1 for the first."""
    tries: int
    """How many of them there may be; 0: no limit."""
    due: float
    """When it was due, in unix seconds."""
    ttr: float
    """Seconds until it is handed out again; 0: never, it was gone when it was popped."""
    headers: dict[str, str] | None = None
    lost: LostReason | None = field(default=None, init=False)
    """None, or why a worker's handler does not have it any more. Always None without a Worker."""

    @classmethod
    def read(cls, answer: dict[str, Any]) -> Self:
        """A job from a pop's answer. KeyError or TypeError for what is none."""
        if not all(isinstance(answer[name], int | float) for name in ("lease", "attempt", "tries", "due", "ttr")):
            raise TypeError("a job without its numbers")
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
        )

    @property
    def last_try(self) -> bool:
        """Whether no delivery follows this one."""
        return self.ttr == 0 or 0 < self.tries <= self.attempt

    def check(self) -> None:
        """Raise Lost where the job is lost. From any thread."""
        if self.lost is not None:
            raise Lost(self.lost)

    def lose(self, reason: LostReason) -> None:
        """For the worker: tell the handler. The first reason stays."""
        if self.lost is None:
            object.__setattr__(self, "lost", reason)
