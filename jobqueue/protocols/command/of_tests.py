"""The native protocol of a test service, which has two commands more. A real service refuses them as unknown, and does
not name them."""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec import Struct

from jobqueue.errors import BadField, BadRequest, UnknownCommand
from jobqueue.protocols.command import reading
from jobqueue.protocols.command.faults import misnamed
from jobqueue.protocols.command.handler import CommandProtocol
from jobqueue.schema.fields import Advance, expected
from jobqueue.schema.params import OF_TESTS, Clock, Command, Reset

_OF_TESTS = msgspec.json.Decoder(Clock | Reset)


class _Tag(Struct):
    command: str


_TAG = msgspec.json.Decoder(_Tag)


class TestProtocol(CommandProtocol):
    """Reads what the native protocol does not know once more."""

    def parse(self, data: bytes) -> tuple[list[Any], bool]:
        """As the native protocol."""
        try:
            read, is_array = super().parse(data)
        except UnknownCommand as refused:
            return [_read(data, refused)], False
        if not any(isinstance(each, UnknownCommand) for each in read):
            return read, is_array
        members = map(bytes, reading.parts(data))  # only in an array can a refusal have come this far
        return [_read(*each) for each in zip(members, read, strict=True)], is_array


def _read(data: bytes, read: Command | BadRequest) -> Command | Clock | Reset | BadRequest:
    """A command as it was read, unless it is one that only a test service knows."""
    name = _TAG.decode(data).command if isinstance(read, UnknownCommand) else ""
    if name not in OF_TESTS:
        return read
    try:
        command: Clock | Reset = _OF_TESTS.decode(data)
        return command
    except msgspec.ValidationError as error:
        if "`$.advance`" in str(error):
            return BadField(f"advance must be {expected(Advance)}", field="advance")
        return misnamed(str(error), name, OF_TESTS[name].__struct_fields__)
