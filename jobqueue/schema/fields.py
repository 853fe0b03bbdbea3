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
YEAR_S = 365 * DAY_S
TEN_YEARS_S = 3650 * DAY_S
LAST_S = 100_000_000_000  # of unix seconds
SHORTEST_TTR_S = 0.1  # the only shorter one is 0: at most once
MOST_STEPS = 32  # of a back-off
MOST_SHARDS = 255
DEEPEST_BODY = 500  # levels: PHP reads 512 by default, Python somewhat less than 1,000; an answer adds a few
LONGEST_NAME = 255
# Characters of a key or of the name of a schedule, which may be before the `@` of an id: ids that the service makes
# have up to 33 more, those of copies also their topic.
LONGEST_BEFORE_AT = 200
LEAST_MS = 1000  # a larger number of seconds than a field allows may have been meant as milliseconds

_SPANS = {DAY_S: " (24 h)", MONTH_S: " (30 days)", YEAR_S: " (a year)", TEN_YEARS_S: " (10 years)"}
_WORDS = "words"  # in the `extra` of a Meta: what a value must be


def _seconds(least: float, most: int) -> Meta:
    """A range of seconds."""
    return Meta(ge=least, le=most, extra={_WORDS: _seconds_words(least, most)})


def _seconds_words(least: float, most: int) -> str:
    return f"a number of seconds from {least:g} to {most}{_SPANS.get(most, '')}"


def _integer(least: int, most: int, note: str = "", zero: str = "") -> Meta:
    """A range of integers. `zero`: what 0 means; `note`: what else applies."""
    low = f"{least} ({zero})" if zero else str(least)
    return Meta(ge=least, le=most, extra={_WORDS: f"an integer from {low} to {most}{note}"})


def _string(least: int, most: int) -> Meta:
    """A range of lengths."""
    length = f"{least} to {most}" if least else f"at most {most}"
    return Meta(min_length=least or None, max_length=most, extra={_WORDS: f"a string of {length} characters"})


def must_be(words: str, **limits: Any) -> Meta:
    """What a value must be, if no other function has words for it."""
    return Meta(extra={_WORDS: words}, **limits)


_MARKS = "._-:/@#+="
_CHARACTERS = "A-Za-z0-9" + _MARKS.replace("-", r"\-")
_OTHER_BYTE = "%(?:[0189A-F][0-9A-F]|2[0-24-9AC]|3[BCEF]|5[B-E]|60|7[B-F])"  # bytes that are no plain characters
_LENGTH = rf"(?=.{{1,{LONGEST_NAME}}}\Z)"  # as written
NAME_PATTERN = rf"{_LENGTH}(?:[{_CHARACTERS}]|{_OTHER_BYTE})+"
_ID_PATTERN = rf"{_LENGTH}(?:[{_CHARACTERS}]|{_OTHER_BYTE}|%3A)+"
_NAME = rf"^{NAME_PATTERN}\Z"
_ID = rf"^{_ID_PATTERN}\Z"
_BEFORE_AT = rf"^(?=.{{1,{LONGEST_BEFORE_AT}}}\Z)(?:[{_CHARACTERS.replace('@', '')}]|{_OTHER_BYTE}|%3A)+\Z"
_PATTERN = rf"^{_LENGTH}(?:[{_CHARACTERS}*?]|{_OTHER_BYTE})+\Z"
_LINE = rf"[{_CHARACTERS}]{{1,{LONGEST_NAME}}}+"  # only one way to match, so that nothing is tried again
_LINES = re.compile(rf"{_LINE}(?:\n{_LINE})*+")
is_name = re.compile(rf"{_LINE}|{NAME_PATTERN}+").fullmatch
"""Whether a string is the name of a topic: returns a match, or None if it is not."""
is_id = re.compile(rf"{_LINE}|{_ID_PATTERN}+").fullmatch
"""Whether a string is an id: returns a match, or None if it is not. In an id, a colon may be written as %3A, so that a
topic that contains a colon can be separated from what follows it."""
is_pattern = re.compile(_PATTERN).match
"""Whether a string is a pattern of topics: returns a match, or None if it is not."""
NAME_CHARACTERS = string.ascii_letters + string.digits + _MARKS
NAME = f"a string of 1 to {LONGEST_NAME} characters of A-Z a-z 0-9 {' '.join(_MARKS)} %XX"
BEFORE_AT_CHARACTERS = NAME_CHARACTERS.replace("@", "")
NAME_BEFORE_AT = (
    f"a string of 1 to {LONGEST_BEFORE_AT} characters of A-Z a-z 0-9 {' '.join(_MARKS.replace('@', ''))} %XX"
)

