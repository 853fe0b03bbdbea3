"""The tokens of a namespace, in case Redis loses them: writes their records whenever one was changed.

Tokens have no events. Redis keeps the record of a token that has ended for `KEPT_S`, so a reader that looks more often
than that misses no revocation. After a longer pause, a token that Redis does not have may have been revoked meanwhile.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

from sqlalchemy import Connection, Update, insert, or_, select, update
from sqlalchemy.exc import IntegrityError

from buckets.access import Stored, Tokens
from buckets.errors import JobQueueError
from buckets.shards import Shards
from jobqueue.access.tokens import KEPT_S, Record, from_json
from jobqueue.journal.reading.sql import Sql
from jobqueue.journal.store import Overtaken
from jobqueue.journal.tables import token

_US = 1_000_000


class TokenReader:
    """Writes the tokens of a namespace as Redis has them."""

    def __init__(self, shards: Shards, sql: Sql, source: str) -> None:
        self._tokens, self._sql, self._source = Tokens(shards), sql, source
        self._version = 0

    async def begin(self, until_us: int) -> None:
        """Write all tokens. `until_us`: when a reader last looked. Raises JobQueueError, Overtaken."""
        await self._look(until_us)

    async def look(self) -> None:
        """Write the tokens that were changed since the last look. Raises JobQueueError, Overtaken."""
        await self._look()

    async def _look(self, until_us: int | None = None) -> None:
        try:
            if until_us is None and await self._tokens.version() == self._version:
                return
            stored = await self._tokens.read()
        except JobQueueError as error:
            if "WRONGTYPE" not in error.message:
                raise  # otherwise it is another program's key
            return
        has_missed = until_us is not None and may_miss(until_us, stored.now_us)
        try:
            await self._sql.run(partial(_write, source=self._source, stored=stored, has_missed=has_missed))
        except IntegrityError:  # another reader did that meanwhile
            raise Overtaken from None
        self._version = stored.version


def may_miss(until_us: int, now_us: int) -> bool:
    """Returns True if a token that Redis does not have may have been revoked since the last look, at `until_us`."""
    return now_us - until_us > KEPT_S * _US


def _write(connection: Connection, source: str, stored: Stored, has_missed: bool) -> None:
    """Write the records that are newer than those in the journal. `has_missed`: True if revocations may have been
    missed; then tokens that Redis does not have are marked as ended."""
    kept = connection.execute(select(token.c.id, token.c.changed, token.c.ended).where(token.c.source == source))
    known = {token_id: (changed, ended) for token_id, changed, ended in kept}
    rows = [_row(source, record, raw) for record, raw in _readable(stored)]
    fresh = [row for row in rows if row["id"] not in known]
    if fresh:
        connection.execute(insert(token), fresh)
    for row in rows:
        changed, ended = known.get(row["id"], (row["changed"], row["ended"]))
        if row["changed"] > changed or (row["changed"] == changed and row["ended"] != ended):
            connection.execute(_change(source, row["id"]).values(row))
    for token_id in known.keys() - stored.records.keys() if has_missed else ():
        lives = or_(token.c.ended.is_(None), token.c.ended > stored.now_us)
        connection.execute(_change(source, token_id).where(lives).values(ended=stored.now_us))


def _change(source: str, token_id: str) -> Update:
    return update(token).where(token.c.source == source, token.c.id == token_id)


def _readable(stored: Stored) -> Iterator[tuple[Record, bytes]]:
    """The records that this version can read, each with its JSON."""
    for token_id, raw in stored.records.items():
        record = from_json(raw)
        if record and record.id == token_id:
            yield record, raw


def _row(source: str, record: Record, raw: bytes) -> dict[str, Any]:
    ends = [moment for moment in (record.revoked, record.expires) if moment]
    ended = int(min(ends) * _US) if ends else None
    return {
        **{"source": source, "id": record.id, "changed": record.changed, "ended": ended},
        "record": raw.decode(),
    }
