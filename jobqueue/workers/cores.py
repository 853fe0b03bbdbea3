"""The processor cores that this process may use, and how many workers suit them."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from jobqueue.errors import SettingsError
from jobqueue.settings import MOST_WORKERS

_CGROUPS = Path("/sys/fs/cgroup")
_OWN_CGROUP = Path("/proc/self/cgroup")


def workers_for(setting: int) -> int:
    """How many workers to run. If the setting is 0: one per core, minus one core for Redis, but at least one.

    On two cores a second worker makes the service slower: it takes a core from Redis or from the other worker.

    Raises SettingsError for more than one worker if the system does not spread connections over the sockets of a port.
    """
    if sys.platform != "linux":
        if setting > 1:
            raise SettingsError("workers must be 0 or 1 on this system: only Linux shares a port among processes")
        return 1
    return setting or max(1, min(usable() - 1, MOST_WORKERS))


def usable(cgroups: Path = _CGROUPS, own: Path = _OWN_CGROUP) -> int:
    """Whole cores, at least 1: those that the process may run on, or fewer if its cgroup has a CPU quota."""
    if sys.platform != "linux":
        return os.cpu_count() or 1
    cores = len(os.sched_getaffinity(0))
    return max(1, min([cores, *(int(quota) for quota in _quotas(cgroups, own))]))


def _quotas(cgroups: Path, own: Path) -> list[float]:
    """The quotas, in cores, of the process's cgroup and of all that contain it."""
    try:
        name = next(line for line in own.read_text().splitlines() if line.startswith("0::")).removeprefix("0::/")
    except (OSError, StopIteration):  # no cgroups v2
        return []
    folder = cgroups / name
    folders = [folder, *(each for each in folder.parents if each.is_relative_to(cgroups))]
    return [quota for each in folders if (quota := _quota(each / "cpu.max")) is not None]


def _quota(file: Path) -> float | None:
    """`cpu.max` is "max 100000" or "150000 100000": µs of CPU time in a period, and the length of the period in µs."""
    try:
        time_us, period_us = file.read_text().split()
        return int(time_us) / int(period_us)
    except (OSError, ValueError):
        return None
