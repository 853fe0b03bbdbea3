"""The options of the command line, made from the structs of `params`: one source for the wire and for the shell.

A field is an option of the same name (`if_exists` is `--if-exists`), or a positional argument if people would type it
first. This module converts what is typed into the JSON value of the field; the service checks whether the value is
allowed.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import click
import msgspec
from msgspec import Raw, Struct, inspect

from jobqueue.cli import times
from jobqueue.schema import mistakes
from jobqueue.schema.commands import COMMANDS

_SEVERAL = {("get", "id")}  # may be repeated, though the command has a single one: several commands are sent
_SPELLED = {"headers": "--header", "tags": "--tag"}  # repeated for each member
_METAVARS = {"body": "JSON", "id": "ID", "topic": "NAME", "cursor": "CURSOR", "backoff": "DURATION,...", "zone": "ZONE"}
# Fields that the command line spreads over several calls.
_OWN_HELP = {
    "find count": "how many jobs to show, over as many pages as it takes",
    "peek count": "how many jobs to show, over as many pages as it takes",
    "kick count": "how many dead letters of the topic, oldest first [1]",
}


class Typed(click.ParamType[Any]):
    """A value that a function of `times` parses. If the function refuses the value, its error message is shown."""

    def __init__(self, name: str, read: Callable[[str], Any]) -> None:
        self.name = name
        self._read = read

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        try:
            return self._read(value)
        except ValueError as error:
            self.fail(str(error), param, ctx)


DURATION = Typed("duration", times.duration)
_DURATIONS = Typed("durations", lambda typed: [times.duration(part) for part in typed.split(",")] if typed else [])
_TIME = Typed("time", times.moment)
_PAST = Typed("time", times.past)
_OWN_TYPES: dict[str, dict[str, Any]] = {
    "figures since": {"type": _PAST, "metavar": "TIME"},
    "figures until": {"type": _PAST, "metavar": "TIME"},
    "figures step": {"type": DURATION, "metavar": "DURATION"},
    **{
        f"operation {each}": {"type": _PAST, "metavar": "TIME"}
        for each in ("died_from", "died_to", "created_from", "created_to")
    },
}


class Pair(click.ParamType[Any]):
    """`name=value`."""

    name = "name=value"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[str, str]:
        name, equals, text = value.partition("=")
        if not (name and equals):
            self.fail(f"{value!r} is not of the form name=value", param, ctx)
        return name, text


class Command(click.Command):
    """A command of the protocol. If somebody types an option that only other queues have, the error names our
    option."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        try:
            return super().parse_args(ctx, args)
        except click.NoSuchOption as error:
            known = {str(each.name): _typed(each) for each in self.params}
            meant = mistakes.field_elsewhere(error.option_name, str(self.name), known)
            if not meant:
                raise
            raise click.UsageError(f"No such option {error.option_name!r}{meant}", ctx) from None


def _typed(parameter: click.Parameter) -> str:
    """How a parameter is written in the usage line."""
    return parameter.opts[0] if isinstance(parameter, click.Option) else str(parameter.name).upper()


def parameters(name: str, command: type[Struct]) -> list[click.Parameter]:
    """The parameters of a command: the positional arguments in their order, then an option for each other field."""
    # The type info of a struct has fields.
    fields = {field.encode_name: field for field in inspect.type_info(command).fields}  # type: ignore[attr-defined]
    typed = COMMANDS[name].arguments if name in COMMANDS else None
    positional = tuple(field.encode_name for field in fields.values() if field.required) if typed is None else typed
    options = [field for each, field in fields.items() if each not in positional and not _is_alias(field, fields)]
    return [
        *(_argument(name, fields[each]) for each in positional),
        *(_option(name, field) for field in options),
    ]


_HOW: dict[type[inspect.Type], dict[str, Any]] = {
    inspect.IntType: {"type": click.INT, "metavar": "N"},
    inspect.FloatType: {"type": DURATION, "metavar": "DURATION"},  # all floats in the protocol are seconds
    inspect.DateTimeType: {"type": _TIME, "metavar": "TIME"},
    inspect.DictType: {"type": Pair(), "multiple": True, "metavar": "NAME=VALUE"},
}


def _is_alias(field: inspect.Field, fields: dict[str, inspect.Field]) -> bool:
    """Whether another parameter covers a field: `TTR` is another spelling of `ttr`, and `topics` covers `topic`."""
    return (field.encode_name != field.encode_name.lower() and field.encode_name.lower() in fields) or (
        field.encode_name == "topic" and "topics" in fields
    )


