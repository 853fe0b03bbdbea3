"""Percentiles and table rows for the benchmarks."""

from __future__ import annotations

from collections.abc import Sequence


def percentile(values: Sequence[float], percent: float) -> float:
    """The value that `percent` of the values do not exceed."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(len(ordered) * percent / 100))]


def show(name: str, values: Sequence[float], wanted: str = "") -> None:
    """Print p50, p99 and the maximum of some milliseconds."""
    p50, p99, most = percentile(values, 50), percentile(values, 99), max(values)
    line = f"{name:58} n={len(values):<5} p50 {p50:7.1f}  p99 {p99:7.1f}  max {most:7.1f} ms"
    print(line + (f"   (target: {wanted})" if wanted else ""), flush=True)
