"""New jobs: the id that one gets, and the `NewJob` that an add becomes under the policy of its topic."""

from __future__ import annotations

import secrets
import time
from dataclasses import fields

import orjson

from buckets import NewJob, later_ms
from jobqueue.engine.policies import Policies, ladder
from jobqueue.schema import inner, params
from jobqueue.schema.params import ms


def new_id() -> str:
    """A unique id of 32 hexadecimal digits. Ids sort by the millisecond in which they were made."""
    return f"{time.time_ns() // 1_000_000:012x}{secrets.token_hex(10)}"


def spread_ms(command: params.Add) -> int:
    """By how much a job is later than its time, so that a repeated add lands on the same moment. The jobs of an add to
    a virtual topic stay together: its id counts."""
    return later_ms(command.id or "", ms(command.spread or 0))


def new_job(policies: Policies, command: params.Add, job_id: str, topic: str) -> NewJob:
    """The job that an add asks for, in this topic, with the topic's defaults where the command gives no value."""
    policy = policies.of(topic)
    job = NewJob(  # by position: keywords for fifteen arguments cost a third of the time that an add spends here
        job_id,
        topic,
        bytes(command.body),
        ms(command.delay) if command.delay else 0,
        0 if command.at is None else max(params.at_ms(command.at), 1),
        policy.ttr_ms if command.ttr is None else ms(command.ttr),
        policy.priority if command.priority is None else command.priority,
        policy.tries if command.tries is None else command.tries,
        policy.backoff_ms if command.backoff is None else ladder(command.backoff),
        policy.ttl_ms if command.ttl is None else ms(command.ttl),
        policy.retention_ms if command.retention is None else ms(command.retention),
        orjson.dumps(command.headers) if command.headers else b"",
        orjson.dumps(command.tags) if command.tags else b"",
        command.if_exists or "keep",
        policy.max_pending,
    )
    if command.spread:
        if job.due_ms:
            job.due_ms += spread_ms(command)
        else:
            job.delay_ms += spread_ms(command)
    if type(command) is inner.Add:
        job.note, job.keeps_body = command.note, command.keeps_body
    return job


def new_copy(policies: Policies, command: params.Add, job_id: str, topic: str) -> NewJob:
    """As `new_job`, for one of the topics of the virtual topic that the add names."""
    job = new_job(policies, command, job_id, topic)
    job.is_copy = True
    return job


# The arguments of `NewJob` above, in their order.
assert [field.name for field in fields(NewJob)] == [
    *("id", "topic", "body", "delay_ms", "due_ms", "ttr_ms", "priority", "tries", "backoff_ms", "ttl_ms"),
    *("retention_ms", "headers", "tags", "if_exists", "most_pending", "note", "keeps_body", "is_copy"),
]