def _argument(command: str, field: inspect.Field) -> click.Argument:
    kind, _ = _bare(field.type)
    if isinstance(kind, inspect.ListType) or (command, field.encode_name) in _SEVERAL:
        one = field.encode_name.upper().rstrip("S")
        metavar = f"{one}..." if field.required else f"[{one}...]"
        return click.Argument([field.encode_name], nargs=-1, required=field.required, metavar=metavar)
    # A body that is missing on the command line is read from a pipe.
    return click.Argument([field.encode_name], required=field.required and field.encode_name != "body")


def _option(command: str, field: inspect.Field) -> click.Option:
    kind, description = _bare(field.type)
    name = field.encode_name
    spelled = _SPELLED.get(name, "--" + name.replace("_", "-"))
    help_text = _OWN_HELP.get(f"{command} {name}") or description
    if isinstance(kind, inspect.BoolType):
        return click.Option([f"{spelled}/--no-{spelled[2:]}", name], default=None, help=help_text)
    own = _OWN_TYPES.get(f"{command} {name}") or _how(kind)
    how = {"required": field.required and name != "body", **own}
    metavar = None if isinstance(kind, inspect.LiteralType) else _METAVARS.get(name, how.pop("metavar", "TEXT"))
    return click.Option([spelled, name], metavar=metavar, help=help_text, **how)


def _bare(kind: inspect.Type) -> tuple[inspect.Type, str]:
    """A field's type without `None` and metadata, and its description if it has one."""
    if isinstance(kind, inspect.Metadata):
        inner, description = _bare(kind.type)
        return inner, (kind.extra_json_schema or {}).get("description", "") or description
    if isinstance(kind, inspect.UnionType):
        some = [_bare(each) for each in kind.types if not isinstance(each, inspect.NoneType)]
        description = next((each for _, each in some if each), "")
        times = [each for each in some if isinstance(each[0], inspect.DateTimeType)]
        return (times or some)[0][0], description
    return kind, ""


def _how(kind: inspect.Type) -> dict[str, Any]:
    """How a value of a type is written in a shell."""
    if isinstance(kind, inspect.LiteralType):
        return {"type": click.Choice([str(value) for value in kind.values])}
    if isinstance(kind, inspect.ListType):
        numbers = isinstance(_bare(kind.item_type)[0], inspect.FloatType)
        return {"type": _DURATIONS} if numbers else {"multiple": True}
    return next((dict(how) for each, how in _HOW.items() if isinstance(kind, each)), {})


def fields_of(given: dict[str, Any], *, text: bool = False) -> dict[str, Any]:
    """The values of the options as fields of the command. Raises UsageError for a body that is not JSON."""
    fields = {name: value for name, value in given.items() if value is not None and value != ()}
    if "headers" in fields:
        fields["headers"] = dict(fields["headers"])
    topics = fields.get("topics", ())
    if len(topics) == 1:
        fields["topic"] = fields.pop("topics")[0]
    if isinstance(fields.get("body"), str):  # in other commands, it is a flag: whether bodies are shown
        fields["body"] = body(fields["body"], text=text)
    return fields


def body(given: str, *, text: bool) -> Raw:
    """A body as it was typed, or from standard input for `-`. With `text` it becomes a JSON string."""
    data = _standard_input() if given == "-" else _encoded(given)
    if text:
        try:
            return Raw(msgspec.json.encode(data.decode()))
        except UnicodeDecodeError:
            raise click.UsageError("BODY is not UTF-8") from None
    data = data.strip()
    try:
        return msgspec.json.decode(data, type=Raw).copy()
    except (msgspec.DecodeError, RecursionError) as error:
        hint = (
            f"--text takes it as a string, or quote it: '\"{given}\"'" if given.isalnum() else "--text takes a string"
        )
        raise click.UsageError(f"BODY is not JSON ({error}); {hint}") from None


def _encoded(given: str) -> bytes:
    try:
        return given.encode()
    except UnicodeEncodeError:  # the shell passed bytes that are not UTF-8
        raise click.UsageError("BODY is not UTF-8") from None


def _standard_input() -> bytes:
    data = sys.stdin.buffer.read() if sys.stdin else b""  # None if the shell closed it (`<&-`)
    if not data:
        raise click.UsageError("BODY is missing: nothing came on standard input")
    return data
