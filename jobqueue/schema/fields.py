"""The fields of commands: type and range, what each means, and the words for what is allowed.

The reader, the refusals, the reference and the OpenAPI description all take them from here: `EXPECTED` says a range
in words, `DEFAULTS` what holds where nothing is said, and the types carry their meaning.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import datetime
from typing import Annotated, Any, Literal, NamedTuple

import msgspec
from msgspec import Meta, Raw, Struct

TEN_YEARS_S = 315_360_000
_PATTERN = r"^[A-Za-z0-9._\-:/@#+=*?]{1,255}\Z"
_NAME = r"^[A-Za-z0-9._\-:/@#+=]{1,255}\Z"
_LINE = _NAME.removeprefix("^").removesuffix(r"\Z") + "+"  # one way to match, so none is tried again
_LINES = re.compile(rf"{_LINE}(?:\n{_LINE})*+")
is_name = re.compile(_LINE).fullmatch
"""Whether a string is a name: None where it is not."""

# Where a command names its job or its topic, the pattern is only told here; `are_names` holds it for many at once.
# To msgspec it would cost a call of `re` each: more than to read the rest of an add.
_Name = Annotated[str, Meta(extra_json_schema={"pattern": _NAME})]
_ListedName = Annotated[str, Meta(pattern=_NAME)]
_Short = Annotated[str, Meta(max_length=128)]
_Delay = Annotated[float, Meta(ge=0, le=TEN_YEARS_S)]
_Ttr = Annotated[float, Meta(ge=0, le=86_400, extra_json_schema={"anyOf": [{"maximum": 0}, {"minimum": 0.1}]})]
_Lasting = Annotated[float, Meta(ge=0.1, le=86_400)]
_Ttl = Annotated[float, Meta(ge=0.001, le=TEN_YEARS_S)]
_Count = Annotated[int, Meta(ge=1, le=1000)]
_When = Annotated[float, Meta(ge=0, le=100_000_000_000)] | Annotated[datetime, Meta(tz=True)]
_LiveState = Literal["delayed", "ready", "reserved", "dead"]

Id = Annotated[_Name, Meta(description="which job")]
NewId = Annotated[_Name, Meta(description="unique in the namespace; advised: topic, colon, business id")]
Topic = Annotated[_Name, Meta(description="which topic")]
NewTopic = Annotated[_Name, Meta(description="the kind of the job; workers pop it")]
PoppedTopic = Annotated[_Name, Meta(description="where to look; either this or `topics`")]
PoppedTopics = Annotated[
    list[_ListedName], Meta(min_length=1, max_length=100, description="where to look, tried in this order")
]
KickedId = Annotated[_Name, Meta(description="which dead job; either this or `topic`")]
KickedTopic = Annotated[_Name, Meta(description="whose dead jobs, those first that died first")]
StatsTopic = Annotated[_Name, Meta(description="which topic; without one all together")]
Pattern = Annotated[str, Meta(pattern=_PATTERN, description="only topics whose names fit")]
Body = Annotated[
    Raw,
    Meta(
        description="comes back as it travelled, byte for byte; at most 256 KiB (`max_body_bytes`) and 500 levels deep"
    ),
]
NewBody = Annotated[Raw, Meta(description="the new body; here `null` is one")]
Delay = Annotated[_Delay, Meta(description="due so many seconds from now; 0: ready at once")]
ReleaseDelay = Annotated[_Delay, Meta(description="due so many seconds from now; 0: ready at once")]
At = Annotated[_When, Meta(description="due at this time, instead of `delay`; in the past: due now")]
Ttr = Annotated[
    _Ttr, Meta(description="time to run, in seconds; when it is over, handed out again. 0: gone when popped")
]
PopTtr = Annotated[_Ttr, Meta(description="time to run of this delivery")]
TouchTtr = Annotated[_Lasting, Meta(description="how long the lease runs from now, this once")]
UpperTtr = Annotated[_Ttr, Meta(description="the same as `ttr`")]
UpperTouchTtr = Annotated[_Lasting, Meta(description="the same as `ttr`")]
Priority = Annotated[
    int, Meta(ge=0, le=9, description="higher is sooner, among the ready jobs of a topic, whatever their age")
]
Tries = Annotated[int, Meta(ge=0, le=65_535, description="deliveries that count, at most; then dead, cause `tries`")]
Backoff = Annotated[
    list[_Delay],
    Meta(
        min_length=1,
        max_length=32,
        description="the delay after the first, second, … TTR that ended, or release without one; the last repeats",
    ),
]
Ttl = Annotated[
    _Ttl,
    Meta(description="seconds from the due time, then dead, cause `ttl`, popped or not; a lease that runs may finish"),
]
Retention = Annotated[
    float, Meta(ge=0, le=2_592_000, description="how many seconds a finished or deleted job is remembered")
]
IfExists = Annotated[
    Literal["keep", "reject", "replace"],
    Meta(
        description="for an id that lives or is remembered. keep: nothing changes, `result` is existing; "
        "reject: ALREADY_EXISTS; replace: new body, due time and life, RESERVED while a worker has it"
    ),
]
Headers = Annotated[dict[_Short, _Short], Meta(max_length=16, description="kept, and given to the worker")]
Tags = Annotated[list[_Short], Meta(max_length=16, description="kept, and told by `get`")]
Durability = Annotated[
    Literal["local", "replicated", "fsynced"],
    Meta(description="how safe the change is to be; the answer tells what was reached"),
]
Count = Annotated[_Count, Meta(description="up to so many jobs, in `jobs`; and at most 8 MiB of them")]
KickCount = Annotated[_Count, Meta(description="up to so many of the topic")]
PeekCount = Annotated[_Count, Meta(description="at most so many a page")]
Wait = Annotated[float, Meta(ge=0, le=60, description="how many seconds to wait for a job")]
Worker = Annotated[_Short, Meta(description="who asks; kept with the job")]
LeavingWorker = Annotated[
    str, Meta(min_length=1, max_length=128, description="whose waiting pops, by the `worker` that they named")
]
Lease = Annotated[
    int, Meta(ge=0, le=2**53 - 1, description="of the pop: refused as STALE_LEASE when it is not the newest")
]
Attempt = Annotated[bool, Meta(description='false: "ask again later", which is no failure, and this delivery no try')]
Reason = Annotated[str, Meta(max_length=1000, description="why; kept with the job")]
State = Annotated[_LiveState, Meta(description="only jobs in this state")]
Cursor = Annotated[str, Meta(min_length=1, max_length=1000, description="where the last answer ended")]
Shard = Annotated[int, Meta(ge=0, le=254, description="only jobs of this shard; `stats` tells how many there are")]
Seconds = Annotated[_Ttl, Meta(description="for how long")]

NAME = "a string of 1 to 255 characters of A-Z a-z 0-9 . _ - : / @ # + ="
EXPECTED = {  # what a field must be, by field, or by command and field where one command allows something else
    "command": "a string",
    "id": NAME,
    "topic": NAME,
    "topics": f"a list of 1 to 100 topics; each {NAME}",
    "delay": "a number of seconds from 0 to 315360000 (10 years)",
    "at": "unix seconds or an RFC 3339 time with its offset, at most 10 years ahead",
    "touch ttr": "a number of seconds from 0.1 to 86400 (24 h)",
    "ttr": "0 (at most once) or a number of seconds from 0.1 to 86400 (24 h)",
    "body": "JSON",
    "priority": "an integer from 0 to 9",
    "tries": "an integer from 0 (no limit) to 65535",
    "backoff": "a list of 1 to 32 delays, each from 0 to 315360000 seconds",
    "ttl": "a number of seconds from 0.001 to 315360000 (10 years)",
    "retention": "a number of seconds from 0 to 2592000 (30 days)",
    "if_exists": "keep, reject or replace",
    "headers": "an object of up to 16 strings, names and values of at most 128 characters",
    "tags": "a list of up to 16 strings of at most 128 characters",
    "durability": "local, replicated or fsynced",
    "lease": "an integer from 0 to 9007199254740991, as the pop gave it",
    "count": "an integer from 1 to 1000",
    "attempt": "true, or false: this delivery does not count as a try",
    "reason": "a string of at most 1000 characters",
    "state": "delayed, ready, reserved or dead",
    "cursor": "one that an earlier answer to this command gave",
    "shard": "an integer from 0 to 254, below the number of shards",
    "pattern": "1 to 255 characters of a topic, with * for any and ? for one",
    "seconds": "a number of seconds from 0.001 to 315360000 (10 years)",
    "wait": "a number of seconds from 0 to 60",
    "leave worker": "a string of 1 to 128 characters",
    "worker": "a string of at most 128 characters",
}
DEFAULTS = {  # by command and field; a setting's name stands for its value
    "add id": "made, ordered by time",
    "add delay": "0",
    "add ttr": "default_ttr_s",
    "add priority": "default_priority",
    "add tries": "default_tries",
    "add backoff": "none: again at once",
    "add ttl": "none",
    "add retention": "default_retention_s",
    "add if_exists": "keep",
    "add durability": "the setting `durability`",
    "pop count": "one job, not in a list",
    "pop wait": "0",
    "pop ttr": "the job's",
    "finish durability": "the setting `durability`",
    "delete durability": "the setting `durability`",
    "touch ttr": "as long as before",
    "release delay": "the next step of the back-off",
    "release attempt": "true",
    "kick count": "1",
    "update durability": "the setting `durability`",
    "peek state": "all of them",
    "peek count": "100",
    "peek shard": "all of them",
    "topics pattern": "*",
    "pause seconds": "until it is resumed",
    "purge state": "all of them",
}


def must_be(field: str, command: object = None) -> str:
    """What a field must be, in words; KeyError where there is no such field."""
    words = EXPECTED.get(f"{command} {field.lower()}") or EXPECTED[field.lower()]
    return f"must be {words}"


def are_names(names: Sequence[str]) -> bool:
    """Whether each of one or more strings is a name; all of them are looked at together."""
    lines = "\n".join(names)
    return _LINES.fullmatch(lines) is not None and lines.count("\n") < len(names)


class Field(NamedTuple):
    """A field of a command or of an answer, as the reference tells it."""

    name: str
    required: bool
    meaning: str


def fields_of(kind: type[Struct]) -> list[Field]:
    """The fields of a struct with their meanings, in its order."""
    return [Field(field.encode_name, field.required, _meaning(field.type)) for field in msgspec.structs.fields(kind)]


def _meaning(annotated: Any) -> str:
    """The outermost description of a type, or that of the part of a union which has one."""
    for meta in reversed(getattr(annotated, "__metadata__", ())):
        if isinstance(meta, Meta) and meta.description:
            return meta.description
    parts = getattr(annotated, "__args__", ())
    return next((meaning for part in parts if (meaning := _meaning(part))), "")
