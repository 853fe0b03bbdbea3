"""The commands, one row each: what the parts of the service need to know about a command besides its fields.

The rights of tokens, the log of actions and the command line read the rows, and tests/test_new_command.py compares the
clients with them.
"""

from __future__ import annotations

from typing import Literal, NamedTuple

from msgspec import Struct

from jobqueue.schema import params

JOBS = "Add and process jobs"
TOPICS = "Look after topics"
HISTORY = "Know and restore history"
SERVICE = "Look after a service"


class Row(NamedTuple):
    """A command.

    `rights`: the rights that allow it, the first of which a refusal names; without any, a valid token is enough.
    `section`: where the help of the command line lists it; None for a command that only programs send.
    `repeat`: True if a client may send it again, whatever its fields, when it may or may not have been carried out.
    `is_spared`: True if no rate refuses it, because a refusal would cause work to be done twice.
    `logged`: when it is logged as an action: never, only if a person acts, or always.
    `shows_bodies`: True if its answers have bodies of jobs, for which a token needs the right `bodies`.
    `arguments`: the fields that people type without an option; None for exactly the required fields.
    """

    kind: type[Struct]
    rights: tuple[str, ...]
    section: str | None
    repeat: bool
    is_spared: bool = False
    logged: Literal["never", "by persons", "always"] = "never"
    shows_bodies: bool = False
    arguments: tuple[str, ...] | None = None


# In the order in which the help lists them.
_ROWS = (
    Row(params.Add, ("produce",), JOBS, repeat=False, arguments=("topic", "body")),
    Row(params.Get, ("look",), JOBS, repeat=True, shows_bodies=True),
    Row(params.Update, ("produce",), JOBS, repeat=False, logged="by persons"),
    Row(params.Run, ("operate",), JOBS, repeat=False, logged="always"),
    Row(params.Delete, ("produce", "consume"), JOBS, repeat=True, logged="by persons"),
    Row(params.Schedule, ("produce",), JOBS, repeat=True, logged="by persons", arguments=("name",)),
    Row(params.Unschedule, ("produce",), JOBS, repeat=True, logged="by persons"),
    Row(params.Schedules, ("look",), JOBS, repeat=True, shows_bodies=True, arguments=("pattern",)),
    Row(params.Pop, ("consume",), JOBS, repeat=False, arguments=("topics",)),
    Row(params.Finish, ("consume",), JOBS, repeat=True, is_spared=True),
    Row(params.Touch, ("consume",), JOBS, repeat=False, is_spared=True),
    Row(params.Release, ("consume",), JOBS, repeat=False, is_spared=True, logged="by persons"),
    Row(params.Bury, ("consume",), JOBS, repeat=False, is_spared=True, logged="by persons"),
    Row(params.Leave, ("consume",), None, repeat=True, is_spared=True),
    Row(params.Stats, ("look",), TOPICS, repeat=True, arguments=("topic",)),
    Row(params.Past, ("look",), TOPICS, repeat=True, arguments=("topic",)),
    Row(params.Forecast, ("look",), TOPICS, repeat=True, arguments=("topic",)),
    Row(params.Topics, ("look",), TOPICS, repeat=True, arguments=("pattern",)),
    Row(params.Workers, ("look",), TOPICS, repeat=True, arguments=("topic",)),
    Row(params.Peek, ("look",), TOPICS, repeat=True, shows_bodies=True),
    Row(params.Find, ("look",), TOPICS, repeat=True, arguments=("prefix",)),
    Row(params.Pause, ("operate",), TOPICS, repeat=True, logged="always"),
    Row(params.Resume, ("operate",), TOPICS, repeat=True, logged="always"),
    Row(params.Kick, ("operate",), TOPICS, repeat=False, logged="always", arguments=("id",)),
    Row(params.Purge, ("operate",), TOPICS, repeat=False, logged="always"),
    Row(params.Operation, ("operate",), TOPICS, repeat=False),
    Row(params.Explain, ("look",), HISTORY, repeat=True),
    Row(params.Health, ("look",), SERVICE, repeat=True),
    Row(params.Instances, ("look",), SERVICE, repeat=True),
    Row(params.Settings, ("admin",), SERVICE, repeat=True),
    Row(params.Token, ("admin",), SERVICE, repeat=False),
    Row(params.Whoami, (), SERVICE, repeat=True),
    Row(params.Actions, ("admin",), SERVICE, repeat=True),
)
_OF_TESTS = (
    Row(params.Clock, ("admin",), None, repeat=False),
    Row(params.Reset, ("admin",), None, repeat=False),
)


def _named(rows: tuple[Row, ...]) -> dict[str, Row]:
    return {str(row.kind.__struct_config__.tag): row for row in rows}


OF_TESTS = _named(_OF_TESTS)
"""The additional commands that only a test service (`jobqueue serve --test`) has, by name."""
COMMANDS = _named(_ROWS)
"""All other commands, by name."""
