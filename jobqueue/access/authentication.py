"""Authentication: from the credentials of a request to its grant. Refused requests are counted and logged.

Each request costs one lookup, by the digest of its token. Nobody can choose a digest, so the duration of the lookup
reveals nothing about a token; unknown, expired and revoked tokens take the same path and get the same answer.
"""

from __future__ import annotations

import hashlib
import hmac
import re
from collections import deque
from collections.abc import Callable, Sequence
from typing import Protocol

from buckets.errors import JobQueueError, Unavailable
from jobqueue.access.grants import OPEN, Grant, Quota
from jobqueue.access.tokens import Record
from jobqueue.dialect_settings import DialectSettings
from jobqueue.errors import Forbidden, Unauthorized
from jobqueue.logs import Sparing
from jobqueue.metrics.process import Metrics

_BEARER = re.compile("Bearer +([!-~]+)", re.IGNORECASE)
_MOST_GONE = 1000
_STALE = "the table of tokens is out of date, and this token is not in it; retry"


def digest_of(token: str) -> bytes:
    """The digest under which a token is stored and looked up."""
    return hashlib.sha256(token.encode("utf-8", "surrogateescape")).digest()


def credential(authorization: str) -> bytes:
    """The digest of the token in an `Authorization` header, or empty if the header is empty. A header of any other form
    gets a digest that no token has."""
    if not authorization:
        return b""
    bearer = _BEARER.fullmatch(authorization)
    return digest_of(bearer[1] if bearer else f" {authorization}")  # no token begins with a space


class Table(Protocol):
    """The tokens that this process knows: see jobqueue/access/token_table.py."""

    @property
    def is_stale(self) -> bool:
        """Whether a token may exist that this table lacks."""

    def of_digest(self, digest: bytes) -> Record | None:
        """The live token with this digest."""

    def ended(self, digest: bytes) -> Record | None:
        """The token with this digest that is no longer live, or None."""

    def note_used(self, token_id: str) -> None:
        """Note that a token was used."""

    def of_name(self, name: str) -> Record | None:
        """The live token with this name."""

    def of_certificate(self, name: str) -> Record | None:
        """The live token for this name from a client certificate."""


class Waits(Protocol):
    """The waiting pops of this process: see buckets/waiting/waiting.py."""

    def waits_of(self, owner: str) -> int:
        """How many pops of an owner are waiting."""

    def end_owned(self, owner: str, error: JobQueueError, reaches: Callable[[str], bool] | None = None) -> None:
        """End the waiting pops of an owner with an error; with `reaches`, only those for a topic for which it returns
        False."""


