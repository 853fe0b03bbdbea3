"""Cursors on the wire: the position at which a listing continues, as text that is opaque to clients."""

from __future__ import annotations

import base64
import binascii
from typing import Any, TypeVar

import msgspec

from jobqueue.errors import BadField
from jobqueue.schema.params import bad_value

Position = TypeVar("Position", bound=tuple[Any, ...])


def write(position: tuple[Any, ...] | None) -> str | None:
    """The cursor of a position; None at the end."""
    return None if position is None else base64.urlsafe_b64encode(msgspec.json.encode(position)).decode().rstrip("=")


def read(cursor: str | None, kind: type[Position]) -> Position | None:
    """The position that a cursor stands for. Raises BadField for anything that is not a cursor of this kind."""
    if cursor is None:
        return None
    try:
        raw = base64.b64decode(cursor + "=" * (-len(cursor) % 4), altchars=b"-_", validate=True)
        position: Position = msgspec.json.decode(raw, type=kind)
    except (binascii.Error, ValueError, msgspec.DecodeError):
        raise refusal() from None
    if write(position) != cursor:  # such as one of another command, of which the first fields would do
        raise refusal()
    return position


def refusal() -> BadField:
    """The refusal of a cursor that this command did not give."""
    return bad_value("cursor")
