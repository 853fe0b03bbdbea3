"""The requests of camellia's clients as commands, and the replies to them.

A required parameter that is missing, or a parameter that cannot be read, raises BadField. If the queue would refuse a
request, its BadField is returned in place of the command: the replies to the two differ.

Every answer of the queue is HTTP 200 with one of four codes and a sentence: the Java SDK turns any other status into an
exception without text. Requests that cannot be read are answered as Spring does. A job is shown as a message of nine
members; a topic shows how many messages wait, and for how long.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from datetime import UTC, datetime
from http import HTTPStatus
from typing import Any, NamedTuple
from uuid import uuid4

import orjson
from msgspec import Raw

from buckets import Cause, Job, State, Stats
from buckets.topics.topics import RANGES
from jobqueue.commands.answers import Answer
from jobqueue.dialect_settings import Camellia
from jobqueue.errors import BadField
from jobqueue.protocols import Reply
from jobqueue.protocols.camellia.space import Message, Space
from jobqueue.schema import inner
from jobqueue.schema.fields import DAY_S, SHORTEST_TTR_S, TEN_YEARS_S
from jobqueue.schema.params import ms
from jobqueue.wires import parameters
from jobqueue.wires.parameters import Parameters, stored_text

WORKER = "camellia"
_INT = 2**31
_MOST_TRIES = 65_535
_MOST_AT_ONCE = 1000
_LONGEST_WAIT_S = 600.0


def text(parameters: Parameters, name: str) -> str:
    """A required text."""
    given = parameters.text(name)
    if given is None:
        raise BadField(f"{name} is required", field=name)
    return given


def add(parameters: Parameters, space: Space, options: Camellia, max_body_bytes: int) -> inner.Add | BadField:
    """The add for sendMsg, or the reason why it is refused. Raises TooLarge."""
    topic, msg, msg_id = text(parameters, "topic"), text(parameters, "msg"), parameters.text("msgId")
    delay, ttl = parameters.integer("delayMillis"), parameters.integer("ttlMillis")
    retries = _integer(parameters, "maxRetry")
    if delay is None:
        raise BadField("delayMillis is required", field="delayMillis")
    message = space.new_message(topic, msg_id or uuid4().hex)
    if isinstance(message, BadField):
        return message
    if not msg:
        return BadField("msg is empty", field="msg")
    if delay > TEN_YEARS_S * 1000:
        return BadField("delayMillis is more than 10 years", field="delayMillis")
    return inner.Add(
        topic=message.topic,
        id=message.id,
        body=Raw(stored_text(msg, max_body_bytes)),
        delay=max(delay, 0) / 1000,
        ttr=options.ack_timeout_s,
        tries=_tries(options.max_retry if retries < 0 else retries),
        ttl=min(ttl / 1000, TEN_YEARS_S) if ttl and ttl > 0 else options.ttl_s,
        retention=options.retention_s,
        if_exists="renew",
        keeps_body=True,
    )


def wait(parameters: Parameters, options: Camellia) -> float:
    """For how many seconds longPollingMsg waits."""
    return min(_seconds(parameters.integer("longPollingTimeoutMillis"), options.long_polling_s), _LONGEST_WAIT_S)


def pop(parameters: Parameters, space: Space, options: Camellia, wait: float) -> inner.Pop | BadField:
    """The pop for pullMsg or longPollingMsg, or the reason why it is refused."""
    theirs, lease = text(parameters, "topic"), parameters.integer("ackTimeoutMillis")
    batch = _integer(parameters, "batch")
    topic = space.topic(theirs)
    if isinstance(topic, BadField):
        return topic
    return inner.Pop(
        topic=topic,
        count=min(batch, _MOST_AT_ONCE) if batch > 0 else 1,
        ttr=min(max(_seconds(lease, options.ack_timeout_s), SHORTEST_TTR_S), DAY_S),
        wait=wait,
        worker=WORKER,
    )


def message(parameters: Parameters, space: Space) -> Message | BadField:
    """The message that ackMsg, deleteMsg and getMsg name."""
    return space.message(text(parameters, "topic"), text(parameters, "msgId"))


def _integer(parameters: Parameters, name: str) -> int:
    """A 32-bit integer, or -1 if it is absent."""
    number = parameters.integer(name, -_INT, _INT - 1)
    return -1 if number is None else number


def _seconds(ms: int | None, default_s: float) -> float:
    return ms / 1000 if ms and ms > 0 else default_s


def _tries(retries: int) -> int:
    return retries + 1 if retries < _MOST_TRIES else 0


SUCCESS, BAD, NOT_FOUND, FAILED = 200, 400, 404, 500
_CODES = {"BAD_FIELD": BAD, "TOO_LARGE": BAD, "NOT_FOUND": NOT_FOUND}
_TEXT = "text/plain;charset=UTF-8"


def json(code: int, **parts: Any) -> Reply:
    """The HTTP 200 reply with one of camellia's codes."""
    return Reply(200, orjson.dumps({"code": code, **parts}))


