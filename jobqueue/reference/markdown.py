"""The reference of the native protocol, docs/protocol.md. `python -m jobqueue.reference.markdown` prints it.

What is said of commands, fields, answers and codes comes from their definitions; only the prose stands here.
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterable

from jobqueue.errors import STATUS
from jobqueue.reference.catalog import ALIASES, Entry, codes, entries
from jobqueue.schema.fields import NAME, Field, fields_of

_INTRODUCTION = """\
# The native protocol

<!-- Made by `make docs` from the docstrings and types in jobqueue/; edit those. -->

`POST /command` with one JSON object, or an array of 1 to 1,000 of them, as UTF-8, at most 16 MiB (`max_request_bytes`);
`Content-Type` does not matter. `GET /openapi.json` describes the same for machines.

```json
{"command": "add", "topic": "order-close", "id": "order-close:1001", "delay": 1800, "ttr": 60, "body": {"order": 1001}}
```

- Times are seconds, integers or decimals; what is finer than a millisecond is rounded up. Redis's clock counts.
- Defaults are those of the settings; the policy of a topic may have others for it.
- `null` for an optional field is as if it were absent.
- An unknown field or command is refused and the nearest known one named: a misspelt `dealy` does not become "no delay".

An answer has `success`, and mostly `id` and `state`: delayed, ready, reserved, dead, finished or deleted. A refusal has
`error`, a sentence for people; `code`, a word for programs; `field` where one is to blame; `state` where the job is not
in one for it. A refused command has changed nothing.

```json
{"success": true, "id": "order-close:1001", "state": "delayed", "due": 1795264116.321, "result": "created"}
{"success": false, "id": "order-close:1001", "error": "no such job", "code": "NOT_FOUND"}
```

A single command's HTTP status follows its code. An array is answered with 200 by an array of the same length and order.
Each member stands for itself: a bad one spoils nothing, and the effect is as if they ran one after the other. `wait` is
allowed in the last one only: `finish` and the next `pop` in one request. What is no JSON at all spoils the whole array.
The answers to one request hold 8 MiB of jobs; a pop, get or peek beyond that is TOO_LARGE.

`X-Request-Id` comes back, the client's own or a made one; it stands in the log too.

A connection that says nothing for `client_timeout_s` (30 s) is closed; one whose request is not complete by then gets
408 with the code BAD_HTTP, and one that does not take its answer is dropped; jobs that did not leave are given back. An
idle one that has had an answer may stay.
"""

_SEMANTICS = """\
## What one may rely on

- **Order** within a topic and a priority is that of becoming ready, whether a job was added so, fell due or was given
  back. (Across the shards of a Redis Cluster: in each shard.)
- **A pop is empty only when there is nothing**: entries that deleted jobs left behind are skipped. (Of the shards of a
  Redis Cluster it asks those of which the process has heard that they have jobs: without `wait` it may miss, for some
  milliseconds, what another process was told, and for a second where a message was lost.)
- **Delete, then add with the same id**: nothing of the old life makes the new job early, or stands at its place.
- **A repeated add** after a time-out or a crash finds the job, and says `existing` with its `state`. Who cancelled it
  and adds it again within the retention reads `deleted` there, and uses `"if_exists": "replace"`.
- **A lease** is an integer below 2^53 that grows with each delivery, over delete and add again too. Who shows it cannot
  end another worker's delivery.
- **A step of the back-off** is taken at each TTR that ends and each release without `delay`, whether or not that
  counted as a try. The payment ladder: `[15, 15, 30, 180, 600, 1200, 1800, 3600]`.
- **ttl** counts from the due time, and is over even when nobody pops.
- **Dead letters** keep body and reason until they are kicked or deleted, or as long as the topic's policy says (30 days
  by default, `default_dead_age_s`).
- **Durability**: `replicated` is in the memory of so many replicas (the setting `replicas`), `fsynced` on the disk of
  the Redis that took it. What was not reached, or not known, within `durability_timeout_s` is done all the same and
  says `local`; the same command again tells anew. Those of one kind that stand together in an array wait together.
- **A body** is any JSON that a reader can decode: a lone surrogate or `1e999` is refused.
- **A job whose record cannot be read** (another program wrote there) is set aside, told in the log, and blocks nobody.

### `finish`, exactly

| the job is | without `lease` | with the newest `lease` | with an older one |
|---|---|---|---|
| reserved | finished | finished | STALE_LEASE |
| delayed, ready or dead, popped at some time before | finished (a late worker) | finished | STALE_LEASE |
| delayed, ready or dead, never popped | NOT_RESERVED (`delete` cancels) | | NOT_RESERVED |
| finished, and remembered | success again | success again | success again |
| deleted, or not known | NOT_FOUND | NOT_FOUND | NOT_FOUND |

`touch`, `release` and `bury` need a reserved job: else NOT_RESERVED (of a deleted one NOT_FOUND), and with an older
lease STALE_LEASE.
"""


_CODES = """\
## Codes

The list only grows. With a 409 comes the `state` that the job is in; with a 429 or 503 `Retry-After`, and `retry_after`
in the answer: nothing was done (after UNAVAILABLE, perhaps it was: ask `get`), and the same request may succeed then.

"""
_COMMANDS = """\
## The commands

A **name**, of a job or a topic, is a string of 1 to 255 characters of `A-Z a-z 0-9 . _ - : / @ # + =`.

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
    """A sentence as it stands in a table."""
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
    """What is allowed, in short."""
    return field.expected.replace(NAME, "a name").replace("with *", "with `*`")


def _default(entry: Entry, field: Field) -> str:
    return "required" if field.required else entry.default(field.name).replace("*", "`*`")


def _answers(entry: Entry) -> str:
    """What the answers have beside `success`; a field that several have is told as the first has it."""
    told: dict[str, str] = {}
    for field in (field for shape in entry.answers for field in fields_of(shape) if field.name != "success"):
        told.setdefault(field.name, field.meaning)
    return "Answers:\n\n" + "".join(f"- `{name}`: {meaning}\n" for name, meaning in told.items())


if __name__ == "__main__":
    print(markdown(), end="")
