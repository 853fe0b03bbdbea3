"""The fields of commands: for each its type, its range, and what it means.

The reader of requests, the refusals, the settings, the reference, the OpenAPI description and the command line all
take them from here. Each range is written once, by a function that makes both its limits and their wording.
"""

from __future__ import annotations

import re
import string
from collections.abc import Collection
from datetime import datetime
from typing import Annotated, Any, Literal, NamedTuple, get_args, get_origin

import msgspec
from msgspec import Meta, Raw, Struct

DAY_S = 86_400
MONTH_S = 30 * DAY_S
TEN_YEARS_S = 3650 * DAY_S
LAST_S = 100_000_000_000  # of unix seconds
SHORTEST_TTR_S = 0.1  # below it there is only 0: at most once
MOST_STEPS = 32  # of a back-off
MOST_SHARDS = 255
DEEPEST_BODY = 500  # levels: PHP reads 512 by default, Python somewhat less than 1,000; an answer adds a few
LONGEST_NAME = 255
LEAST_MS = 1000  # a larger number of seconds than a field allows may have been meant as milliseconds

_SPANS = {DAY_S: " (24 h)", MONTH_S: " (30 days)", TEN_YEARS_S: " (10 years)"}
_WORDS = "words"  # in the `extra` of a Meta: what a value must be


def _seconds(least: float, most: int) -> Meta:
    """A range of seconds."""
    return Meta(ge=least, le=most, extra={_WORDS: _seconds_words(least, most)})


def _seconds_words(least: float, most: int) -> str:
    return f"a number of seconds from {least:g} to {most}{_SPANS.get(most, '')}"


def _integer(least: int, most: int, note: str = "", zero: str = "") -> Meta:
    """A range of integers. `zero`: what 0 means; `note`: what else holds."""
    low = f"{least} ({zero})" if zero else str(least)
    return Meta(ge=least, le=most, extra={_WORDS: f"an integer from {low} to {most}{note}"})


def _string(least: int, most: int) -> Meta:
    """A range of lengths."""
    length = f"{least} to {most}" if least else f"at most {most}"
    return Meta(min_length=least or None, max_length=most, extra={_WORDS: f"a string of {length} characters"})


def _must_be(words: str, **limits: Any) -> Meta:
    """What no other function has words for."""
    return Meta(extra={_WORDS: words}, **limits)


_MARKS = "._-:/@#+="
_CHARACTERS = "A-Za-z0-9" + _MARKS.replace("-", r"\-")
_OTHER_BYTE = "%(?:[0189A-F][0-9A-F]|2[0-24-9AC]|3[BCEF]|5[B-E]|60|7[B-F])"  # those that are no plain character
_LENGTH = rf"(?=.{{1,{LONGEST_NAME}}}\Z)"  # as written
NAME_PATTERN = rf"{_LENGTH}(?:[{_CHARACTERS}]|{_OTHER_BYTE})+"
_ID_PATTERN = rf"{_LENGTH}(?:[{_CHARACTERS}]|{_OTHER_BYTE}|%3A)+"
_NAME = rf"^{NAME_PATTERN}\Z"
_ID = rf"^{_ID_PATTERN}\Z"
_PATTERN = rf"^{_LENGTH}(?:[{_CHARACTERS}*?]|{_OTHER_BYTE})+\Z"
_LINE = rf"[{_CHARACTERS}]{{1,{LONGEST_NAME}}}+"  # one way to match, so that nothing is tried again
_LINES = re.compile(rf"{_LINE}(?:\n{_LINE})*+")
is_name = re.compile(rf"{_LINE}|{NAME_PATTERN}+").fullmatch
"""Whether a string is the name of a topic: None where it is not."""
is_id = re.compile(rf"{_LINE}|{_ID_PATTERN}+").fullmatch
"""Whether a string is an id: None where it is not. Here a colon may be written as %3A, so that a topic that has one can
be set apart from what follows it."""
is_pattern = re.compile(_PATTERN).match
"""Whether a string is a pattern of topics: None where it is not."""
NAME_CHARACTERS = string.ascii_letters + string.digits + _MARKS
NAME = f"a string of 1 to {LONGEST_NAME} characters of A-Z a-z 0-9 {' '.join(_MARKS)} %XX"