def as_text(**parts: Any) -> Reply:
    """The reply with JSON as plain text."""
    return Reply(200, orjson.dumps(parts), content_type=_TEXT)


def failed(answer: Answer, **parts: Any) -> Reply:
    """The reply to a command that failed. `parts`: the members that a success would fill."""
    return json(_CODES.get(answer["code"], FAILED), msg=answer["error"], **parts)


def spring(status: HTTPStatus, path: str, message: str) -> Reply:
    """The reply to a request that is not read, or cannot be read."""
    timestamp = datetime.now(UTC).isoformat(timespec="milliseconds")
    page = {"timestamp": timestamp, "status": status, "error": status.phrase, "path": path, "message": message}
    return Reply(status, orjson.dumps(page))


def health(*, is_up: bool) -> Reply:
    """The answer of a health path."""
    return Reply(200, b'{"code":200}') if is_up else Reply(500, b'{"code":500}')


Shown = dict[str, Any]

_NO_LIMIT = 2**31 - 1
_NEVER_MS = TEN_YEARS_S * 1000
_EXPIRED, _EXHAUSTED = 5, 6
_STATUS = {
    State.DELAYED: 1,
    State.READY: 2,
    State.RESERVED: 3,
    State.FINISHED: 4,
    State.DEAD: _EXHAUSTED,
    State.DELETED: 7,
}


def job(job: Job, space: Space) -> Shown:
    """A job or a tombstone, as a message."""
    return {
        "topic": space.their_topic(job.topic),
        "msgId": space.their_id(job),
        "msg": parameters.given_text(job) if job.body else None,
        "produceTime": job.created,
        "triggerTime": job.due,
        "expireTime": job.due + (_NEVER_MS if job.ttl is None else job.ttl),
        "maxRetry": _retries(job.tries),
        "retry": job.attempts,
        "status": _status(job),
    }


def sent(command: inner.Add, names: Mapping[str, str], msg: str, answer: Answer) -> Shown:
    """A message that was just sent. `names`: its topic and msgId."""
    due_ms = round(answer["due"] * 1000)
    return {
        **names,
        "msg": msg,
        "produceTime": due_ms - ms(command.delay or 0),
        "triggerTime": due_ms,
        "expireTime": due_ms + ms(command.ttl or 0),
        "maxRetry": _retries(command.tries or 0),
        "retry": 0,
        "status": _STATUS[State[answer["state"].upper()]],
    }


def _retries(tries: int) -> int:
    return tries - 1 if tries else _NO_LIMIT


def _status(job: Job) -> int:
    if job.state is State.DEAD and job.cause is Cause.TTL and not job.attempts:
        return _EXPIRED
    return _STATUS[job.state]


Ask = Callable[[inner.Stats], Awaitable[Answer]]

_SIZES = (
    "sizeOf0To1min",
    "sizeOf1minTo10min",
    "sizeOf10minTo30min",
    "sizeOf30minTo1hour",
    "sizeOf1hourTo6hour",
    "sizeOf6hourTo1day",
    "sizeOf1dayTo7day",
    "sizeOf7dayTo30day",
    "sizeOf30dayToInfinite",
)


def topic_info(topic: str, figures: Stats) -> Shown:
    """A topic with its figures."""
    counts = figures.counts
    sizes = {size: figures.due[name] for size, (name, _) in zip(_SIZES, RANGES, strict=True)}
    return {
        "topic": topic,
        "waitingQueueSize": counts["delayed"],
        "waitingQueueInfo": sizes,
        "readyQueueSize": counts["ready"],
        "ackQueueSize": counts["reserved"],
    }


class Failure(NamedTuple):
    """Why figures could not be read."""

    answer: Answer


async def figures(ask: Ask, space: Space) -> dict[str, Stats] | Failure:
    """The figures of each topic below a prefix, or the failure to read them."""
    answer = await ask(inner.Stats(prefix=space.prefix, each=True))
    if not answer["success"]:
        return Failure(answer)
    return {name: figures for name, figures in answer["topics"].items() if name != space.prefix}


def listed(figures: Mapping[str, Stats], space: Space) -> list[Shown]:
    """Topics with their figures."""
    return [topic_info(space.their_topic(topic), each) for topic, each in figures.items()]


def rows(topics: list[Shown]) -> tuple[list[Shown], list[Shown]]:
    """For each topic, the sizes of its queues in one list, and the ranges of its waiting messages in another."""
    sizes = ("topic", "waitingQueueSize", "ackQueueSize", "readyQueueSize")
    return (
        [{name: topic[name] for name in sizes} for topic in topics],
        [{**topic["waitingQueueInfo"], "topic": topic["topic"]} for topic in topics],
    )
