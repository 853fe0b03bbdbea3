"""Records of tokens."""

from __future__ import annotations

from typing import Any

from jobqueue.access.tokens import Record


def record(*rights: str, **fields: Any) -> Record:
    """One that has these rights, and what else is given."""
    given: dict[str, Any] = {"id": "aaaaaaaa", "name": "a", "digest": "", "created": 0.0, "changed": 0}
    return Record(**given | {"rights": rights} | fields)