Name = Annotated[str, must_be(NAME, pattern=_NAME)]
# For the fields that name a job or a topic, the pattern only goes into the description; `are_names` checks many names
# at once. If msgspec checked them, each would cost a call of `re`: more than reading the rest of an add.
_Name = Annotated[str, must_be(NAME, extra_json_schema={"pattern": _NAME})]
_Id = Annotated[str, must_be(NAME, extra_json_schema={"pattern": _ID})]
_LONGEST_SHORT = 128
_MOST_SHORTS = 16
_MOST_TOPICS = 100
_Short = Annotated[str, _string(0, _LONGEST_SHORT)]
_Delay = Annotated[float, _seconds(0, TEN_YEARS_S)]
_TTR = f"0 (at most once) or {_seconds_words(SHORTEST_TTR_S, DAY_S)}"
_TTR_SCHEMA = {"anyOf": [{"maximum": 0}, {"minimum": SHORTEST_TTR_S}]}
_Ttr = Annotated[float, must_be(_TTR, ge=0, le=DAY_S, extra_json_schema=_TTR_SCHEMA)]
_TouchTtr = Annotated[float, _seconds(SHORTEST_TTR_S, DAY_S)]
_Ttl = Annotated[float, _seconds(0.001, TEN_YEARS_S)]
_Count = Annotated[int, _integer(1, 1000)]
_When = Annotated[float, Meta(ge=0, le=LAST_S)] | Annotated[datetime, Meta(tz=True)]
_PAST = "unix seconds or an RFC 3339 time with its offset, from 1970 on"
_LiveState = Literal["delayed", "ready", "reserved", "dead"]

