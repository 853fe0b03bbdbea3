"""Which of the living instances has which timer.

All that read the same roll draw the same conclusion, without a word to each other: rendezvous hashing (Thaler and
Ravishankar, 1998) with an even load. No instance has two timers more than another; and when one comes or goes, hardly a
timer changes from one of the others to another.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from random import Random


def assign(timers: int, tokens: Sequence[bytes]) -> list[bytes]:
    """The token of the instance that has each of so many timers; there must be tokens."""
    least, more = divmod(timers, len(tokens))  # so many have one more than the least
    has = dict.fromkeys(tokens, 0)
    owners: dict[int, bytes] = {}
    for _, timer, token in sorted(throw for each in tokens for throw in _throws(timers, each)):
        if timer in owners or has[token] > least or (has[token] == least and not more):
            continue
        if has[token] == least:
            more -= 1
        has[token] += 1
        owners[timer] = token
    return [owners[timer] for timer in range(timers)]


def _throws(timers: int, token: bytes) -> Iterator[tuple[float, int, bytes]]:
    """An instance throws dice for each timer: the lower, the better they fit. The same for everybody who asks."""
    dice = Random(token)
    return ((dice.random(), timer, token) for timer in range(timers))
