"""I14: what a service holds when all is over and nobody asks any more is what it held before the attack.

An instance that was killed and started anew is measured against its life before: all lives are alike.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from tests.chaos.history import Event
from tests.chaos.judges.findings import Finding

REDIS = "redis"
Held = dict[str, dict[str, int]]
"""Numbers by their names, of each instance by its URL, and of Redis by REDIS."""

# How many more there may be than before. None for descriptors and connections to Redis: each cause of one more is gone
# after a moment, and the last look waits for that.
_MORE = {
    "descriptors": 0,
    "threads": 2,  # a pool of Python's or of libuv's may begin with the first job that is given to it
    "kB": 100_000,  # caches and metrics grow with what they meet; a leak of bodies or of waiting requests is larger
    "connections": 0,
}
_GONE = ("clients", "waiting pops")
_KEYS_THAT_STAY = ("meta", "t", "c", "d", "j", "lock", "roll")  # d and j: dead letters, and tombstones with an end


def leaks(before: Held, after: Held) -> Iterator[str]:
    """What is left that should not be, in words."""
    for owner, numbers in after.items():
        first = before.get(owner, {})
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
    """What a history tells of a moment: `before` or `after`."""
    told = (event for event in events if event.command == "resources" and event.process == moment)
    return {event.url or "": event.counts or {} for event in told if event.kind == "ok"}


def check_leaks(events: Iterable[Event]) -> Iterator[Finding]:
    """Resources return to what they were."""
    events = [event for event in events if event.command == "resources"]
    lines = tuple(event.line for event in events if event.kind == "ok")
    for says in leaks(held(events, "before"), held(events, "after")):
        yield Finding("leak", says, lines=lines)