Name = Annotated[str, _must_be(NAME, pattern=_NAME)]
# Where a command names its job or its topic, the pattern only goes into the description; `are_names` checks many names
# at once. Left to msgspec it would cost a call of `re` for each: more than reading the rest of an add.
_Name = Annotated[str, _must_be(NAME, extra_json_schema={"pattern": _NAME})]
_Id = Annotated[str, _must_be(NAME, extra_json_schema={"pattern": _ID})]
_LONGEST_SHORT = 128
_MOST_SHORTS = 16
_MOST_TOPICS = 100
_Short = Annotated[str, _string(0, _LONGEST_SHORT)]
_Delay = Annotated[float, _seconds(0, TEN_YEARS_S)]
_TTR = f"0 (at most once) or {_seconds_words(SHORTEST_TTR_S, DAY_S)}"
_TTR_SCHEMA = {"anyOf": [{"maximum": 0}, {"minimum": SHORTEST_TTR_S}]}
_Ttr = Annotated[float, _must_be(_TTR, ge=0, le=DAY_S, extra_json_schema=_TTR_SCHEMA)]
_TouchTtr = Annotated[float, _seconds(SHORTEST_TTR_S, DAY_S)]
_Ttl = Annotated[float, _seconds(0.001, TEN_YEARS_S)]
_Count = Annotated[int, _integer(1, 1000)]
_When = Annotated[float, Meta(ge=0, le=LAST_S)] | Annotated[datetime, Meta(tz=True)]
_LiveState = Literal["delayed", "ready", "reserved", "dead"]

