"""What the charts have in common: colours, and axes of time (UTC)."""

from __future__ import annotations

from datetime import UTC

from matplotlib.axes import Axes
from matplotlib.dates import AutoDateLocator, ConciseDateFormatter

COLOURS = ("#0072b2", "#e69f00", "#009e73", "#cc79a7", "#56b4e9")
"""Distinguishable with most kinds of colour blindness."""


def day(seconds: float) -> float:
    """Unix seconds as days, matplotlib's unit of time."""
    return seconds / 86_400


def show_time(axes: Axes) -> None:
    """Label the lowest axes with times."""
    locator = AutoDateLocator(tz=UTC)  # type: ignore[no-untyped-call]
    axes.xaxis.set_major_locator(locator)
    axes.xaxis.set_major_formatter(ConciseDateFormatter(locator, tz=UTC))  # type: ignore[no-untyped-call]
    axes.set_xlabel("time (UTC)")


def make_plain(axes: Axes) -> None:
    axes.grid(axis="y", alpha=0.3)
    axes.spines[["top", "right"]].set_visible(False)
