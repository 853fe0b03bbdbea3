"""The views of a journal: what users' tools read. Tables may change from version to version, views stay."""

from __future__ import annotations

VIEWS: dict[str, str] = {}


def statements(kind: str) -> list[str]:
    """What makes the views, in place of those that are there."""
    return [f"{kind}"] if VIEWS else []