Id = Annotated[_Id, Meta(description="the job")]
NewId = Annotated[_Id, Meta(description="unique in the namespace; `<topic>:<business id>` is a good choice")]
Key = Annotated[
    str,
    must_be(NAME_BEFORE_AT, pattern=_BEFORE_AT),
    Meta(
        description="jobs of a topic with the same key run one after the other, in the order of their due times; in a "
        "namespace of several shards, an `id` beside it must begin with `<key>@`"
    ),
]
Topic = Annotated[_Name, Meta(description="the topic")]
NewTopic = Annotated[_Name, Meta(description="the topic that workers pop the job from")]
PoppedTopic = Annotated[_Name, Meta(description="the topic to pop from; give one of this, `topics` and `id`")]
PoppedId = Annotated[
    _Id, Meta(description="the delayed, ready or dead job to reserve, wherever it is; without `count` and `wait`")
]
PoppedTopics = Annotated[
    list[Name],
    must_be(f"a list of 1 to {_MOST_TOPICS} topics, each {NAME}", min_length=1, max_length=_MOST_TOPICS),
    Meta(description="the topics to pop from, tried in this order"),
]
KickedId = Annotated[_Id, Meta(description="the dead job; give either this or `topic`")]
KickedTopic = Annotated[
    _Name, Meta(description="the topic whose dead jobs are kicked, in the order in which they died")
]
StatsTopic = Annotated[_Name, Meta(description="the topic; without it, all topics together")]
ForecastTopic = Annotated[_Name, Meta(description="the topic; without it, all topics together")]
Hours = Annotated[int, _integer(1, 744), Meta(description="how many hours ahead")]
MOST_BINS = 3000  # of figures
FiguresTopic = Annotated[
    _Name, Meta(description="the topic; without it, all topics together, for which a token must reach all of them")
]
FiguresSince = Annotated[
    _When,
    must_be(_PAST),
    Meta(
        description="from this minute on: at most `history_hours` ago (48 by default), for a topic at most 2 hours ago"
    ),
]
FiguresUntil = Annotated[_When, must_be(_PAST), Meta(description="until this minute")]
Step = Annotated[
    int,
    _integer(60, DAY_S, ", a multiple of 60"),
    Meta(multiple_of=60),
    Meta(description=f"the width of a bin in seconds; there are at most {MOST_BINS} bins"),
]
WorkersTopic = Annotated[_Name, Meta(description="only those that poll this topic")]
Pattern = Annotated[
    str,
    must_be(f"1 to {LONGEST_NAME} characters of a topic, with * for any and ? for one", pattern=_PATTERN),
    Meta(description="list only topics whose names match"),
]
Body = Annotated[
    Raw,
    must_be("JSON"),
    Meta(
        description=f"returned byte for byte as it was sent; at most 256 KiB (`max_body_bytes`) and {DEEPEST_BODY} "
        "levels deep"
    ),
]
NewBody = Annotated[Raw, must_be("JSON"), Meta(description="the new body; here `null` is a body too")]
Delay = Annotated[_Delay, Meta(description="seconds from now until it is due; 0: ready at once")]
At = Annotated[
    _When,
    must_be(
        "unix seconds or an RFC 3339 time with its offset, such as 2026-11-23T09:00:00+01:00, at most 10 years ahead"
    ),
    Meta(description="due at this time, instead of after `delay`; a time in the past means now"),
]
Spread = Annotated[
    float,
    _seconds(0, DAY_S),
    Meta(
        description="seconds by which the job is due later than `delay` or `at` say, at most: by a part of them that "
        "follows from the id, so that the jobs of one time are spread evenly, and a repeated add lands on the same "
        "moment"
    ),
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
    Meta(description="9 comes first: of the ready jobs of a topic, whatever their age, a higher one is popped first"),
]
Tries = Annotated[
    int,
    _integer(0, 65_535, zero="no limit"),
    Meta(description="the maximum number of deliveries that count; then the job is dead, cause `tries`"),
]
Backoff = Annotated[
    list[_Delay],
    must_be(f"a list of up to {MOST_STEPS} delays, each from 0 to {TEN_YEARS_S} seconds", max_length=MOST_STEPS),
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
    Literal["keep", "reject", "renew", "replace", "later", "sooner"],
    Meta(
        description="for an id that is live or remembered. keep: nothing changes, `result` is existing, but "
        "ALREADY_EXISTS if the job is dead or was deleted; reject: ALREADY_EXISTS; renew: a live job is kept as by "
        "keep, one that is dead or has ended begins a new life; replace: new body, due time and life, but RESERVED "
        "while a worker holds it; later, sooner: a delayed job is moved to the new time if that is later (sooner), "
        "with the new body if there is one (`result` is moved), and else kept as by keep; TOO_LATE if it is ready, "
        "RESERVED while a worker holds it, ALREADY_EXISTS if it is in another topic; one that is dead or has ended "
        "begins a new life"
    ),
]
Headers = Annotated[
    dict[_Short, _Short],
    must_be(
        f"an object of up to {_MOST_SHORTS} strings, names and values of at most {_LONGEST_SHORT} characters",
        max_length=_MOST_SHORTS,
    ),
    Meta(description="stored with the job and delivered to the worker"),
]
Tags = Annotated[
    list[_Short],
    must_be(f"a list of up to {_MOST_SHORTS} strings of at most {_LONGEST_SHORT} characters", max_length=_MOST_SHORTS),
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
Blocked = Annotated[
    str,
    _string(1, LONGEST_NAME),
    Meta(description="why the worker takes no job now, which `workers` and `check` show; the pop is answered at once"),
]
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
    must_be("true, or false: this delivery does not count as a try"),
    Meta(description='false: "not now" rather than a failure; this delivery does not count as a try'),
]
ShowsBody = Annotated[bool, must_be("true or false"), Meta(description="false: without the bodies of jobs")]
Life = Annotated[
    Annotated[float, Meta(ge=0, le=LAST_S)] | Literal["all"],
    must_be("a number from 1 on, unix seconds, as answers give `created`, or all"),
    Meta(
        description="which life of the job, as an id may be added again: 1 for the first of `lives`, 2 for the next, "
        "and so on; the one that was created then; or all"
    ),
]
Reason = Annotated[str, _string(0, 1000), Meta(description="why; stored with the job")]
State = Annotated[_LiveState, Meta(description="only jobs in this state")]
Cursor = Annotated[
    str,
    must_be("one that an earlier answer to this command gave", min_length=1, max_length=1000),
    Meta(description="the `cursor` of the previous answer, to continue there"),
]
Shard = Annotated[
    int,
    _integer(0, MOST_SHARDS - 1, ", below the number of shards"),
    Meta(description="only jobs of this shard; `stats` says how many shards there are"),
]
_TIME = must_be("unix seconds or an RFC 3339 time with its offset, such as 2026-11-23T09:00:00+01:00")
From = Annotated[
    _When,
    _TIME,
    Meta(
        description="only jobs whose time is this or later: when they fall due, their lease ends, or they died; needs "
        "`state`, and not ready"
    ),
]
Prefix = Annotated[
    str,
    must_be(NAME, pattern=_ID),
    Meta(description="the jobs whose ids begin with this"),
]
FindTopic = Annotated[
    _Name,
    Meta(
        description="the topic; without it, all jobs are searched in the background, and the answer names an operation"
    ),
]
Since = Annotated[float, must_be("unix seconds", ge=0, le=LAST_S), Meta(description="only what began since then")]
Actor = Annotated[str, _string(1, 200), Meta(description="only what this actor did")]
Seconds = Annotated[_Ttl, Meta(description="how long the pause lasts, in seconds")]

