"""The findings of a check: faults by kind, with samples of where they are, and how many were repaired."""

from __future__ import annotations

from dataclasses import dataclass, field

SAMPLES = 5
_LONGEST_SAMPLE = 80

KINDS = {
    "meta": "the settings of a shard are missing or damaged",
    "spoilt": "a key holds something that its name does not allow",
    "unreadable": "a record cannot be read",
    "contradictory": "the state in a record contradicts the expiry of its key and its body",
    "endless": "the tombstone of a job never expires",
    "ending": "a live job would vanish: its key expires",
    "no_timer": "a job is in a bucket that no timer serves",
    "unindexed": "a job is missing from its bucket or from the dead letters",
    "misdated": "the time of a job in its index differs from the one in its record",
    "unlisted": "a ready job is missing from its ready list",
    "orphan": "an entry of a bucket or of the dead letters, or a set of occurrences, has no record to match it",
    "unscheduled": "a schedule would have no occurrence at its next time: its entry in a bucket is missing or wrong",
    "miscounted": "the counts of a topic do not match its jobs",
    "idle_list": "a topic without ready jobs has ready lists",
    "unknown_topic": "a topic with counts is missing from the list of topics",
    "adrift": "jobs or schedules that a migration took away and put nowhere: run `jobqueue move` again",
    "misplaced": "a job or a schedule is in a shard that its id or its name does not belong to",
}


@dataclass(slots=True)
class Finding:
    """The faults of one kind: how many, how many of them were repaired, and where the first are."""

    found: int = 0
    samples: list[str] = field(default_factory=list)
    _seen: set[int] = field(default_factory=set)
    _repaired: set[int] = field(default_factory=set)

    def add(self, where: str, repaired: bool) -> None:
        """Record a fault; a second pass meets the same one again."""
        if hash(where) not in self._seen:
            self._seen.add(hash(where))
            self.found += 1
            if len(self.samples) < SAMPLES:
                self.samples.append(where if len(where) <= _LONGEST_SAMPLE else where[:_LONGEST_SAMPLE] + "…")
        if repaired:
            self._repaired.add(hash(where))

    @property
    def repaired(self) -> int:
        return len(self._repaired)


@dataclass(slots=True)
class Report:
    """The findings of one run. Not faults are `foreign` (keys of other programs under our tag) and `aside` (the number
    of things that were set aside, now or earlier, and wait for an operator). `unverified` topics were never quiet."""

    findings: dict[str, Finding] = field(default_factory=dict)
    jobs: int = 0
    topics: int = 0
    schedules: int = 0
    foreign: Finding = field(default_factory=Finding)
    aside: int = 0
    unverified: list[str] = field(default_factory=list)

    def find(self, kind: str, where: str, *, repaired: bool) -> None:
        """Record a fault of one of the KINDS."""
        assert kind in KINDS
        self.findings.setdefault(kind, Finding()).add(where, repaired)

    @property
    def faults(self) -> int:
        """How many faults are left."""
        return sum(finding.found - finding.repaired for finding in self.findings.values())


def shown(raw: bytes) -> str:
    """A name for people to read; of one that no user could have given, which may hold anything, only the length."""
    text = raw.decode("utf-8", "replace")
    return text if text.isprintable() and "�" not in text and '"' not in text else f"<{len(raw)} bytes>"