class Authentication:
    """Authenticates requests in one process."""

    def __init__(
        self,
        table: Table | None = None,
        waits: Waits | None = None,
        quota_of: Callable[[Record], Quota | None] = lambda record: None,
        processes: Callable[[], int] = lambda: 1,
    ) -> None:
        """`table`: the tokens, or None for a service that is open; `waits`: required with a table. `quota_of`: returns
        the rates of a token. `processes`: returns how many processes share the waiting pops of a token."""
        self._table = table
        self._waits = waits
        self._quota_of = quota_of
        self._processes = processes
        self.known: dict[bytes | str, Grant] = {}
        """The current grants, by the digest of the token, or by `certificate <name>` or `name <name>`."""
        self._gone: deque[Grant] = deque(maxlen=_MOST_GONE)

    @property
    def is_open(self) -> bool:
        """Whether requests need no token."""
        return self._table is None

    def grant(self, digest: bytes, certificates: Sequence[str] = ()) -> Grant:
        """The grant of a request, by the digest of its token; if the digest is empty, by the names in its client
        certificate. Raises Unauthorized, or Unavailable if the token may exist although this process does not know
        it."""
        if self._table is None:
            return OPEN
        if not digest:
            return self._of_certificate(self._table, certificates)
        grant = self.known.get(digest)
        if grant is not None:
            return _used(grant)
        record = self._table.of_digest(digest)
        if record is not None:
            return _used(self._kept(digest, digest.hex()[:16], record))
        if self._table.is_stale:
            raise Unavailable(_STALE)
        raise Unauthorized()

    def _of_certificate(self, table: Table, names: Sequence[str]) -> Grant:
        for name in names:
            key = f"certificate {name}"
            record = table.of_certificate(name)
            if record is not None:
                return _used(self.known.get(key) or self._kept(key, record.id, record))
        if names and table.is_stale:
            raise Unavailable(_STALE)
        raise Unauthorized(missing=True)

    def named(self, name: str) -> Grant:
        """The grant of the token with this name, for a dialect's `act_as`. Raises Unauthorized, Unavailable."""
        if self._table is None:
            return OPEN
        key = f"name {name}"
        grant = self.known.get(key)
        if grant is not None:
            return _used(grant)
        record = self._table.of_name(name)
        if record is not None:
            return _used(self._kept(key, record.id, record))
        raise Unavailable(_STALE) if self._table.is_stale else Unauthorized()

    def _kept(self, key: bytes | str, owner: str, record: Record) -> Grant:
        may_wait = None if record.waits is None else self._may_wait
        grant = self.known[key] = Grant(record, owner, self._quota_of(record), may_wait)
        return grant

    def _may_wait(self, grant: Grant) -> bool:
        """Whether one more pop may wait in this process, which allows its share of the token's waiting pops, rounded
        up."""
        most = grant.record.waits
        if most is None or self._waits is None:
            return True
        return self._waits.waits_of(grant.owner) < -(-most // max(self._processes(), 1))

    def in_dialect(self, given: str | None, wanted: str, act_as: str) -> Grant:
        """The grant of a request to a dialect. `given`: the token that the request sent, or None; `wanted`: the token
        in the dialect's settings, or empty; `act_as`: the name of the token whose rights apply to clients that send
        `wanted`, or that send none while `wanted` is empty. Raises Unauthorized, Unavailable."""
        shows_wanted = bool(wanted) and given is not None and _same(given, wanted)
        if self._table is None:
            if wanted and not shows_wanted:
                raise Unauthorized(missing=given is None)
            return OPEN
        if act_as and (shows_wanted or (given is None and not wanted)):
            return self.named(act_as)
        if given is None:
            raise Unauthorized(missing=True)
        return self.grant(digest_of(given))

    def ended(self, digest: bytes) -> Record | None:
        """The token with this digest that has expired or was revoked, if it is remembered."""
        return self._table.ended(digest) if self._table else None

    def renew(self) -> None:
        """Apply a changed table: replace or end each grant whose record has changed, and end the waiting pops that it
        no longer allows."""
        for key, grant in list(self.known.items()):
            record = self._record(key)
            if record is grant.record:
                continue
            del self.known[key]
            self._gone.append(grant)
            if record is not None:
                grant.later = self._kept(key, grant.owner, record)
                self._end_lost(grant.later)
                continue
            grant.has_ended = True
            if self._waits is not None:
                self._waits.end_owned(grant.owner, Unauthorized())

    def _record(self, key: bytes | str) -> Record | None:
        if self._table is None:
            return None
        if isinstance(key, bytes):
            return self._table.of_digest(key)
        kind, _, name = key.partition(" ")
        return self._table.of_name(name) if kind == "name" else self._table.of_certificate(name)

    def _end_lost(self, grant: Grant) -> None:
        """End the waiting pops that a token no longer allows."""
        if self._waits is None:
            return
        if not grant.may("pop"):
            self._waits.end_owned(grant.owner, Forbidden("the token may no longer pop", right="consume"))
        elif grant.within:
            error = Forbidden("the token no longer reaches a topic of this pop")
            self._waits.end_owned(grant.owner, error, grant.reaches)

    def note_uses(self) -> None:
        """Report to the table which tokens were used."""
        for grant in (*self.known.values(), *self._gone):
            if self._table is not None and grant.noted < grant.requests:
                self._table.note_used(grant.token_id)
                grant.noted = grant.requests

    def take_grants(self) -> list[Grant]:
        """Returns the current grants and those that were replaced or have ended since the last call; the latter are
        forgotten."""
        self.note_uses()
        gone = [*self._gone]
        self._gone.clear()
        return [*self.known.values(), *gone]


def _used(grant: Grant) -> Grant:
    grant.requests += 1
    return grant


def _same(given: str, wanted: str) -> bool:
    return hmac.compare_digest(given.encode("utf-8", "surrogateescape"), wanted.encode())


class Visitor(Protocol):
    """The connection over which a request came."""

    @property
    def host(self) -> str:
        """The client's address, without a port."""

    @property
    def certificate_names(self) -> Sequence[str]:
        """The names in the client's certificate."""


class Entry:
    """Returns the grants of requests; counts and logs those that it refuses."""

    def __init__(self, authentication: Authentication, metrics: Metrics, refusals: Sparing) -> None:
        self.authentication = authentication
        self.for_all = OPEN if authentication.is_open else None
        """The grant of every request if requests need no token, otherwise None."""
        self._known = authentication.known
        self._metrics = metrics
        self._refusals = refusals

    @property
    def is_open(self) -> bool:
        """Whether requests need no token."""
        return self.authentication.is_open

    def grant(self, digest: bytes, visitor: Visitor) -> Grant:
        """The grant of a request, by the digest of the token that it sent (empty if it sent none). Raises Unauthorized,
        Unavailable."""
        grant = self.for_all or self._known.get(digest)  # nearly always
        if grant is not None:
            grant.requests += 1
            return grant
        try:
            return self.authentication.grant(digest, () if digest else visitor.certificate_names)
        except JobQueueError as error:
            self._note(error, visitor.host, digest)
            raise

    def dialect_grant(self, shown: str | None, options: DialectSettings, host: str) -> Grant:
        """Like `grant`, for a request to a dialect. `shown`: the token that it sent, or None; `host`: the client's
        address. Raises Unauthorized, Unavailable."""
        try:
            return self.authentication.in_dialect(shown, options.token, options.act_as)
        except JobQueueError as error:
            self._note(error, host, digest_of(shown) if shown else b"")
            raise

    def _note(self, error: JobQueueError, host: str, digest: bytes = b"") -> None:
        """Count and log a request that was refused as Unauthorized."""
        if not isinstance(error, Unauthorized):
            return
        ended = self.authentication.ended(digest) if digest else None
        verdict = "missing" if error.missing else "expired" if ended else "unknown"
        self._metrics.judged(verdict)
        self._refusals.note(host, verdict=verdict, address=host, **({"token": ended.id} if ended else {}))
