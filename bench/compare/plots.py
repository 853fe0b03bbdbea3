"""The charts: lateness by system, growth by pending jobs."""

from __future__ import annotations

import re
import statistics
from collections.abc import Sequence
from pathlib import Path

from matplotlib import rc_context
from matplotlib.figure import Figure
from matplotlib.ticker import EngFormatter, LogLocator, NullFormatter, StrMethodFormatter

from bench.compare.rounds import Found, growing
from bench.compare.works import Sizes

_FLOOR_MS = 0.1
_POINTS = 100  # points per line
_GROWTH = [
    ("add-64", "rate", "adds/s, one a request, 64 connections"),
    ("batch", "rate", "adds/s, batches of 100"),
    ("late-2000", "p50", "ms late, p50, 2,000 jobs due a second"),
]


def lateness(found: Found, path: Path) -> None:
    """The share of jobs that were at most this late: one line per system, one panel per rate."""
    panels = [name for name in ("late-200", "late-2000") if name in found.late_ms]
    if not panels:
        return
    figure = Figure(figsize=(6 * len(panels), 4))
    axes = figure.subplots(1, len(panels), sharey=True, squeeze=False)[0]
    for name, axis in zip(panels, axes, strict=True):
        for system, ms in found.late_ms[name].items():
            ordered = [max(_FLOOR_MS, each) for each in sorted(ms)]
            steps = range(0, len(ordered), max(1, len(ordered) // _POINTS))
            parts = [100 * at / len(ordered) for at in steps]
            axis.plot([ordered[at] for at in steps], parts, color=_color(found, system), label=system)
        axis.set(xscale="log", xlabel="ms late", title=f"{int(name.partition('-')[2]):,} jobs due a second")
        axis.grid(alpha=0.3)
    axes[0].set_ylabel("% of the jobs, at most so late")
    axes[0].legend()
    _save(figure, path)


def growth(found: Found, sizes: Sizes, path: Path) -> None:
    """Rates and lateness by pending jobs."""
    if not any(growing("add-64", pending) in found.figures for pending in sizes.pending):
        return
    figure = Figure(figsize=(5 * len(_GROWTH), 4))
    axes = figure.subplots(1, len(_GROWTH))
    for (work, key, title), axis in zip(_GROWTH, axes, strict=True):
        for system in found.versions:
            points = _points(found, work, key, system, sizes.pending)
            if points:
                axis.plot(*zip(*points, strict=True), marker="o", color=_color(found, system), label=system)
        axis.set(xscale="log", yscale="log", xlabel="pending jobs", title=title)
        axis.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
        axis.yaxis.set_minor_formatter(NullFormatter())
        axis.yaxis.set_major_formatter(EngFormatter(sep="") if key == "rate" else StrMethodFormatter("{x:g}"))
        axis.xaxis.set_major_formatter(EngFormatter(sep=""))
        axis.grid(alpha=0.3)
    axes[0].legend()
    _save(figure, path)


def _color(found: Found, system: str) -> str:
    """The same colour in all charts."""
    return f"C{list(found.versions).index(system)}"


def _points(found: Found, work: str, key: str, system: str, steps: Sequence[int]) -> list[tuple[int, float]]:
    rounds = {pending: found.figures.get(growing(work, pending), {}).get(system, []) for pending in steps}
    return [(pending, statistics.median(each[key] for each in got)) for pending, got in rounds.items() if got]


def _save(figure: Figure, path: Path) -> None:
    figure.tight_layout()
    with rc_context({"svg.fonttype": "none", "svg.hashsalt": path.name}):  # text as text, and the same ids each time
        figure.savefig(path, metadata={"Date": None})  # so that the file depends on the figures only
    path.write_text(re.sub(r" ?\n(?=[LQCz])", " ", path.read_text()))  # a path on one line
