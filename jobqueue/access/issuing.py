"""Issuing tokens: creating, listing, revoking and rotating them, for the command line and the command `token` alike.

A change is checked against a snapshot of all records, and written only if no record has changed since; otherwise it is
checked again. So a name is assigned only once, however many clients ask for it at the same moment. The scope of a token
is what it may do; nobody can issue a token whose scope exceeds their own.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, NamedTuple

import msgspec

from buckets.access import Entry, Stored, Tokens
from buckets.errors import AlreadyExists, JobQueueError, NoRoom, NotFound, Unavailable, WrongState
from jobqueue.access import tokens
from jobqueue.access.grants import Grant
from jobqueue.access.tokens import MOST, Record, Token, as_json, from_json, granted
from jobqueue.errors import BadField, Forbidden
from jobqueue.schema import fields

_WILD = re.compile(r"[*?]+")
_LIMITS = ("expires", "rate", "burst", "bytes", "waits")


def beyond(giver: Record, record: Record) -> Forbidden | None:
    """Why the bearer of `giver` may not issue this token, or None if they may: nobody can grant more than they have."""
    fault = beyond_reach(giver, record)
    if fault:
        return fault
    for name in _LIMITS:
        own, given = getattr(giver, name), getattr(record, name)
        if own is not None and (given is None or given > own):
            return Forbidden(f"{name} may not be beyond that of your own token")
    if giver.own_ids and not record.own_ids:
        return Forbidden("own_ids holds for your own token, and so for those that you give")
    return None


def beyond_reach(giver: Record, record: Record) -> Forbidden | None:
    """Why the bearer of `giver` may not manage this token, because it has a right or a topic that `giver` lacks, or
    None if they may."""
    grant = Grant(giver, "")
    for right in record.rights:
        if not grant.may(right):
            return Forbidden(f"your token lacks the right {right}", right=right)
    topic = beyond_topics(giver, record)
    return Forbidden(f"your token does not reach all of the topics {topic}", topic=topic) if topic else None


def beyond_names(giver: Record, record: Record) -> Forbidden | None:
    """Why the bearer of `giver` may not create this token, or None if they may. Only a giver that reaches all topics
    may set a certificate: its name may be meant for someone else's token."""
    if record.certificate and not reaches_all(giver):
        return Forbidden("only a token that reaches all topics may give a certificate")
    return beyond(giver, record)


def reaches_all(giver: Record) -> bool:
    """Whether a token reaches all topics."""
    return not giver.topics or any(covers(own, "*") for own in giver.topics)


def beyond_topics(giver: Record, record: Record) -> str:
    """The first topic pattern of a token that `giver` does not reach completely, or an empty string if there is
    none."""
    if not giver.topics:
        return ""
    patterns = record.topics or ("*",)
    return next((each for each in patterns if not any(covers(own, each) for own in giver.topics)), "")


def refusal(record: Record, right: str, topic: str | None, *, is_live: bool) -> str:
    """Why a token may not do something, in words, or an empty string if it may. `right`: a right, or the name of a
    command. Raises BadField for a right that does not exist."""
    if right not in tokens.WORDS:
        raise BadField(f"right must be {fields.expected(fields.TestedRight)}", field="right")
    if not is_live:
        return "the token is revoked" if record.revoked else "the token has expired"
    grant = Grant(record, "")
    if not grant.may(right):
        return f"the token lacks the right {tokens.right_for(right)}"
    if topic is not None and not grant.reaches(topic):
        return f"the token does not reach the topic {topic}"
    return ""


@functools.lru_cache(maxsize=16_384)  # long ones take milliseconds, and each listing of tokens needs all
def covers(pattern: str, other: str) -> bool:
    """Whether `pattern` matches every topic that `other` matches. In both, `*` stands for any characters and `?` for
    one. False is not certain if `pattern` has a `?`."""
    return _covers(_ordered(pattern), _ordered(other))


def _ordered(pattern: str) -> str:
    """The same pattern, with each run of wildcards reduced to its `?` followed by at most one `*`."""
    return _WILD.sub(lambda run: "?" * run[0].count("?") + "*" * ("*" in run[0]), pattern)


def _covers(pattern: str, other: str) -> bool:
    """`ends` holds the positions in `other` up to which the part of `pattern` that was read so far can match."""
    ends = {0}
    for sign in pattern:
        if sign == "*":
            ends = set(range(min(ends), len(other) + 1)) if ends else set()
        else:
            ends = {at + 1 for at in ends if at < len(other) and _matches(sign, other[at])}
    return len(other) in ends


