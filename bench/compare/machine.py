"""The machine that the figures were measured on."""

from __future__ import annotations

import os
import platform
import subprocess
from datetime import UTC, datetime
from pathlib import Path

from bench.compare.load.compiled import compiler


def description() -> dict[str, str]:
    """Lines for the report."""
    return {
        "date": datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
        "processor": f"{_processor()}, {len(os.sched_getaffinity(0))} cores for all processes together",
        "memory": f"{os.sysconf('SC_PAGE_SIZE') * os.sysconf('SC_PHYS_PAGES') / 2**30:.0f} GiB",
        "system": f"{_distribution()}, kernel {platform.release()}",
        "python": platform.python_version(),
        "load generator": f"C, {_compiler()}",
        "load when it began": " ".join(f"{each:.2f}" for each in os.getloadavg()),
    }


def _processor() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.machine()


def _distribution() -> str:
    try:
        return platform.freedesktop_os_release()["PRETTY_NAME"]
    except (OSError, KeyError):
        return platform.system()


def _compiler() -> str:
    said = subprocess.run([compiler(), "--version"], capture_output=True, text=True, check=True).stdout
    return said.splitlines()[0]