ScheduleName = Annotated[
    str,
    must_be(NAME_BEFORE_AT, pattern=_BEFORE_AT),
    Meta(description="the schedule"),
]
NewScheduleName = Annotated[
    ScheduleName,
    Meta(description="unique among the schedules of the namespace; an occurrence is the job `<name>@<unix ms>`"),
]
ScheduleTopic = Annotated[_Name, Meta(description="the topic that its occurrences are added to")]
ScheduleBody = Annotated[Body, Meta(description="the body of each occurrence, as in add")]
Every = Annotated[
    float,
    _seconds(1, YEAR_S),
    Meta(description="seconds from one occurrence to the next; give either this or `cron`"),
]
Cron = Annotated[
    str,
    must_be(
        "the five fields of a cron expression, or six with seconds first, in at most 200 characters", max_length=200
    ),
    Meta(
        description="when it occurs, as in `30 2 * * *` or `0 9 * * MON-FRI`: minute, hour, day of the month, month, "
        "day of the week, each `*`, a number, a range, a list, or one of these with a step; months and days may be "
        "names; `L` is the last day of the month, `LW` its last weekday, `MON#2` its second Monday, `5L` its last "
        "Friday"
    ),
]
Zone = Annotated[
    str,
    must_be("the name of a time zone in the IANA database, such as Europe/Berlin", max_length=64),
    Meta(description="the time zone of `cron`"),
]
Start = Annotated[
    _When,
    must_be("unix seconds or an RFC 3339 time with its offset, from 1970 on and at most 10 years ahead"),
    Meta(description="where `every` counts from: the first occurrence is one interval later"),
]
Jitter = Annotated[
    float,
    _seconds(0, DAY_S),
    Meta(
        description="seconds by which an occurrence is due later than its time, at most: evenly spread by a hash of "
        "its id, so that many schedules of one time do not fall due at once"
    ),
]
CatchUp = Annotated[
    Literal["none", "last", "all"],
    Meta(
        description="which occurrences are made of those that could not be made in time, as when no service ran: all "
        "(the last 1,000 at most), only the last one, or none that is over 60 s late"
    ),
]
Overlap = Annotated[
    Literal["allow", "skip"],
    Meta(description="skip: no occurrence is made while the one before is delayed, ready or reserved"),
]
IsPaused = Annotated[bool, must_be("true or false"), Meta(description="true: it is kept, but makes no occurrences")]
SchedulePattern = Annotated[
    str,
    must_be(f"1 to {LONGEST_NAME} characters of a name, with * for any and ? for one", pattern=_PATTERN),
    Meta(description="list only schedules whose names match"),
]
ShowsScheduleBody = Annotated[bool, must_be("true or false"), Meta(description="false: without their bodies")]

OperationAction = Annotated[
    Literal["plan", "start", "pause", "resume", "cancel", "get", "list"],
    Meta(
        description="plan: count the jobs that match and change none; start: change those of a plan; pause, resume, "
        "cancel, get: one that was started; list: the newest 100"
    ),
]
OperationKind = Annotated[
    Literal["kick", "delete", "run", "reschedule", "find"],
    Meta(
        description="plan: what is to become of the jobs. A kick takes dead ones, a run and a reschedule delayed ones; "
        "a find lists up to 1,000 ids, and needs no start"
    ),
]
OperationId = Annotated[
    str,
    must_be("12 digits of 0-9 a-f, as the plan was answered", pattern=r"^[0-9a-f]{12}\Z"),
    Meta(description="pause, resume, cancel, get: the operation, by the id of its plan"),
]
PlanId = Annotated[OperationId, Meta(description="start: the plan")]
OperationShift = Annotated[
    float,
    must_be(
        f"a number of seconds from -{TEN_YEARS_S} to {TEN_YEARS_S} (10 years), and not 0",
        ge=-TEN_YEARS_S,
        le=TEN_YEARS_S,
    ),
    Meta(description="reschedule: by how much later the jobs are due, or earlier where it is below 0"),
]
OperationAt = Annotated[At, Meta(description="reschedule: when they are due, instead of `shift`")]
OperationSpread = Annotated[
    float,
    _seconds(0, DAY_S),
    Meta(description="reschedule: seconds after `at` over which the jobs are spread, each by a hash of its id"),
]
OperationExpect = Annotated[
    int, _integer(0, 2**53 - 1), Meta(description="start: the `count` of the plan; any other number is refused")
]
OperationRate = Annotated[
    int, _integer(1, 20_000), Meta(description="start: how many jobs a second are changed at most")
]
_OPERATION_TIME = Annotated[_When, _TIME]
FilterTopic = Annotated[
    Pattern, Meta(description="the topic, or a pattern of topics, in which * stands for any characters and ? for one")
]
FilterCause = Annotated[Literal["tries", "ttl", "buried"], Meta(description="why the dead letters died")]
FilterReason = Annotated[
    str, _string(1, _LONGEST_SHORT), Meta(description="a part of the reason, as `get` shows it, in upper or lower case")
]
FilterTag = Annotated[str, _string(1, _LONGEST_SHORT), Meta(description="one of the job's tags")]
FilterDiedFrom = Annotated[_OPERATION_TIME, Meta(description="dead letters that died then or later")]
FilterDiedTo = Annotated[_OPERATION_TIME, Meta(description="dead letters that died then or earlier")]
FilterDueFrom = Annotated[
    _OPERATION_TIME, Meta(description="jobs that are due then or later; delayed ones in back-off: next")
]
FilterDueTo = Annotated[_OPERATION_TIME, Meta(description="jobs that are due then or earlier")]
FilterCreatedFrom = Annotated[_OPERATION_TIME, Meta(description="jobs that were added then or later")]
FilterCreatedTo = Annotated[_OPERATION_TIME, Meta(description="jobs that were added then or earlier")]

