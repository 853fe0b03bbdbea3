"""What is wrong with a value that does not fit its type, and what was probably meant, as the end of a sentence."""

from __future__ import annotations

import difflib
import math
import re
from collections.abc import Callable, Iterable, Mapping
from datetime import datetime
from typing import NamedTuple

import msgspec

from jobqueue.schema import fields

_PLAIN = "".join(map(chr, range(0x21, 0x7F)))  # shown as they are
_MOST_QUOTED = 40  # characters of a value that the sentence repeats
_MOST_COMPARED = 64  # characters of a name that are compared with known names
_FIRST_UNIX_S = 1_000_000_000  # in 2001
_FIRST_UNIX_MS = 100_000_000_000  # above the largest `at`
_LAST_UNIX_MS = 100_000_000_000_000
_TIME = "an RFC 3339 time"  # among the words of a field that is a time


_MISFIT = re.compile(r"(.*?)(?: - at `(key` in `)?\$(.*)`)?", re.DOTALL)
# The name of an unknown field may be anything.
_OF_FIELD = re.compile(r"Object (contains unknown|missing required) field `(.*)`", re.DOTALL)


class Misfit(NamedTuple):
    """Why a value does not fit its type, taken from msgspec's message.

    `unknown`: the field that an object must not have, or None; `missing`: the field that it lacks, or None. `path`:
    where in the value the fault is, such as `.topics[0]`, or empty for its top level. `is_key`: True if a key there is
    at fault. `fault`: msgspec's words.
    """

    fault: str
    path: str
    is_key: bool
    unknown: str | None
    missing: str | None

    @property
    def names(self) -> list[str]:
        """The fields of the path, from the outermost."""
        return re.findall(r"\.(\w+)", self.path)


def misfit(error: msgspec.ValidationError) -> Misfit:
    """Parse the message of msgspec."""
    match = _MISFIT.fullmatch(str(error))
    assert match
    fault, is_key, path = match[1], bool(match[2]), match[3] or ""
    field = _OF_FIELD.fullmatch(fault)
    if field is None:
        return Misfit(fault, path, is_key, None, None)
    is_unknown = field[1] == "contains unknown"
    return Misfit(fault, path, is_key, field[2] if is_unknown else None, None if is_unknown else field[2])


def hint(name: str, known: Iterable[str]) -> str:
    """The known name that is most similar to a wrong one, as the end of a sentence; or nothing."""
    near = difflib.get_close_matches(name[:_MOST_COMPARED], tuple(known), 1)
    return f"; did you mean {near[0]}?" if near else ""


def mistake(field: str, allowed: str, value: object) -> str:
    """The end of the sentence "`field` must be `allowed`", or nothing if there is no more to say."""
    kind = next((word for each, word in _KINDS if isinstance(value, each)), None)
    if kind is None:
        return ""
    if _takes(allowed, kind):
        return _IN[kind](field, allowed, value)
    return f", not {kind}"


_KINDS: tuple[tuple[type, str], ...] = (
    (bool, "a boolean"),
    (str, "a string"),
    (int, "a number"),
    (float, "a number"),
    (list, "an array"),
    (dict, "an object"),
)


def _takes(allowed: str, kind: str) -> bool:
    """Whether a field accepts values of a kind at all."""
    if _TIME in allowed:
        return kind in ("a string", "a number")
    words = {"a list": "an array", "an object": "an object", "true": "a boolean", "an integer": "a number"}
    own = next((own for start, own in words.items() if allowed.startswith(start)), None)
    return kind == (own or ("a number" if "a number of seconds" in allowed else "a string"))


def _in_text(field: str, allowed: str, text: str) -> str:
    if _TIME in allowed:
        return _in_time(text)
    if fields.NAME in allowed:
        return _in_name(text, fields.NAME_CHARACTERS)
    if field == "pattern":
        return _in_name(text, fields.NAME_CHARACTERS + "*?")
    if fields.NAME_BEFORE_AT in allowed:
        return _in_name(text, fields.BEFORE_AT_CHARACTERS, fields.LONGEST_BEFORE_AT)
    return _length(text) if " characters" in allowed else _in_choice(allowed, text)


