"""What the two Python drivers share: the lines that they read and write (../README.md)."""

from __future__ import annotations

import json
import os
import sys
import threading
from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any, NamedTuple

from jobqueue_client import (
    AsyncClient,
    Bury,
    Client,
    Forbidden,
    Job,
    JobQueueError,
    Refused,
    Retry,
    Unreachable,
    Worker,
)

_FIELDS = (
    *("id", "topic", "body", "lease", "attempt", "tries", "due", "ttr"),
    *("headers", "trace_id", "created", "last_try"),
)
_LOCAL = (ValueError, TypeError, RecursionError)
_one_at_a_time = threading.Lock()


def say(line: dict[str, Any]) -> None:
    """Write one line; may be called from any thread."""
    with _one_at_a_time:
        sys.stdout.write(json.dumps(line) + "\n")
        sys.stdout.flush()


class Call(NamedTuple):
    """A call of a client's method."""

    method: str
    positional: list[Any]
    named: dict[str, Any]


class Conversation:
    """The calls of one run, and the jobs that they popped."""

    def __init__(self) -> None:
        self._popped: dict[tuple[str, int], Job] = {}

    def call(self, line: str) -> Call:
        """The call in a line."""
        asked = json.loads(line)
        named = {_NAMES.get(name, name): value for name, value in _timed(asked["args"]).items()}
        if "filter" in named:
            named["filter"] = _timed(named["filter"])
        method = asked["call"]
        if method in ("finish", "touch", "release", "bury"):
            job = named.pop("job", None)
            return Call(method, [self._popped[job["id"], job["lease"]] if job else named.pop("id")], named)
        if method in ("pop", "pop_many"):
            return Call(method, [named.pop("topics") if "topics" in named else named.pop("topic")], named)
        if method == "batch":
            commands = named["commands"]
            if isinstance(commands, list):
                commands = [_timed(each) if isinstance(each, dict) else each for each in commands]
            return Call(method, [commands], {})
        return Call(method, asked.get("positional", []), named)

    def ok(self, result: Any) -> None:
        """Write the result of a call."""
        if isinstance(result, list) and not all(isinstance(each, Job) for each in result):
            say({"ok": [failure(each) if isinstance(each, Exception) else {"ok": each} for each in result]})
        elif isinstance(result, list):
            say({"ok": [self._job(job) for job in result]})
        else:
            say({"ok": self._job(result) if isinstance(result, Job) else result})

    def _job(self, job: Job) -> dict[str, Any]:
        self._popped[job.id, job.lease] = job
        return {name: getattr(job, name) for name in _FIELDS}


_TIMES = ("at", "from", "start", "since", "until", "created_from")
_NAMES = {"from": "from_"}  # fields that Python names otherwise


def _timed(fields: dict[str, Any]) -> dict[str, Any]:
    return {name: _at(value) if name in _TIMES else value for name, value in fields.items()}


def _at(value: Any) -> Any:
    return datetime.fromisoformat(value["time"]) if isinstance(value, dict) else value


def failure(error: Exception) -> dict[str, Any]:
    """The line of an error. An error that is neither the client's nor the language's is a defect, and raised."""
    line: dict[str, Any] = {"class": type(error).__name__, "message": str(error)}
    if isinstance(error, Refused):
        line |= {name: getattr(error, name) for name in ("code", "status", "state", "field", "retry_after")}
        if isinstance(error, Forbidden):
            line |= {"right": error.right, "topic": error.topic}
    elif isinstance(error, Unreachable):
        line["maybe_done"] = error.maybe_done
    elif isinstance(error, _LOCAL) and not isinstance(error, JobQueueError):
        line["class"] = "Local"
    else:
        raise error
    return {"error": line}


def options_of(url: str, options: str) -> dict[str, Any]:
    """The options of a client or worker, with its address: the URL, unless the options have `urls`."""
    given: dict[str, Any] = json.loads(options)
    return given if "urls" in given else {"url": url, **given}


def made(
    client: type[Client | AsyncClient], options: Mapping[str, Any], of: str = "client", **environment: str
) -> Client | AsyncClient | Worker:
    """A client or a worker with exactly these options, while these variables are set."""
    os.environ.update(environment)
    try:
        return (Worker if of == "worker" else client)(**options)
    finally:
        for name in environment:
            del os.environ[name]


def event(name: str, fields: dict[str, Any]) -> None:
    """Write the line of an event, with the text of its error."""
    say({"event": name, **fields, **({"error": str(fields["error"])} if "error" in fields else {})})


def work(handle: Callable[[Job], Any], middleware: tuple[Any, ...], url: str, options: str) -> None:
    """Work until a signal arrives. A worker retries until it is answered, so it has no option retry_for_s."""
    given = options_of(url, options)
    given.pop("retry_for_s", None)
    topics = given.pop("topics")
    used = middleware if given.pop("middleware", False) else ()
    works = Worker(
        on_event=event,
        on_error=lambda error, job: say({"hook": "error", "id": job.id, "message": str(error)}),
        on_death=lambda job, reason, error: say(
            {"hook": "death", "id": job.id, "reason": reason, "message": error and str(error)}
        ),
        **given,
    )
    for each in used:
        works.use(each)
    for topic in topics:
        works.job(topic)(handle)
    clean = works.run()
    say({"clean": clean})
    sys.exit(not clean)


def started(job: Job) -> None:
    """Write the first line of a handler."""
    say({"handler": "started", "id": job.id, "attempt": job.attempt, "lease": job.lease, "body": job.body})


def lost(job: Job) -> None:
    """Write the line of a handler that watched until its job was lost."""
    say({"handler": "lost", "id": job.id, "reason": job.lost})


def around(job: Job, word: str) -> None:
    """Write the line of a middleware."""
    say({"around": word, "id": job.id})


def end(job: Job) -> str:
    """End as the body says: return or raise."""
    given = {name: job.body[name] for name in ("after", "attempt", "reason") if name in job.body}
    match job.body["do"]:
        case "fail":
            raise RuntimeError(given["reason"])
        case "retry":
            raise Retry(**given)
        case "bury":
            raise Bury(**given)
        case "watch":
            job.check()
    say({"handler": "returned", "id": job.id})
    return "done"
