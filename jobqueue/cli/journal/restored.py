"""What a run of restore has done, in words and as JSON."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from jobqueue.journal.restoring.choice import Sums

_OF_THE_PUT = {
    "schedules": "schedules",
    "tombstones": "tombstones",
    "overdue": "overdue",
    "buried": "overdue, as dead letters",
    "expired": "dead, as their ttl is over",
}
_NOT_PUT = {
    "known": "known to Redis, which keeps what it has",
    "ended": "ended meanwhile",
    "over": "revoked or expired",
    "held": "had ended, but another worker has them by now",
    "absent": "did not live then",
    "skipped": "overdue, not brought back",
}
_LEFT = {
    "without_body": "without a body in the journal",
    "unsure": "may have ended while the journal missed events",
    "changed": "have another body since",
    "unreadable": "cannot be read",
    "unknown": "known to neither Redis nor the journal",
    "taken": "have the name or the certificate of another live token",
}
_OLDER = "are in Redis as they were before their last moves, which it forgot"


def sentences(sums: Sums, *, applies: bool) -> Iterator[str]:
    """The sums in words."""
    counts = sums.counts
    done = "came back" if applies else "would come back"
    yield f"{counts['looked']:,} looked at, {counts['put']:,} {done}{_parts(counts, _OF_THE_PUT)}"
    for token_id, name in (sums.tokens or {}).items():
        yield f"{token_id}  {name}"
    if counts["ended_again"]:
        yield f"{counts['ended_again']:,} {'ended' if applies else 'would end'} again"
    for name, words in _NOT_PUT.items():
        if counts[name]:
            yield f"{counts[name]:,} {words}"
    if counts["older"]:
        yield f"{counts['older']:,} {_OLDER}: {_some(sums.named['older'], counts['older'])}"
    for name, words in _LEFT.items():
        if counts[name]:
            yield f"left: {counts[name]:,} {words}: {_some(sums.named[name], counts[name])}"


def _parts(counts: Any, names: dict[str, str]) -> str:
    parts = [f"{counts[name]:,} {words}" for name, words in names.items() if counts[name]]
    return f" ({', '.join(parts)})" if parts else ""


def _some(ids: list[str], number: int) -> str:
    shown = ", ".join(ids[:5])
    return f"{shown}, …" if number > 5 else shown


def as_json(sums: Sums, run: int | None, stopped: str) -> dict[str, Any]:
    """The sums; `left` and `older` have ids, `tokens` of a run for tokens ids and names."""
    counts = {name: number for name, number in sums.counts.items() if number}
    left = {name: ids for name, ids in sums.named.items() if name in _LEFT}
    older = sums.named.get("older", [])
    told: dict[str, Any] = {"run": run, "counts": counts, "left": left, "older": older, "stopped": stopped or None}
    if sums.tokens is not None:
        told["tokens"] = [{"id": token_id, "name": name} for token_id, name in sums.tokens.items()]
    return told
