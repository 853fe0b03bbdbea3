"""The explanation of a job, as lines of text. Times are UTC."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from jobqueue.journal.explaining.words import moment, span

Fields = Mapping[str, Any]

_WIDEST = 78  # of the column `how`
_DAY = len("2026-11-23")
_EMPTIED, _WENT_BACK = "emptied", "went back"
_LOSSES = (_EMPTIED, _WENT_BACK)
"""Lines that say that Redis lost the events above them."""


def lines(answer: Fields) -> Iterator[str]:
    """The lines: the job, the sentence, the reasons, what happened, the sums, what is missing."""
    yield _head(answer)
    yield answer["sentence"]
    for reason in answer["facts"].get("reasons", ()):  # a service of an older version has none
        yield f"  {reason}"
    timeline = answer["timeline"]
    if timeline:
        yield ""
        yield from _timeline(timeline)
    if timeline and answer["sums"]:
        yield _sums(answer["sums"])
    if answer["since"] is not None:
        yield f"the journal goes back to {moment(_us(answer['since']))} UTC"
    for note in answer["facts"]["notes"]:
        yield f"note: {note}"


def _us(seconds: float) -> int:
    return round(seconds * 1_000_000)


def _head(answer: Fields) -> str:
    facts, sums = answer["facts"], answer["sums"] or {}
    parts = [answer["id"], facts["topic"], facts["state"], _which(facts)]
    if sums.get("late") is not None:
        parts.append(f"delivered {span(_us(sums['late']))} late")
    if "trace_id" in facts:
        parts.append(f"trace {facts['trace_id']}")
    return "   ".join(part for part in parts if part)


def _which(facts: Fields) -> str:
    lives = facts["lives"]
    return f"life {lives.index(facts['life']) + 1} of {len(lives)}" if facts["life"] in lives else ""


def _timeline(timeline: Sequence[Fields]) -> Iterator[str]:
    """A line for each event, under its day and, if there are several lives, its life."""
    width = max(len(line["what"]) for line in timeline)
    how = min(max(len(line["how"]) for line in timeline), _WIDEST)
    lives = sorted({line["life"] for line in timeline})
    day = life = None
    is_told = _told_once(timeline)
    for number, line in enumerate(timeline):
        if len(lives) > 1 and line["life"] != life:
            life = line["life"]
            yield f"life {lives.index(life) + 1} of {len(lives)}, created {moment(_us(life))} UTC"
        at = moment(_us(line["at"]))
        if at[:_DAY] != day:
            day = at[:_DAY]
            yield f"{day} UTC"
        forgotten = "lost from Redis; " if line.get("forgotten") and not is_told[number] else ""
        yield f"{at[_DAY + 1 :]}  {line['what']:<{width}}  {forgotten + line['how']:<{how}}  {line['who']}".rstrip()


def _told_once(timeline: Sequence[Fields]) -> list[bool]:
    """For each line, True if the loss of its event is already reported by a later line, which says that Redis was
    emptied."""
    is_emptied, told = False, list[bool]()
    for line in reversed(timeline):
        if line["what"] in _LOSSES:
            is_emptied = line["what"] == _EMPTIED
        told.append(is_emptied)
    return told[::-1]


def _sums(sums: Fields) -> str:
    return (
        f"sum: timers {span(_us(sums['timers_late']))} late, waited {span(_us(sums['waited']))} for workers, "
        f"worked {span(_us(sums['worked']))}, in back-off {span(_us(sums['backed_off']))}"
    )
