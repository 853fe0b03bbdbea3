"""The live tokens among some records: those that are neither revoked nor expired, and how a request finds them."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping

from buckets.access import Stored
from jobqueue.access.records import Record, from_json


class LiveTokens:
    """Live tokens by what requests show, at a moment."""

    def __init__(self) -> None:
        self.by_digest: dict[bytes, Record] = {}
        """After a rotation by the old digest, too, as long as that holds."""
        self.by_name: dict[str, Record] = {}
        self.by_certificate: dict[str, Record] = {}
        self.ended: dict[bytes, Record] = {}
        """Those that were live once."""
        self.next_end = math.inf
        """When the next of them ends, in unix seconds."""

    def take(self, records: Iterable[Record], now: float) -> bool:
        """Be the live ones of these; returns whether others were live before. `now`: unix seconds."""
        before = self.by_digest
        self.by_digest, self.by_name, self.by_certificate, self.ended = {}, {}, {}, {}
        self.next_end = math.inf
        for record in sorted(records, key=_newest_first):  # of two with one name the older one counts
            digest = bytes.fromhex(record.digest)
            if record.is_live(now):
                self._add(digest, record, now)
            else:
                self.ended[digest] = record
        return self.by_digest != before

    def _add(self, digest: bytes, record: Record, now: float) -> None:
        self.by_digest[digest] = record
        self.by_name[record.name] = record
        if record.certificate:
            self.by_certificate[record.certificate] = record
        if record.expires is not None:
            self.next_end = min(self.next_end, record.expires)
        if record.previous:
            previous = bytes.fromhex(record.previous)
            if now < record.previous_until:
                self.by_digest[previous] = record
                self.next_end = min(self.next_end, record.previous_until)
            else:
                self.ended[previous] = record


def _newest_first(record: Record) -> float:
    return -record.created


def merge(stored: Stored, known: Mapping[str, Record], now: float) -> tuple[dict[str, Record], list[Record]]:
    """The records that Redis has, with those of `known` in their places that were changed later or that it lacks; and
    these, which Redis is to have. What ended long ago is left out. `now`: unix seconds."""
    records = {
        token: record
        for token, raw in stored.records.items()
        if (record := from_json(raw)) and not record.is_forgotten(now)
    }
    newer = []
    for token, record in known.items():
        theirs = records.get(token)
        if theirs is not None and theirs.changed >= record.changed:
            records[token] = record if theirs == record else theirs  # the same object, where nothing has changed
        elif not record.is_forgotten(now):
            records[token] = record
            newer.append(record)
    return records, newer
