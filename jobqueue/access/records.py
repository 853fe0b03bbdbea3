"""The record of a token, as it is kept: never the token itself."""

from __future__ import annotations

from msgspec import Struct


class Record(Struct, frozen=True, kw_only=True):
    """One token."""

    id: str
    name: str
    digest: str
    rights: tuple[str, ...]
    topics: tuple[str, ...] = ()
    created: float
    created_by: str = ""
    expires: float | None = None
    rate: int | None = None
    burst: int | None = None
    bytes: int | None = None
    waits: int | None = None
    own_ids: bool = False
    certificate: str = ""
    previous: str = ""
    previous_until: float = 0
    revoked: float = 0
    changed: int
