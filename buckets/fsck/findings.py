"""What a check of the data found: faults by kind, with samples of where they are, and what was repaired."""

from __future__ import annotations

from dataclasses import dataclass, field

SAMPLES = 5
_LONGEST_SAMPLE = 80

KINDS = {
    "meta": "a shard's settings are gone or are not ours",
    "spoilt": "a key holds what its name does not allow",
    "unreadable": "a record cannot be read",
    "contradictory": "a record's state contradicts the end of its key and its body",
    "endless": "the tombstone of a job has no end",
    "ending": "a live job would vanish: its key has an end",
    "no_timer": "a job is in a bucket that no timer looks into",
    "unindexed": "a job is missing in its bucket or among the dead letters",
    "misdated": "a job stands in its index at another time than its record says",
    "unlisted": "a ready job is missing in its ready list",
    "orphan": "an entry of a bucket or of the dead letters has no job that bears it out",
    "miscounted": "the counts of a topic are not those of its jobs",
    "idle_list": "a topic without ready jobs has ready lists",
    "unknown_topic": "a topic with counts is missing in the list of topics",
    "adrift": "jobs that a mover took away and did not put anywhere: run `jobqueue move` again",
    "misplaced": "a job is in another shard than its id belongs to",
}


@dataclass(slots=True)
class Finding:
    """The faults of one kind: how many, how many of them were repaired, and where the first are."""

    found: int = 0
    samples: list[str] = field(default_factory=list)
    _seen: set[int] = field(default_factory=set)
    _repaired: set[int] = field(default_factory=set)

    def add(self, where: str, repaired: bool) -> None:
        """Take down a fault; the same one is met again in a second pass."""
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
    """The findings of one run. `foreign` and `aside` are no faults: keys under our tag that are not ours, and what was
    set aside, now or earlier, and waits for an operator. Of `unverified` topics the counts changed all the time."""

    findings: dict[str, Finding] = field(default_factory=dict)
    jobs: int = 0
    topics: int = 0
    foreign: Finding = field(default_factory=Finding)
    aside: int = 0
    unverified: list[str] = field(default_factory=list)

    def find(self, kind: str, where: str, *, repaired: bool) -> None:
        """Take down a fault of one of the KINDS."""
        assert kind in KINDS
        self.findings.setdefault(kind, Finding()).add(where, repaired)

    @property
    def faults(self) -> int:
        """How many faults are left."""
        return sum(finding.found - finding.repaired for finding in self.findings.values())


def shown(raw: bytes) -> str:
    """A name for people; one that no user could have given may hold anything, so only its length is told."""
    text = raw.decode("utf-8", "replace")
    return text if text.isprintable() and "�" not in text and '"' not in text else f"<{len(raw)} bytes>"
