"""The fast path of the native protocol: plain requests are answered by callbacks, without a task or a future.

Nearly all requests are plain: an add, a finish or a pop; an array of adds or of finishes; finishes followed by a pop. A
request that is not plain, or not valid, takes the complete path, with whatever was already read. So the complete path
settles any doubt, and no errors are made here.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from buckets import Prepared
from jobqueue.access.caller import Caller, Cancellable
from jobqueue.access.grants import Grant
from jobqueue.errors import BadRequest
from jobqueue.protocols.command.in_flight import (
    ADD,
    FINISH,
    Changing,
    Desk,
    FinishingThenPopping,
    Popping,
    ends_of,
)
from jobqueue.protocols.command.protocol import Read, read
from jobqueue.schema import checks
from jobqueue.schema.checks import check
from jobqueue.schema.fields import are_names, is_id, is_name
from jobqueue.schema.params import Add, Finish, Pop

_MOST = 200  # commands of a kind
_MOST_BYTES = 1 << 20

_ADDS, _FINISHES = {Add}, {Finish}
_NONE = {None}


class FastPath:
    """Begins to answer plain requests."""

    def __init__(self, desk: Desk, max_body_bytes: int) -> None:
        self._desk = desk
        self._engine = desk.engine.by_callback
        self._max_body_bytes = max_body_bytes

    def begin(self, data: bytes, request_id: str, client: Caller, grant: Grant) -> Cancellable | Read | None:
        """Begin to answer a request. If the request is not plain, or cannot be answered here, nothing is done and it
        must take the complete path: returns what was read of it, or None if nothing was read."""
        if self._engine.lanes.closed or self._desk.commands.is_noted:
            return None
        found = read(data)
        if found is None or len(data) > _MOST_BYTES:
            return found
        begin = self._begin if grant.everything else self._begin_if_admitted
        try:
            return begin(found[0], request_id, client, grant, is_array=found[1]) or found
        except BadRequest:
            return found

    def _begin_if_admitted(
        self, commands: list[Any], request_id: str, client: Caller, grant: Grant, *, is_array: bool
    ) -> Cancellable | None:
        """Like `_begin`, if the grant admits the commands."""
        if not grant.admits(commands):
            return None
        begun = None
        try:
            begun = self._begin(commands, request_id, client, grant, is_array=is_array)
        finally:
            if begun is None:
                grant.take_back(commands)
        return begun

    def _begin(
        self, commands: list[Any], request_id: str, client: Caller, grant: Grant, *, is_array: bool
    ) -> Cancellable | None:
        """Begin to carry out commands that are not checked yet. Returns None if they must take the complete path.
        Raises BadRequest for an invalid command."""
        if len(commands) - (type(commands[-1]) is Pop) > _MOST:
            return None
        last, kinds = commands[-1], {*map(type, commands)}
        if kinds == _ADDS:
            return self._add(commands, request_id, client, grant.within, is_array=is_array)
        if kinds == _FINISHES:
            return self._finish(commands, request_id, client, is_array=is_array)
        if type(last) is not Pop or not self._is_plain_pop(last):
            return None
        if len(commands) == 1:
            popping = Popping(last, self._desk, client, request_id, is_array=is_array)
        elif {*map(type, commands[:-1])} == _FINISHES and self._are_plain_finishes(commands[:-1]):
            popping = FinishingThenPopping(commands[:-1], last, self._desk, client, request_id, is_array=is_array)
        else:
            return None
        return popping if popping.begin(grant.owner) else None

    def _add(
        self, adds: Sequence[Add], request_id: str, client: Caller, within: str, *, is_array: bool
    ) -> Cancellable | None:
        nameless = [command for command in adds if command.id is None]
        begun = None
        try:
            jobs = self._prepared(adds)
            if jobs is not None:
                adding = Changing(ADD, adds, self._desk, client, request_id, is_array=is_array)
                begun = adding if self._engine.lanes.add(jobs, adding.take, within) else None
        finally:
            if begun is None:
                for command in nameless:  # the complete path must not see generated ids
                    command.id = None
        return begun

    def _prepared(self, adds: Sequence[Add]) -> list[Prepared] | None:
        """The jobs of adds, or None if one of the adds is not plain. Raises BadRequest for an invalid add."""
        if not self._engine.is_local:
            return None
        jobs = []
        prepared = self._engine.shapes.prepared
        are_clear = self._are_clear(adds)
        for command in adds:
            if command.durability is not None:
                return None
            is_clear = are_clear and command.at is None and command.TTR is None and command.body
            job = prepared(command) if is_clear else None
            if job is None:
                check(command, self._max_body_bytes)
                job = prepared(command) or (prepared(command) if self._engine.shapes.learn(command) else None)
                if job is None:
                    return None
            jobs.append(job)
        return jobs

    def _are_clear(self, adds: Sequence[Add]) -> bool:
        """Returns True if the ids and bodies of adds are valid, and False if each add must be checked by itself."""
        if len(adds) == 1:
            job_id = adds[0].id
            if job_id is not None and not is_id(job_id):
                return False
            checks.check_body(bytes(adds[0].body), self._max_body_bytes)
            return True
        ids = [command.id for command in adds if command.id is not None]
        return (not ids or are_names(ids)) and checks.are_clear([each.body for each in adds], self._max_body_bytes)

    def _finish(
        self, finishes: Sequence[Finish], request_id: str, client: Caller, *, is_array: bool
    ) -> Cancellable | None:
        if not self._are_plain_finishes(finishes):
            return None
        finishing = Changing(FINISH, finishes, self._desk, client, request_id, is_array=is_array)
        return finishing if self._engine.finish(ends_of(finishes), finishing.take) else None

    def _are_plain_finishes(self, finishes: Sequence[Finish]) -> bool:
        if not self._engine.is_local or {command.durability for command in finishes} != _NONE:
            return False
        if len(finishes) == 1:
            return is_id(finishes[0].id) is not None
        return are_names([command.id for command in finishes]) or all(is_id(command.id) for command in finishes)

    def _is_plain_pop(self, command: Pop) -> bool:
        """Whether a pop is plain. Raises BadRequest for an invalid pop."""
        if command.id is not None or command.blocked is not None or (command.count or 1) > _MOST:
            return False
        if command.topic is None or command.topics is not None or command.ttr is not None or command.TTR is not None:
            check(command, self._max_body_bytes)
            return True
        return is_name(command.topic) is not None
