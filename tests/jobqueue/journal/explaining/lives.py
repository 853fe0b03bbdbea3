"""Events as a journal tells them, for tests: a life from 12:00 on, of which each event is as the one before it left
the job."""

from __future__ import annotations

from typing import Any

from buckets.job import State, Verb
from jobqueue.journal.explaining.told import History, Told

NOON = 1_795_608_000_000
"""2026-11-25 12:00:00 UTC, in ms: when the life was created."""


def us(seconds: float) -> int:
    """A time so many seconds after noon, in us."""
    return NOON * 1000 + round(seconds * 1_000_000)


def ms(seconds: float) -> int:
    return us(seconds) // 1000


class Life:
    """A life that is told."""

    def __init__(self, **fields: Any) -> None:
        none = dict.fromkeys(Told._fields, 0)
        words = {"topic": "t", "instance": "q:1", "actor": "", "worker": None, "reason": None, "priority": 4}
        self._now = Told(**(none | words | {"life": NOON, "due": NOON, "ms": NOON} | fields))
        self.events: list[Told] = []

    def told(self, verb: Verb, at: float, after: State | int, next_s: float = 0.0, **fields: Any) -> Life:
        """Add an event, `at` seconds after noon; `next_s`: the job's next time."""
        before = self._now
        words: dict[str, Any] = {"actor": "", "worker": None, "reason": None, "instance": "q:1"}
        place = {"ms": ms(at), "seq": len(self.events)}
        state = {"verb": verb, "before": before.after, "after": after, "at": us(at), "was": before.next}
        if verb in (Verb.POP, Verb.TAKE):
            words |= {"attempts": before.attempts + 1, "deliveries": before.deliveries + 1, "lease": us(at)}
        self._now = before._replace(**(words | place | state | {"next": ms(next_s or at)} | fields))
        self.events.append(self._now)
        return self

    def history(self, **fields: Any) -> History:
        return History(list(self.events), since=us(-60), until=us(86_400), **fields)