Id = Annotated[_Id, Meta(description="the job")]
NewId = Annotated[_Id, Meta(description="unique in the namespace; `<topic>:<business id>` is a good choice")]
Topic = Annotated[_Name, Meta(description="the topic")]
NewTopic = Annotated[_Name, Meta(description="the topic that workers pop the job from")]
PoppedTopic = Annotated[_Name, Meta(description="the topic to pop from; give one of this, `topics` and `id`")]
PoppedId = Annotated[
    _Id, Meta(description="the delayed, ready or dead job to reserve, wherever it is; without `count` and `wait`")
]
PoppedTopics = Annotated[
    list[Name],
    _must_be(f"a list of 1 to {_MOST_TOPICS} topics, each {NAME}", min_length=1, max_length=_MOST_TOPICS),
    Meta(description="the topics to pop from, tried in this order"),
]
KickedId = Annotated[_Id, Meta(description="the dead job; give either this or `topic`")]
KickedTopic = Annotated[
    _Name, Meta(description="the topic whose dead jobs are kicked, in the order in which they died")
]
StatsTopic = Annotated[_Name, Meta(description="the topic; without it, all topics together")]
WorkersTopic = Annotated[_Name, Meta(description="only those that poll this topic")]
Pattern = Annotated[
    str,
    _must_be(f"1 to {LONGEST_NAME} characters of a topic, with * for any and ? for one", pattern=_PATTERN),
    Meta(description="list only topics whose names match"),
]
Body = Annotated[
    Raw,
    _must_be("JSON"),
    Meta(
        description=f"returned byte for byte as it was sent; at most 256 KiB (`max_body_bytes`) and {DEEPEST_BODY} "
        "levels deep"
    ),
]
NewBody = Annotated[Raw, _must_be("JSON"), Meta(description="the new body; here `null` is a body too")]
Delay = Annotated[_Delay, Meta(description="seconds from now until it is due; 0: ready at once")]
At = Annotated[
    _When,
    _must_be(
        "unix seconds or an RFC 3339 time with its offset, such as 2026-11-23T09:00:00+01:00, at most 10 years ahead"
    ),
    Meta(description="due at this time, instead of after `delay`; a time in the past means now"),
]
Ttr = Annotated[
    _Ttr,
    Meta(
        description="time to run, in seconds; a job not finished by then is delivered again. 0: at most once, "
        "the pop itself finishes it"
    ),
]
PopTtr = Annotated[_Ttr, Meta(description="time to run for this delivery, in seconds")]
TouchTtr = Annotated[_TouchTtr, Meta(description="seconds that the lease runs from now, this time only")]
UpperTtr = Annotated[_Ttr, Meta(description="the same as `ttr`")]
UpperTouchTtr = Annotated[_TouchTtr, Meta(description="the same as `ttr`")]
Priority = Annotated[
    int,
    _integer(0, 9),
    Meta(description="among the ready jobs of a topic a higher one is popped first, whatever their age"),
]
Tries = Annotated[
    int,
    _integer(0, 65_535, zero="no limit"),
    Meta(description="the maximum number of deliveries that count; then the job is dead, cause `tries`"),
]
Backoff = Annotated[
    list[_Delay],
    _must_be(f"a list of up to {MOST_STEPS} delays, each from 0 to {TEN_YEARS_S} seconds", max_length=MOST_STEPS),
    Meta(
        description="the delay after the first, second, … lease that expired or release without `delay`; "
        "the last one repeats; an empty list: ready again at once"
    ),
]
Ttl = Annotated[
    _Ttl,
    Meta(
        description="seconds from the due time until the job is dead, cause `ttl`, popped or not; "
        "a worker that holds it may still finish it"
    ),
]
Retention = Annotated[
    float, _seconds(0, MONTH_S), Meta(description="seconds for which a finished or deleted job is remembered")
]
IfExists = Annotated[
    Literal["keep", "reject", "renew", "replace"],
    Meta(
        description="for an id that is live or remembered. keep: nothing changes, `result` is existing, but "
        "ALREADY_EXISTS if the job was deleted; reject: ALREADY_EXISTS; renew: a live job is kept as by keep, one that "
        "is dead or has ended begins a new life; replace: new body, due time and life, but RESERVED while a worker "
        "holds it"
    ),
]
Headers = Annotated[
    dict[_Short, _Short],
    _must_be(
        f"an object of up to {_MOST_SHORTS} strings, names and values of at most {_LONGEST_SHORT} characters",
        max_length=_MOST_SHORTS,
    ),
    Meta(description="stored with the job and delivered to the worker"),
]
Tags = Annotated[
    list[_Short],
    _must_be(f"a list of up to {_MOST_SHORTS} strings of at most {_LONGEST_SHORT} characters", max_length=_MOST_SHORTS),
    Meta(description="stored with the job and shown by `get`"),
]
Durability = Annotated[
    Literal["local", "replicated", "fsynced"],
    Meta(description="how durable the change is to be; the answer has the level that was reached"),
]
Count = Annotated[_Count, Meta(description="up to this many jobs, and at most 8 MiB of them, in `jobs`")]
KickCount = Annotated[_Count, Meta(description="up to this many of the topic")]
PeekCount = Annotated[_Count, Meta(description="at most this many per page")]
Wait = Annotated[float, _seconds(0, 60), Meta(description="how many seconds to wait for a job")]
Worker = Annotated[_Short, Meta(description="the name of the worker; stored with the job")]
LeavingWorker = Annotated[
    str, _string(1, _LONGEST_SHORT), Meta(description="the worker whose waiting pops end, as those pops named it")
]
Lease = Annotated[
    int,
    _integer(0, 2**53 - 1, ", as the pop gave it"),
    Meta(description="the lease from the pop; STALE_LEASE if it is not the newest"),
]
Attempt = Annotated[
    bool,
    _must_be("true, or false: this delivery does not count as a try"),
    Meta(description='false: "not now" rather than a failure; this delivery does not count as a try'),
]
ShowsBody = Annotated[bool, _must_be("true or false"), Meta(description="false: without the bodies of jobs")]
Life = Annotated[
    Annotated[float, Meta(ge=0, le=LAST_S)] | Literal["all"],
    _must_be("a number from 1 on, unix seconds, as answers give `created`, or all"),
    Meta(
        description="which life of the job, as an id may be added again: 1 for the first of `lives`, 2 for the next, "
        "and so on; the one that was created then; or all"
    ),
]
Reason = Annotated[str, _string(0, 1000), Meta(description="why; stored with the job")]
State = Annotated[_LiveState, Meta(description="only jobs in this state")]
Cursor = Annotated[
    str,
    _must_be("one that an earlier answer to this command gave", min_length=1, max_length=1000),
    Meta(description="the `cursor` of the previous answer, to continue there"),
]
Shard = Annotated[
    int,
    _integer(0, MOST_SHARDS - 1, ", below the number of shards"),
    Meta(description="only jobs of this shard; `stats` says how many shards there are"),
]
Since = Annotated[float, _must_be("unix seconds", ge=0, le=LAST_S), Meta(description="only what began since then")]
Actor = Annotated[str, _string(1, 200), Meta(description="only what this actor did")]
Seconds = Annotated[_Ttl, Meta(description="how long the pause lasts, in seconds")]

