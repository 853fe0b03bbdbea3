"""The assignment of timers to the live instances.

All instances that read the same list of members compute the same assignment without talking to each other: rendezvous
hashing (Thaler and Ravishankar, 1998) with an even load. Two instances differ by at most one timer; when one joins or
leaves, hardly any timer moves between the others.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from random import Random


def assign(timers: int, tokens: Sequence[bytes]) -> list[bytes]:
    """For each of the timers 0 to `timers` - 1, the token of its instance. `tokens` must not be empty."""
    least, more = divmod(timers, len(tokens))  # `more` instances have one more than the least
    has = dict.fromkeys(tokens, 0)
    owners: dict[int, bytes] = {}
    for _, timer, token in sorted(score for each in tokens for score in _scores(timers, each)):
        if timer in owners or has[token] > least or (has[token] == least and not more):
            continue
        if has[token] == least:
            more -= 1
        has[token] += 1
        owners[timer] = token
    return [owners[timer] for timer in range(timers)]


def _scores(timers: int, token: bytes) -> Iterator[tuple[float, int, bytes]]:
    """How well an instance fits each timer (the lower, the better); the same in all processes."""
    random = Random(token)
    return ((random.random(), timer, token) for timer in range(timers))
