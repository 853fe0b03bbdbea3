"""The reference of the native protocol, docs/protocol.md. `python -m jobqueue.reference.markdown` prints it.

Only the prose is here. The texts on commands, fields, answers and codes come from their definitions.
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterable

from jobqueue.errors import STATUS
from jobqueue.reference import ALIASES, Entry, codes, entries
from jobqueue.schema.fields import NAME, Field, fields_of

_INTRODUCTION = """\
# The native protocol

<!-- Made by `make docs` from the docstrings and types in jobqueue/; edit those. -->

[Codes](#codes) · [The commands](#the-commands) · [Guarantees](#guarantees), and [`finish`, exactly](#finish-exactly)

A request is a `POST /command` with one JSON object, or an array of 1 to 1,000 of them, in UTF-8 and of at most 16 MiB
(`max_request_bytes`). `Content-Type` does not matter. `GET /openapi.json` describes the same protocol for machines.

```json
{"command": "add", "topic": "example-close-order", "id": "example:1001", "delay": 1800, "body": {"order": 1001}}
```

- Times are in seconds, as integers or decimals, and are rounded up to the millisecond. Redis's clock is the one that
  counts.
- Defaults come from the settings; a topic's policy may override them.
- `null` for an optional field means the same as leaving it out. Of a field given twice, the last one counts; two
  different commands are refused.
- An unknown field or command is refused, and the error names the nearest known one: a misspelt `dealy` does not become
  "no delay". The refusal of a value says what is allowed and, if it can tell, what is wrong with this one: a string
  where a number belongs, milliseconds, a time without an offset.

Every answer has `success`, and most have `id` and `state`: delayed, ready, reserved, dead, finished or deleted. A
refusal has `error`, a sentence for people; `code`, a word for programs; `field`, if one field is at fault; and `state`,
if the job is in the wrong one. A refused command has changed nothing.

```json
{"success": true, "id": "example:1001", "state": "delayed", "due": 1795264116.321, "result": "created"}
{"success": false, "id": "example:1001", "error": "no such job", "code": "NOT_FOUND"}
```

For a single command, the HTTP status follows from the code. An array is answered with 200 and an array of the same
length and order. Its members are independent: a bad one does not affect the others, and the effect is as if they ran
one after the other. Only the last one may have `wait`: so `finish` and the next `pop` fit into one request. If the
array is not valid JSON, the whole request is refused. The answers to one request hold at most 8 MiB of jobs; a pop, get
or peek beyond that is TOO_LARGE.

`X-Request-Id` is returned with the answer: the client's own, or a generated one. It is also in the log.

Where the service asks for tokens, each request has one: `Authorization: Bearer jqt_…`. UNAUTHORIZED (401) answers the
whole request, an array too, and closes the connection. FORBIDDEN names the `right` or `topic` that the token lacks.
`X-Jobqueue-Actor` names the person who acts. See [security](security.md).

A connection on which nothing is sent for `client_timeout_s` (30 s) is closed. If a request is incomplete by then, the
client gets 408 with the code BAD_HTTP. A client that does not take its answer within that time is disconnected, and
jobs that were not sent go back to the queue. A connection that has had an answer may stay idle. A body with a
`Content-Encoding` is answered 415 with the code BAD_HTTP.
"""

_SEMANTICS = """\
## Guarantees

- **Order** within a topic and a priority is the order in which jobs became ready, whether they were added ready, fell
  due or were released. (On a Redis Cluster this holds within each shard.)
- **A pop is empty only if nothing is ready**: entries left behind by deleted jobs are skipped. (On a Redis Cluster a
  pop asks the shards that its process knows to have jobs. Without `wait` it may therefore miss, for some milliseconds,
  jobs that another process added, and for up to a second if a notification was lost.)
- **Delete, then add with the same id**: nothing of the old job makes the new one early or takes its place.
- **A repeated add** after a timeout or a crash finds the job, and answers `existing` with its `state`, also if that is
  finished. If the job is dead, the add is refused: ALREADY_EXISTS with `state` dead, because nothing will run until the
  job is kicked, or added again with `"if_exists": "renew"`. The clients return the job as `existing`, without `due`,
  where it was their own retry that found it dead.
- **A cancelled id stays cancelled.** If the job was deleted, an add with `if_exists` keep (the default) is refused:
  ALREADY_EXISTS with `state` deleted. Such an add may be a late copy of an old one, and must not revive what was
  cancelled. To add the job again, use `"if_exists": "renew"`: a live job is kept, one that is dead or has ended begins
  a new life (`replaced`). An add to a virtual topic is refused only if each of its jobs is dead or was deleted, with
  `state` dead if any is; otherwise a dead one answers `dead`, a deleted one `cancelled`, and the others are kept or
  created.
- **Ended jobs are remembered for their `retention`** (60 s by default), and no longer: an add that is repeated or
  arrives later than that creates the job again. If your producers may repeat adds for longer, as a stream that starts
  again from an old position does, give the jobs a `retention` that covers it.
- **An add with `if_exists` later or sooner** moves a delayed job in that direction only. It stays the same job: its
  time changes, and its body if the add has one; its priority, ttl, headers, tries and back-off stay, whatever the add
  says. (That counts where the add begins a new life.) Of a job that waits in back-off, the end of that wait is the
  time that is compared. Without `body`, the new life of a dead letter has the old body; where there is none to keep,
  as the job is unknown or has ended, the add is refused: BAD_FIELD. Unlike keep, these two begin a new life of a job
  that was deleted. An add to a virtual topic moves, keeps or begins each of its jobs by that job's own state; the
  first that is refused refuses them all.
- **`spread`** puts off each job by a part of its seconds, which follows from its `id` alone. Whoever adds the job
  again with the same time and `spread`, also with replace or from another process, comes to the same moment. `due`
  tells it; ttl and lateness count from it, and later and sooner compare it. It may be up to a day beyond the ten
  years of `delay` and `at`. The jobs of an add to a virtual topic share the moment of the `id` that the add gave.
- **A lease** is an integer below 2^53 that grows with every delivery, even across delete and add. A worker that shows
  its lease cannot end another worker's delivery.
- **A failure waits before it is tried again.** A job with a `backoff`, its own or its topic's, waits for the next step
  of that ladder after every lease that expires and every release without `delay`, whether or not the delivery counted
  as a try. A typical ladder for payments: `[15, 15, 30, 180, 600, 1200, 1800, 3600]`. `"backoff": []` means at once; it
  is stored as `[0]`.
- **The default back-off** (the setting `default_backoff_s`: 1, 5, 15, 60, 300, 900, 3600 s) holds for a release without
  `delay` of a job that has none. It is not stored with the job, so a change of the setting holds at once, and `get`
  does not show it. Each step waits up to a tenth longer, by the job's id and the step: jobs that failed together do not
  come back together. The end of a lease makes such a job ready at once: its worker died, and another may take it.
- **`kick` starts a ladder again** at its first step.
- **A lease that ended** shows in `get` until something else happens to the job: `reason` is `lease ended`, `ended` says
  when (as the timer saw it), and `worker` who had it. A job whose last try ended in this way keeps the `reason` as a
  dead letter; it counts more than what an earlier release has said.
- **How late a delivery is**: now, less `ready`, or `due` in a job that is delivered for the first time.
- **A paused topic** says so: a pop that finds no job in it has `paused` with the end of the pause, as have `get` and
  `stats`. A pause may begin before the topic exists.
- **A topic that has reached a limit**, its `rate` or its `concurrency`, says so: a pop that finds no job for this
  reason has `limited` and `retry_after`. A pop that waits gets its job when the limit opens.
- **ttl** counts from the due time, and expires even if nobody pops.
- **Dead letters** keep their body and reason until they are kicked or deleted, or for as long as the topic's policy
  says (30 days by default, `default_dead_age_s`).
- **Durability**: `replicated` means in the memory of that many replicas (the setting `replicas`); `fsynced` means on
  the disk of the Redis that accepted the change. If the level was not reached within `durability_timeout_s`, or is not
  known, the change is still made, and the answer says `local`; repeat the command to find out again. Commands of one
  kind that follow one another in an array wait together.
- **A body** is any JSON that every reader can decode: a lone surrogate (`"\\ud800"`) or `1e999` is refused.
- **A job whose record cannot be read**, because another program wrote to its key, is set aside and logged. It does not
  hold up any other job.

### `finish`, exactly

| the job is | without `lease` | with the newest `lease` | with an older one |
|---|---|---|---|
| reserved | finished | finished | STALE_LEASE |
| delayed, ready or dead, and was popped before | finished (a late worker) | finished | STALE_LEASE |
| delayed, ready or dead, and was never popped | NOT_RESERVED (`delete` cancels it) | | NOT_RESERVED |
| finished, and still remembered | success again | success again | success again |
| deleted, or unknown | NOT_FOUND | NOT_FOUND | NOT_FOUND |

`touch`, `release` and `bury` need a reserved job. Otherwise they fail with NOT_RESERVED (NOT_FOUND if the job was
deleted), or with STALE_LEASE if the lease is an older one.
"""


_CODES = """\
## Codes

Codes may be added, but none is ever removed. A 409 comes with the `state` that the job is in. A 429 or 503 comes with
`Retry-After`, and `retry_after` in the answer: nothing was done, and the same request may succeed later. After
UNAVAILABLE the change may have been made: check with `get`.

"""
_NAME = re.sub("of (A-Z.*)", r"of `\1`", NAME)
_COMMANDS = f"""\
## The commands

A **name**, of a job or a topic, is {_NAME}. `%XX` stands
for any other byte, in upper-case digits, so that names of other systems fit; the service does not decode it. In an id,
`%3A` is allowed too.

"""
_WIDTH = 120


def markdown() -> str:
    """All of docs/protocol.md."""
    parts = [_INTRODUCTION, _codes(), _COMMANDS + _contents(), *map(_command, entries()), _SEMANTICS]
    return "\n".join(parts)


def _table(head: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    lines = [list(head), *map(list, rows)]
    lines.insert(1, ["---"] * len(lines[0]))
    return "".join("| " + " | ".join(line) + " |\n" for line in lines)


def _codes() -> str:
    rows = ((f"`{code}`", str(STATUS[code]), _small(says)) for code, says in codes().items())
    return _CODES + _table(("code", "status", "means"), rows)


def _small(sentence: str) -> str:
    """A sentence as the text of a table cell: without its full stop, and usually without its capital."""
    words = sentence.rstrip(".")
    return words if words.startswith("Redis") else words[:1].lower() + words[1:]


def _contents() -> str:
    return _wrapped(" · ".join(f"[`{entry.name}`](#{entry.name})" for entry in entries()))


def _wrapped(text: str) -> str:
    return textwrap.fill(text, _WIDTH, break_on_hyphens=False) + "\n"


def _command(entry: Entry) -> str:
    rows = ((_title(field), _range(field), _default(entry, field), field.meaning) for field in entry.fields)
    table = _table(("field", "range", "default", "meaning"), rows)
    return f"### {entry.name}\n\n{_wrapped(entry.does)}\n{table}\n{_answers(entry)}"


def _title(field: Field) -> str:
    also = f" (or `{ALIASES[field.name]}`)" if field.name in ALIASES else ""
    return f"**`{field.name}`**{also}" if field.required else f"`{field.name}`{also}"


def _range(field: Field) -> str:
    """The allowed values, in few words."""
    return field.expected.replace(NAME, "a name").replace("with *", "with `*`")


def _default(entry: Entry, field: Field) -> str:
    return "required" if field.required else entry.default(field.name).replace("*", "`*`")


def _answers(entry: Entry) -> str:
    """The fields of the answers, except `success`. If several answers have a field, its first description is used."""
    meanings: dict[str, str] = {}
    for field in (field for shape in entry.answers for field in fields_of(shape) if field.name != "success"):
        meanings.setdefault(field.name, field.meaning)
    return "Answers:\n\n" + "".join(f"- `{name}`: {meaning}\n" for name, meaning in meanings.items())


if __name__ == "__main__":
    print(markdown(), end="")
