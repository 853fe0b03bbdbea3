"""What camellia's clients ask for: parameters as commands.

A required parameter that is missing, and one that cannot be read, raise BadField. What the queue refuses is returned as
one, in place of the command: the answers to the two differ.
"""

from __future__ import annotations

from uuid import uuid4

from msgspec import Raw

from jobqueue.dialect_settings import Camellia
from jobqueue.errors import BadField
from jobqueue.protocols.camellia.space import Space
from jobqueue.schema import inner
from jobqueue.schema.fields import DAY_S, SHORTEST_TTR_S, TEN_YEARS_S
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
    """sendMsg. Raises TooLarge."""
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
        within=message.topic,
        keeps_body=True,
    )


def wait(parameters: Parameters, options: Camellia) -> float:
    """For how many seconds longPollingMsg waits."""
    return min(_seconds(parameters.integer("longPollingTimeoutMillis"), options.long_polling_s), _LONGEST_WAIT_S)


def pop(parameters: Parameters, space: Space, options: Camellia, wait: float) -> inner.Pop | BadField:
    """pullMsg or longPollingMsg."""
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


def settle(parameters: Parameters, space: Space) -> inner.Finish | inner.Release | BadField:
    """ackMsg."""
    topic, msg_id = text(parameters, "topic"), text(parameters, "msgId")
    is_done = parameters.truth("ack") is not False
    message = space.message(topic, msg_id)
    if isinstance(message, BadField):
        return message
    if is_done:
        return inner.Finish(id=message.id, within=message.topic, settles=True)
    return inner.Release(id=message.id, within=message.topic, delay=0)


def delete(parameters: Parameters, space: Space) -> inner.Delete | BadField:
    """deleteMsg."""
    topic, msg_id = text(parameters, "topic"), text(parameters, "msgId")
    parameters.truth("release")
    message = space.message(topic, msg_id)
    if isinstance(message, BadField):
        return message
    return inner.Delete(id=message.id, within=message.topic, spares=("dead",))


def get(parameters: Parameters, space: Space) -> inner.Get | BadField:
    """getMsg."""
    message = space.message(text(parameters, "topic"), text(parameters, "msgId"))
    return message if isinstance(message, BadField) else inner.Get(id=message.id, within=message.topic)


def _integer(parameters: Parameters, name: str) -> int:
    """One of 32 bits; -1 where it is absent."""
    number = parameters.integer(name, -_INT, _INT - 1)
    return -1 if number is None else number


def _seconds(ms: int | None, default_s: float) -> float:
    return ms / 1000 if ms and ms > 0 else default_s


def _tries(retries: int) -> int:
    return retries + 1 if retries < _MOST_TRIES else 0
