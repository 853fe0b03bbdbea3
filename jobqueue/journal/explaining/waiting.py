"""Why a ready job waited, as far as the journal shows it."""

from __future__ import annotations

from jobqueue.journal.explaining.told import Meanwhile, Pause
from jobqueue.journal.explaining.words import clock, jobs, span

WORTH_US = 100_000
"""A shorter wait is not explained."""


def why(meanwhile: Meanwhile) -> str:
    """The words behind how long it waited; empty: nothing is known."""
    if meanwhile.is_gap:
        return "why is not known, events of that time are missing"
    return ", ".join(part for part in (_delivered(meanwhile), _paused(meanwhile)) if part)


def paused_us(meanwhile: Meanwhile) -> int:
    """For how long its topic was paused in it."""
    return sum(_span_of(pause, meanwhile) for pause in meanwhile.pauses or ())


def _span_of(pause: Pause, meanwhile: Meanwhile) -> int:
    end = meanwhile.end if pause.end is None else min(pause.end, meanwhile.end)
    return max(end - max(pause.begin, meanwhile.begin), 0)


def _paused(meanwhile: Meanwhile) -> str:
    if meanwhile.pauses is None:
        return ""
    total = paused_us(meanwhile)
    if not total:
        return "no pause"
    if total == meanwhile.end - meanwhile.begin:
        return "the topic was paused throughout"
    last = next(pause for pause in reversed(meanwhile.pauses) if _span_of(pause, meanwhile))
    end = "" if last.end is None or last.end >= meanwhile.end else f", until {clock(last.end, meanwhile.begin)}"
    return f"the topic was paused for {span(total)} of that time{end}"


def _delivered(meanwhile: Meanwhile) -> str:
    count = meanwhile.delivered
    if count is None:
        return ""
    until = "" if meanwhile.known_until is None else f" until {clock(meanwhile.known_until, meanwhile.begin)}"
    if not count:
        nobody = meanwhile.pauses is not None and not paused_us(meanwhile)
        return f"no job of the topic was delivered{until}{': nobody popped it' if nobody else ''}"
    least = "at least " if meanwhile.is_least else ""
    if meanwhile.of_any_priority:
        return f"{least}{jobs(count)} of the topic, of any priority, were delivered{until}"
    return f"{least}{jobs(count)} of the topic went before it{until}"