_MOST_PATTERNS = 100
_WORD = Annotated[str, Meta(max_length=40)]
_PATTERN_OF_TOPICS = Annotated[str, Meta(pattern=_PATTERN)]
TokenId = Annotated[
    str,
    _must_be("the 8 characters behind jqt_, of A-Z a-z 0-9", pattern=r"^[0-9A-Za-z]{8}\Z"),
    Meta(description="the token, by the 8 characters of it that are no secret"),
]
TokenName = Annotated[
    str,
    _must_be("1 to 40 characters of A-Z a-z 0-9 . _ -", pattern=r"^[A-Za-z0-9._-]{1,40}\Z"),
    Meta(description="unique among the live tokens"),
]
TokenRights = Annotated[
    list[_WORD],
    _must_be(
        "a list of produce, consume, look, bodies, operate, metrics, admin, actor and names of commands",
        min_length=1,
        max_length=64,
    ),
    Meta(description="what it may do"),
]
TokenTopics = Annotated[
    list[_PATTERN_OF_TOPICS],
    _must_be(
        f"a list of up to {_MOST_PATTERNS} patterns of topics, each of 1 to {LONGEST_NAME} characters of a topic, with "
        "* for any and ? for one",
        max_length=_MOST_PATTERNS,
    ),
    Meta(description="the topics that it reaches, as patterns"),
]
TokenExpires = Annotated[
    float | str,
    _must_be("unix seconds or an RFC 3339 time with its offset, at most 10 years ahead, or never"),
    Meta(description="when it ends"),
]
_Most = Annotated[int, _integer(1, 1_000_000)]
TokenRate = Annotated[_Most, Meta(description="commands a second, over all instances")]
TokenBurst = Annotated[_Most, Meta(description="commands at once, after a while without any; needs `rate`")]
TokenBytes = Annotated[
    int, _integer(1, 1_000_000_000), Meta(description="bytes of bodies that it brings in, a second, over all instances")
]
TokenWaits = Annotated[int, _integer(1, 100_000), Meta(description="pops of it that wait at once")]
TokenOwnIds = Annotated[
    bool, _must_be("true or false"), Meta(description="true: it adds only ids that begin with `<topic>:`")
]
TokenCertificate = Annotated[
    str,
    _must_be("1 to 255 characters without blanks", pattern=r"^[!-~]{1,255}\Z"),
    Meta(description="the URI or DNS name in a client certificate that stands for the token"),
]
TokenAction = Annotated[
    Literal["create", "list", "show", "revoke", "rotate", "test"],
    Meta(
        description="create: a new token; list: all; show, revoke: one; rotate: exchange its secret; test: whether it "
        "may do something"
    ),
]
TokenKeep = Annotated[
    float, _seconds(0, MONTH_S), Meta(description="rotate: for how many seconds the old secret holds, too")
]
TestedRight = Annotated[
    str, _must_be("a right or the name of a command", max_length=40), Meta(description="test: what it is to do")
]
TestedTopic = Annotated[_Name, Meta(description="test: the topic that it is to reach")]

Advance = Annotated[_Delay, Meta(description="how many seconds pass")]


def is_ttr(seconds: float) -> bool:
    """Whether a number within the range of a ttr is valid: those between 0 and the shortest are not."""
    return seconds == 0 or seconds >= SHORTEST_TTR_S


def are_names(names: Collection[str]) -> bool:
    """Whether each of one or more strings is a name of plain characters, by one look at all of them. False is only a
    doubt: one with `%XX` may be a name too."""
    lines = "\n".join(names)
    return _LINES.fullmatch(lines) is not None and lines.count("\n") < len(names)


class Default(NamedTuple):
    """Annotates a field with what holds where it is not given: in words, or by the name of a setting."""

    words: str


class Field(NamedTuple):
    """A field of a command or of an answer, as the reference describes it."""

    name: str
    required: bool
    meaning: str
    expected: str
    """What a value must be; empty for an answer's."""
    default: str
    """What holds where it is not given, or the name of the setting that says so; empty where that is nothing."""


def fields_of(kind: type[Struct]) -> list[Field]:
    """The fields of a struct in its order."""
    return [
        Field(field.encode_name, field.required, _meaning(field.type), expected(field.type), _default(field.type))
        for field in msgspec.structs.fields(kind)
    ]


def _meaning(annotated: Any) -> str:
    """The outermost description of a type, or that of the part of a union which has one."""
    for meta in reversed(getattr(annotated, "__metadata__", ())):
        if isinstance(meta, Meta) and meta.description:
            return meta.description
    parts = getattr(annotated, "__args__", ())
    return next((meaning for part in parts if (meaning := _meaning(part))), "")


def expected(annotated: Any) -> str:
    """What a value of a type must be, in words: the outermost that there are. A choice is its own wording."""
    for meta in reversed(getattr(annotated, "__metadata__", ())):
        if isinstance(meta, Meta) and meta.extra:
            return str(meta.extra[_WORDS])
    if get_origin(annotated) is Literal:
        *others, last = get_args(annotated)
        return f"{', '.join(others)} or {last}" if others else str(last)
    parts = getattr(annotated, "__args__", ())
    return next((words for part in parts if (words := expected(part))), "")


def _default(annotated: Any) -> str:
    return next((each.words for each in getattr(annotated, "__metadata__", ()) if isinstance(each, Default)), "")
