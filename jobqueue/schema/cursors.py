"""The cursors on the wire: where a listing goes on, as a text that means nothing to its reader."""

from __future__ import annotations

import base64
import binascii
from typing import Any, TypeVar

import msgspec

from jobqueue.errors import BadField
from jobqueue.schema.fields import must_be

Place = TypeVar("Place", bound=tuple[Any, ...])


def write(place: tuple[Any, ...] | None) -> str | None:
    """The cursor of a place; None for the end."""
    return None if place is None else base64.urlsafe_b64encode(msgspec.json.encode(place)).decode().rstrip("=")


def read(cursor: str | None, kind: type[Place]) -> Place | None:
    """The place that a cursor stands for. Raises BadField when it is none of this kind."""
    if cursor is None:
        return None
    try:
        raw = base64.b64decode(cursor + "=" * (-len(cursor) % 4), altchars=b"-_", validate=True)
        place: Place = msgspec.json.decode(raw, type=kind)
    except (binascii.Error, ValueError, msgspec.DecodeError):
        raise refusal() from None
    if write(place) != cursor:  # as one of another command, whose first fields would do
        raise refusal()
    return place


def refusal() -> BadField:
    """What a cursor that is none is told."""
    return BadField(f"cursor {must_be('cursor')}", field="cursor")
