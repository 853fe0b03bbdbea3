"""The shapes of new jobs: what the jobs of like adds share, made once for all of them."""

from __future__ import annotations

from collections.abc import Callable
from operator import attrgetter
from typing import Any

from buckets import NewJob, Prepared, Shape
from jobqueue.engine.new_jobs import new_id, new_job, spread_ms
from jobqueue.engine.policies import Policies
from jobqueue.engine.virtual_topics import is_virtual
from jobqueue.schema import params
from jobqueue.schema.params import at_ms, ms

_MOST = 2048  # remembered, of 1 KB at most each

_likeness = attrgetter("topic", "ttr", "priority", "tries", "ttl", "retention", "if_exists")


class Shapes:
    """The shapes of adds under certain policies. An add has one if it is plain: to a topic that is not virtual, without
    headers, tags or a back-off of its own."""

    def __init__(self, policies: Policies, shape: Callable[[NewJob], Shape]) -> None:
        """`shape`: makes that of a job."""
        self._policies = policies
        self._shape = shape
        self._known: dict[Any, Shape] = {}

    def prepared(self, command: params.Add) -> Prepared | None:
        """The job that an add asks for, if a like one was learned; topic and `ttr` of this one are valid then, too. A
        command without an id gets one."""
        if command.headers is not None or command.tags is not None or command.backoff is not None:
            return None
        shape = self._known.get(_likeness(command))
        if shape is None:
            return None
        if command.id is None:
            command.id = new_id()
        later = spread_ms(command) if command.spread else 0
        if command.at is not None:
            when = str(max(at_ms(command.at), 1) + later)
        else:
            when = f"+{ms(command.delay or 0) + later}" if command.delay or later else "+0"
        return Prepared(shape, command.id, when, bytes(command.body))

    def learn(self, command: params.Add) -> bool:
        """Learn the shape of a valid add; returns whether it is plain."""
        if command.headers is not None or command.tags is not None or command.backoff is not None:
            return False
        if self._policies.has_virtual and is_virtual(self._policies, command):
            return False
        if len(self._known) >= _MOST:
            self._known.clear()
        self._known[_likeness(command)] = self._shape(new_job(self._policies, command, command.id or "", command.topic))
        return True
