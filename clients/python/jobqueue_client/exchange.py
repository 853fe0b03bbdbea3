"""Exchanges: what is sent, when it is repeated, and what comes of it. Without any I/O.

An exchange is a generator. It yields what its client is to do, a Post or a pause in seconds, and is sent what came of
the Post. What it returns is the call's result, what it raises the call's error.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from typing import Any, NamedTuple, TypeVar

from jobqueue_client.answers import Answer
from jobqueue_client.commands import Command
from jobqueue_client.errors import JobQueueError, Unreachable
from jobqueue_client.replies import Reply, encode, read, read_many
from jobqueue_client.retry import Retries, is_safe, longest_s, may_repeat
from jobqueue_client.times import plain

T = TypeVar("T")


class Post(NamedTuple):
    """A request, and for how many seconds the service may wait for a job before it answers."""

    data: bytes
    wait_s: float


Exchange = Generator[Post | float, Reply | Unreachable | None, T]


def one(command: Command[T], retry_for_s: float) -> Exchange[T]:
    """One command. Raises what it was refused with."""
    post = Post(encode(command.fields), _wait_s(command.fields))
    retries = Retries(retry_for_s)
    while True:
        try:
            return result_of(command, read(_told((yield post))))
        except JobQueueError as error:
            pause = retries.pause_after(error, safe=is_safe(command.fields))
            if pause is None:
                raise
        yield pause


def many(commands: Sequence[Mapping[str, Any]], retry_for_s: float) -> Exchange[list[Answer | JobQueueError]]:
    """A batch: of each command the answer, or the error. Raises where there is no answer to any of them."""
    batch = [plain(command) for command in commands]
    results: dict[int, Answer | JobQueueError] = {}
    asked = list(range(len(batch)))
    retries = Retries(retry_for_s)
    while asked:
        parts = [batch[number] for number in asked]
        try:
            answers = read_many(_told((yield _post_of(parts))), len(parts))
        except JobQueueError as error:
            pause = retries.pause_after(error, safe=all(map(is_safe, parts)))
            if pause is None and not results:
                raise
            if results:  # the others were answered before: those are not to be lost
                results.update(dict.fromkeys(asked, error))
        else:
            results.update(zip(asked, answers, strict=True))
            asked = [number for number in asked if _is_open(batch[number], results[number])]
            pause = retries.pause(longest_s([results[number] for number in asked])) if asked else None
        if pause is None:
            break
        yield pause
    return [results[number] for number in range(len(batch))]


def _told(sent: Reply | Unreachable | None) -> Reply:
    if isinstance(sent, Unreachable):
        raise sent
    assert sent is not None  # which is for pauses
    return sent


def _post_of(commands: Sequence[Mapping[str, Any]]) -> Post:
    return Post(encode(commands), _wait_s(commands[-1]))


def _wait_s(command: Mapping[str, Any]) -> float:
    wait = command.get("wait")
    return wait if isinstance(wait, int | float) and 0 < wait <= 60 else 0  # else it is refused at once


def result_of(command: Command[T], answer: Answer) -> T:
    """What a command's answer says. Raises Unreachable for what no job queue says."""
    try:
        return command.read(answer)
    except (KeyError, TypeError):
        message = "what answers is no job queue: there is no job in its answer"
        raise Unreachable(message, maybe_done=True, for_now=False) from None


def _is_open(command: Mapping[str, Any], result: Answer | JobQueueError) -> bool:
    """Whether a member of a batch was refused for now."""
    return isinstance(result, JobQueueError) and may_repeat(result, safe=is_safe(command))
