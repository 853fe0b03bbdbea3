"""Findings about the processes of the service: their versions, and whether all timers run."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from buckets import Instance
from jobqueue.health.findings import Finding

_SUBJECT = "instances"


def judge_instances(found: Sequence[Instance], timers: int) -> Iterator[Finding]:
    """All findings. `timers`: how many there are."""
    versions = Counter(each.about.version if each.about else "not known" for each in found)
    told = ", ".join(f"{version} ({number})" for version, number in sorted(versions.items()))
    if len(versions) > 1:
        yield Finding("warn", _SUBJECT, f"different versions run: {told}: jobqueue instances")
    else:
        yield Finding("ok", _SUBJECT, f"running: {len(found)}, of version {told.rpartition(' (')[0]}")
    held = sum(len(buckets) for each in found for buckets in each.timers.values())
    if held < timers and all(each.about for each in found):
        yield Finding(
            "warn", _SUBJECT, f"timers that none holds at the moment: {timers - held} of {timers}: jobqueue instances"
        )
