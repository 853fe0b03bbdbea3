"""The shapes of new jobs: what the jobs of like adds share, made once for all of them."""

from __future__ import annotations

from collections.abc import Callable

from buckets import NewJob, Shape
from jobqueue.engine.new_jobs import new_job
from jobqueue.engine.policies import Policies
from jobqueue.engine.virtual_topics import is_virtual
from jobqueue.schema import params

_MOST = 2048  # remembered, of 1 KB at most each

_Likeness = tuple[str, float | None, int | None, int | None, float | None, float | None, str | None]


class Shapes:
    """The shapes of adds under certain policies. An add has one here if it is plain: to a topic that is not virtual,
    without headers, tags or a back-off of its own."""

    def __init__(self, policies: Policies, shape: Callable[[NewJob], Shape]) -> None:
        """`shape`: makes that of a job."""
        self._policies = policies
        self._shape = shape
        self._known: dict[_Likeness, Shape] = {}

    def known(self, command: params.Add) -> Shape | None:
        """The shape of a plain add, if one like it was made before. Of the fields of this add, topic and `ttr` are
        valid then, as those of that one."""
        if command.headers is not None or command.tags is not None or command.backoff is not None:
            return None
        return self._known.get(_likeness(command))

    def make(self, command: params.Add) -> Shape | None:
        """The shape of a valid add; None if it is not plain."""
        if command.headers is not None or command.tags is not None or command.backoff is not None:
            return None
        if self._policies.has_virtual and is_virtual(self._policies, command):
            return None
        if len(self._known) >= _MOST:
            self._known.clear()
        made = self._shape(new_job(self._policies, command, command.id or "", command.topic))
        self._known[_likeness(command)] = made
        return made


def _likeness(command: params.Add) -> _Likeness:
    return (
        command.topic,
        command.ttr,
        command.priority,
        command.tries,
        command.ttl,
        command.retention,
        command.if_exists,
    )