def _in_choice(allowed: str, text: str) -> str:
    if " or " not in allowed:
        return ""
    choices = allowed.replace(" or ", ", ").split(", ")
    near = difflib.get_close_matches(text.lower(), choices, 1)
    return f"; did you mean {near[0]!r}?" if near else f", not {text[:_MOST_QUOTED]!r}"


_ESCAPES = re.compile("%.{0,2}")
_WHICH_ESCAPES = "%XX is for a byte that is none of these characters, in digits of 0-9 A-F"


def _in_name(name: str, characters: str, longest: int = fields.LONGEST_NAME) -> str:
    if not 1 <= len(name) <= longest:
        return _length(name)
    wrong = next((each for each in name if each not in characters and each != "%"), "")
    if wrong:
        return f"; this one has {_shown(wrong)}"
    escapes = _ESCAPES.findall(name)
    escape = next((each for valid in (fields.is_id, fields.is_name) for each in escapes if not valid(each)), "")
    return f"; this one has {escape!r}, but {_WHICH_ESCAPES}" if escape else ""


def _shown(character: str) -> str:
    if character == " ":
        return "a space"
    return repr(character) + ("" if character in _PLAIN else f" (U+{ord(character):04X})")


def _length(text: str) -> str:
    return f"; this one has {len(text)} characters" if text else "; this one is empty"


def _in_time(text: str) -> str:
    try:
        float(text)
    except ValueError:
        pass
    else:
        return "; unix seconds are a number, not a string"
    try:
        naive = datetime.fromisoformat(text).tzinfo is None
    except ValueError:
        return ""
    return "; this one has no offset" if naive else ""


def _in_number(field: str, allowed: str, number: float) -> str:
    if not math.isfinite(number) or number < fields.LEAST_MS:
        return ""
    if _TIME in allowed:
        return "; this looks like milliseconds" if _FIRST_UNIX_MS < number < _LAST_UNIX_MS else ""
    if "a number of seconds" not in allowed:
        return ""
    if number < _FIRST_UNIX_S:
        return "; this looks like milliseconds"
    return "; this looks like a time, which goes into `at`" if field == "delay" and number < _LAST_UNIX_MS else ""


def _in_list(field: str, allowed: str, members: list[object]) -> str:
    if field == "topics":
        names = (each for each in members if isinstance(each, str) and not fields.is_name(each))
        return next((_in_name(name, fields.NAME_CHARACTERS) for name in names), "")
    texts = field == "backoff" and any(isinstance(each, str) for each in members)
    return "; these are numbers, not strings" if texts else ""


def _in_object(field: str, allowed: str, members: dict[str, object]) -> str:
    wrong = next((name for name, value in members.items() if not isinstance(value, str)), None)
    return "" if wrong is None else f"; the value of {wrong[:_MOST_QUOTED]!r} is not a string"


_IN: dict[str, Callable[..., str]] = {
    "a string": _in_text,
    "a number": _in_number,
    "an array": _in_list,
    "an object": _in_object,
    "a boolean": lambda *_: "",
}

