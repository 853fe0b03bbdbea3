"""A request for each native command, made from the table of commands: a new command is in it by itself."""

from __future__ import annotations

from typing import Any

from jobqueue.schema.params import BY_NAME, FIELDS

ID, TOPIC = "kept", "t"
_VALUES: dict[str, Any] = {"topic": TOPIC, "id": ID, "body": 1, "worker": "w"}
_MORE: dict[str, dict[str, Any]] = {
    "add": {"if_exists": "replace"},
    "pop": {"topic": TOPIC},
    "kick": {"topic": TOPIC},
    "update": {"priority": 1},
    "token": {"action": "create", "name": "made", "rights": ["admin"]},
}
"""What a command needs to do something, beside its required fields."""


def request(name: str) -> dict[str, Any]:
    """A command that would do something. Raises KeyError for one with a required field that nothing here fills."""
    more = _MORE.get(name, {})
    needed = [field.name for field in FIELDS[name].values() if field.required and field.name not in more]
    return {"command": name, **{field: _VALUES[field] for field in needed}, **more}


REQUESTS = {name: request(name) for name in BY_NAME}
"""By the name of the command."""
