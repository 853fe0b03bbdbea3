"""Which commands are actions, and how the log of actions records them: once before they begin, and once with their
outcome.

The line in the service's log is the record; the stream in Redis (buckets/access.py) is for viewing.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

import structlog

from buckets.access import OF, Actions, Fields
from buckets.errors import JobQueueError
from jobqueue.access.caller import CALLER
from jobqueue.access.grants import NO_NAME, USER, Grant, actor_of
from jobqueue.access.tokens import SHOWING, name_of
from jobqueue.commands.answers import NOT_KNOWN, Answer
from jobqueue.commands.table import Handover
from jobqueue.logs import REQUEST
from jobqueue.schema import params
from jobqueue.schema.commands import COMMANDS

log = structlog.get_logger()

_ALWAYS = {name for name, row in COMMANDS.items() if row.logged == "always"}
_BY_PERSONS = {name for name, row in COMMANDS.items() if row.logged == "by persons"}
_OF_TOKENS = {"create", "revoke", "rotate"}
_OF_OPERATIONS = {"start", "pause", "resume", "cancel"}
_SHOWN = ("topic", "id", "name", "state", "count", "seconds", "operation")


def is_action(command: Any, user: str) -> bool:
    """Whether a command is logged as an action. `user`: the person who acts, or an empty string if the request names
    none."""
    if isinstance(command, JobQueueError):
        return False
    name = name_of(command)
    if isinstance(command, params.Token):
        return command.action in _OF_TOKENS
    if isinstance(command, params.Operation):
        return command.do in _OF_OPERATIONS
    return name in _ALWAYS or bool(user and name in _BY_PERSONS)


def is_view(command: Any, user: str, grant: Grant) -> bool:
    """True if a command shows the bodies of jobs to a person. `user`: that person, or an empty string if the request
    names none."""
    if not (user and isinstance(command, SHOWING)):
        return False
    return grant.sees_bodies if command.body is None else command.body


def is_shown(begun: Fields, grant: Grant) -> bool:
    """True if the holder of a grant may see an entry of the log. A grant with topics shows only the holder's own
    actions and the actions on topics that it reaches."""
    if not grant.within or begun.get("token") == grant.token_id:
        return True
    topic = begun.get("topic")
    return topic is not None and grant.reaches(topic)


class Noted:
    """Actions that were noted and are being carried out."""

    def __init__(
        self, actions: Actions, commands: Sequence[Any], entries: Sequence[dict[str, Any]], names: Sequence[str]
    ) -> None:
        self._actions = actions
        self._commands = commands
        self._entries = entries
        self._names = names

    def cut_off(self) -> None:
        """Log that the actions were cut off midway, for example because their client hung up."""
        for entry in self._entries:
            log.info("action.done", **entry, code=NOT_KNOWN, done=0)

    async def end(self, answers: Sequence[Answer]) -> None:
        """Log the outcomes. If Redis cannot store them, the service's log still has them."""
        outcomes = [_outcome(command, answer) for command, answer in zip(self._commands, answers, strict=True)]
        for entry, outcome in zip(self._entries, outcomes, strict=True):
            log.info("action.done", **entry | outcome)
        try:
            await self._actions.note([{OF: name, **each} for name, each in zip(self._names, outcomes, strict=True)])
        except JobQueueError as error:
            log.warning("action.unfinished", error=error.message)


async def note(actions: Actions, commands: Sequence[Any], handover: Handover) -> Noted:
    """Note that actions begin. Raises JobQueueError; none of the actions may begin then."""
    entries = [_entry(command, handover) for command in commands]
    return Noted(actions, commands, entries, await actions.note(entries))


async def note_reload(actions: Actions, changed: Sequence[str]) -> None:
    """Log a reload of the settings that has already happened. `changed`: the names of the settings whose values
    changed."""
    entry = {"actor": NO_NAME, "action": "reload", **({"changed": changed} if changed else {})}
    outcome = {"code": "OK", "done": len(changed)}
    log.info("action.done", **entry, **outcome)
    try:
        (name,) = await actions.note([entry])
        await actions.note([{OF: name, **outcome}])
    except JobQueueError as error:
        log.warning("action.unfinished", error=error.message)


def _entry(command: Any, handover: Handover) -> dict[str, Any]:
    shown = {name: getattr(command, name, None) for name in _SHOWN}
    shown["within"] = handover.asked_within or getattr(command, "prefix", None)
    caller, grant = CALLER.get(), handover.grant
    return {
        "actor": actor_of(grant, USER.get()),
        **({"token": grant.token_id} if grant.token_id else {}),
        "action": _action(command),
        **({"operation": command.plan} if isinstance(command, params.Operation) and command.plan else {}),
        **{name: value for name, value in shown.items() if value not in (None, "")},
        **({"request": request} if (request := REQUEST.get()) else {}),
        **({"address": cast(Any, caller).address} if caller else {}),
    }


def _action(command: Any) -> str:
    """What the command does, in a word or two."""
    if isinstance(command, params.Token):
        return f"token {command.action}"
    if isinstance(command, params.Operation):
        return f"operation {command.do}"
    return name_of(command)


def _outcome(command: Any, answer: Answer) -> dict[str, Any]:
    if isinstance(command, params.Operation) and answer["success"]:
        # The command changes one operation, not its jobs.
        done, more = 1, {"kind": answer["kind"], "jobs": answer["count"], "filter": answer["filter"]}
    else:
        done = 0 if isinstance(command, SHOWING) else _changed(answer)
        more = {"id": answer["id"]} if isinstance(command, params.Token) and answer["success"] else {}
    return {"code": answer.get("code", "OK"), "done": done, **more}


def _changed(answer: Answer) -> int:
    """How many jobs, topics or tokens an action changed."""
    if not answer["success"] or answer.get("was_paused") is False or answer.get("was") == "deleted":
        return 0
    return int(answer.get("count", 1))
