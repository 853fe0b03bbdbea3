"""A request for each native command, made from the table of commands: a new command is in it by itself."""

from __future__ import annotations

from typing import Any

from jobqueue.schema.params import BY_NAME, FIELDS

ID, TOPIC, NAME = "kept", "t", "t:scheduled"
_VALUES: dict[str, Any] = {"topic": TOPIC, "id": ID, "name": NAME, "body": 1, "worker": "w", "prefix": ID}
_MORE: dict[str, dict[str, Any]] = {
    "add": {"body": 1, "if_exists": "replace"},
    "schedule": {"every": 3600},
    "pop": {"topic": TOPIC},
    "kick": {"topic": TOPIC},
    "update": {"priority": 1},
    "find": {"topic": TOPIC},
    "operation": {"do": "list"},  # a plan needs the right of what it does, too
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
