"""I14: once nobody asks any more, a service holds what it held before the attack.

All instances are alike, and so are their lives: each is compared with the one that held most before the attack, when
others may not have opened all of their connections yet.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from tests.chaos.history import Event
from tests.chaos.judges.findings import Finding

REDIS = "redis"
Held = dict[str, dict[str, int]]
"""Counts by name, for each instance under its URL and for Redis under REDIS."""

# How much more is allowed than before. No slack for descriptors and connections to Redis: every cause of an extra one
# goes away after a moment, and the final measurement waits for that.
_MORE = {
    "descriptors": 0,
    "threads": 2,  # a thread pool of Python or libuv may start with its first task
    "kB": 100_000,  # caches and metrics grow with what they see; a leak of bodies or of waiting requests is larger
    "connections": 0,
}
_GONE = ("clients", "waiting pops")
_KEYS_THAT_STAY = (
    "meta",
    "t",
    "c",
    "d",
    "j",
    "lock",
    "roll",
    "cards",
    "w",
    "seq",
    "alias",
    "f",
    "figured",
    "ops",
    "op",
)  # d and j: dead letters, and tombstones, which expire, as aliases do


def leaks(before: Held, after: Held) -> Iterator[str]:
    """What is left over, as sentences."""
    instances = [numbers for owner, numbers in before.items() if owner != REDIS]
    for owner, numbers in after.items():
        alike = [before.get(owner, {})] if owner == REDIS else instances
        first = {name: max(each.get(name, 0) for each in alike) for name in numbers} if alike else {}
        for name, number in numbers.items():
            if name in _MORE and number > (most := first.get(name, 0) + _MORE[name]):
                yield f"{owner}: {number} {name}, {first.get(name, 0)} before, and at most {most} are right"
            elif name in _GONE and number:
                yield f"{owner}: {number} {name}, and nobody is there any more"
            elif name.startswith("keys ") and name.removeprefix("keys ") not in _KEYS_THAT_STAY and number:
                yield f"{owner}: {number} {name}, and there is no job that needs them"
        if (endless := numbers.get("endless records", 0)) > (dead := numbers.get("dead letters", 0)):
            yield f"{owner}: {endless} records that do not end by themselves, and {dead} dead letters"


def held(events: Iterable[Event], moment: str) -> Held:
    """What a history recorded at a moment: `before` or `after`."""
    told = (event for event in events if event.command == "resources" and event.process == moment)
    return {event.url or "": event.counts or {} for event in told if event.kind == "ok"}


def check_leaks(events: Iterable[Event]) -> Iterator[Finding]:
    """Resources return to their former level."""
    events = [event for event in events if event.command == "resources"]
    lines = tuple(event.line for event in events if event.kind == "ok")
    for says in leaks(held(events, "before"), held(events, "after")):
        yield Finding("leak", says, lines=lines)
