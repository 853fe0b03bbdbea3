"""The pictures: lateness by system, growth by pending jobs."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from pathlib import Path

import matplotlib as mpl

mpl.use("svg")
import matplotlib.pyplot as plt

from tests.bench.compare.rounds import Found, growing
from tests.bench.compare.works import Sizes

_FLOOR_MS = 0.1


def lateness(found: Found, path: Path) -> None:
    """How large a part of the jobs was at most so late, a line a system; a panel a rate."""
    panels = [name for name in ("late-200", "late-2000") if name in found.late_ms]
    if not panels:
        return
    _, axes = plt.subplots(1, len(panels), figsize=(6 * len(panels), 4), sharey=True, squeeze=False)
    for name, axis in zip(panels, axes[0], strict=True):
        for system, ms in found.late_ms[name].items():
            ordered = [max(_FLOOR_MS, each) for each in sorted(ms)]
            steps = range(0, len(ordered), max(1, len(ordered) // 500))
            axis.plot([ordered[at] for at in steps], [100 * at / len(ordered) for at in steps], label=system)
        axis.set(xscale="log", xlabel="ms late", title=f"{name.partition('-')[2]} jobs due a second")
        axis.grid(alpha=0.3)
    axes[0][0].set_ylabel("% of the jobs, at most so late")
    axes[0][0].legend()
    _save(path)


def growth(found: Found, sizes: Sizes, path: Path) -> None:
    """Rates and lateness by pending jobs."""
    panels = [
        ("add-64", "rate", "adds/s, 64 connections"),
        ("batch", "rate", "adds/s, batches of 100"),
        ("late-2000", "p50", "ms late, p50, 2,000 a second"),
    ]
    if not any(growing("add-64", pending) in found.figures for pending in sizes.pending):
        return
    _, axes = plt.subplots(1, len(panels), figsize=(5 * len(panels), 4))
    for (work, key, title), axis in zip(panels, axes, strict=True):
        for system in found.versions:
            points = _points(found, work, key, system, sizes.pending)
            if points:
                axis.plot(*zip(*points, strict=True), marker="o", label=system)
        axis.set(xscale="log", yscale="log", xlabel="pending jobs", title=title)
        axis.grid(alpha=0.3)
    axes[0].legend()
    _save(path)


def _points(found: Found, work: str, key: str, system: str, steps: Sequence[int]) -> list[tuple[int, float]]:
    rounds = {pending: found.figures.get(growing(work, pending), {}).get(system, []) for pending in steps}
    return [(pending, statistics.median(each[key] for each in got)) for pending, got in rounds.items() if got]


def _save(path: Path) -> None:
    plt.tight_layout()
    # The same run gives the same file.
    plt.savefig(path, metadata={"Date": None})
    plt.close()