def _matches(sign: str, of_other: str) -> bool:
    return of_other != "*" if sign == "?" else sign == of_other


_TRIES = 50
_US = 1_000_000

Objection = Callable[[Record], JobQueueError | None]
"""Returns why the asker may not issue or change a record, or None if they may."""


class Known(NamedTuple):
    """A record, and what else is known about it."""

    record: Record
    used: int | None
    """The minute of the last use, in unix seconds."""
    in_file: bool
    is_live: bool


class Issued(NamedTuple):
    """A record and its token, which is shown only this once."""

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
        """Entries that drop the records of tokens that ended long ago, at most 100 of them."""
        gone = [record for record in self.records.values() if record.is_forgotten(self.now)]
        return [Entry(record.id, record.changed, b"") for record in gone[:100]]

    def find(self, token_id: str) -> Record:
        """The record that Redis holds. Raises NotFound, or WrongState for a token in the file."""
        record = self.records.get(token_id)
        if record is not None and not record.is_forgotten(self.now):
            return record
        if any(each.id == token_id for each in self.filed):
            raise WrongState("the token is defined in tokens_file; change it there")
        raise NotFound("no such token")

    def changed(self, record: Record) -> int:
        """The time of a change made to this record now, in us; always later than its previous change."""
        return max(self.us, record.changed + 1)

    def check_new(self, record: Record, *, any_name: bool) -> None:
        """Raises AlreadyExists if a live token has the name or the certificate, or, without `any_name`, if an ended
        token has the name. Raises NoRoom if there are too many live tokens."""
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
        """`filed`: returns the records of the file of tokens. `acted_as`: returns the names of tokens that dialects act
        as."""
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
        """Create a token. `values`: the fields that its creator chooses, as in the command `token`; `latest`: the
        latest time at which it ends if `values` has no `expires` (unix seconds). `any_name`: True if it may have the
        name of an ended token, or a name that a dialect acts as. Raises BadField, AlreadyExists, NoRoom, Unavailable,
        Forbidden, and any error that `objection` returns."""
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
        """All tokens that are not forgotten, the oldest first. Raises Unavailable."""
        moment = await self._read()
        kept = [record for record in moment.records.values() if not record.is_forgotten(moment.now)]
        own = {record.id for record in kept}
        known = [moment.known(record, in_file=False) for record in kept]
        known += [moment.known(record, in_file=True) for record in moment.filed if record.id not in own]
        return sorted(known, key=lambda each: (each.record.created, each.record.name))

    async def find(self, token_id: str) -> Known:
        """The token with this id. Raises NotFound, Unavailable."""
        found = [each for each in await self.all() if each.record.id == token_id]
        if not found:
            raise NotFound("no such token")
        return found[0]

    async def refusal(self, token_id: str, right: str, topic: str | None) -> str:
        """Why a token may not do something, in words, or an empty string if it may. `right`: a right, or the name of a
        command. Raises BadField for a right that does not exist, NotFound, Unavailable."""
        known = await self.find(token_id)
        return refusal(known.record, right, topic, is_live=known.is_live)

    async def revoke(self, token_id: str, objection: Objection = _nothing) -> Record:
        """Revoke a token now; a token that is already revoked is not changed. Raises NotFound, WrongState for a token
        in the file, Unavailable, and any error that `objection` returns."""

        def revoked(moment: _Moment) -> Record:
            record = moment.find(token_id)
            if record.revoked:
                return record
            return msgspec.structs.replace(record, revoked=moment.now, changed=moment.changed(record))

        return await self._change(revoked, objection)

    async def rotate(self, token_id: str, keep_s: float = 0.0, objection: Objection = _nothing) -> Issued:
        """Replace the secret of a token; the old secret stays valid for `keep_s` seconds. Raises NotFound, WrongState
        for a token that has ended or is in the file, Unavailable, and any error that `objection` returns."""
        token = Token.make(token_id)

        def rotated(moment: _Moment) -> Record:
            record = moment.find(token_id)
            if not record.is_live(moment.now):
                raise WrongState("the token is revoked or has expired")
            if record.digest == token.digest:  # it was written, but the answer was lost
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
        """Write the record that `change` makes from the current records, and return it."""
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
    """The record of a new token. `values`: the fields that its creator chooses; `now_us`: the time, in us since the
    epoch; `latest`: the latest time at which it ends if `values` has no `expires`. Raises BadField."""
    now = now_us / _US
    return Record(
        **granted(values, now, latest),
        id=token.id,
        digest=token.digest,
        created=now,
        created_by=created_by,
        changed=now_us,
    )
