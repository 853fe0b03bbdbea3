"""What a run of restore has done, in words and as JSON."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from jobqueue.journal.restoring.choice import Sums

_OF_THE_PUT = {
    "tombstones": "tombstones",
    "overdue": "overdue ones",
    "buried": "overdue ones as dead letters",
    "expired": "dead letters, as their ttl is over",
}
_NOT_PUT = {
    "known": "that Redis knows, and that stay as they are there",
    "ended": "that have ended",
    "held": "whose end is known and that another worker has by now",
    "skipped": "overdue ones that stay away",
}
_LEFT = {
    "without_body": "whose body is not in the journal",
    "unsure": "that may have ended while the journal missed events, or that it does not know wholly",
    "changed": "whose body is another one since",
    "unreadable": "that cannot be read",
    "unknown": "that neither Redis nor the journal knows",
}


def sentences(sums: Sums, *, applies: bool) -> Iterator[str]:
    """The sums in words."""
    counts = sums.counts
    done = "came back" if applies else "would come back"
    yield f"{counts['looked']:,} looked at, {counts['put']:,} {done}{_parts(counts, _OF_THE_PUT)}"
    if counts["ended_again"]:
        yield f"{counts['ended_again']:,} {'ended' if applies else 'would end'} again"
    for name, words in _NOT_PUT.items():
        if counts[name]:
            yield f"{counts[name]:,} {words}"
    for name, words in _LEFT.items():
        if counts[name]:
            yield f"left: {counts[name]:,} {words}: {_some(sums.named.get(name, []), counts[name])}"


def _parts(counts: Any, names: dict[str, str]) -> str:
    parts = [f"{counts[name]:,} {words}" for name, words in names.items() if counts[name]]
    return f": among them {', '.join(parts)}" if parts else ""


def _some(ids: list[str], number: int) -> str:
    shown = ", ".join(ids[:5])
    return f"{shown}, …" if number > 5 else shown


def as_json(sums: Sums, run: int | None, stopped: str) -> dict[str, Any]:
    """The sums; `left` has the ids."""
    counts = {name: number for name, number in sums.counts.items() if number}
    return {"run": run, "counts": counts, "left": sums.named, "stopped": stopped or None}
