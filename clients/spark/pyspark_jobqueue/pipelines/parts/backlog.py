"""The backlog that builds up when jobs fall due faster than they are worked off, computed from a due-time histogram."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class Backlog:
    """Jobs due but not yet worked off, given workers that go at a steady rate whenever there is work."""

    points: tuple[tuple[float, float], ...]
    """Times (unix seconds) and jobs; between two points the backlog changes linearly."""
    worked_off_at: float | None
    """When the last of it is gone, in unix seconds; None if there never is a backlog."""

    @property
    def most(self) -> tuple[float, float]:
        """When it is first at its largest, and how many jobs it has then."""
        return max(self.points, key=lambda point: point[1])


def backlog(due: Mapping[int, float], width: int, rate: float, now: float, due_now: int) -> Backlog:
    """Compute the backlog from `due`: jobs by the start of their slot (unix seconds). Slots are `width` seconds long;
    the first may have begun before `now`. Within a slot, jobs fall due evenly. `due_now` jobs are waiting already.
    `rate`: jobs per second, above 0.
    """
    left = float(due_now)
    points = [(now, left)]
    worked_off_at = None
    for begin, end, jobs in _spans(due, width, now):
        gain = rate * (end - begin) - jobs  # by how much the backlog can shrink
        if gain >= left > 0:
            worked_off_at = begin + (end - begin) * left / gain
            points.append((worked_off_at, 0.0))
        left = max(0.0, left - gain)
        points.append((end, left))
    if left > 0:
        worked_off_at = points[-1][0] + left / rate
        points.append((worked_off_at, 0.0))
    return Backlog(tuple(points), worked_off_at)


def _spans(due: Mapping[int, float], width: int, now: float) -> Iterator[tuple[float, float, float]]:
    """Begin, end and jobs of each slot from now on, and of the gaps between slots."""
    clock = now
    for start in sorted(due):
        if start > clock:
            yield clock, start, 0
        begin, clock = max(start, clock), max(start + width, clock)
        yield begin, clock, due[start]
