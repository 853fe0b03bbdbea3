"""Issuing tokens: creating, listing, revoking and rotating them, for the command line and the command `token` alike.

A change is judged by one reading of all records, and written only if none has been changed since; else it is judged
again. So a name is given once, however many ask for it at the same moment.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, NamedTuple

import msgspec

from buckets.access import Entry, Stored, Tokens
from buckets.errors import AlreadyExists, JobQueueError, NoRoom, NotFound, Unavailable, WrongState
from jobqueue.access.records import MOST, Record, as_json, from_json, granted
from jobqueue.access.scope import refusal
from jobqueue.access.token import Token
from jobqueue.errors import Forbidden

_TRIES = 50
_US = 1_000_000

Objection = Callable[[Record], JobQueueError | None]
"""Why a record may not be given, or changed: what the asker may not."""


class Known(NamedTuple):
    """A record, and what is known of it besides."""

    record: Record
    used: int | None
    """The minute of the last use, in unix seconds."""
    in_file: bool
    is_live: bool


class Issued(NamedTuple):
    """A record and its token, which is shown this once."""

    record: Record
    token: Token


def _nothing(record: Record) -> None:
    """No objection."""


class _Moment:
    """All records at one moment."""

    def __init__(self, stored: Stored, filed: Sequence[Record]) -> None:
        self.version = stored.version
        self.us = stored.now_us
        self.used = stored.used
        read = (from_json(raw) for raw in stored.records.values())
        self.records = {record.id: record for record in read if record}
        self.filed = filed

    @property
    def now(self) -> float:
        return self.us / _US

    def known(self, record: Record, *, in_file: bool) -> Known:
        return Known(record, self.used.get(record.id), in_file, record.is_live(self.now))

    def forgotten(self) -> list[Entry]:
        """What is to be dropped of those that ended long ago, a script's fill at most."""
        gone = [record for record in self.records.values() if record.is_forgotten(self.now)]
        return [Entry(record.id, record.changed, b"") for record in gone[:100]]

    def find(self, token_id: str) -> Record:
        """The record that Redis holds. Raises NotFound, or WrongState for one in a file."""
        record = self.records.get(token_id)
        if record is not None and not record.is_forgotten(self.now):
            return record
        if any(each.id == token_id for each in self.filed):
            raise WrongState("the token is defined in tokens_file; change it there")
        raise NotFound("no such token")

    def changed(self, record: Record) -> int:
        """When a change of this record happens that is made now."""
        return max(self.us, record.changed + 1)

    def check_new(self, record: Record, *, any_name: bool) -> None:
        """Raises AlreadyExists for a name or a certificate that a live token has, without `any_name` also for the name
        of one that has ended, and NoRoom."""
        others = [each for each in (*self.records.values(), *self.filed) if each.id != record.id]
        live = [each for each in others if each.is_live(self.now)]
        if len(live) >= MOST:
            raise NoRoom(f"there are {MOST:,} tokens already; revoke some")
        if any(each.name == record.name for each in live):
            raise AlreadyExists(f"there is a token named {record.name}")
        if record.certificate and any(each.certificate == record.certificate for each in live):
            raise AlreadyExists("there is a token with this certificate")
        if not any_name and any(each.name == record.name for each in others):
            raise AlreadyExists(f"there was a token named {record.name}: choose another name")


