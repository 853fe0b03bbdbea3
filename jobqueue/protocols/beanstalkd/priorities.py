"""Priorities: beanstalkd's 2^32, smaller ones first, as our ten levels, and the note that keeps the exact number.

The note of a job also keeps the delay that it was last given. A job has one only where these are not what holds without
one: the smallest priority of its level, and no delay.
"""

from __future__ import annotations

import struct
from bisect import bisect_left
from collections.abc import Sequence

_NOTE = struct.Struct(">cII")
_MARK = b"b"  # other dialects have notes of their own
_HIGHEST = 9


def level(levels: Sequence[int], priority: int) -> int:
    """The level of a priority. `levels`: the upper ends of the levels 9 to 1."""
    return _HIGHEST - bisect_left(levels, priority)


def first(levels: Sequence[int], level: int) -> int:
    """The smallest priority of a level."""
    return levels[_HIGHEST - level - 1] + 1 if level < _HIGHEST else 0


def written(levels: Sequence[int], level: int, priority: int, delay: int) -> bytes:
    """The note of a job; empty where it needs none."""
    if not delay and priority == first(levels, level):
        return b""
    return _NOTE.pack(_MARK, priority, delay)


def is_foreign(note: bytes) -> bool:
    """Whether a note is that of another dialect, which must stay."""
    return bool(note) and not _is_own(note)


def read(levels: Sequence[int], level: int, note: bytes) -> tuple[int, int]:
    """The priority and the delay that a job was last given."""
    if not _is_own(note):
        return first(levels, level), 0
    _, priority, delay = _NOTE.unpack(note)
    return priority, delay


def _is_own(note: bytes) -> bool:
    return len(note) == _NOTE.size and note.startswith(_MARK)
