"""Calls: what is sent for a command or a batch, when it is repeated, and its result. Without any I/O.

A call is a generator. It yields what its client must do next: a Request to send, or a pause in seconds. After a
Request, the client sends it the Reply, or Unreachable if no reply arrived. The call returns the result of the client's
method, or raises the method's error. Commands are sent as compact JSON.
"""

from __future__ import annotations

import json
from collections.abc import Generator, Iterable, Mapping, Sequence
from typing import Any, TypeVar

from jobqueue_client.answers import Answer
from jobqueue_client.commands import Command
from jobqueue_client.errors import JobQueueError, Refused, Unreachable, refusal
from jobqueue_client.fields import plain
from jobqueue_client.http import Reply, Request
from jobqueue_client.options import Loads, Route, loads
from jobqueue_client.retry import Retries, found_dead, is_safe, may_repeat
from jobqueue_client.tracing import traces

_to_json = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode


def encode(value: Any) -> bytes:
    """Compact UTF-8 JSON. Raises TypeError, ValueError or RecursionError for a value that JSON cannot represent."""
    return _to_json(value).encode()


def read(reply: Reply, command: Mapping[str, Any] | None = None, loads: Loads = loads) -> Answer:
    """The answer to a command. Raises Refused, or Unreachable for a reply that is not from a job queue."""
    answer = _parsed(reply, loads)
    if not _is_answer(answer):
        raise _foreign(reply)
    if not answer["success"]:
        raise refusal(answer, reply.status, _header_s(reply), command)
    return answer  # type: ignore[no-any-return]  # _is_answer checked it


def read_many(reply: Reply, commands: Sequence[Mapping[str, Any]], loads: Loads = loads) -> list[Answer | Refused]:
    """The answers to a batch. Raises as `read` does if the whole request was refused."""
    answers = _parsed(reply, loads)
    if not isinstance(answers, list):
        read(reply, loads=loads)
    if not isinstance(answers, list) or len(answers) != len(commands) or not all(map(_is_answer, answers)):
        raise _foreign(reply)
    return [
        answer if answer["success"] else refusal(answer, reply.status, command=command)
        for answer, command in zip(answers, commands, strict=True)
    ]


def _parsed(reply: Reply, loads: Loads) -> Any:
    try:
        return loads(reply.data)
    except (ValueError, RecursionError):
        return None


def _is_answer(value: Any) -> bool:
    return isinstance(value, dict) and isinstance(value.get("success"), bool)


def _header_s(reply: Reply) -> float | None:
    """Retry-After in seconds; a date is ignored."""
    text = reply.retry_after
    return float(text) if text and text.isascii() and text.isdigit() else None


def _foreign(reply: Reply) -> Unreachable:
    """The error for a reply that is not from a job queue: a proxy whose service is down, or a wrong URL."""
    return Unreachable(
        f"the reply is not from a job queue: HTTP status {reply.status}",
        maybe_done=not 300 <= reply.status < 500,
        for_now=reply.status in (502, 503, 504),
        retry_after=_header_s(reply),
    )


T = TypeVar("T")

Call = Generator[Request | float, Reply | Unreachable | None, T]


def one(command: Command[T], route: Route, retry_for_s: float, loads: Loads) -> Call[T]:
    """Run one command. Raises Refused or Unreachable if no retry succeeded."""
    call = _one(command, route, retry_for_s, loads)
    return call if traces is None else traces.command(command, call)


def _one(command: Command[T], route: Route, retry_for_s: float, loads: Loads) -> Call[T]:
    data, wait_s = encode(command.fields), _wait_s(command.fields)
    retries = Retries(retry_for_s, route)
    while True:
        try:
            result = result_of(command, read(_reply((yield retries.request(data, wait_s))), command.fields, loads))
        except JobQueueError as error:
            if isinstance(error, Unreachable):
                error.name(command.fields)
            existing = found_dead(command.fields, error) if retries.maybe_done else None
            pause = retries.pause_after(error, safe=is_safe(command.fields))
            if existing:
                return result_of(command, existing)
            if pause is None:
                raise
        else:
            retries.answered()
            return result
        yield pause


def many(
    commands: Sequence[Mapping[str, Any]], route: Route, retry_for_s: float, loads: Loads
) -> Call[list[Answer | JobQueueError]]:
    """Run a batch; returns each command's answer or error. Raises only if no command was answered."""
    listed = _checked(commands)
    if traces is None:
        return _many(listed, route, retry_for_s, loads)
    return traces.batch(listed, lambda traced: _many(traced, route, retry_for_s, loads))


def _many(
    commands: Sequence[Mapping[str, Any]], route: Route, retry_for_s: float, loads: Loads
) -> Call[list[Answer | JobQueueError]]:
    batch = [plain(command) for command in commands]
    results: dict[int, Answer | JobQueueError] = {}
    open_numbers = list(range(len(batch)))
    retries = Retries(retry_for_s, route)
    while open_numbers:
        members = [batch[number] for number in open_numbers]
        try:
            reply = _reply((yield retries.request(encode(members), _wait_s(members[-1]))))
            answers = read_many(reply, members, loads)
        except JobQueueError as error:
            pause = retries.pause_after(error, safe=all(map(is_safe, members)))
            if pause is None and not results:
                raise
            if results:  # an earlier request answered the others, and those answers must not be lost
                results.update(dict.fromkeys(open_numbers, error))
        else:
            if retries.maybe_done:
                answers = [found_dead(*each) or each[1] for each in zip(members, answers, strict=True)]
            results.update(zip(open_numbers, answers, strict=True))
            open_numbers = [number for number in open_numbers if _is_open(batch[number], results[number])]
            pause = retries.pause_after_members([results[number] for number in open_numbers])
        if pause is None:
            break
        yield pause
    return [results[number] for number in range(len(batch))]


def _checked(commands: Sequence[Mapping[str, Any]]) -> Sequence[Mapping[str, Any]]:
    """Return the commands as a list. Raises TypeError for anything but a list of commands."""
    wanted = "batch needs a list of commands, such as [{'command': 'stats'}]"
    if isinstance(commands, Mapping | str | bytes) or not isinstance(commands, Iterable):
        raise TypeError(f"{wanted}, not a {type(commands).__name__}")
    listed = list(commands)
    for each in listed:
        if not isinstance(each, Mapping):
            raise TypeError(f"{wanted}; one is a {type(each).__name__}")
    return listed


def _reply(sent: Reply | Unreachable | None) -> Reply:
    if isinstance(sent, Unreachable):
        raise sent
    assert sent is not None  # only a pause is followed by None
    return sent


def _wait_s(command: Mapping[str, Any]) -> float:
    wait = command.get("wait")
    return wait if isinstance(wait, int | float) and 0 < wait <= 60 else 0  # any other value is refused at once


def result_of(command: Command[T], answer: Answer) -> T:
    """The result of a command from its answer. Raises Unreachable for an answer that is not from a job queue."""
    try:
        return command.read(answer)
    except (KeyError, TypeError):
        message = "the reply is not from a job queue: its answer has no job"
        raise Unreachable(message, maybe_done=True, for_now=False) from None


def _is_open(command: Mapping[str, Any], result: Answer | JobQueueError) -> bool:
    """Whether a member of a batch must be sent again."""
    return isinstance(result, JobQueueError) and may_repeat(result, safe=is_safe(command))
