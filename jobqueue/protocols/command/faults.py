"""The texts that say why a command is refused. The rules for each field come from `jobqueue.schema`."""

from __future__ import annotations

import codecs
import difflib
import json
import math
import re
from collections.abc import Iterable
from itertools import takewhile
from typing import Any

import msgspec
import orjson
from msgspec import Raw

from jobqueue.access.tokens import PREFIX
from jobqueue.errors import BadField, BadJson, BadRequest, UnknownCommand, UnknownField
from jobqueue.schema.checks import IS_NAME, NAMED
from jobqueue.schema.fields import LONGEST_NAME
from jobqueue.schema.mistakes import Misfit, instead_of_command, instead_of_field, misfit
from jobqueue.schema.params import BY_NAME, bad_value, is_field

_MOST_QUOTED = 64  # characters of an unknown name that an error text repeats
_MOST_TO_EXPLAIN = 65_536  # bytes; a longer request is not read twice to find the field at fault
_FIELDS = msgspec.json.Decoder(dict[str, Raw])
_LONE_SURROGATE = re.compile(
    rb"(?:[^\\]++|\\[^u]|\\u(?![dD][89a-fA-F])|\\u[dD][89abAB]..\\u[dD][c-fC-F]..)*+(\\u[dD][89a-fA-F][0-9a-fA-F]{2})",
    re.DOTALL,
)


def explained(error: Exception, data: bytes) -> BadRequest:
    """The refusal of a command that raised an error, with the id that the command named."""
    read = _fields_of(data)
    refused = error if isinstance(error, BadRequest) else _translated(error, data, read)
    refused = _bad_name_before(refused.field, read) or refused
    job_id = read.get("id")
    # A text that looks like a whole token, sent in place of its id, is not repeated in the answer and the log.
    is_told = isinstance(job_id, str) and len(job_id) <= LONGEST_NAME and not job_id.startswith(PREFIX)
    refused.job_id = job_id if is_told else None
    return refused


def _bad_name_before(field: str | None, read: dict[str, Any]) -> BadField | None:
    """The fault of a name that comes before `field` in the command, or None. Of two faults the first is reported; names
    are checked last, but may come before the field that msgspec refused."""
    kind = BY_NAME.get(str(read.get("command")))
    if kind is None:
        return None
    before = takewhile(lambda name: name[:_MOST_QUOTED] != field, read)
    wrong = (
        name for name in before if name in NAMED[kind] and isinstance(read[name], str) and not IS_NAME[name](read[name])
    )
    return next((bad_value(name, value=read[name]) for name in wrong), None)


def _translated(error: Exception, data: bytes, read: dict[str, Any]) -> BadRequest:
    if isinstance(error, RecursionError):
        return BadJson("the request is nested too deeply")
    if not isinstance(error, msgspec.ValidationError):
        endless = _endless_field(data)
        return bad_value(endless) if endless else BadJson(f"the request is not JSON: {_malformed(data, str(error))}")
    return _misfit(misfit(error), read)


def _malformed(data: bytes, text: str) -> str:
    """Why bytes are not JSON; `text` is msgspec's message."""
    if data.startswith(codecs.BOM_UTF8):
        return "it begins with a UTF-8 byte order mark (BOM); leave that out"
    lone = len(data) <= _MOST_TO_EXPLAIN and _LONE_SURROGATE.match(data)
    if lone:
        return f"{lone[1].decode()} is a lone surrogate, which is not a character"
    return "it ends too early" if text == "Input data was truncated" else text


def _misfit(wrong: Misfit, read: dict[str, Any]) -> BadRequest:
    """Why a JSON value is not a command."""
    if wrong.fault.startswith("Expected `object`") and not wrong.path:
        return BadJson("a command must be a JSON object")
    name = read.get("command")
    if wrong.names and wrong.names[0] != "command":
        field, *parts = wrong.names
        return _bad_field(name, field, parts[0] if parts else None, read.get(field))
    if name is None:
        return BadField(f"command is missing{_instead_of_no_command(read)}", field="command")
    if not isinstance(name, str):
        return bad_value("command", value=name)
    if name not in BY_NAME:
        near = instead_of_command(name, BY_NAME) or f"; the commands are {', '.join(BY_NAME)}"
        return UnknownCommand(f"unknown command: {name[:_MOST_QUOTED]!r}{near}", field="command")
    return misnamed(wrong, name, BY_NAME[name].__struct_fields__)


def _bad_field(command: object, field: str, part: str | None, value: object) -> BadField:
    """The refusal of a field, or, if the field is an object, of one part of it."""
    if part is None:
        return bad_value(field, command, value)
    return bad_value(f"{field}.{part}", command, value.get(part) if isinstance(value, dict) else None)


def misnamed(wrong: Misfit, command: str, known: Iterable[str]) -> BadRequest:
    """Which field of a command is unknown or missing; `known`: the fields that it has."""
    if wrong.unknown is not None:
        near = instead_of_field(wrong.unknown, command, known)
        field = wrong.unknown[:_MOST_QUOTED]
        return UnknownField(f"unknown field of {command}: {field!r}{near}", field=field)
    if wrong.missing:
        return BadField(f"{wrong.missing} is missing", field=wrong.missing)
    return BadField("command is given twice", field="command")


def _endless_field(data: bytes) -> str | None:
    """The field with a NaN or an Infinity, which JavaScript and Python write although JSON has neither."""
    if not re.search(rb"NaN|Infinity", data) or len(data) > _MOST_TO_EXPLAIN:
        return None
    try:
        read = json.loads(data)
    except (ValueError, RecursionError):
        return None
    if not isinstance(read, dict):
        return None
    found = (name for name, value in read.items() if isinstance(value, float) and not math.isfinite(value))
    return next((name for name in found if is_field(name)), None)


def _instead_of_no_command(read: dict[str, Any]) -> str:
    """A hint at the field that was probably meant to be `command`; empty if there is none."""
    name = next(
        (name for name in read if name != "command" and difflib.get_close_matches(name.lower(), ["command"])), ""
    )
    return f"; unknown field: {name[:_MOST_QUOTED]!r}; did you mean 'command'?" if name else ""


def _fields_of(data: bytes) -> dict[str, Any]:
    """The fields of a command. A field that cannot be read, such as a number that is too large, is None and does not
    hide the others."""
    try:
        return {name: _value(raw) for name, raw in _FIELDS.decode(data).items()}
    except (msgspec.DecodeError, RecursionError):
        return {}


def _value(raw: Raw) -> Any:
    try:
        return orjson.loads(bytes(raw))
    except orjson.JSONDecodeError:
        return None
