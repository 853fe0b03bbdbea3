"""Virtual topics: an add to one becomes a job in each of its topics, all of them or none.

A job remembers that such an add made it. An add to a virtual topic touches no other jobs in topics that its caller does
not reach."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import NamedTuple

from buckets import Added, NewJob
from buckets.errors import JobQueueError
from jobqueue.engine.new_jobs import new_copy, new_job
from jobqueue.engine.policies import Policies
from jobqueue.errors import BadField
from jobqueue.schema import params
from jobqueue.schema.fields import LONGEST_NAME

AddGroups = Callable[
    [Sequence[params.Add], Sequence[Sequence[NewJob]]], Awaitable[Sequence[list[Added] | JobQueueError]]
]
"""Adds the group of jobs of each command, all jobs of a group or none."""


class Copy(NamedTuple):
    """A job in one of the topics of a virtual topic, and the result of adding it."""

    job: NewJob
    added: Added


async def fan_out(
    policies: Policies, commands: Sequence[params.Add], add_groups: AddGroups
) -> list[Added | list[Copy] | JobQueueError]:
    """Carry out adds of which some go to virtual topics: for each of those the copies, for each other one what was
    added, or the error. The commands have ids."""
    results: list[Added | list[Copy] | JobQueueError] = []
    groups: dict[int, list[NewJob]] = {}  # by the index of the command
    for index, command in enumerate(commands):
        try:
            groups[index] = _group(policies, command, command.id or "")
            results.append([])
        except JobQueueError as error:
            results.append(error)
    outcomes = await add_groups([commands[index] for index in groups], list(groups.values()))
    for (index, group), added in zip(groups.items(), outcomes, strict=True):
        if isinstance(added, JobQueueError):
            results[index] = added
        elif is_virtual(policies, commands[index]):
            results[index] = [Copy(*each) for each in zip(group, added, strict=True)]
        else:
            results[index] = added[0]
    return results


def is_virtual(policies: Policies, command: params.Add) -> bool:
    """Whether the topic of an add is virtual."""
    return bool(policies.targets(command.topic))


def _group(policies: Policies, command: params.Add, job_id: str) -> list[NewJob]:
    """The jobs that an add becomes: one, or one in each topic of a virtual topic. Raises BadField."""
    targets = policies.targets(command.topic)
    if not targets:
        return [new_job(policies, command, job_id, command.topic)]
    jobs = [new_copy(policies, command, f"{job_id}@{topic}", topic) for topic in targets]
    longest = max(len(job.id) for job in jobs)
    if longest > LONGEST_NAME:
        message = f"id would have {longest} characters with `@` and its topic; at most {LONGEST_NAME} are allowed"
        raise BadField(message, field="id")
    return jobs
