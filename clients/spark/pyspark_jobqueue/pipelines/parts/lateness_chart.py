"""The chart of sla: lateness above, waiting below, by hour; of the topics with the largest ones."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure  # without pyplot, so that no window opens
from matplotlib.ticker import StrMethodFormatter

from pyspark_jobqueue.pipelines.parts.axes import COLOURS, day, make_plain, show_time

_HOUR_S = 3600
_LEAST_S = 0.001  # below it the scale is linear, as 0 has no logarithm
Row = Mapping[str, Any]


def draw(file: Path, rows: Sequence[Row]) -> None:
    """Write a .png or .svg file. `rows`: the figures of each topic and hour."""
    figure = Figure(figsize=(11, 7), layout="constrained")
    above, below = figure.subplots(2, 1, sharex=True)
    topics = _worst_topics(rows)
    _lines(above, rows, topics, "late")
    _lines(below, rows, topics, "waited")
    above.set_title("first deliveries, after their due time", loc="left")
    below.set_title("all deliveries, since the job was ready", loc="left")
    show_time(below)
    if above.get_legend_handles_labels()[1]:
        figure.legend(*above.get_legend_handles_labels(), loc="outside right upper", frameon=False)
    figure.savefig(file, dpi=120)


def _worst_topics(rows: Sequence[Row]) -> list[str]:
    most: dict[str, float] = {}
    for row in rows:
        most[row["topic"]] = max(most.get(row["topic"], 0.0), row["late_p99"] or 0.0, row["waited_p99"] or 0.0)
    return sorted(most, key=lambda topic: (-most[topic], topic))[: len(COLOURS)]


def _lines(axes: Axes, rows: Sequence[Row], topics: Sequence[str], what: str) -> None:
    for topic, colour in zip(topics, COLOURS, strict=False):
        of_topic = sorted((row for row in rows if row["topic"] == topic), key=lambda row: row["hour"])
        times = [day(row["hour"] + _HOUR_S / 2) for row in of_topic]
        for share, style in (("p99", "-"), ("p50", ":")):
            seconds = [float("nan") if row[f"{what}_{share}"] is None else row[f"{what}_{share}"] for row in of_topic]
            label = f"{topic}, {share}"
            axes.plot(times, seconds, style, color=colour, marker=".", markersize=4, linewidth=1.5, label=label)
    axes.set_yscale("symlog", linthresh=_LEAST_S)
    axes.set_ylim(bottom=0)
    axes.yaxis.set_major_formatter(StrMethodFormatter("{x:g}"))
    axes.set_ylabel("seconds")
    make_plain(axes)
