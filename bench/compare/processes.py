"""CPU and memory of a process and its children, from /proc."""

from __future__ import annotations

import os
from pathlib import Path

_TICK_US = 1e6 / os.sysconf("SC_CLK_TCK")


def tree(pid: int) -> list[int]:
    """The process and all its descendants."""
    found = [pid]
    for task in Path(f"/proc/{pid}/task").glob("*/children"):
        for child in task.read_text().split():
            found += tree(int(child))
    return found


def cpu_us(*pids: int, without: int = 0) -> float:
    """User and system CPU microseconds of these processes and their descendants, including those that have ended, but
    without one of them. The clock has steps of 10 ms.
    """
    return sum(_ticks(each) for pid in pids for each in tree(pid) if each != without) * _TICK_US


def _ticks(pid: int) -> int:
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return 0
    return sum(int(each) for each in fields[11:15])  # utime, stime, and those of ended children


def memory(*pids: int, without: int = 0) -> int:
    """Resident bytes of these processes and their descendants, without one of them; a shared page counts in parts."""
    total = 0
    for each in (each for pid in pids for each in tree(pid) if each != without):
        lines = Path(f"/proc/{each}/smaps_rollup").read_text().splitlines()
        total += next(int(line.split()[1]) for line in lines if line.startswith("Pss:")) * 1024
    return total
