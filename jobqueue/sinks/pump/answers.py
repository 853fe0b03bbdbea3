"""The answers of the service, with the bodies of jobs as they travelled."""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec import Raw

_Fields = dict[str, Raw]
_either = msgspec.json.Decoder(_Fields | list[_Fields])
_jobs = msgspec.json.Decoder(list[_Fields])
_any = msgspec.json.Decoder()


def loads(data: bytes) -> Any:
    """As json.loads, but for the bodies of jobs, which are the bytes of their JSON. Raises ValueError."""
    answer = _either.decode(data)
    return [_read(each) for each in answer] if isinstance(answer, list) else _read(answer)


def _read(fields: _Fields) -> dict[str, Any]:
    return {name: _value(name, value) for name, value in fields.items()}


def _value(name: str, value: Raw) -> Any:
    if name == "value":
        return bytes(value)
    return [_read(each) for each in _jobs.decode(value)] if name == "jobs" else _any.decode(value)