_MOST_PATTERNS = 100
_WORD = Annotated[str, Meta(max_length=40)]
_PATTERN_OF_TOPICS = Annotated[str, Meta(pattern=_PATTERN)]
TokenId = Annotated[
    str,
    must_be("the 8 characters after jqt_, of A-Z a-z 0-9", pattern=r"^[0-9A-Za-z]{8}\Z"),
    Meta(description="the token, by the 8 characters of it that are no secret"),
]
TokenName = Annotated[
    str,
    must_be("1 to 40 characters of A-Z a-z 0-9 . _ -", pattern=r"^[A-Za-z0-9._-]{1,40}\Z"),
    Meta(description="unique among the live tokens"),
]
TokenRights = Annotated[
    list[_WORD],
    must_be(
        "a list of produce, consume, look, bodies, operate, metrics, admin, actor and names of commands",
        min_length=1,
        max_length=64,
    ),
    Meta(description="what it may do"),
]
TokenTopics = Annotated[
    list[_PATTERN_OF_TOPICS],
    must_be(
        f"a list of up to {_MOST_PATTERNS} patterns of topics, each of 1 to {LONGEST_NAME} characters of a topic, with "
        "* for any and ? for one",
        max_length=_MOST_PATTERNS,
    ),
    Meta(description="the topics that it reaches, as patterns"),
]
TokenExpires = Annotated[
    float | str,
    must_be("unix seconds or an RFC 3339 time with its offset, at most 10 years ahead, or never"),
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
    bool, must_be("true or false"), Meta(description="true: it adds only ids that begin with `<topic>:`")
]
TokenCertificate = Annotated[
    str,
    must_be("1 to 255 characters without blanks", pattern=r"^[!-~]{1,255}\Z"),
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
    str, must_be("a right or the name of a command", max_length=40), Meta(description="test: what it is to do")
]
TestedTopic = Annotated[_Name, Meta(description="test: the topic that it is to reach")]

Advance = Annotated[_Delay, Meta(description="how many seconds pass")]


def is_ttr(seconds: float) -> bool:
    """Whether a number within the range of a ttr is valid: those between 0 and the shortest are not."""
    return seconds == 0 or seconds >= SHORTEST_TTR_S


def are_names(names: Collection[str]) -> bool:
    """Whether each of one or more strings is a name of plain characters, by one look at all of them. False is not
    certain: a string with `%XX` may be a name, too."""
    lines = "\n".join(names)
    return _LINES.fullmatch(lines) is not None and lines.count("\n") < len(names)


class Default(NamedTuple):
    """Annotates a field with its default: in words, or by the name of a setting."""

    words: str


class Field(NamedTuple):
    """A field of a command or of an answer, as the reference describes it."""

    name: str
    required: bool
    meaning: str
    expected: str
    """What a value must be, or empty for a field of an answer."""
    default: str
    """The default, in words or as the name of a setting, or empty if there is none."""


def fields_of(kind: type[Struct]) -> list[Field]:
    """The fields of a struct, in their order."""
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
    """What a value of a type must be, in words: the outermost words that the type has. A Literal lists its choices."""
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
