"""Maps the topics and ids of camellia's clients to the names inside this service: a message M of the topic T is the job
`T:M`. A job with another form of id is foreign: clients see its id with a `%` before it."""

from __future__ import annotations

from typing import NamedTuple

from buckets import Job
from jobqueue.errors import BadField
from jobqueue.schema.fields import LONGEST_NAME, is_id
from jobqueue.wires import parameters

_FOREIGN = "%"


class Message(NamedTuple):
    """A message by its topic and its id inside this service."""

    topic: str
    id: str


class Space:
    """The names below a prefix."""

    def __init__(self, prefix: str) -> None:
        self.prefix = prefix

    def topic(self, theirs: str) -> str | BadField:
        """The topic inside this service, or the reason why there can be none."""
        topic = self.prefix + parameters.escaped(theirs)
        if not theirs:
            return _empty("topic")
        return topic if parameters.fits(topic) else _too_long("topic")

    def new_message(self, topic: str, msg_id: str) -> Message | BadField:
        """A message to be sent, or the reason why it cannot be sent."""
        if msg_id.startswith(_FOREIGN):
            return BadField("msgId begins with %: such an id names a job that another protocol added", field="msgId")
        inside = self.topic(topic)
        return inside if isinstance(inside, BadField) else _own(inside, msg_id)

    def message(self, topic: str, msg_id: str) -> Message | BadField:
        """A message that a client asks for, or the reason why there can be none."""
        inside = self.topic(topic)
        if isinstance(inside, BadField):
            return inside
        if not msg_id:
            return _empty("msgId")
        if not msg_id.startswith(_FOREIGN):
            return _own(inside, msg_id)
        job_id = msg_id.removeprefix(_FOREIGN)
        return Message(inside, job_id) if is_id(job_id) else BadField("msgId names no job", field="msgId")

    def sent_id(self, job_id: str) -> str:
        """The msgId of a message that was sent."""
        return parameters.plain(job_id.partition(":")[2])

    def their_topic(self, topic: str) -> str:
        """The name of a topic for clients."""
        return parameters.plain(topic.removeprefix(self.prefix))

    def their_id(self, job: Job) -> str:
        """The msgId of a job for clients, in its topic."""
        front = _front(job.topic)
        if job.id.startswith(front):
            msg_id = parameters.plain(job.id[len(front) :])
            if msg_id and not msg_id.startswith(_FOREIGN) and front + parameters.escaped(msg_id) == job.id:
                return msg_id
        return _FOREIGN + job.id


def _front(topic: str) -> str:
    return parameters.without_colons(topic) + ":"


def _own(topic: str, msg_id: str) -> Message | BadField:
    job_id = _front(topic) + parameters.escaped(msg_id)
    return Message(topic, job_id) if parameters.fits(job_id) else _too_long("msgId")


def _empty(name: str) -> BadField:
    return BadField(f"{name} is empty", field=name)


def _too_long(name: str) -> BadField:
    return BadField(f"{name} is too long: escaped, with what comes before it, more than {LONGEST_NAME}", field=name)