# What other queues call our fields: BullMQ, Celery, Sidekiq, SQS, RabbitMQ, beanstalkd, camellia and lmstfy. A field is
# compared in lower case and without punctuation. Of several of our fields, the first that the command has is meant.
_FIELDS_ELSEWHERE = {
    ("id",): "jobid taskid jid msgid messageid messagededuplicationid deduplicationid dedupid dedup uniquekey",
    ("topic", "topics"): "queue queuename queueurl tube channel exchange routingkey jobname taskname task",
    ("body",): "data payload args kwargs message messagebody msg content job",
    ("delay",): "countdown delayseconds delaysecs delayms delaymillis delaymilliseconds xdelay after in",
    ("at",): "eta runat scheduledat scheduledfor executeat triggertime notbefore deliverat when",
    ("tries",): "attempts maxattempts retry retries maxretries maxretry maxreceivecount deliverylimit xdeliverylimit",
    ("backoff",): "retrydelay defaultretrydelay retrybackoff retrydelays",
    ("wait", "ttr"): "timeout",
    ("ttr",): "visibility visibilitytimeout leasetime lockduration acktimeout acktimeoutmillis timelimit ttrseconds",
    ("ttl",): "expires expiration expiry expiresin ttlseconds ttlsecond ttlmillis messagettl xmessagettl",
    ("priority",): "pri prio xpriority",
    ("retention",): "removeoncomplete removeonfail resultttl keepresult",
    ("headers",): "messageattributes attributes metadata meta",
    ("if_exists",): "replaceexisting overwrite upsert",
    ("lease",): "receipthandle receipt deliverytag reservationid locktoken",
    ("wait",): "waittimeseconds waittime blocking block",
    ("count",): "maxnumberofmessages batchsize prefetch prefetchcount limit max batch",
    ("reason",): "error errormessage exception",
}
_OURS = {word: ours for ours, words in _FIELDS_ELSEWHERE.items() for word in words.split()}
_IN_MS = re.compile(r"(ms|millis|milliseconds|xdelay|messagettl)$")
_AGAIN_AND_AGAIN = {"cron", "crontab", "every", "repeat", "repeatevery", "interval", "rrule", "recurring", "pattern"}
_ONE_AFTER_ANOTHER = {"parent", "children", "dependson", "dependencies", "link", "chain", "chord", "flow", "workflow"}
# What other queues call our commands.
_COMMANDS_ELSEWHERE = {
    "add": "enqueue push put publish send sendmessage create insert submit produce applyasync delayed performin",
    "pop": "reserve receive receivemessage consume dequeue fetch take claim poll pull next",
    "finish": "ack acknowledge complete done deletemessage succeed",
    "release": "nack requeue retry fail",
    "bury": "reject discard deadletter",
    "touch": "extend heartbeat keepalive changevisibility changemessagevisibility",
    "delete": "cancel remove revoke abort",
    "run": "promote runnow trigger",
    "kick": "redrive resurrect revive retryall",
    "get": "show status inspect lookup",
    "peek": "jobs browse",
    "topics": "list ls queues tubes",
    "stats": "count size len length info",
    "purge": "drain empty obliterate clear flush",
    "schedule": "cron repeat every periodic",
    "schedules": "crons jobschedulers",
    "unschedule": "removerepeatable removejobscheduler",
    "update": "reschedule changedelay changepriority",
    "workers": "consumers clients",
}
_COMMANDS = {word: ours for ours, words in _COMMANDS_ELSEWHERE.items() for word in words.split()}
_ALIKE, _SURELY = 0.6, 0.75  # how alike two words must be: "finsh" is "finish", "poll" is not "pool"


def instead_of_field(field: str, command: str, known: Iterable[str]) -> str:
    """What an unknown field of a command was probably meant to be, as the end of a sentence; or nothing."""
    known = {each: each for each in known}
    return field_elsewhere(field, command, known) or _near(field, known, _ALIKE)


def field_elsewhere(field: str, command: str, known: Mapping[str, str]) -> str:
    """What an unknown field means if another queue has it, as the end of a sentence; or nothing.

    `known`: the fields of the command: by name, the spelling that the sentence must use.
    """
    word = _plain(field)
    if command == "add" and word in _AGAIN_AND_AGAIN:
        return "; a job that recurs is added by the command 'schedule'"
    if command == "add" and word in _ONE_AFTER_ANOTHER:
        return "; no job waits for another: the handler of the first adds the next"
    ours = next((each for each in _OURS.get(word, ()) if each in known), None)
    return f"; did you mean {known[ours]!r}{', in seconds' if _IN_MS.search(word) else ''}?" if ours else ""


def instead_of_command(name: str, known: Iterable[str]) -> str:
    """What an unknown command was probably meant to be, as the end of a sentence; or nothing."""
    return command_elsewhere(name) or _near(name, known, _SURELY)


def command_elsewhere(name: str) -> str:
    """Like `instead_of_command`, but only for commands of other queues."""
    ours = _COMMANDS.get(_plain(name))
    if ours == "topics":
        return "; did you mean 'topics', or 'peek' for the jobs of one?"
    return f"; did you mean {ours!r}?" if ours else ""


def _plain(name: str) -> str:
    return re.sub("[^a-z0-9]", "", name[:_MOST_COMPARED].lower())


def _near(name: str, known: Iterable[str], likeness: float) -> str:
    near = difflib.get_close_matches(name[:_MOST_COMPARED].lower(), [*known], 1, likeness)
    return f"; did you mean {near[0]!r}?" if near else ""
