"""Which of the living instances has which timer.

All that read the same roll draw the same conclusion, without a word to each other: rendezvous hashing (Thaler and
Ravishankar, 1998) with an even load. No instance has two timers more than another; and when one comes or goes, hardly a
timer changes from one of the others to another.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence


def deal(timers: int, tokens: Sequence[bytes]) -> list[bytes]:
    """The token of the instance that has each of `timers` (1 to 65,536); there must be tokens."""
    least, more = divmod(timers, len(tokens))  # so many have one more than the least
    has = dict.fromkeys(tokens, 0)
    owners: dict[int, bytes] = {}
    for _, timer, token in sorted((_score(timer, token), timer, token) for timer in range(timers) for token in tokens):
        if timer in owners or has[token] > least or (has[token] == least and not more):
            continue
        if has[token] == least:
            more -= 1
        has[token] += 1
        owners[timer] = token
    return [owners[timer] for timer in range(timers)]


def _score(timer: int, token: bytes) -> bytes:
    """The lower, the better these two fit; by chance, but always the same."""
    return hashlib.blake2b(token, digest_size=8, salt=timer.to_bytes(2, "big")).digest()