class Issuing:
    """Issues the tokens of a namespace."""

    def __init__(
        self,
        tokens: Tokens,
        filed: Callable[[], Sequence[Record]] = tuple,
        acted_as: Callable[[], Collection[str]] = tuple,
    ) -> None:
        """`filed`: the records of the file of tokens. `acted_as`: the names that dialects act as."""
        self._tokens = tokens
        self._filed = filed
        self._acted_as = acted_as

    async def create(
        self,
        values: Mapping[str, Any],
        created_by: str,
        objection: Objection = _nothing,
        latest: float | None = None,
        *,
        any_name: bool = True,
    ) -> Issued:
        """A new token. `values`: the fields that its creator decides, as in the command `token`; `latest`: when it ends
        at the latest if they do not say (unix seconds). `any_name`: whether it may have a name that a token had which
        has ended, or that a dialect acts as. Raises BadField, AlreadyExists, NoRoom, Unavailable, Forbidden, and what
        is objected."""
        token = Token.make()

        def made(moment: _Moment) -> Record:
            record = new_record(values, token, created_by, moment.us, latest)
            if not any_name and record.name in self._acted_as():
                message = f"clients of another protocol act as {record.name}"
                raise Forbidden(f"{message}: only a token that reaches all topics may create it")
            moment.check_new(record, any_name=any_name)
            return record

        return Issued(await self._change(made, objection), token)

    async def all(self) -> list[Known]:
        """All that are not forgotten, the oldest first. Raises Unavailable."""
        moment = await self._read()
        kept = [record for record in moment.records.values() if not record.is_forgotten(moment.now)]
        own = {record.id for record in kept}
        known = [moment.known(record, in_file=False) for record in kept]
        known += [moment.known(record, in_file=True) for record in moment.filed if record.id not in own]
        return sorted(known, key=lambda each: (each.record.created, each.record.name))

    async def find(self, token_id: str) -> Known:
        """One of them. Raises NotFound, Unavailable."""
        found = [each for each in await self.all() if each.record.id == token_id]
        if not found:
            raise NotFound("no such token")
        return found[0]

    async def refusal(self, token_id: str, right: str, topic: str | None) -> str:
        """Why a token may not do something, in words; empty: it may. `right`: a right, or the name of a command. Raises
        BadField for a right that does not exist, NotFound, Unavailable."""
        known = await self.find(token_id)
        return refusal(known.record, right, topic, is_live=known.is_live)

    async def revoke(self, token_id: str, objection: Objection = _nothing) -> Record:
        """End a token now; one that is revoked already stays as it is. Raises NotFound, WrongState for one in a file,
        Unavailable, and what is objected."""

        def revoked(moment: _Moment) -> Record:
            record = moment.find(token_id)
            if record.revoked:
                return record
            return msgspec.structs.replace(record, revoked=moment.now, changed=moment.changed(record))

        return await self._change(revoked, objection)

    async def rotate(self, token_id: str, keep_s: float = 0.0, objection: Objection = _nothing) -> Issued:
        """Exchange the secret of a token; the old one holds for `keep_s` seconds, too. Raises NotFound, WrongState for
        one that has ended or stands in a file, Unavailable, and what is objected."""
        token = Token.make(token_id)

        def rotated(moment: _Moment) -> Record:
            record = moment.find(token_id)
            if not record.is_live(moment.now):
                raise WrongState("the token is revoked or has expired")
            if record.digest == token.digest:  # its answer was lost
                return record
            return msgspec.structs.replace(
                record,
                digest=token.digest,
                previous=record.digest if keep_s else "",
                previous_until=moment.now + keep_s if keep_s else 0.0,
                changed=moment.changed(record),
            )

        return Issued(await self._change(rotated, objection), token)

    async def _read(self) -> _Moment:
        return _Moment(await self._tokens.read(), self._filed())

    async def _change(self, change: Callable[[_Moment], Record], objection: Objection) -> Record:
        """Write the record that `change` makes of what is there."""
        for _ in range(_TRIES):
            moment = await self._read()
            record = change(moment)
            fault = objection(record)
            if fault:
                raise fault
            entries = [Entry(record.id, record.changed, as_json(record)), *moment.forgotten()]
            if await self._tokens.write(entries, seen=moment.version):
                return record
        raise Unavailable("others change tokens all the time; nothing was done")


def new_record(
    values: Mapping[str, Any], token: Token, created_by: str, now_us: int, latest: float | None = None
) -> Record:
    """The record of a new token. `values`: the fields that its creator decides; `now_us`: the time, in us since the
    epoch; `latest`: when it ends at the latest if they do not say. Raises BadField."""
    now = now_us / _US
    return Record(
        **granted(values, now, latest),
        id=token.id,
        digest=token.digest,
        created=now,
        created_by=created_by,
        changed=now_us,
    )
